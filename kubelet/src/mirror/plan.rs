//! Derives the desired mirrors from a snapshot. Pure: no clock, no client.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use crate::HasPod;
use pod_index::{FullName, PodMeta, Snapshot, is_mirror_pod_of};

/// How a static pod and its mirror relate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MirrorState {
    /// The mirror is correct.
    InSync,
    /// There is no mirror. One will be created.
    Missing,
    /// The mirror is of another version of the pod. It will be deleted, and replaced unless the pod has
    /// ended.
    WrongHash,
    /// The mirror is being deleted. It will be deleted immediately, and replaced unless the pod has ended.
    Terminating,
    /// There is no static pod of the mirror's name. The mirror will be deleted.
    Orphaned,
    /// The static pod has ended and has no mirror. None will be created (k/k#29845, k/k#116483).
    Finished,
}

/// A static pod, a mirror, or a pair of them.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Their common full name.
    pub full_name: FullName,
    /// The static pod; `None` for an orphan.
    pub pod: Option<Arc<Pod>>,
    /// The mirror, if there is one.
    pub mirror: Option<Arc<Pod>>,
    /// How they relate.
    pub state: MirrorState,
}

impl Planned {
    /// The static pod, if it lacks a correct mirror.
    pub(super) fn to_mirror(&self) -> Option<&Arc<Pod>> {
        self.pod.as_ref().filter(|pod| self.state != MirrorState::InSync && !has_ended(pod))
    }
}

/// All static pods and mirrors of `node`, sorted by name, with their state.
///
/// If several static pods share a name, the one that holds it in the index counts.
///
/// Difference from the kubelet: the kubelet does not touch the mirror of a static pod that has ended. Here,
/// such a mirror is removed if it is being deleted or is of another version. Nothing else on the node would
/// finish its deletion, and it describes a pod that no longer exists.
///
/// # Complexity
/// O(n log n) for n static pods and mirror pods.
///
/// Kubelet: `syncPod` (`pkg/kubelet/kubelet.go`) for the pairs, `HandlePodCleanups` for the orphans.
#[must_use]
pub fn plan<P: HasPod>(snapshot: &Snapshot<P>, node: &str) -> Vec<Planned> {
    let mut planned = BTreeMap::new();
    for pod in snapshot.static_pods() {
        let Ok(full_name) = FullName::new(pod.namespace(), pod.name()) else { continue };
        let holds_name =
            snapshot.pod_by_full_name(full_name.as_str()).is_some_and(|held| Arc::ptr_eq(held, pod));
        if planned.contains_key(&full_name) && !holds_name {
            continue;
        }
        let mirror = snapshot.mirror_pod_by_full_name(full_name.as_str()).map(P::pod);
        let mirror = mirror.filter(|mirror| is_on(mirror, node));
        let pod = P::pod(pod);
        let state = state(pod, mirror.map(|mirror| &**mirror));
        let pod = Some(Arc::clone(pod));
        let mirror = mirror.cloned();
        planned.insert(full_name.clone(), Planned { full_name, pod, mirror, state });
    }
    for mirror in snapshot.mirror_pods().map(P::pod) {
        let Ok(full_name) = FullName::new(mirror.namespace(), mirror.name()) else { continue };
        let has_pod =
            planned.contains_key(&full_name) || snapshot.pod_by_full_name(full_name.as_str()).is_some();
        if is_on(mirror, node) && !has_pod {
            let mirror = Some(Arc::clone(mirror));
            let state = MirrorState::Orphaned;
            planned.insert(full_name.clone(), Planned { full_name, pod: None, mirror, state });
        }
    }
    planned.into_values().collect()
}

fn state(pod: &Pod, mirror: Option<&Pod>) -> MirrorState {
    match mirror {
        Some(mirror) if is_terminating(mirror) => MirrorState::Terminating,
        Some(mirror) if is_mirror_pod_of(mirror, pod) => MirrorState::InSync,
        Some(_) => MirrorState::WrongHash,
        None if has_ended(pod) => MirrorState::Finished,
        None => MirrorState::Missing,
    }
}

fn is_on(pod: &Pod, node: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    is_terminating(pod) || matches!(phase, Some("Failed" | "Succeeded"))
}
