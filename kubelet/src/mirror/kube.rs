//! Mirror pods on a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use tokio::time;

use super::client::{MirrorErrorKind, MirrorFailure, Mirrored};
use crate::marks::RESTORED;
use crate::text::api_causes;
use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, FullName, MirrorPodUid, PodMeta};

/// The field manager in a mirror's `metadata.managedFields`.
const FIELD_MANAGER: &str = "pod-index";
/// Time limit for an answer of the API server.
const PATIENCE: Duration = Duration::from_secs(30);

/// Creates and deletes the mirror pods of one node, with no more rights than a node has.
///
/// Each mirror carries the node's UID as an owner reference. The UID is looked up whenever a mirror is created: the
/// garbage collector deletes the mirrors of a node that was registered again with another UID.
///
/// Kubelet: `basicMirrorClient` (`pkg/kubelet/pod/mirror_client.go`), which takes the node from an informer.
pub struct KubeMirrorClient {
    client: Client,
    pub(super) node: String,
}

impl KubeMirrorClient {
    /// A client for the mirror pods of `node`.
    #[must_use]
    pub fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned() }
    }

    /// Creates the mirror of a static pod.
    ///
    /// If the mirror of this version of the pod already exists, that is not an error.
    ///
    /// # Errors
    /// If the node is unknown, has no UID or is being deleted; if another pod, which is not this pod's
    /// mirror, has the name; if the pod has no full name; if the API server refuses or cannot be reached.
    ///
    /// Kubelet: `CreateMirrorPod`.
    #[doc(alias = "CreateMirrorPod")]
    pub async fn create_mirror_pod(&self, pod: &Pod) -> Result<Mirrored, MirrorFailure> {
        self.create(&self.mirror_of(pod).await?).await
    }

    /// Deletes a mirror pod immediately. Returns whether it did. With a UID, deletes the pod only if it has
    /// that UID.
    ///
    /// A missing pod or another UID is not an error: nothing is deleted.
    ///
    /// # Errors
    /// If the API server refuses or cannot be reached.
    ///
    /// Kubelet: `DeleteMirrorPod`.
    #[doc(alias = "DeleteMirrorPod")]
    pub async fn delete_mirror_pod(
        &self,
        full_name: &FullName,
        uid: Option<&MirrorPodUid>,
    ) -> Result<bool, MirrorFailure> {
        let mut now = DeleteParams::default().grace_period(0);
        if let Some(uid) = uid {
            now = now.preconditions(Preconditions { uid: Some(uid.to_string()), resource_version: None });
        }
        match patiently(self.pods(full_name.namespace()).delete(full_name.name(), &now)).await {
            Ok(deleted) => match deleted.left().and_then(|pod| pod.metadata.finalizers) {
                Some(finalizers) if !finalizers.is_empty() => {
                    let finalizers = finalizers.join(", ");
                    let why = format!("it is being deleted, and waits for its finalizers: {finalizers}");
                    Err(MirrorFailure::new(MirrorErrorKind::Taken, why))
                }
                _ => Ok(true),
            },
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
            Err(error) => Err(request(&error)),
        }
    }

    async fn node_uid(&self) -> Result<String, MirrorFailure> {
        let problem = |kind, what: &str| MirrorFailure::new(kind, format!("the node {:?} {what}", self.node));
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = patiently(nodes.get_opt(&self.node)).await.map_err(|error| {
            let failure = request(&error);
            let is_request = failure.kind == MirrorErrorKind::Request;
            let kind = if is_request { failure.kind } else { MirrorErrorKind::Node };
            problem(kind, &format!("cannot be looked up: {failure}"))
        })?;
        let what = match node.map(|node| node.metadata) {
            None => "is unknown to the API server",
            Some(metadata) if metadata.deletion_timestamp.is_some() => "is being deleted",
            Some(metadata) => match metadata.uid {
                Some(uid) if !uid.is_empty() => return Ok(uid),
                _ => "has no UID",
            },
        };
        Err(problem(MirrorErrorKind::Node, what))
    }

    /// The mirror of a static pod, owned only by the node: what `NodeRestriction` allows a node to create
    /// (KEP-1314).
    pub(super) async fn mirror_of(&self, pod: &Pod) -> Result<Pod, MirrorFailure> {
        // Without a full name, the index would not find the mirror.
        FullName::new(pod.namespace(), pod.name())
            .map_err(|error| MirrorFailure::new(MirrorErrorKind::Refused, error.to_string()))?;
        let node_uid = self.node_uid().await?;
        let mut mirror = pod.clone();
        let hash = pod.annotation(CONFIG_HASH_ANNOTATION).unwrap_or_default().to_owned();
        let annotations = mirror.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), hash);
        // Internal to this agent.
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
        // Nothing would ever remove them from a mirror, and it could not be replaced.
        mirror.metadata.finalizers = None;
        mirror.spec.get_or_insert_with(PodSpec::default).node_name = Some(self.node.clone());
        Ok(mirror)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The pod already exists. Upstream intends to check whether it is the wanted mirror (k/k#19942), but
    /// compares an empty object.
    async fn existing(&self, mirror: &Pod) -> Result<Mirrored, MirrorFailure> {
        let taken = |message: &str| Err(MirrorFailure::new(MirrorErrorKind::Taken, message));
        let found = match patiently(self.pods(mirror.namespace()).get_opt(mirror.name())).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                let message = "a pod had its name, but is gone again";
                return Err(MirrorFailure::new(MirrorErrorKind::Request, message));
            }
            // A node may not read other nodes' pods.
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                let why = &status.message;
                return taken(&format!("a pod that this client may not read has its name: {why}"));
            }
            Err(error) => return Err(request(&error)),
        };
        // It was deleted and waits for a finalizer. If it were accepted as the mirror, the agent would delete
        // it again.
        if found.metadata.deletion_timestamp.is_some() {
            return taken("a pod that is still being deleted has its name");
        }
        let node = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        match found.annotation(CONFIG_MIRROR_ANNOTATION) {
            None => taken("a pod that is not a mirror has its name"),
            Some(_) if node != Some(&self.node) => taken("a mirror of another node has its name"),
            hash if hash != mirror.annotation(CONFIG_MIRROR_ANNOTATION) => {
                taken("a mirror of another version of the pod has its name")
            }
            _ => Ok(Mirrored::Existed(MirrorPodUid::from(found.uid()))),
        }
    }

    /// Creates what [`mirror_of`](Self::mirror_of) returned.
    pub(super) async fn create(&self, mirror: &Pod) -> Result<Mirrored, MirrorFailure> {
        let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match patiently(self.pods(mirror.namespace()).create(&post, mirror)).await {
            Ok(created) => Ok(Mirrored::Created(MirrorPodUid::from(created.uid()))),
            Err(kube::Error::Api(status)) if status.is_already_exists() => self.existing(mirror).await,
            Err(error) => Err(request(&error)),
        }
    }
}

pub(super) async fn patiently<T>(answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    time::timeout(PATIENCE, answer).await.unwrap_or_else(|_elapsed| {
        let silence = format!("no answer from the API server within {} s", PATIENCE.as_secs());
        Err(kube::Error::Service(silence.into()))
    })
}

fn request(error: &kube::Error) -> MirrorFailure {
    let kind = match error {
        kube::Error::Api(status) if matches!(status.code, 400..=499) && !matches!(status.code, 408 | 429) => {
            MirrorErrorKind::Refused
        }
        _ => MirrorErrorKind::Request,
    };
    MirrorFailure::new(kind, api_causes(error))
}

impl_debug!(KubeMirrorClient, node);
