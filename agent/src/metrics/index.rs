//! The number of pods, by kind.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{gauge, gauges, number};
use pod_index::Reader;

/// The kubelet's pod manager metrics, with the kubelet's names and meanings.
///
/// Kubelet: `DesiredPodCount`, `MirrorPodCount`, `ManagedEphemeralContainers` (`pkg/kubelet/metrics/metrics.go`).
#[derive(Debug)]
pub(super) struct KubeletsOwn(pub(super) Reader<Pod>);

impl Collector for KubeletsOwn {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.load();
        let of_files = snapshot.static_pods().len();
        let others = snapshot.pods().len().saturating_sub(of_files);
        gauges(
            &mut encoder,
            "desired_pods",
            "The number of pods the node is being instructed to run. static is true if the pod is not from the API server.",
            // Like the kubelet: empty, not "false".
            [([("static", "")], number(others)), ([("static", "true")], number(of_files))],
        )?;
        let mirrors = snapshot.mirror_pods().len();
        gauge(&mut encoder, "mirror_pods", "The number of mirror pods.", number(mirrors))?;
        gauge(
            &mut encoder,
            "managed_ephemeral_containers",
            "Current number of ephemeral containers in the pods.",
            number(snapshot.ephemeral_container_count()),
        )
    }
}

/// Metrics that the kubelet lacks.
#[derive(Debug)]
pub(super) struct Index(pub(super) Reader<Pod>);

impl Collector for Index {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.load();
        let orphans = snapshot.orphaned_mirror_pod_full_names().count();
        gauge(
            &mut encoder,
            "orphaned_mirror_pods",
            "Mirror pods with no matching static pod.",
            number(orphans),
        )?;
        gauge(
            &mut encoder,
            "generation",
            "The generation of the current snapshot; 0 before the first publication.",
            i64::try_from(snapshot.generation()).unwrap_or(i64::MAX),
        )?;
        let keys = snapshot.key_counts();
        gauges(
            &mut encoder,
            "keys",
            "Keys by which the index finds pods, besides names, by kind.",
            [
                ([("kind", "uid")], number(snapshot.pods().len())),
                ([("kind", "mirror_uid")], number(snapshot.mirror_pods().len())),
                ([("kind", "container_id")], number(keys.container_ids)),
                ([("kind", "ip")], number(keys.ips)),
            ],
        )?;
        gauge(
            &mut encoder,
            "ignored_keys",
            "Container IDs and IP addresses of pods that are invalid, or beyond the limit of a pod.",
            number(snapshot.ignored_key_count()),
        )?;
        gauge(
            &mut encoder,
            "removed_pods",
            "Removed pods and mirror pods that are kept, so that late events find them.",
            number(snapshot.removed().len()),
        )
    }
}
