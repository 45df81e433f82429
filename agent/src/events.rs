//! Logs a line at `debug` for each pod that was added, changed or removed.
//!
//! A change is logged after its publication, when readers can see it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tracing::{Level, debug, enabled};

use pod_index::PodMeta;
use pod_index_kubelet::sources::{Merged, Source};

/// Lines to log after the batch is published.
#[derive(Debug, Default)]
pub(super) struct Events(Vec<(&'static str, Source, Arc<Pod>)>);

impl Events {
    /// Records the changes of one source.
    pub(super) fn note(&mut self, source: Source, merged: &Merged<Pod>) {
        if !enabled!(Level::DEBUG) {
            return;
        }
        for (event, pods) in [
            ("removed", &merged.removed),
            ("added", &merged.added),
            ("updated", &merged.updated),
            ("terminating", &merged.deleted),
            ("status", &merged.reconciled),
        ] {
            self.0.extend(pods.iter().map(|pod| (event, source, Arc::clone(pod))));
        }
    }

    /// Logs the recorded changes.
    pub(super) fn tell(self, generation: u64) {
        for (event, source, pod) in self.0 {
            let (source, namespace, name, uid) = (source.as_str(), pod.namespace(), pod.name(), pod.uid());
            debug!(event, namespace, name, uid, source, generation, "pod {event}");
        }
    }
}
