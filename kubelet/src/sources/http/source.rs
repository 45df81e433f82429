//! The http source: requests a URL periodically and reports changed pods.

use k8s_openapi::api::core::v1::Pod;

use super::{DecodedBody, HttpConfig, follow_url};
use crate::sources::manifest::{self, Origin};
use crate::sources::skeleton::Admission;
use crate::sources::{NodeName, Problem, Source, Updates};

/// Follows the pods that the configured URL serves for `node`.
///
/// The first item comes with the first good answer; until then the source does not count as seen. Later items
/// come when the pods have changed. Each is a [`SourceUpdate::Set`](crate::sources::SourceUpdate::Set) of all pods, in
/// which unchanged pods are the same [`Arc`](std::sync::Arc)s as before.
///
/// # Complexity
/// Every body is hashed. Only one that differs from the last is decoded, as a whole: O(its bytes).
///
/// # Errors
/// If the URL is `https`, no authorities are given, and the system's cannot be read.
///
/// # Examples
/// ```no_run
/// use futures_util::StreamExt;
/// use pod_index_kubelet::sources::{NodeName, SourceUpdate, http::{self, HttpConfig}};
///
/// # async fn follow() -> Result<(), pod_index_kubelet::sources::Problem> {
/// let config = HttpConfig::new("http://localhost:8000/pods.yaml")?;
/// let mut source = http::follow(config, NodeName::new("node-1"))?;
/// while let Some(SourceUpdate::Set(pods)) = source.next().await {
///     println!("{} pods", pods.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// Kubelet: `NewSourceURL` (`pkg/kubelet/config/http.go`).
#[doc(alias = "NewSourceURL")]
pub fn follow(config: HttpConfig, node: NodeName) -> Result<Updates<Pod>, Problem> {
    let url = config.url.clone();
    let admission = Admission { role: Source::Http, transform: config.transform };
    let decode = move |bytes: &[u8]| {
        let manifest::Decoded { pods, problems } = manifest::decode(bytes, Origin::Url(&url), &node);
        // Its decoder refuses mirror pods.
        let admitted = pods.into_iter().filter_map(|pod| admission.admit(pod, false).ok()).collect();
        // One bad pod makes the body unusable, as in the kubelet.
        let is_whole = problems.iter().all(|problem| !problem.kind.is_grave());
        DecodedBody { pods: is_whole.then_some(admitted), problems, ..DecodedBody::default() }
    };
    follow_url(Source::Http, config, decode)
}
