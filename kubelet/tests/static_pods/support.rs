//! Pods as kubelets and API servers have them, and a merge of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_index::PodMeta;
use pod_index_kubelet::sources::static_pods::{OwnNode, UNCONFIRMED_ANNOTATION};
use pod_index_kubelet::sources::{Merge, Merged, NodeName, ProblemKind, Source, SourceUpdate};
use serde_json::json;

pub use crate::updates::{remove, set, upsert};

fn read(value: serde_json::Value) -> Pod {
    serde_json::from_value(value).expect("a pod")
}

pub fn status(phase: &str) -> serde_json::Value {
    let container = json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}});
    json!({"phase": phase, "containerStatuses": [container]})
}

pub fn is_unconfirmed(pod: &Pod) -> bool {
    pod.annotation(UNCONFIRMED_ANNOTATION).is_some()
}

/// A mirror pod as a kubelet creates it.
pub fn mirror(uid: &str, name: &str, of: &str, node: &str) -> Pod {
    read(json!({
        "metadata": {
            "uid": uid, "name": name, "namespace": "ns", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:05Z",
            "annotations": {
                "kubernetes.io/config.hash": of, "kubernetes.io/config.mirror": of,
                "kubernetes.io/config.seen": "seen", "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": "node", "controller": true}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "mirror"}]},
        "status": status("Running"),
    }))
}

/// A static pod, from a manifest or as the kubelet lists it.
pub fn static_pod(uid: &str, name: &str, image: &str, phase: &str) -> Pod {
    read(json!({
        "metadata": {"uid": uid, "name": name, "namespace": "ns", "annotations": {
            "kubernetes.io/config.hash": uid, "kubernetes.io/config.seen": "seen", "kubernetes.io/config.source": "file",
        }},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": image}]},
        "status": status(phase),
    }))
}

/// A pod of the API server, from there or as the kubelet lists it.
pub fn api_pod(uid: &str, name: &str, phase: &str, version: u64) -> Pod {
    read(json!({
        "metadata": {"uid": uid, "name": name, "namespace": "ns", "resourceVersion": version.to_string(),
            "annotations": {"kubernetes.io/config.source": "api", "kubernetes.io/config.seen": "seen"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "api"}]},
        "status": status(phase),
    }))
}

/// A merge on node `n1`, and the pods that should exist according to it.
pub struct Merging {
    pub merge: Merge,
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// The refused claims after the last change.
    pub refused: Vec<String>,
}

impl Merging {
    pub fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        Self::of(Merge::new(sources).derive_static_pods(NodeName::new("n1")))
    }

    pub fn of(merge: Merge) -> Self {
        Self { merge, pods: BTreeMap::new(), refused: Vec::new() }
    }

    pub fn say(&mut self, source: Source, update: SourceUpdate<Pod>) -> String {
        let merged = self.merge.update(source, update);
        self.take(&merged)
    }

    /// `-` for removed, `+` for added, `~` for changed.
    pub fn take(&mut self, merged: &Merged) -> String {
        let mut summary = Vec::new();
        for pod in &merged.removed {
            assert!(self.pods.remove(pod.uid()).is_some(), "{} was not there", pod.uid());
            summary.push(format!("-{}", pod.uid()));
        }
        for pod in &merged.added {
            assert!(self.pods.insert(pod.uid().to_owned(), Arc::clone(pod)).is_none(), "{} twice", pod.uid());
            summary.push(format!("+{}", pod.uid()));
        }
        for pod in merged.updated.iter().chain(&merged.deleted).chain(&merged.reconciled) {
            assert!(
                self.pods.insert(pod.uid().to_owned(), Arc::clone(pod)).is_some(),
                "{} is new",
                pod.uid()
            );
            summary.push(format!("~{}", pod.uid()));
        }
        assert_eq!(merged.is_empty(), summary.is_empty());
        let before = std::mem::take(&mut self.refused);
        self.refused = self.refused();
        assert!(merged.claims_changed || self.refused == before, "{before:?}, and now {:?}", self.refused);
        summary.join(" ")
    }

    /// The Node object was read with this UID, after everything so far.
    pub fn read_node(&mut self, uid: &str, created: &str) -> String {
        // The clock must advance before and after the request.
        std::thread::sleep(Duration::from_millis(1));
        let asked = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        self.read_node_at(uid, created, asked)
    }

    pub fn read_node_at(&mut self, uid: &str, created: &str, asked: Instant) -> String {
        let created = Some(created.parse().expect("a time"));
        let merged = self.merge.own_node(Some(OwnNode { uid: uid.to_owned(), created, asked }));
        self.take(&merged)
    }

    /// The source was read just now, and no problem hides a pod.
    pub fn read(&mut self, source: Source) -> String {
        self.read_at(source, Instant::now(), true)
    }

    pub fn read_at(&mut self, source: Source, began: Instant, whole: bool) -> String {
        let merged = self.merge.read(source, began, whole);
        self.take(&merged)
    }

    pub fn uids(&self) -> Vec<&str> {
        self.pods.keys().map(String::as_str).collect()
    }

    pub fn image(&self, uid: &str) -> &str {
        let spec = self.pods[uid].spec.as_ref().expect("a spec");
        spec.containers[0].image.as_deref().expect("an image")
    }

    pub fn phase(&self, uid: &str) -> &str {
        self.pods[uid].status.as_ref().and_then(|status| status.phase.as_deref()).expect("a phase")
    }

    pub fn refused(&self) -> Vec<String> {
        let all = self.merge.refused_claims();
        all.inspect(|problem| assert_eq!(problem.kind, ProblemKind::Claim)).map(ToString::to_string).collect()
    }
}

/// A mirror pod that is being deleted, for example because a kubelet does not know it.
pub fn deleted(mut mirror: Pod) -> Pod {
    mirror.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:06Z".parse().expect("a time")));
    mirror
}

/// The same mirror pod, owned by the Node object with this UID.
pub fn owned_by(mut mirror: Pod, owner: &str) -> Pod {
    owner.clone_into(&mut mirror.metadata.owner_references.as_mut().expect("owners")[0].uid);
    mirror
}
