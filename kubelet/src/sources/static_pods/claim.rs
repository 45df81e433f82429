//! What one mirror pod says about its static pod.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use pod_index::identity::Identity;
use pod_index::{
    CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, PodMeta, PodUid,
};

use super::{CLAIMED_ANNOTATION, UNCONFIRMED_ANNOTATION};
use crate::sources::pod::node;

/// What a mirror pod says about its static pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sources) struct StaticPodClaim {
    /// The UID under which the node knows the static pod.
    pub(in crate::sources) uid: PodUid,
    /// The node.
    pub(in crate::sources) node: String,
    /// The UID of the Node object that owns the mirror pod.
    pub(in crate::sources) owner: String,
    /// When the mirror pod was created. If two mirror pods make the same claim, the older one counts.
    pub(in crate::sources) created: Option<Timestamp>,
    /// Whether the mirror pod is being deleted.
    pub(in crate::sources) is_terminating: bool,
    /// Whether every container has ended. The kubelet reports this before it deletes the mirror of a removed
    /// static pod.
    pub(in crate::sources) ended: bool,
    /// Whether a kubelet has reported the status of a container.
    pub(in crate::sources) has_status: bool,
}

pub(in crate::sources) const OWNERS: &str = "metadata.ownerReferences";
pub(in crate::sources) const MIRROR: &str = "metadata.annotations[kubernetes.io/config.mirror]";
const SOURCE: &str = "metadata.annotations[kubernetes.io/config.source]";
const HASH: &str = "metadata.annotations[kubernetes.io/config.hash]";

/// The claim of a mirror pod; or the field because of which it does not count, and what is wrong with it.
pub(in crate::sources) fn claim(mirror: &Pod) -> Result<StaticPodClaim, (&'static str, &'static str)> {
    let uid = mirror.annotation(CONFIG_MIRROR_ANNOTATION).unwrap_or_default();
    let has_hash = mirror.annotation(CONFIG_HASH_ANNOTATION) == Some(uid);
    // A kubelet's mirror pod has the source of its static pod.
    let is_static = matches!(mirror.annotation(CONFIG_SOURCE_ANNOTATION), Some("file" | "http"));
    let node = node(mirror).unwrap_or_default();
    let must_be = [
        (is_uid(uid), MIRROR, "must be a UID: letters, digits, '-', '_' and '.', at most 128 of them"),
        (!is_other_key(uid), MIRROR, "must not be another key of a pod, such as an IP or a container ID"),
        (has_hash, HASH, "must equal the annotation kubernetes.io/config.mirror"),
        (mirror.uid() != uid, HASH, "must not be the mirror pod's own UID"),
        (is_static, SOURCE, "must be file or http"),
        (!node.is_empty(), "spec.nodeName", "must name a node"),
    ];
    if let Some((_, field, message)) = must_be.into_iter().find(|(is_so, ..)| !is_so) {
        return Err((field, message));
    }
    let controller = mirror.metadata.owner_references.iter().flatten().find(|it| it.controller == Some(true));
    let owner = controller.filter(|owner| {
        owner.api_version == "v1" && owner.kind == "Node" && owner.name == node && !owner.uid.is_empty()
    });
    let owner = owner.ok_or((OWNERS, "must name the pod's Node as the controller"))?;
    Ok(StaticPodClaim {
        uid: PodUid::from(uid),
        node: node.to_owned(),
        owner: owner.uid.clone(),
        created: mirror.metadata.creation_timestamp.as_ref().map(|time| time.0),
        is_terminating: mirror.metadata.deletion_timestamp.is_some(),
        ended: mirror.status.as_ref().is_some_and(has_ended),
        has_status: mirror.status.as_ref().is_some_and(has_containers),
    })
}

/// Whether a kubelet may use this text as a UID: 32 hex digits, a UUID, or what a manifest says, which may be anything.
/// A claimed UID is printed and becomes part of paths, so it must not look like one.
fn is_uid(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether one may ask for something else with this text. Whoever may create a pod can forge a claim, and would answer for every
/// address or container that no pod has.
///
/// A new form of a key needs nothing here if `Identity::parse_lenient` knows it. A word that is nothing else, such as `web`, is
/// accepted, and `is_only_claimed` of `agent/src/whois/find.rs` leaves it out of answers.
fn is_other_key(text: &str) -> bool {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // A container runtime prints the first digits of an ID.
    let is_start_of_container_id = is_hex && text.len() >= 12 && text.len() != 32;
    is_start_of_container_id || !matches!(Identity::parse_lenient(text), Ok(Identity::Uid(_)))
}

/// Whether there is the status of a container.
fn has_containers(status: &PodStatus) -> bool {
    let all = [&status.init_container_statuses, &status.container_statuses];
    all.into_iter().flatten().any(|statuses| !statuses.is_empty())
}

/// Whether there are containers, and all have ended.
fn has_ended(status: &PodStatus) -> bool {
    let ended = |container: &ContainerStatus| {
        container.state.as_ref().is_some_and(|state| state.terminated.is_some())
    };
    let mut containers = status.container_statuses.iter().flatten().peekable();
    containers.peek().is_some() && containers.all(ended)
}

/// The static pod of a mirror pod with a valid claim, as the kubelet itself shows it.
pub(in crate::sources) fn derived(mirror: &Pod) -> Pod {
    let mut pod = mirror.clone();
    let meta = &mut pod.metadata;
    if let Some(annotations) = &mut meta.annotations {
        meta.uid = annotations.remove(CONFIG_MIRROR_ANNOTATION);
        // Only the merge sets these.
        annotations.remove(UNCONFIRMED_ANNOTATION);
        annotations.remove(CLAIMED_ANNOTATION);
    }
    meta.owner_references = None;
    meta.managed_fields = None;
    meta.resource_version = None;
    meta.generation = None;
    meta.creation_timestamp = None;
    // The deletion concerns the mirror, not the static pod.
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    pod
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    fn mirror() -> serde_json::Value {
        json!({
            "metadata": {
                "name": "web-n1", "namespace": "default", "uid": "m", "resourceVersion": "7", "generation": 1,
                "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30,
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"}, "managedFields": [{"manager": "kubelet"}],
                "annotations": {
                    "kubernetes.io/config.hash": "s", "kubernetes.io/config.mirror": "s",
                    "kubernetes.io/config.seen": "t", "kubernetes.io/config.source": "file",
                },
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": true}],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
            ]},
        })
    }

    fn read(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    #[test]
    fn the_derived_static_pod_equals_what_the_kubelet_shows() {
        let pod = derived(&read(mirror()));
        let wanted = json!({
            "metadata": {
                "name": "web-n1", "namespace": "default", "uid": "s", "labels": {"app": "web"},
                "annotations": {
                    "kubernetes.io/config.hash": "s", "kubernetes.io/config.seen": "t", "kubernetes.io/config.source": "file",
                },
            },
            "spec": mirror()["spec"], "status": mirror()["status"],
        });
        assert_eq!(pod, read(wanted));
    }

    #[test]
    fn only_claims_that_a_kubelet_makes_are_accepted() {
        let good = claim(&read(mirror())).expect("a good claim");
        assert_eq!((good.uid, &*good.node, &*good.owner, good.ended), (PodUid::from("s"), "n1", "n", false));
        let owner = "/metadata/ownerReferences/0";
        for (pointer, value, field) in [
            ("/metadata/annotations/kubernetes.io~1config.hash", json!("x"), HASH),
            ("/metadata/uid", json!("s"), HASH),
            ("/metadata/annotations/kubernetes.io~1config.mirror", json!(""), MIRROR),
            ("/metadata/annotations/kubernetes.io~1config.mirror", json!("../../etc/passwd"), MIRROR),
            ("/metadata/annotations/kubernetes.io~1config.mirror", json!(".."), MIRROR),
            ("/metadata/annotations/kubernetes.io~1config.mirror", json!("s\n"), MIRROR),
            ("/metadata/annotations/kubernetes.io~1config.source", json!("api"), SOURCE),
            ("/spec/nodeName", json!(""), "spec.nodeName"),
            ("/spec/nodeName", json!("n2"), OWNERS),
            (&format!("{owner}/kind"), json!("Pod"), OWNERS),
            (&format!("{owner}/apiVersion"), json!("v2"), OWNERS),
            (&format!("{owner}/name"), json!("n2"), OWNERS),
            (&format!("{owner}/uid"), json!(""), OWNERS),
            (&format!("{owner}/controller"), json!(false), OWNERS),
            ("/metadata/ownerReferences", json!([]), OWNERS),
        ] {
            let mut forged = mirror();
            *forged.pointer_mut(pointer).expect("a field") = value;
            let (refused, _) = claim(&read(forged)).expect_err(pointer);
            assert_eq!(refused, field, "{pointer}");
        }
    }

    #[test]
    fn a_pod_has_ended_once_all_its_containers_have() {
        let mut pod = mirror();
        pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 0}});
        assert!(claim(&read(pod.clone())).expect("a good claim").ended);
        pod["status"]["containerStatuses"] = json!([]);
        assert!(!claim(&read(pod)).expect("a good claim").ended);
    }
}
