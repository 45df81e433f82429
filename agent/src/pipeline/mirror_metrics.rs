//! Mirror pod metrics, if this agent manages mirror pods.

use std::sync::atomic::Ordering;

use pod_index::Reader;
use pod_index_kubelet::mirror::{MirrorErrorKind, MirrorFailure, MirrorState, plan};
use pod_index_kubelet::records::Record;

use super::mirrors::MirrorKeeper;
use crate::metrics::{Scrape, number};

/// The states and their label values.
const STATES: [(MirrorState, &str); 6] = [
    (MirrorState::InSync, "in_sync"),
    (MirrorState::Missing, "missing"),
    (MirrorState::WrongHash, "wrong_hash"),
    (MirrorState::Terminating, "terminating"),
    (MirrorState::Orphaned, "orphaned"),
    (MirrorState::Finished, "finished"),
];

pub(crate) fn show(keeper: &MirrorKeeper, reader: &Reader<Record>, to: &mut Scrape<'_>) {
    let planned = plan(&reader.load(), keeper.node.as_str());
    let counts = STATES.map(|(state, label)| {
        let count = planned.iter().filter(|planned| planned.state == state).count();
        ([("state", label)], number(count))
    });
    to.gauges("mirror_states", "Static pods and orphaned mirror pods, by state.", counts);
    let status = keeper.status();
    let help = "1 once the agent manages mirror pods: no kubelet was found, and every source was read.";
    to.gauge("mirrors_managed", help, i64::from(keeper.keeps()));
    let is_contended = |failure: &MirrorFailure| failure.kind == MirrorErrorKind::Contended;
    let contended = status.pods.iter().filter(|pod| pod.last_failure.as_ref().is_some_and(is_contended));
    let help = "Mirror pods that had to be corrected repeatedly, as if another process managed them too.";
    to.gauge("mirrors_contended", help, number(contended.count()));
    to.counter("mirror_creations", "Mirror pods created.", status.created);
    to.counter("mirror_deletions", "Mirror pods deleted.", status.deleted);
    to.counter("mirror_failures", "Failed attempts to create or delete a mirror pod.", status.failed);
    let unread = keeper.unread_leases.load(Ordering::Relaxed);
    to.counter("mirror_lease_failures", "Failed reads of the node's lease.", unread);
}
