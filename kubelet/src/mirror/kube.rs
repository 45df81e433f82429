//! Mirror pods on a real API server.

use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::core::Status;
use tokio::sync::Mutex;
use tokio::time;

use super::client::{MirrorClient, MirrorError, MirrorErrorKind, Mirrored};
use crate::RESTORED;
use crate::text::api_causes;
use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, FullName, MirrorPodUid, PodMeta};

/// Who has set the fields of a mirror (`metadata.managedFields`).
const FIELD_MANAGER: &str = "pod-index";
/// How long the API server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a node's UID is believed. Where `NodeRestriction` does not look at it, nothing but its age tells that the node
/// was registered anew meanwhile, and garbage collection deletes the mirrors of a node that is no more.
const NODE_AGE: Duration = Duration::from_secs(10);
/// How long it is believed that a node has none, so that not each of its mirrors asks for it; and how long, at the least,
/// a UID that `NodeRestriction` may have refused.
const NO_NODE_AGE: Duration = Duration::from_secs(1);

/// Makes and deletes the mirror pods of one node, with no more rights than a node has.
///
/// Each mirror bears the node's UID. It is asked for when a mirror is made, and is believed for ten seconds, for one second
/// if the API server refuses a mirror; that there is no such node is believed for one second.
///
/// Kubelet: `basicMirrorClient` (`pkg/kubelet/pod/mirror_client.go`), which takes the node from an informer.
pub struct KubeMirrorClient {
    client: Client,
    node: String,
    node_age: Duration,
    /// What was found when the node was last looked up: its UID, or what is wrong.
    node_uid: Mutex<Option<(Result<String, String>, Instant)>>,
}

impl KubeMirrorClient {
    /// The mirror pods of `node`.
    #[must_use]
    pub fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), node_age: NODE_AGE, node_uid: Mutex::new(None) }
    }

    /// How long the node's UID is believed. 10 s if nothing is said.
    #[must_use]
    pub fn node_age(mut self, age: Duration) -> Self {
        self.node_age = age;
        self
    }

    /// The node's UID, looked up by one while the others wait for the answer.
    async fn node_uid(&self, pod: &FullName) -> Result<String, MirrorError> {
        let mut known = self.node_uid.lock().await;
        let found = match &*known {
            Some((found, since)) if since.elapsed() < self.believed(found) => found.clone(),
            _ => {
                let found = self.look_up_node().await;
                *known = Some((found.clone(), Instant::now()));
                found
            }
        };
        found.map_err(|problem| MirrorError::new(MirrorErrorKind::Node, pod.as_str(), problem))
    }

    fn believed(&self, found: &Result<String, String>) -> Duration {
        if found.is_ok() { self.node_age } else { self.node_age.min(NO_NODE_AGE) }
    }

    async fn look_up_node(&self) -> Result<String, String> {
        let problem = |what: &str| format!("the node {:?} {what}", self.node);
        let unknown = |why: String| problem(&format!("cannot be looked up: {why}"));
        let nodes: Api<Node> = Api::all(self.client.clone());
        let answer = time::timeout(PATIENCE, nodes.get_opt(&self.node)).await;
        let node =
            answer.map_err(|_elapsed| unknown(silence()))?.map_err(|error| unknown(api_causes(&error)))?;
        let metadata = node.ok_or_else(|| problem("is unknown to the API server"))?.metadata;
        if metadata.deletion_timestamp.is_some() {
            return Err(problem("is being deleted"));
        }
        metadata.uid.filter(|uid| !uid.is_empty()).ok_or_else(|| problem("has no UID"))
    }

    /// The API server has refused a mirror: perhaps for the node's UID, or for want of the node. If it is not for that, a hundred mirrors that are
    /// refused shall not be a hundred look-ups.
    async fn doubt_node_uid(&self) {
        let mut known = self.node_uid.lock().await;
        if known.as_ref().is_some_and(|(_, since)| since.elapsed() >= NO_NODE_AGE) {
            *known = None;
        }
    }

    /// The mirror of a static pod, owned by the node and by nobody else: what `NodeRestriction` lets a node create
    /// (KEP-1314).
    fn mirror(&self, pod: &Pod, node_uid: String) -> Pod {
        let mut mirror = pod.clone();
        let hash = pod.annotation(CONFIG_HASH_ANNOTATION).unwrap_or_default().to_owned();
        let annotations = mirror.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), hash);
        // This agent's own business.
        annotations.remove(RESTORED);
        mirror.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: node_uid,
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        mirror.metadata.resource_version = None;
        // Nobody would ever take them away from a mirror, and it could not be replaced.
        mirror.metadata.finalizers = None;
        mirror.spec.get_or_insert_with(PodSpec::default).node_name = Some(self.node.clone());
        mirror
    }

    fn pods(&self, full_name: &FullName) -> Api<Pod> {
        Api::namespaced(self.client.clone(), full_name.namespace())
    }

    /// Somebody was faster. Upstream means to look whether it is the mirror that was wanted (k/k#19942), and looks at an
    /// empty object.
    async fn existing(&self, full_name: &FullName, pod: &Pod) -> Result<Mirrored, MirrorError> {
        let found = patiently(full_name, self.pods(full_name).get_opt(full_name.name())).await?;
        if let Err(kube::Error::Api(status)) = &found
            && status.is_forbidden()
        {
            // A node may not read the pods of others.
            let message = format!("a pod that this client may not read bears its name: {}", status.message);
            return Err(MirrorError::new(MirrorErrorKind::Taken, full_name.as_str(), message));
        }
        let Some(found) = found.map_err(|error| request(full_name, &error))? else {
            let gone = "a pod bore its name, and is gone again";
            return Err(MirrorError::new(MirrorErrorKind::Request, full_name.as_str(), gone));
        };
        let taken =
            |message: &str| Err(MirrorError::new(MirrorErrorKind::Taken, full_name.as_str(), message));
        // It was deleted, and somebody's finalizer keeps it: to take it for the mirror would be to delete it again.
        if found.metadata.deletion_timestamp.is_some() {
            return taken("a pod that is still being deleted bears its name");
        }
        let node = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        match found.annotation(CONFIG_MIRROR_ANNOTATION) {
            Some(_) if node != Some(&self.node) => taken("a mirror of another node bears its name"),
            Some(hash) if hash == pod.annotation(CONFIG_HASH_ANNOTATION).unwrap_or_default() => {
                Ok(Mirrored::Existed(MirrorPodUid::from(found.uid())))
            }
            Some(_) => taken("a mirror of another version of the pod bears its name"),
            None => taken("a pod that is no mirror bears its name"),
        }
    }
}

impl MirrorClient for KubeMirrorClient {
    async fn create_mirror_pod(&self, pod: &Pod) -> Result<Mirrored, MirrorError> {
        let full_name = FullName::new(pod.name(), pod.namespace()).map_err(|error| {
            let name = format!("{}_{}", pod.name(), pod.namespace());
            MirrorError::new(MirrorErrorKind::Name, name, error.to_string())
        })?;
        let node_uid = self.node_uid(&full_name).await?;
        let mirror = self.mirror(pod, node_uid);
        let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match patiently(&full_name, self.pods(&full_name).create(&post, &mirror)).await? {
            Ok(created) => Ok(Mirrored::Created(MirrorPodUid::from(created.uid()))),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.existing(&full_name, pod).await
            }
            Err(error) => {
                let mut failure = request(&full_name, &error);
                if let kube::Error::Api(status) = &error {
                    if is_about_node(status) {
                        let message = format!("the node {:?} is unknown to the API server", self.node);
                        failure = MirrorError::new(MirrorErrorKind::Node, full_name.as_str(), message);
                    }
                    if status.is_forbidden() || is_about_node(status) {
                        self.doubt_node_uid().await;
                    }
                }
                Err(failure)
            }
        }
    }

    async fn delete_mirror_pod(
        &self,
        full_name: &str,
        uid: Option<&MirrorPodUid>,
    ) -> Result<bool, MirrorError> {
        let parsed = full_name.parse::<FullName>();
        let full_name =
            parsed.map_err(|error| MirrorError::new(MirrorErrorKind::Name, full_name, error.to_string()))?;
        let mut now = DeleteParams::default().grace_period(0);
        if let Some(uid) = uid {
            now = now.preconditions(Preconditions { uid: Some(uid.to_string()), resource_version: None });
        }
        match patiently(&full_name, self.pods(&full_name).delete(full_name.name(), &now)).await? {
            Ok(deleted) => match deleted.left().and_then(|pod| pod.metadata.finalizers) {
                Some(finalizers) if !finalizers.is_empty() => {
                    let why = format!(
                        "it is being deleted, and waits for its finalizers: {}",
                        finalizers.join(", ")
                    );
                    Err(MirrorError::new(MirrorErrorKind::Taken, full_name.as_str(), why))
                }
                _ => Ok(true),
            },
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
            Err(error) => Err(request(&full_name, &error)),
        }
    }
}

/// `NodeRestriction` looks the node up: it was deleted since this client did.
fn is_about_node(status: &Status) -> bool {
    status.is_not_found() && status.details.as_ref().is_some_and(|details| details.kind == "nodes")
}

async fn patiently<T>(pod: &FullName, answer: impl Future<Output = T>) -> Result<T, MirrorError> {
    let late = |_elapsed| MirrorError::new(MirrorErrorKind::Request, pod.as_str(), silence());
    time::timeout(PATIENCE, answer).await.map_err(late)
}

fn silence() -> String {
    format!("no answer from the API server within {} s", PATIENCE.as_secs())
}

fn request(pod: &FullName, error: &kube::Error) -> MirrorError {
    let kind = match error {
        kube::Error::Api(status) if matches!(status.code, 400..=499) && !matches!(status.code, 408 | 429) => {
            MirrorErrorKind::Refused
        }
        _ => MirrorErrorKind::Request,
    };
    MirrorError::new(kind, pod.as_str(), api_causes(error))
}

impl fmt::Debug for KubeMirrorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeMirrorClient").field("node", &self.node).finish_non_exhaustive()
    }
}
