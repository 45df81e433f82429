//! The number of pods, by kind.

use pod_index::Snapshot;
use pod_index_kubelet::records::Record;

use super::Scrape;

/// The first three have the kubelet's names and meanings.
///
/// Kubelet: `DesiredPodCount`, `MirrorPodCount`, `ManagedEphemeralContainers` (`pkg/kubelet/metrics/metrics.go`).
pub(super) fn show(snapshot: &Snapshot<Record>, to: &mut Scrape<'_>) {
    let of_files = snapshot.static_pods().count();
    let others = snapshot.pods().len().saturating_sub(of_files);
    to.gauges(
        "desired_pods",
        "The number of pods the node is being instructed to run. static is true if the pod is not from the API server.",
        // Like the kubelet: empty, not "false".
        [([("static", "")], others), ([("static", "true")], of_files)],
    );
    to.gauge("mirror_pods", "The number of mirror pods.", snapshot.mirror_pods().len());
    let help = "Current number of ephemeral containers in the pods.";
    to.gauge("managed_ephemeral_containers", help, snapshot.ephemeral_container_count());
    let help = "The generation of the current snapshot; 0 before the first publication.";
    to.gauge("generation", help, snapshot.generation());
    to.counter("publications", "Snapshots published.", snapshot.generation());
    let help = "Removed pods and mirror pods that are kept, so that late events find them.";
    to.gauge("removed_pods", help, snapshot.removed().len());
    // Custom keys are not among them: pods of one workload share its key by design.
    let counts = snapshot.key_counts();
    to.gauges(
        "contended_keys",
        "Claims to keys that another pod holds, by kind of key.",
        [([("key", "ip")], counts.contended_ips), ([("key", "containerId")], counts.contended_container_ids)],
    );
}
