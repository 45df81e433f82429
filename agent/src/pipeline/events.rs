//! Counts each pod that was added, changed or removed in the index, and logs a line for it at `debug`.
//!
//! The index's writer does not wait for this. If it publishes faster, several changes of a pod count as one.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tracing::debug;

use crate::api::table;
use crate::metrics::registered;
use pod_index::Change;
use pod_index_kubelet::HasPod;
use pod_index_kubelet::records::Record;

const EVENTS: [&str; 3] = ["added", "updated", "removed"];

/// Counters of pod changes. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Events(Family<[(&'static str, &'static str); 1], Counter>);

impl Events {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let help = "Changes of pods in the index, by event";
        let counts = registered(registry, "pod_events", help, Family::<[_; 1], Counter>::default());
        // A rate needs an initial value.
        for event in EVENTS {
            drop(counts.get_or_create(&[("event", event)]));
        }
        Self(counts)
    }

    /// Counts and logs the changes of pods between two publications.
    pub(crate) fn count(&self, changes: &[Change<'_, Record>], generation: u64) {
        for change in changes.iter().filter(|change| Record::is_of_pod(change)) {
            let event = match (change.before(), change.after()) {
                (None, _) => "added",
                (Some(_), Some(_)) => "updated",
                (Some(_), None) => "removed",
            };
            self.0.get_or_create(&[("event", event)]).inc();
            let [namespace, name, uid, source, ..] = table::row(change.pod());
            debug!(event, namespace, name, uid, source, generation, "pod {event}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use pod_index::Operation::{Remove, Upsert};
    use serde_json::{Value, json};

    use super::super::records::{alone, relabelled};
    use super::*;

    fn pod(uid: &str, metadata: &Value, phase: &str) -> Arc<Record> {
        let mut pod = json!({ "metadata": metadata, "status": { "phase": phase } });
        pod["metadata"]["uid"] = uid.into();
        pod["metadata"]["name"] = uid.into();
        pod["metadata"]["namespace"] = "shop".into();
        alone(serde_json::from_value::<Pod>(pod).unwrap())
    }

    #[test]
    fn each_change_counts_once_by_its_kind_including_the_last_one() {
        let (mut writer, reader) = pod_index::new();
        let mut registry = Registry::default();
        let events = Events::register(&mut registry);
        let counts = || EVENTS.map(|event| events.0.get_or_create(&[("event", event)]).get());
        let mut changes = reader.changes();
        let mut follow = || {
            let step = changes.try_next().unwrap();
            events.count(&step.changes(), step.after().generation());
        };
        for (operations, expected) in [
            (
                vec![Upsert(pod("a", &json!({}), "Pending")), Upsert(pod("b", &json!({}), "Pending"))],
                [2, 0, 0],
            ),
            (vec![Upsert(pod("a", &json!({}), "Running"))], [2, 1, 0]),
            (vec![Upsert(pod("a", &json!({ "labels": { "x": "y" } }), "Running"))], [2, 2, 0]),
            (vec![Remove("a".into()), Remove("b".into())], [2, 2, 2]),
        ] {
            let _ = writer.apply(operations);
            follow();
            assert_eq!(counts(), expected);
        }
        // What is joined with a pod is not the pod.
        let step = relabelled(pod("d", &json!({}), "Running").pod());
        events.count(&step.changes(), step.after().generation());
        assert_eq!(counts(), [2, 2, 2]);
        // Published just before the end.
        let _ = writer.apply([Upsert(pod("c", &json!({}), "Running"))]);
        drop(writer);
        follow();
        assert_eq!(counts(), [3, 2, 2]);
    }
}
