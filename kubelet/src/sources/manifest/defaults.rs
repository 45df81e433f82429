//! The kubelet's defaults for a pod from a manifest.

use k8s_openapi::api::core::v1::{Pod, PodStatus, Toleration};

use super::origin::Origin;
use crate::fnv::fnv1a_128;
use crate::sources::{NodeName, pod};
use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION};

/// Kubelet: `applyDefaults` (`pkg/kubelet/config/common.go`).
///
/// `json`: the pod as written.
pub(super) fn apply(pod: &mut Pod, json: &[u8], origin: &Origin<'_>, node: &NodeName) {
    // Before any other change: the UID is a hash of the pod as written.
    let uid = match pod.metadata.uid.take() {
        Some(uid) if !uid.is_empty() => uid,
        _ => hashed_uid(json, origin, node),
    };
    let metadata = &mut pod.metadata;
    metadata.name = Some(node.pod_name(metadata.name.as_deref().unwrap_or_default()));
    if metadata.namespace.as_deref().unwrap_or_default().is_empty() {
        metadata.namespace = Some("default".to_owned());
    }
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_HASH_ANNOTATION.to_owned(), uid.clone());
    annotations.insert(CONFIG_SOURCE_ANNOTATION.to_owned(), origin.source().as_str().to_owned());
    annotations.insert(CONFIG_SEEN_ANNOTATION.to_owned(), pod::now());
    metadata.uid = Some(uid);

    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.as_str().to_owned());
    if let Origin::File(_) = origin {
        tolerate_no_execute(spec.tolerations.get_or_insert_default());
    }
    // Nothing else: otherwise a manifest could claim another pod's IPs and containers. The kubelet replaces it, too.
    pod.status = Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
}

/// 32 hex digits: a hash of the pod and of where it was read from, so that one manifest on two nodes makes
/// two pods (k/k#87461).
fn hashed_uid(json: &[u8], origin: &Origin<'_>, node: &NodeName) -> String {
    let hash = match origin {
        Origin::File(path) => {
            let path = path.as_os_str().as_encoded_bytes();
            fnv1a_128(&[json, b"host:", node.as_str().as_bytes(), b"file:", path])
        }
        Origin::Url(url) => fnv1a_128(&[json, b"url:", url.as_bytes()]),
    };
    format!("{hash:032x}")
}

/// Prevents node problems from evicting static pods.
///
/// Kubelet: `AddOrUpdateTolerationInPod` (`pkg/apis/core/helper/helpers.go`).
fn tolerate_no_execute(tolerations: &mut Vec<Toleration>) {
    let toleration = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let same = |other: &&mut Toleration| {
        other.operator == toleration.operator
            && other.effect == toleration.effect
            && other.key.as_deref().unwrap_or_default().is_empty()
            && other.value.as_deref().unwrap_or_default().is_empty()
    };
    match tolerations.iter_mut().find(same) {
        Some(other) => *other = toleration,
        None => tolerations.push(toleration),
    }
}
