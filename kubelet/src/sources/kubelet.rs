//! Pods from the kubelet of this node, as listed at `/pods`.
//!
//! # Rules
//! * The kubelet is asked every 20 seconds; an answer may take at most 10 seconds. This puts no load on the
//!   API server.
//! * The list has the node's UIDs, container IDs and statuses. It contains static pods but no mirror pods.
//! * After a failure, the last pods stay.
//! * A pod that cannot be decoded, or that has no UID or no name, is a problem of its own, named with its field
//!   ([`ProblemKind::Syntax`]); all other pods count. If an earlier version of it was emitted, that one stays
//!   until the pod is no longer listed or can be decoded again.
//! * A pod with neither a UID nor a name may be any pod of its namespace, or any pod at all if it has no namespace
//!   either. Such pods of one namespace share a problem, with the field `items[].metadata.uid`. While one is listed,
//!   no pod that it may be is removed, unless the list has a pod of the same name with another UID.
//! * The client needs the right `get` on `nodes/pods`, or on `nodes/proxy` before Kubernetes 1.33. The token
//!   file is read again for each request.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, is_mirror_pod};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::http::{Asking, Decoded, HttpConfig, PodId};
use super::{Nudge, Problem, ProblemKind, Source, SourceStatus, SourceUpdate, undecodable};
use crate::text::shorten;

/// Size limit of a list: a thousand pods of 64 KiB.
const LARGEST_LIST: usize = 64 << 20;

/// A kubelet's URL, credentials and intervals.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::sources::kubelet::KubeletConfig;
///
/// # fn run() -> Result<(), pod_index_kubelet::sources::Problem> {
/// let config = KubeletConfig::new("https://127.0.0.1:10250")?
///     .token_file("/var/run/secrets/kubernetes.io/serviceaccount/token".as_ref())
///     .period(Duration::from_secs(5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct KubeletConfig {
    http: HttpConfig,
    token: Option<PathBuf>,
}

impl KubeletConfig {
    /// The kubelet at `url`, asked every 20 seconds with a time limit of 10 seconds. A URL without a path
    /// means `/pods`.
    ///
    /// # Errors
    /// If it is not an absolute `http` or `https` URL, or if it holds a user name or a password.
    pub fn new(url: &str) -> Result<Self, Problem> {
        let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
        let has_path = after_scheme.split_once('/').is_some_and(|(_, path)| !path.is_empty());
        let url = if has_path { url.to_owned() } else { format!("{}/pods", url.trim_end_matches('/')) };
        Ok(Self { http: HttpConfig::of(&url, "kubeletURL", LARGEST_LIST)?, token: None })
    }

    /// Sends the bearer token in this file. The file is read again for each request.
    #[must_use]
    pub fn token_file(mut self, path: &Path) -> Self {
        self.token = Some(path.to_owned());
        self
    }

    /// Trusts only the certificate authorities in `pem`, instead of the system's.
    ///
    /// # Errors
    /// If `pem` holds no certificate, or one that cannot be used as an authority.
    #[cfg(feature = "tls")]
    pub fn certificate_authorities(mut self, pem: &[u8]) -> Result<Self, Problem> {
        self.http = self.http.certificate_authorities(pem)?;
        Ok(self)
    }

    /// Accepts any certificate. A kubelet without a serving certificate from the cluster's authority uses a
    /// self-signed one. An impostor would then receive the token, so use this only with an address of this
    /// host.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.http = self.http.unverified();
        self
    }

    /// Changes each pod on arrival, before it is compared or emitted.
    #[must_use]
    pub fn transform(mut self, transform: fn(&mut Pod)) -> Self {
        self.http = self.http.transform(transform);
        self
    }

    /// Reads at once whenever `nudge` is used.
    #[must_use]
    pub fn nudge(mut self, nudge: Nudge) -> Self {
        self.http = self.http.nudge(nudge);
        self
    }

    /// Sets the pause between two requests. Zero counts as a millisecond.
    #[must_use]
    pub fn period(mut self, period: Duration) -> Self {
        self.http = self.http.period(period);
        self
    }

    /// Sets the time limit for an answer.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.http = self.http.timeout(timeout);
        self
    }
}

/// The pods that a kubelet runs, as a stream that never ends.
///
/// The first item comes with the first good answer. Later items come when the pods have changed. Each is a
/// [`SourceUpdate::Set`] of all pods.
///
/// Nothing happens unless polled. Poll the stream inside a tokio runtime with time and I/O enabled.
#[must_use = "a stream does nothing unless polled"]
pub struct KubeletSource {
    updates: BoxStream<'static, SourceUpdate<Pod>>,
    status: watch::Receiver<SourceStatus>,
}

impl KubeletSource {
    /// The pods of that kubelet.
    ///
    /// # Errors
    /// If the URL is `https`, no authorities are given, and the system's cannot be read.
    pub fn new(config: KubeletConfig) -> Result<Self, Problem> {
        let (updates, status) = Asking::new(Source::Kubelet, config.http, config.token, decode)?.updates();
        Ok(Self { updates, status })
    }
}

source!(KubeletSource, Pod);

#[derive(Deserialize)]
struct PodList<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    /// `null` means an empty list.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// The pods of a list, sorted: the kubelet's order varies.
fn decode(body: &[u8]) -> Decoded {
    let unusable = |kind, field: Option<&str>, message: String| {
        let problem = Problem::new(kind, "kubelet", None, field.map(str::to_owned), message);
        Decoded { problems: vec![problem], ..Decoded::default() }
    };
    let list: PodList<'_> = match serde_json::from_slice(body) {
        Ok(list) => list,
        // Only the position: the message could quote a part of the body.
        Err(error) => {
            let message = format!(
                "the answer is not a list of pods (line {}, column {})",
                error.line(),
                error.column()
            );
            return unusable(ProblemKind::Syntax, None, message);
        }
    };
    if list.kind != "PodList" {
        let kind = shorten(&list.kind);
        return unusable(
            ProblemKind::Syntax,
            Some("kind"),
            format!("the answer is a {kind:?}, not a PodList"),
        );
    }
    let (mut pods, mut bad) = (Vec::new(), Vec::new());
    // Their number, by namespace.
    let mut nameless = BTreeMap::<_, usize>::new();
    for item in list.items.unwrap_or_default() {
        match pod(item.get()) {
            Ok(pod) if is_mirror_pod(&pod) => {
                let (namespace, name) = (shorten(pod.namespace()), shorten(pod.name()));
                let message = format!("the pod {namespace}/{name} is a mirror pod; no kubelet lists those");
                let field = "metadata.annotations[kubernetes.io/config.mirror]";
                return unusable(ProblemKind::Invalid, Some(field), message);
            }
            Ok(pod) => pods.push(pod),
            Err(error) => match *error {
                (id, _) if id.uid.is_empty() && id.name.is_empty() => {
                    *nameless.entry(id.namespace).or_default() += 1;
                }
                named => bad.push(named),
            },
        }
    }
    pods.sort_by(|a, b| (a.namespace(), a.name(), a.uid()).cmp(&(b.namespace(), b.name(), b.uid())));
    bad.extend(nameless.into_iter().map(|(namespace, count)| without_identity(namespace, count)));
    bad.sort_by(|(_, a), (_, b)| (a.origin(), a.field()).cmp(&(b.origin(), b.field())));
    let problems = undecodable::limited(bad.iter().map(|(_, problem)| problem.clone()));
    Decoded { pods: Some(pods), problems, unusable: bad.into_iter().map(|(id, _)| id).collect() }
}

/// One pod of a list. If it cannot be used, the known parts of its identity, and its problem.
fn pod(json: &str) -> Result<Pod, Box<(PodId, Problem)>> {
    let wrong = match serde_json::from_str::<Pod>(json) {
        Ok(pod) if pod.uid().is_empty() => ("metadata.uid".to_owned(), "is missing".to_owned()),
        Ok(pod) if pod.name().is_empty() => ("metadata.name".to_owned(), "is missing".to_owned()),
        Ok(mut pod) => {
            // They record which client wrote which field of the API server's object.
            pod.metadata.managed_fields = None;
            return Ok(pod);
        }
        Err(_) => match undecodable::check::<Pod>(json) {
            Err(wrong) => wrong,
            Ok(()) => (".".to_owned(), "cannot be decoded".to_owned()),
        },
    };
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    let part = |key| value["metadata"][key].as_str().unwrap_or_default().to_owned();
    let id = PodId { uid: part("uid"), namespace: part("namespace"), name: part("name") };
    let problem = undecodable::problem(&id.namespace, &id.name, &wrong.0, &wrong.1);
    Err(Box::new((id, problem)))
}

/// The pods of this namespace that have neither a UID nor a name. They share one problem: nothing distinguishes
/// them. It has no index, because the kubelet's order varies and the problem would be logged again at each request.
fn without_identity(namespace: String, count: usize) -> (PodId, Problem) {
    let which = if namespace.is_empty() {
        String::new()
    } else {
        format!(" of the namespace {:?}", shorten(&namespace))
    };
    let others = if count > 1 { format!(" ({count} such pods)") } else { String::new() };
    let message = format!(
        "is missing, as is metadata.name; while this pod is listed, no pod{which} is removed{others}"
    );
    let field = Some("items[].metadata.uid".to_owned());
    let problem = Problem::new(ProblemKind::Syntax, "kubelet", None, field, message);
    (PodId { uid: String::new(), namespace, name: String::new() }, problem)
}
