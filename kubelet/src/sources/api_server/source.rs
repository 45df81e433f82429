//! Selects the pods to follow, and their stream.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::backoff::bounded;
use crate::marks::of_the_api_server;
use crate::memory;
use crate::protobuf;
use crate::reflector::{Decoders, Reflector, Requests, Times, Update};
use crate::sources::skeleton::{Follow, follow};
use crate::sources::status::StatusWriter;
use crate::sources::{NodeName, Problem, ProblemKind, Source, SourceUpdate, Updates, redact_env};

/// Which pods of an API server to follow. All namespaces and nodes by default.
///
/// # Examples
/// The pods of one node, unchanged, written to an index:
/// ```no_run
/// use futures_util::StreamExt;
/// use pod_index::Operation;
/// use pod_index_kubelet::sources::{NodeName, SourceUpdate, api_server::{ApiServer, connect}};
///
/// # async fn run() -> Result<(), pod_index_kubelet::sources::Problem> {
/// let (mut writer, reader) = pod_index::new();
/// let mut pods = ApiServer::new(connect(None).await?).node(&NodeName::new("node-1")).pods();
/// while let Some(update) = pods.next().await {
///     let _ = match update {
///         SourceUpdate::Set(pods) => writer.set_pods(pods),
///         SourceUpdate::Upsert(pods) | SourceUpdate::Incomplete(pods) => {
///             writer.apply(pods.into_iter().map(Operation::Upsert))
///         }
///         SourceUpdate::Remove(uids) => writer.apply(uids.into_iter().map(Operation::Remove)),
///     };
/// }
/// # Ok(())
/// # }
/// ```
/// All pods of a cluster, reduced before they are stored:
/// ```no_run
/// # use pod_index_kubelet::sources::api_server::ApiServer;
/// # fn run(client: kube::Client) {
/// let pods = ApiServer::new(client).pods_with(|mut pod| {
///     pod.status = None;
///     pod
/// });
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing is followed until `pods` or `objects` is called"]
pub struct ApiServer {
    /// Sends the requests.
    pub client: Client,
    /// Only pods of this namespace.
    pub namespace: Option<String>,
    /// Only pods that match this label selector, such as `app=web,tier!=test`.
    pub labels: Option<String>,
    /// Only pods that match all these field selectors, such as `status.phase=Running`. [`node`](Self::node) adds one.
    pub fields: Vec<String>,
    /// Whether literal values of environment variables are removed, as by [`redact_env`]; `false` by default.
    pub redact_env: bool,
    /// How long to wait for the server.
    pub times: Times,
}

impl ApiServer {
    /// All pods that this client may see.
    pub fn new(client: Client) -> Self {
        let times = Times::default();
        Self { client, namespace: None, labels: None, fields: Vec::new(), redact_env: false, times }
    }

    /// Only pods bound to this node, as in a kubelet. A node's own credentials allow nothing else.
    pub fn node(mut self, node: &NodeName) -> Self {
        self.fields.push(format!("spec.nodeName={}", escaped(node.as_str())));
        self
    }

    /// The pods, as a stream that never ends.
    ///
    /// The first item is a [`SourceUpdate::Set`] of all pods. It comes when the first list is complete. If the
    /// server is unreachable, [`status`](Updates::status) shows the reason. Later items are
    /// [`Upsert`](SourceUpdate::Upsert)s and [`Remove`](SourceUpdate::Remove)s; changes that arrive together are
    /// emitted together.
    ///
    /// The pods are complete except for `metadata.managedFields`, which can take most of a pod's memory, and for what
    /// [`redact_env`](Self#structfield.redact_env) removes.
    ///
    /// # Complexity
    /// Each event costs O(its bytes), a list O(its bytes), of which one pod at a time is in memory. Between them nothing is
    /// requested. A UID and a number are kept for each pod.
    ///
    /// Kubelet: `NewSourceApiserver` (`pkg/kubelet/config/apiserver.go`).
    #[doc(alias = "NewSourceApiserver")]
    pub fn pods(self) -> Updates<Pod> {
        self.pods_with(|pod| pod)
    }

    /// The pods, each transformed on arrival into what is stored, as in the second of the [examples](Self#examples). If
    /// `transform` panics on a pod, that pod is a problem of its own, and its last good version stays.
    pub fn pods_with<P: Send + Sync + 'static>(
        self,
        mut transform: impl FnMut(Pod) -> P + Send + 'static,
    ) -> Updates<P> {
        let redacts = self.redact_env;
        let decoders = Decoders {
            json: memory::decode_pod,
            protobuf: Some(|bytes| {
                let bounded = protobuf::decode_pod_within(memory::LIMIT, bytes);
                bounded.map_err(|error| (error.field().to_owned(), error.reason()))
            }),
        };
        self.follow(decoders, move |mut pod| {
            if redacts {
                redact_env(&mut pod);
            }
            transform(of_the_api_server(pod))
        })
    }

    /// The objects of another kind, such as Namespaces or Nodes. [`node`](Self::node) and
    /// [`redact_env`](Self#structfield.redact_env) are for pods alone; [`fields`](Self#structfield.fields) select one object
    /// by its name.
    ///
    /// # Examples
    /// ```no_run
    /// use k8s_openapi::api::core::v1::Node;
    /// use pod_index_kubelet::sources::{Updates, api_server::ApiServer};
    ///
    /// # fn run(client: kube::Client) {
    /// let fields = vec!["metadata.name=node-1".to_owned()];
    /// let node: Updates<Node> = ApiServer { fields, ..ApiServer::new(client) }.objects();
    /// # }
    /// ```
    pub fn objects<K>(self) -> Updates<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + Sync + 'static,
    {
        self.follow(Decoders::of_json(), |object| object)
    }

    /// Requests the pods' metadata, and a watch of them, with the rights that [`pods`](Self::pods) needs.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses the client. A missing right is named.
    pub async fn check(&self) -> Result<(), Problem> {
        let requests = self.requests(Pod::url_path(&(), self.namespace.as_deref()), true);
        let origin = origin(&requests);
        requests.check(bounded(self.times.patience)).await.map_err(|(verb, failure)| {
            let mut message = failure.message;
            if failure.code == Some(403) {
                let namespace = self.namespace.as_ref().map(|name| format!("in the namespace {name}"));
                let place = namespace.as_deref().unwrap_or("of all namespaces");
                message = format!("the right to {verb} pods {place} is missing: {message}");
            }
            Problem::new(ProblemKind::Request, origin, None, None, message)
        })
    }

    /// What to request of this path.
    fn requests(&self, path: String, is_metadata: bool) -> Requests {
        let fields = (!self.fields.is_empty()).then(|| self.fields.join(","));
        Requests {
            client: self.client.clone(),
            path,
            fields,
            labels: self.labels.clone(),
            is_metadata,
            accepts_protobuf: false,
            is_http1: Arc::default(),
        }
    }

    fn follow<K, P>(
        self,
        decoders: Decoders<K>,
        mut transform: impl FnMut(K) -> P + Send + 'static,
    ) -> Updates<P>
    where
        K: Resource<DynamicType = ()> + 'static,
        P: Send + Sync + 'static,
    {
        let requests = self.requests(K::url_path(&(), self.namespace.as_deref()), false);
        let status = Arc::new(StatusWriter::new(Source::Api, origin(&requests)));
        let keep = move |mut object: K| {
            object.meta_mut().managed_fields = None;
            Some(Arc::new(transform(object)))
        };
        let reflector = Reflector::new(requests, decoders, self.times, Arc::clone(&status), keep);
        follow(Objects { reflector, status: Arc::clone(&status) }, status)
    }
}

/// Follows the objects of one kind.
struct Objects<K, P> {
    reflector: Reflector<K, Arc<P>, StatusWriter>,
    status: Arc<StatusWriter>,
}

impl<K, P> Follow<P> for Objects<K, P>
where
    K: Resource<DynamicType = ()> + 'static,
    P: Send + Sync + 'static,
{
    async fn next(&mut self) -> SourceUpdate<P> {
        loop {
            let update = match self.reflector.next().await {
                Update::Set(pods) => SourceUpdate::Set(pods),
                Update::Upsert(pods) => SourceUpdate::Upsert(pods),
                // No version of these was emitted.
                Update::Remove(uids) if uids.is_empty() => continue,
                Update::Remove(uids) => SourceUpdate::Remove(uids),
            };
            self.status.updated(self.reflector.len());
            return update;
        }
    }

    fn begin_anew(&mut self) {
        self.reflector.begin_anew();
    }
}

/// A value in a field selector, escaped like `fields.EscapeValue` of apimachinery.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=")
}

/// What is listed and watched, in the form of its path and query.
fn origin(Requests { path, fields, labels, .. }: &Requests) -> String {
    let fields = fields.as_ref().map(|fields| format!("fieldSelector={fields}"));
    let labels = labels.as_ref().map(|labels| format!("labelSelector={labels}"));
    let query: Vec<_> = fields.into_iter().chain(labels).collect();
    if query.is_empty() { path.clone() } else { format!("{path}?{}", query.join("&")) }
}

impl_debug!(ApiServer, fields);

#[cfg(test)]
mod tests {
    use super::*;

    /// As a dead HTTP/2 connection is, by its pings. The connections are retired by then: otherwise the next request would wait
    /// for an answer over one of them.
    #[test]
    fn a_silent_watch_over_http1_is_noticed_within_forty_seconds() {
        let crate::reflector::Times { http1_watch, .. } = crate::reflector::Times::default();
        let shortest = http1_watch.mul_f64(2.0 / 3.0) + http1_watch / 3;
        assert!(http1_watch + http1_watch / 3 <= std::time::Duration::from_secs(40));
        assert!(crate::api_client::ConnectionOptions::default().silences.http1_answer < shortest);
    }

    #[test]
    fn a_node_name_cannot_break_out_of_its_selector() {
        assert_eq!(escaped("n1,status.phase=Running"), r"n1\,status.phase\=Running");
        assert_eq!(escaped(r"n1\,x"), r"n1\\\,x");
    }
}
