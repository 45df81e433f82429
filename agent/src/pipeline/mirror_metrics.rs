//! Mirror pod metrics, if this agent manages mirror pods.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::metrics::{counter, gauge, gauges, number};
use crate::pipeline::mirrors::MirrorKeeper;
use pod_index::Reader;
use pod_index_kubelet::mirror::{MirrorErrorKind, MirrorFailure, MirrorState, plan};

/// The states and their label values.
const STATES: [(MirrorState, &str); 6] = [
    (MirrorState::InSync, "in_sync"),
    (MirrorState::Missing, "missing"),
    (MirrorState::WrongHash, "wrong_hash"),
    (MirrorState::Terminating, "terminating"),
    (MirrorState::Orphaned, "orphaned"),
    (MirrorState::Finished, "finished"),
];

#[derive(Debug)]
pub(crate) struct Mirrors(pub(crate) Arc<MirrorKeeper>, pub(crate) Reader<Pod>);

impl Collector for Mirrors {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(keeper, reader) = self;
        let encoder = &mut encoder;
        let planned = plan(&reader.load(), keeper.node().as_str());
        gauges(
            encoder,
            "mirror_states",
            "Static pods and orphaned mirror pods, by state.",
            STATES.map(|(state, label)| {
                let count = planned.iter().filter(|planned| planned.state == state).count();
                ([("state", label)], number(count))
            }),
        )?;
        let status = keeper.status();
        gauge(
            encoder,
            "mirrors_managed",
            "1 once the agent manages mirror pods: no kubelet was found, and every source was read.",
            i64::from(keeper.keeps()),
        )?;
        let is_contended = |failure: &MirrorFailure| failure.kind == MirrorErrorKind::Contended;
        gauge(
            encoder,
            "mirrors_contended",
            "Mirror pods that had to be corrected repeatedly, as if another process managed them too.",
            number(
                status.pods.iter().filter(|pod| pod.last_failure.as_ref().is_some_and(is_contended)).count(),
            ),
        )?;
        for (name, help, count) in [
            ("mirror_creations", "Mirror pods created.", status.created),
            ("mirror_deletions", "Mirror pods deleted.", status.deleted),
            ("mirror_failures", "Failed attempts to create or delete a mirror pod.", status.failed),
            ("mirror_lease_failures", "Failed reads of the node's lease.", keeper.unread_leases()),
        ] {
            counter(encoder, name, help, count)?;
        }
        Ok(())
    }
}
