//! Mirror pods on a real API server.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use tokio::sync::Mutex;
use tokio::time;

use super::client::{MirrorClient, MirrorError, MirrorErrorKind, Mirrored};
use crate::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, FullName, MirrorPodUid, PodMeta};

/// How long the API server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes and deletes the mirror pods of one node, with no more rights than a node has.
///
/// The node's UID, which each mirror bears, is asked for once, and again after the API server has refused a mirror: the
/// node may have been registered anew.
pub struct KubeMirrorClient {
    client: Client,
    node: String,
    node_uid: Mutex<Option<String>>,
}

impl KubeMirrorClient {
    /// The mirror pods of `node`.
    #[must_use]
    pub fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), node_uid: Mutex::new(None) }
    }

    /// The node's UID, looked up once.
    async fn node_uid(&self, pod: &FullName) -> Result<String, MirrorError> {
        let mut known = self.node_uid.lock().await;
        if let Some(uid) = &*known {
            return Ok(uid.clone());
        }
        let problem = |what: &str| {
            let message = format!("the node {:?} {what}", self.node);
            MirrorError::new(MirrorErrorKind::Node, pod.as_str(), message)
        };
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node =
            patiently(pod, nodes.get_opt(&self.node)).await?.map_err(|error| problem(&text(&error)))?;
        let metadata = node.ok_or_else(|| problem("is unknown to the API server"))?.metadata;
        if metadata.deletion_timestamp.is_some() {
            return Err(problem("is being deleted"));
        }
        let uid = metadata.uid.filter(|uid| !uid.is_empty()).ok_or_else(|| problem("has no UID"))?;
        *known = Some(uid.clone());
        Ok(uid)
    }

    /// The mirror of a static pod, owned by the node and by nobody else: what `NodeRestriction` lets a node create
    /// (KEP-1314).
    fn mirror(&self, pod: &Pod, node_uid: String) -> Pod {
        let mut mirror = pod.clone();
        let hash = pod.annotation(CONFIG_HASH_ANNOTATION).unwrap_or_default().to_owned();
        let annotations = mirror.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), hash);
        mirror.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: node_uid,
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        mirror.metadata.resource_version = None;
        mirror.spec.get_or_insert_with(PodSpec::default).node_name = Some(self.node.clone());
        mirror
    }

    fn pods(&self, full_name: &FullName) -> Api<Pod> {
        Api::namespaced(self.client.clone(), full_name.namespace())
    }

    /// Somebody was faster. Upstream means to look whether it is the mirror that was wanted (k/k#19942), and looks at an
    /// empty object.
    async fn existing(&self, full_name: &FullName, pod: &Pod) -> Result<Mirrored, MirrorError> {
        let found = patiently(full_name, self.pods(full_name).get(full_name.name())).await?;
        let found = found.map_err(|error| request(full_name, &error))?;
        let taken =
            |message: &str| Err(MirrorError::new(MirrorErrorKind::Taken, full_name.as_str(), message));
        match found.annotation(CONFIG_MIRROR_ANNOTATION) {
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
        let post = PostParams::default();
        match patiently(&full_name, self.pods(&full_name).create(&post, &mirror)).await? {
            Ok(created) => Ok(Mirrored::Created(MirrorPodUid::from(created.uid()))),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.existing(&full_name, pod).await
            }
            Err(error) => {
                if matches!(&error, kube::Error::Api(status) if status.is_forbidden()) {
                    *self.node_uid.lock().await = None;
                }
                Err(request(&full_name, &error))
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
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
            Err(error) => Err(request(&full_name, &error)),
        }
    }
}

async fn patiently<T>(pod: &FullName, answer: impl Future<Output = T>) -> Result<T, MirrorError> {
    time::timeout(PATIENCE, answer).await.map_err(|_elapsed| {
        let message = format!("no answer from the API server within {} s", PATIENCE.as_secs());
        MirrorError::new(MirrorErrorKind::Request, pod.as_str(), message)
    })
}

fn request(pod: &FullName, error: &kube::Error) -> MirrorError {
    MirrorError::new(MirrorErrorKind::Request, pod.as_str(), text(error))
}

/// What an API server says is for people; what else goes wrong is not.
fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        error => crate::error::chain(error),
    }
}

impl fmt::Debug for KubeMirrorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeMirrorClient").field("node", &self.node).finish_non_exhaustive()
    }
}
