//! Removed pods: their mark in an answer, and the memory of those that are kept.
//!
//! Whoever may create and delete pods decides how many are removed, and how large they are. The index limits their number
//! and age. Their memory has a [`BUDGET`]: while it is used up, what is kept of a removed pod is what a late event asks for.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Container, ContainerStatus, EphemeralContainer, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index_kubelet::memory::{LEFT_OUT, memory_of};

/// The annotation of a removed pod: when it was removed, in RFC 3339.
pub(crate) const REMOVED_ANNOTATION: &str = "pod-index/removed";

/// The memory of removed pods that are kept whole, in bytes.
const BUDGET: usize = 16 << 20;

/// The most labels, annotations and conditions that are kept of a removed pod that is not kept whole, and the longest text.
const MOST_PARTS: usize = 64;
const LONGEST: usize = 512;

/// The removed pods that are kept whole.
#[derive(Debug)]
pub(crate) struct KeptWhole {
    /// How long the index keeps a removed pod, and how many.
    max_age: Duration,
    max_pods: usize,
    pods: VecDeque<Kept>,
    /// The sum of their memory.
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    removed: Instant,
    bytes: usize,
}

impl KeptWhole {
    /// None yet. The index keeps removed pods for this time, and at most so many.
    pub(crate) fn new(max_age: Duration, max_pods: usize) -> Self {
        Self { max_age, max_pods, pods: VecDeque::new(), bytes: 0 }
    }

    /// What to replace this pod by before it is removed. `None`: nothing, because it is kept whole or not at all.
    pub(super) fn instead(&mut self, pod: &Pod, now: Instant) -> Option<Pod> {
        if self.max_age.is_zero() || self.max_pods == 0 {
            return None;
        }
        while self.pods.front().is_some_and(|kept| now.duration_since(kept.removed) >= self.max_age)
            || self.pods.len() >= self.max_pods
        {
            self.bytes -= self.pods.pop_front().map_or(0, |kept| kept.bytes);
        }
        let bytes = memory_of(pod);
        if self.bytes + bytes > BUDGET {
            return Some(outline(pod));
        }
        self.bytes += bytes;
        self.pods.push_back(Kept { removed: now, bytes });
        None
    }
}

/// What a late event asks for: names, workload, containers, addresses and times.
fn outline(pod: &Pod) -> Pod {
    let Pod { metadata, spec, status } = pod;
    Pod {
        metadata: outline_of_metadata(metadata),
        spec: spec.as_ref().map(outline_of_spec),
        status: status.as_ref().map(outline_of_status),
    }
}

fn outline_of_metadata(metadata: &ObjectMeta) -> ObjectMeta {
    let short = |(_, value): &(&String, &String)| value.len() <= LONGEST;
    let annotations = metadata.annotations.iter().flatten().filter(short).take(MOST_PARTS);
    let mut annotations: std::collections::BTreeMap<_, _> =
        annotations.map(|(name, value)| (name.clone(), value.clone())).collect();
    annotations.insert(LEFT_OUT.to_owned(), "most, because too many large pods were removed".to_owned());
    let owners = metadata.owner_references.iter().flatten();
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        creation_timestamp: metadata.creation_timestamp.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        // The workload follows from them.
        labels: metadata.labels.clone().filter(|labels| labels.len() <= MOST_PARTS),
        annotations: Some(annotations),
        owner_references: Some(owners.filter(|owner| owner.controller == Some(true)).cloned().collect()),
        ..ObjectMeta::default()
    }
}

fn outline_of_spec(spec: &PodSpec) -> PodSpec {
    let outline = |container: &Container| Container {
        name: container.name.clone(),
        image: container.image.clone(),
        restart_policy: container.restart_policy.clone(),
        ..Container::default()
    };
    let ephemeral = |container: &EphemeralContainer| EphemeralContainer {
        name: container.name.clone(),
        image: container.image.clone(),
        ..EphemeralContainer::default()
    };
    let initial = spec.init_containers.as_ref();
    let debuggers = spec.ephemeral_containers.as_ref();
    PodSpec {
        node_name: spec.node_name.clone(),
        host_network: spec.host_network,
        restart_policy: spec.restart_policy.clone(),
        containers: spec.containers.iter().map(outline).collect(),
        init_containers: initial.map(|containers| containers.iter().map(outline).collect()),
        ephemeral_containers: debuggers.map(|containers| containers.iter().map(ephemeral).collect()),
        ..PodSpec::default()
    }
}

fn outline_of_status(status: &PodStatus) -> PodStatus {
    let outline = |status: &ContainerStatus| ContainerStatus {
        name: status.name.clone(),
        image: status.image.clone(),
        image_id: status.image_id.clone(),
        container_id: status.container_id.clone(),
        state: status.state.clone(),
        last_state: status.last_state.clone(),
        ready: status.ready,
        restart_count: status.restart_count,
        ..ContainerStatus::default()
    };
    let all = |containers: &Option<Vec<ContainerStatus>>| -> Option<Vec<ContainerStatus>> {
        Some(containers.as_ref()?.iter().map(outline).collect())
    };
    PodStatus {
        phase: status.phase.clone(),
        pod_ip: status.pod_ip.clone(),
        pod_ips: status.pod_ips.clone(),
        host_ip: status.host_ip.clone(),
        start_time: status.start_time.clone(),
        conditions: status.conditions.as_ref().map(|all| all.iter().take(MOST_PARTS).cloned().collect()),
        container_statuses: all(&status.container_statuses),
        init_container_statuses: all(&status.init_container_statuses),
        ephemeral_container_statuses: all(&status.ephemeral_container_statuses),
        ..PodStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use pod_index::PodMeta;
    use serde_json::json;

    use super::*;

    fn pod(filler: usize) -> Pod {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9", "uid": "o", "controller": true });
        let started = json!({ "running": { "startedAt": "2026-01-01T00:00:05Z" } });
        let id = format!("containerd://{}", "3e5f0b1c".repeat(8));
        let status = json!({ "name": "c", "image": "i", "imageID": "", "containerID": id, "ready": true, "restartCount": 0, "state": started });
        serde_json::from_value(json!({
            "metadata": {
                "uid": "u", "name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": { "pod-template-hash": "5d4f8c7b9" }, "ownerReferences": [owner],
                "annotations": { "filler": "x".repeat(filler), "a": "b" },
            },
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i", "command": ["x"] }] },
            "status": {
                "phase": "Running", "podIP": "10.0.0.7", "podIPs": [{ "ip": "10.0.0.7" }], "containerStatuses": [status],
                "startTime": "2026-01-01T00:00:01Z",
            },
        }))
        .unwrap()
    }

    #[test]
    fn beyond_the_budget_a_removed_pod_is_kept_in_outline_until_others_are_forgotten() {
        let mut kept = KeptWhole::new(Duration::from_secs(60), 1_000);
        let began = Instant::now();
        let large = pod(500_000);
        let whole = (0..100).take_while(|_| kept.instead(&large, began).is_none()).count();
        assert!((16..40).contains(&whole), "{whole} pods of half a megabyte in {BUDGET} bytes");
        assert!(kept.instead(&pod(1), began).is_none(), "a small one fits");
        assert!(kept.instead(&large, began + Duration::from_secs(59)).is_some());
        assert!(kept.instead(&large, began + Duration::from_secs(60)).is_none());
        let mut few = KeptWhole::new(Duration::from_secs(60), 3);
        assert!((0..100).all(|_| few.instead(&large, began).is_none()), "the index keeps three of them");
        let mut none = KeptWhole::new(Duration::ZERO, 3);
        assert!((0..100).all(|_| none.instead(&large, began).is_none()), "the index keeps none");
    }

    #[test]
    fn the_outline_of_a_pod_is_small_and_found_by_the_same_keys_at_the_same_times() {
        let large = pod(500_000);
        let outline = outline(&large);
        assert!(memory_of(&outline) < 16_000, "{}", memory_of(&outline));
        assert_eq!(outline.life(), large.life());
        let keys = |pods: &[&Pod]| {
            let (mut writer, reader) = pod_index::new();
            for pod in pods {
                writer.upsert_pod((*pod).clone()).unwrap();
            }
            reader.load().key_counts()
        };
        assert_eq!(keys(&[&outline]), keys(&[&large]));
        // They have the same values, too: beside the large pod, a copy of it and a copy in outline contend for the same keys.
        let copy = |pod: &Pod| {
            let mut copy = pod.clone();
            copy.metadata.uid = Some("copy".to_owned());
            copy
        };
        let of_copies = keys(&[&large, &copy(&large)]);
        assert_eq!(keys(&[&large, &copy(&outline)]), of_copies, "a key of the outline has another value");
        let counts = format!("{of_copies:?}");
        assert!(
            !counts.contains(": 0"),
            "the pod of this test lacks a kind of key, so that none is compared: {counts}"
        );
        assert_eq!((outline.annotation("a"), outline.annotation("filler")), (Some("b"), None));
        assert!(outline.annotation(LEFT_OUT).is_some());
        assert_eq!(outline.metadata.owner_references, large.metadata.owner_references);
        assert_eq!(outline.metadata.labels, large.metadata.labels);
    }
}
