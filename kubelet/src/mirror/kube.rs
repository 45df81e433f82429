//! Mirror pods on a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use tokio::time;

use super::client::{MirrorError, MirrorErrorKind, Mirrored};
use crate::RESTORED;
use crate::text::api_causes;
use pod_index::{
    CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, FullName, MirrorPodUid, ParseIdError, PodMeta,
};

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
    node: String,
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
    /// mirror, has the name; if the API server refuses or cannot be reached.
    ///
    /// Kubelet: `CreateMirrorPod`.
    #[doc(alias = "CreateMirrorPod")]
    pub async fn create_mirror_pod(&self, pod: &Pod) -> Result<Mirrored, MirrorError> {
        self.create(&self.mirror_of(pod).await?).await
    }

    /// Deletes a mirror pod immediately. Returns whether it did. With a UID, deletes the pod only if it has
    /// that UID.
    ///
    /// A missing pod or another UID is not an error: nothing is deleted.
    ///
    /// # Errors
    /// If the full name is invalid; if the API server refuses or cannot be reached.
    ///
    /// Kubelet: `DeleteMirrorPod`.
    #[doc(alias = "DeleteMirrorPod")]
    pub async fn delete_mirror_pod(
        &self,
        full_name: &str,
        uid: Option<&MirrorPodUid>,
    ) -> Result<bool, MirrorError> {
        self.delete(full_name, uid).await.map_err(of(full_name))
    }

    async fn node_uid(&self) -> Result<String, Failure> {
        let problem = |what: &str| (MirrorErrorKind::Node, format!("the node {:?} {what}", self.node));
        let unknown = |(kind, why): Failure| match problem(&format!("cannot be looked up: {why}")) {
            (_, message) if kind == MirrorErrorKind::Request => (kind, message),
            refused => refused,
        };
        let nodes: Api<Node> = Api::all(self.client.clone());
        let answer = patiently(nodes.get_opt(&self.node)).await.map_err(unknown)?;
        let node = answer.map_err(|error| unknown(request(&error)))?;
        let metadata = node.ok_or_else(|| problem("is unknown to the API server"))?.metadata;
        if metadata.deletion_timestamp.is_some() {
            return Err(problem("is being deleted"));
        }
        metadata.uid.filter(|uid| !uid.is_empty()).ok_or_else(|| problem("has no UID"))
    }

    /// The mirror of a static pod, owned only by the node: what `NodeRestriction` allows a node to create
    /// (KEP-1314).
    pub(super) async fn mirror_of(&self, pod: &Pod) -> Result<Pod, MirrorError> {
        let name = full_name(pod);
        parse(&name).map_err(of(&name))?;
        let node_uid = self.node_uid().await.map_err(of(&name))?;
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
    async fn existing(&self, mirror: &Pod) -> Result<Mirrored, Failure> {
        let taken = |message: &str| Err((MirrorErrorKind::Taken, message.to_owned()));
        let found = match patiently(self.pods(mirror.namespace()).get_opt(mirror.name())).await? {
            Ok(Some(found)) => found,
            Ok(None) => {
                return Err((MirrorErrorKind::Request, "a pod had its name, but is gone again".to_owned()));
            }
            // A node may not read other nodes' pods.
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                return taken(&format!(
                    "a pod that this client may not read has its name: {}",
                    status.message
                ));
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
            Some(_) if node != Some(&self.node) => taken("a mirror of another node has its name"),
            hash @ Some(_) if hash == mirror.annotation(CONFIG_MIRROR_ANNOTATION) => {
                Ok(Mirrored::Existed(MirrorPodUid::from(found.uid())))
            }
            Some(_) => taken("a mirror of another version of the pod has its name"),
            None => taken("a pod that is not a mirror has its name"),
        }
    }

    /// Creates what [`mirror_of`](Self::mirror_of) returned.
    pub(super) async fn create(&self, mirror: &Pod) -> Result<Mirrored, MirrorError> {
        let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let created = async {
            match patiently(self.pods(mirror.namespace()).create(&post, mirror)).await? {
                Ok(created) => Ok(Mirrored::Created(MirrorPodUid::from(created.uid()))),
                Err(kube::Error::Api(status)) if status.is_already_exists() => self.existing(mirror).await,
                Err(error) => Err(request(&error)),
            }
        };
        created.await.map_err(of(&full_name(mirror)))
    }

    async fn delete(&self, full_name: &str, uid: Option<&MirrorPodUid>) -> Result<bool, Failure> {
        let full_name = parse(full_name)?;
        let mut now = DeleteParams::default().grace_period(0);
        if let Some(uid) = uid {
            now = now.preconditions(Preconditions { uid: Some(uid.to_string()), resource_version: None });
        }
        match patiently(self.pods(full_name.namespace()).delete(full_name.name(), &now)).await? {
            Ok(deleted) => match deleted.left().and_then(|pod| pod.metadata.finalizers) {
                Some(finalizers) if !finalizers.is_empty() => {
                    let finalizers = finalizers.join(", ");
                    let why = format!("it is being deleted, and waits for its finalizers: {finalizers}");
                    Err((MirrorErrorKind::Taken, why))
                }
                _ => Ok(true),
            },
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
            Err(error) => Err(request(&error)),
        }
    }
}

/// Why an attempt failed.
type Failure = (MirrorErrorKind, String);

/// The failure as an error about this pod.
fn of(full_name: &str) -> impl FnOnce(Failure) -> MirrorError {
    move |(kind, message)| MirrorError::new(kind, full_name, message)
}

fn full_name(pod: &Pod) -> String {
    format!("{}_{}", pod.name(), pod.namespace())
}

fn parse(full_name: &str) -> Result<FullName, Failure> {
    full_name.parse().map_err(|error: ParseIdError| (MirrorErrorKind::Name, error.to_string()))
}

async fn patiently<T>(answer: impl Future<Output = T>) -> Result<T, Failure> {
    let silence = || format!("no answer from the API server within {} s", PATIENCE.as_secs());
    time::timeout(PATIENCE, answer).await.map_err(|_elapsed| (MirrorErrorKind::Request, silence()))
}

fn request(error: &kube::Error) -> Failure {
    let kind = match error {
        kube::Error::Api(status) if matches!(status.code, 400..=499) && !matches!(status.code, 408 | 429) => {
            MirrorErrorKind::Refused
        }
        _ => MirrorErrorKind::Request,
    };
    (kind, api_causes(error))
}

impl_debug!(KubeMirrorClient, node);
