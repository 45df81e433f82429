//! The two views of the pods that the agent serves.

/// Which server a path stands for. That decides what a list of pods has and how it is written.
///
/// | | `/pods`: the kubelet | `/api/v1/pods`: the API server |
/// |---|---|---|
/// | before all sources are read | the pods that are known | the request waits, then fails |
/// | a mirror pod without its static pod | left out, as by the kubelet | shown |
/// | annotations that the kubelet and the agent add | shown | left out |
/// | a `Table` | the agent's own columns | those of `kubectl get pods` |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum View {
    Kubelet,
    #[default]
    ApiServer,
}
