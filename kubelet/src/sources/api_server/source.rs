//! Selects the pods to follow, and their stream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PartialObjectMeta, WatchParams};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::compare::Comparer;
use super::follow::Follow;
use super::metadata::PodMetadata;
use super::pace::{Line, Patience, paced};
use super::waits::Waits;
use super::wire::WirePod;
use crate::backoff::Backoff;
use crate::sources::status::StatusWriter;
use crate::sources::{
    NodeName, Problem, ProblemKind, Source, SourceStatus, SourceUpdate, redact_env, undecodable,
};

/// The first and the longest wait after failures. Each wait is randomly shortened by up to a third, so the longest
/// takes 5 to 7.5 s. client-go's reflector also starts with 0.8 s, but waits up to 30 s.
const LEAST_WAIT: Duration = Duration::from_millis(800);
const MOST_WAIT: Duration = Duration::from_millis(7500);

/// How long a watch may be silent. The server sends a bookmark about once a minute.
const SILENCE: Duration = Duration::from_secs(150);

/// Delay of the comparison after a watch continues.
const COMPARE_AFTER: Duration = Duration::from_secs(10);

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

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
///         SourceUpdate::Upsert(pods) => writer.apply(pods.into_iter().map(Operation::Update)),
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
#[must_use = "nothing is followed until `pods` or `metadata` is called"]
pub struct ApiServer {
    client: Client,
    node: Option<NodeName>,
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
    page_size: u32,
    managed_fields: bool,
    redact_env: bool,
    waits: (Duration, Duration),
    patience: Duration,
    silence: Duration,
    compare_after: Duration,
}

impl ApiServer {
    /// All pods that this client may see.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            node: None,
            namespace: None,
            labels: None,
            fields: None,
            page_size: 500,
            managed_fields: false,
            redact_env: false,
            waits: (LEAST_WAIT, MOST_WAIT),
            patience: PATIENCE,
            silence: SILENCE,
            compare_after: COMPARE_AFTER,
        }
    }

    /// Only pods bound to this node, as in a kubelet. A node's own credentials allow nothing else.
    pub fn node(mut self, node: &NodeName) -> Self {
        self.node = Some(node.clone());
        self
    }

    /// Only pods of this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only pods that match this label selector, such as `app=web,tier!=test`.
    pub fn labels(mut self, selector: &str) -> Self {
        self.labels = Some(selector.to_owned());
        self
    }

    /// Only pods that match this field selector, such as `status.phase=Running`. Combines with
    /// [`node`](Self::node).
    pub fn fields(mut self, selector: &str) -> Self {
        self.fields = Some(selector.to_owned());
        self
    }

    /// The page size of lists; 500 by default, as in client-go.
    pub fn page_size(mut self, pods: u32) -> Self {
        self.page_size = pods.max(1);
        self
    }

    /// Whether pods keep their `metadata.managedFields`; `false` by default, since these fields can take most
    /// of a pod's memory.
    pub fn managed_fields(mut self, keep: bool) -> Self {
        self.managed_fields = keep;
        self
    }

    /// Whether literal values of environment variables are removed, as by [`redact_env`]; `false` by default.
    pub fn redact_env(mut self, redact: bool) -> Self {
        self.redact_env = redact;
        self
    }

    /// The first and the longest wait after failures; 0.8 s and 7.5 s by default. Each wait is randomly shortened by up
    /// to a third.
    pub fn backoff(mut self, least: Duration, most: Duration) -> Self {
        self.waits = (least, most);
        self
    }

    /// Time limit for the answer to a list, and for the start of a watch; 60 s by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// A watch without an event or a bookmark for this long counts as dead, and the pods are listed again;
    /// 150 s by default. API servers send a bookmark about once a minute.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// After a broken watch was continued, the pods are compared with the server's list. This is the delay of the
    /// comparison; 10 s by default, randomly shortened by up to a third. See [the
    /// module](crate::sources::api_server).
    pub fn compare_after(mut self, delay: Duration) -> Self {
        self.compare_after = delay;
        self
    }

    /// The pods, complete except for what [`managed_fields`](Self::managed_fields) and
    /// [`redact_env`](Self::redact_env) remove.
    pub fn pods(self) -> ApiServerSource<Pod> {
        self.pods_with(|pod| pod)
    }

    /// The pods, each transformed on arrival into what is stored.
    pub fn pods_with<P: Send + Sync + 'static>(
        self,
        mut transform: impl FnMut(Pod) -> P + Send + 'static,
    ) -> ApiServerSource<P> {
        let redacts = self.redact_env;
        let mut kept = move |mut pod| {
            if redacts {
                redact_env(&mut pod);
            }
            transform(pod)
        };
        if self.managed_fields {
            self.follow(move |WirePod::<true>(pod)| kept(pod))
        } else {
            self.follow(move |WirePod::<false>(pod)| kept(pod))
        }
    }

    /// The pods' metadata. The server sends nothing else. For most pods, this is a fraction of the whole.
    pub fn metadata(self) -> ApiServerSource<PodMetadata> {
        self.metadata_with(PodMetadata)
    }

    /// The pods' metadata, transformed on arrival into what is stored.
    pub fn metadata_with<P: Send + Sync + 'static>(
        self,
        mut transform: impl FnMut(PartialObjectMeta<Pod>) -> P + Send + 'static,
    ) -> ApiServerSource<P> {
        let keeps = self.managed_fields;
        self.follow(move |mut metadata: PartialObjectMeta<Pod>| {
            if !keeps {
                metadata.metadata.managed_fields = None;
            }
            transform(metadata)
        })
    }

    /// Requests one of the pods, and a watch of them, as [`pods`](Self::pods) would.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses the client. A missing right is named.
    pub async fn check(&self) -> Result<(), Problem> {
        let api = match &self.namespace {
            Some(namespace) => Api::<PartialObjectMeta<Pod>>::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let config = self.config();
        let origin = origin(self.namespace.as_deref(), &config);
        let list = ListParams {
            limit: Some(1),
            field_selector: config.field_selector.clone(),
            label_selector: config.label_selector.clone(),
            ..ListParams::default()
        };
        let watch = WatchParams {
            timeout: Some(1),
            field_selector: config.field_selector,
            label_selector: config.label_selector,
            ..WatchParams::default()
        };
        let within = |verb: &'static str, error: Option<kube::Error>| {
            let message = match error {
                None => format!("no answer within {} s", self.patience.as_secs_f32()),
                Some(kube::Error::Api(status)) if status.code == 403 => {
                    let place = self.namespace.as_ref().map_or_else(
                        || "of all namespaces".to_owned(),
                        |namespace| format!("in the namespace {namespace}"),
                    );
                    format!("the right to {verb} pods {place} is missing: {} (403)", status.message)
                }
                Some(error) => crate::text::api_causes(&error),
            };
            Problem::new(ProblemKind::Request, origin.clone(), None, None, message)
        };
        let version = match tokio::time::timeout(self.patience, api.list_metadata(&list)).await {
            Ok(Ok(list)) => list.metadata.resource_version.unwrap_or_default(),
            Ok(Err(error)) => return Err(within("list", Some(error))),
            Err(_) => return Err(within("list", None)),
        };
        match tokio::time::timeout(self.patience, api.watch_metadata(&watch, &version)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(within("watch", Some(error))),
            Err(_) => Err(within("watch", None)),
        }
    }

    /// The selectors.
    fn config(&self) -> watcher::Config {
        let mut config = watcher::Config::default().page_size(self.page_size);
        let node = self.node.as_ref().map(|node| format!("spec.nodeName={}", escaped(node.as_str())));
        let fields: Vec<_> = node.into_iter().chain(self.fields.clone()).collect();
        if !fields.is_empty() {
            config = config.fields(&fields.join(","));
        }
        if let Some(labels) = &self.labels {
            config = config.labels(labels);
        }
        config
    }

    fn follow<K, P>(self, transform: impl FnMut(K) -> P + Send + 'static) -> ApiServerSource<P>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: ResourceExt + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
        P: Send + Sync + 'static,
    {
        let config = self.config();
        let status = Arc::new(StatusWriter::new(Source::Api, origin(self.namespace.as_deref(), &config)));
        let receiver = status.subscribe();
        let waits = self.waits;
        let backoff = Backoff::new(waits.0, waits.1);
        let (client, namespace) = (self.client, self.namespace);
        let patience = Patience { answer: self.patience, event: self.silence };
        let comparer = Comparer {
            client: client.clone(),
            path: K::url_path(&(), namespace.as_deref()),
            config: config.clone(),
            patience: self.patience,
            delay: self.compare_after,
        };
        // Inside the first poll: it spawns a task, which needs a runtime.
        let following = async move {
            let line = Arc::new(Line::new(Arc::clone(&status), undecodable::check::<K>));
            let client = paced(client, backoff, patience, Arc::clone(&line));
            let api = match namespace {
                Some(namespace) => Api::<K>::namespaced(client, &namespace),
                None => Api::all(client),
            };
            Follow::new(api, config, transform, Waits::new(waits), status, line, comparer)
        };
        let updates = futures_util::stream::once(following).flat_map(|following| {
            unfold(following, async |mut following| {
                let update = following.next().await;
                Some((update, following))
            })
        });
        ApiServerSource { updates: updates.boxed(), status: receiver }
    }
}

/// A value in a field selector, escaped like `fields.EscapeValue` of apimachinery.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=")
}

/// What is listed and watched, in the form of its path and query.
fn origin(namespace: Option<&str>, config: &watcher::Config) -> String {
    let path = match namespace {
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/pods"),
        None => "/api/v1/pods".to_owned(),
    };
    let fields = config.field_selector.as_ref().map(|fields| format!("fieldSelector={fields}"));
    let labels = config.label_selector.as_ref().map(|labels| format!("labelSelector={labels}"));
    let query: Vec<_> = fields.into_iter().chain(labels).collect();
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer")
            .field("node", &self.node)
            .field("namespace", &self.namespace)
            .field("labels", &self.labels)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// The pods of an API server, as a stream that never ends.
///
/// The first item is a [`SourceUpdate::Set`] of all pods. It comes when the first list is complete. If the
/// server is unreachable, [`status`](Self::status) shows the reason. Later items are
/// [`Upsert`](SourceUpdate::Upsert)s and [`Remove`](SourceUpdate::Remove)s; changes that arrive together are
/// emitted together.
///
/// Nothing happens unless polled. Poll the stream inside a tokio runtime with I/O and time enabled.
///
/// Kubelet: `NewSourceApiserver` (`pkg/kubelet/config/apiserver.go`).
#[doc(alias = "NewSourceApiserver")]
#[must_use = "a stream does nothing unless polled"]
pub struct ApiServerSource<P> {
    updates: BoxStream<'static, SourceUpdate<P>>,
    status: watch::Receiver<SourceStatus>,
}

impl<P> ApiServerSource<P> {
    /// The source's status. The receiver keeps the last value after the source is dropped.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<SourceStatus> {
        self.status.clone()
    }
}

impl<P> Stream for ApiServerSource<P> {
    type Item = SourceUpdate<P>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.updates.poll_next_unpin(context)
    }
}

impl<P> fmt::Debug for ApiServerSource<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerSource").field("status", &*self.status.borrow()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_cannot_break_out_of_its_selector() {
        assert_eq!(escaped("n1,status.phase=Running"), r"n1\,status.phase\=Running");
        assert_eq!(escaped(r"n1\,x"), r"n1\\\,x");
    }

    #[test]
    fn the_origin_names_what_is_followed() {
        let config = watcher::Config::default();
        assert_eq!(origin(None, &config), "/api/v1/pods");
        let config = config.fields("spec.nodeName=n1").labels("app=web");
        let expected = "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName=n1&labelSelector=app=web";
        assert_eq!(origin(Some("a"), &config), expected);
    }
}
