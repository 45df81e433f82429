//! Pods from the kubelet of this node, as listed at `/pods`.
//!
//! # Rules
//! * The kubelet is asked every 20 seconds; an answer may take at most 10 seconds. This puts no load on the
//!   API server.
//! * The list has the node's UIDs, container IDs and statuses. It contains static pods but no mirror pods.
//! * After a failure, the last pods stay.
//! * A kubelet that has just started lists its pods before it has read its own sources: while the API server is away,
//!   only its static pods. So after each interruption (a request that failed, a new connection, the start of this
//!   source), the lists may be incomplete ([`SourceUpdate::Incomplete`](super::SourceUpdate::Incomplete), and a problem
//!   of the kind [`Incomplete`](ProblemKind::Incomplete)), until two of them, a second apart, have pods of the API
//!   server, the second no more of them than the first; or for [`INCOMPLETE_FOR`](super::INCOMPLETE_FOR). Meanwhile the
//!   kubelet is asked after 1, 2, 4 seconds and so on.
//! * Of the static pods from its files, such a list may have all: it does once lists have had the same number of them, and not none,
//!   for a second. Those that it lacks are then gone ([`SourceUpdate::Remove`](super::SourceUpdate::Remove)). A kubelet needs no
//!   server for its files, but it reads nothing before its container runtime has answered, so a list without any proves nothing.
//! * A pod that cannot be decoded, or that has no name, is a problem of its own, named with its field
//!   ([`ProblemKind::Syntax`]); all other pods count. If an earlier version of it was emitted, that one stays
//!   until the pod is no longer listed or can be decoded again. Of a pod that takes too much memory, the
//!   largest fields are left out, with a warning, as in [`api_server`](super::api_server).
//! * A pod without a UID may be any pod: while one is listed, the list counts as a failure.
//! * The client needs the right `get` on `nodes/pods`, or on `nodes/proxy` before Kubernetes 1.33. The token
//!   file is read again for each request.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::http::{DecodedBody, HttpConfig, follow_url};
use super::problem::{limited, undecodable};
use super::skeleton::{Admission, Admitted, UnexpectedMirrorPod};
use super::{Problem, ProblemKind, Source, Updates};
use crate::memory::{self, Bounded, Reduced};
use crate::text::{PANICKED, shorten};

/// Follows the pods that a kubelet runs. See [`HttpConfig::of_kubelet`].
///
/// The first item comes with the first good answer. Later items come when the pods have changed. Each is a
/// [`SourceUpdate::Set`](super::SourceUpdate::Set) of all pods, or [`Incomplete`](super::SourceUpdate::Incomplete); after an incomplete
/// one, a [`Remove`](super::SourceUpdate::Remove) of static pods may come.
///
/// # Complexity
/// Every list is hashed. Only one that differs from the last is decoded, as a whole: O(its bytes).
///
/// # Errors
/// If the URL is `https`, no authorities are given, and the system's cannot be read.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::sources::http::HttpConfig;
/// use pod_index_kubelet::sources::kubelet;
///
/// # fn run() -> Result<(), pod_index_kubelet::sources::Problem> {
/// let mut config = HttpConfig::of_kubelet("https://127.0.0.1:10250")?;
/// config.token_file = Some("/var/run/secrets/kubernetes.io/serviceaccount/token".into());
/// config.period = Duration::from_secs(5);
/// let source = kubelet::follow(config)?;
/// # drop(source);
/// # Ok(())
/// # }
/// ```
pub fn follow(config: HttpConfig) -> Result<Updates<Pod>, Problem> {
    let admission = Admission { role: Source::Kubelet, transform: config.transform };
    follow_url(Source::Kubelet, config, move |body| decode(body, admission))
}

#[derive(Deserialize)]
struct PodList<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    /// `null` means an empty list.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// The pods of a list, sorted: the kubelet's order varies.
fn decode(body: &[u8], admission: Admission) -> DecodedBody {
    let list: PodList<'_> = match serde_json::from_slice(body) {
        Ok(list) => list,
        // Only the position: the message could quote a part of the body.
        Err(error) => {
            let line = error.line();
            let column = error.column();
            let message = format!("the answer is not a list of pods (line {line}, column {column})");
            return unusable(ProblemKind::Syntax, None, message);
        }
    };
    if list.kind != "PodList" {
        let message = format!("the answer is a {:?}, not a PodList", shorten(&list.kind));
        return unusable(ProblemKind::Syntax, Some("kind"), message);
    }
    let mut pods = Vec::new();
    let mut problems = BTreeMap::new();
    let mut unusable_pods = HashSet::new();
    for item in list.items.unwrap_or_default() {
        match decode_item(item.get(), admission) {
            Item::Usable { pod, warning } => {
                if let Some(warning) = warning {
                    problems.insert(pod.uid().to_owned(), warning);
                }
                pods.push(pod);
            }
            Item::Unusable { uid, problem } => {
                problems.insert(uid.clone(), problem);
                unusable_pods.insert(uid);
            }
            Item::Forbidden { field, message } => {
                return unusable(ProblemKind::Invalid, Some(field), message);
            }
            Item::Anonymous { field, message } => return unusable(ProblemKind::Syntax, Some(field), message),
        }
    }
    pods.sort_by(|a, b| (a.namespace(), a.name(), a.uid()).cmp(&(b.namespace(), b.name(), b.uid())));
    DecodedBody { pods: Some(pods), problems: limited(problems.into_values()), unusable: unusable_pods }
}

/// An answer that is unusable as a whole.
fn unusable(kind: ProblemKind, field: Option<&str>, message: String) -> DecodedBody {
    let problem = Problem::new(kind, "kubelet", None, field.map(str::to_owned), message);
    DecodedBody { problems: vec![problem], ..DecodedBody::default() }
}

/// One pod of a list.
enum Item {
    Usable {
        pod: Admitted,
        /// It lacks fields, because it was too large.
        warning: Option<Problem>,
    },
    /// The other pods count.
    Unusable { uid: String, problem: Problem },
    /// No kubelet lists such a pod, so the list counts for nothing.
    Forbidden { field: &'static str, message: String },
    /// It may be any pod, so the list counts for nothing.
    Anonymous { field: &'static str, message: String },
}

fn decode_item(json: &str, admission: Admission) -> Item {
    // A defect of the decoder costs one pod.
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        let Bounded { object: mut pod, reduced } = memory::decode_pod(json.as_bytes())?;
        // They record which client wrote which field of the API server's object.
        pod.metadata.managed_fields = None;
        Ok((admission.admit(pod, reduced.is_some()), reduced))
    }));
    let (kind, field, message) = match decoded {
        // The URL of an API server, or of another agent, must not become a source of mirror pods.
        Ok(Ok((Err(mirror), _))) => {
            let message = mirror.message(admission.role);
            return Item::Forbidden { field: UnexpectedMirrorPod::FIELD, message };
        }
        Ok(Ok((Ok(pod), reduced))) if !pod.uid().is_empty() && !pod.name().is_empty() => {
            let warning = reduced.map(|Reduced { field, message }| {
                undecodable(ProblemKind::Warning, pod.namespace(), pod.name(), &field, &message)
            });
            return Item::Usable { pod, warning };
        }
        Ok(Ok((Ok(_), _))) => (ProblemKind::Syntax, "metadata.name".to_owned(), "is missing".to_owned()),
        Ok(Err((field, message))) => (ProblemKind::Syntax, shorten(&field), message),
        Err(_panic) => (ProblemKind::Defect, String::new(), PANICKED.to_owned()),
    };
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    let part = |key| value["metadata"][key].as_str().unwrap_or_default();
    let namespace = part("namespace");
    let name = part("name");
    let uid = part("uid");
    if uid.is_empty() {
        let message = format!("is missing from the pod {}/{}", shorten(namespace), shorten(name));
        return Item::Anonymous { field: "items[].metadata.uid", message };
    }
    Item::Unusable { uid: uid.to_owned(), problem: undecodable(kind, namespace, name, &field, &message) }
}
