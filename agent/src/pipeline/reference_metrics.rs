//! Numbers of followed Secrets and `ConfigMaps`, without names.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::metrics::{gauges, number};
use crate::pipeline::reference_managers::ReferenceManagers;
use pod_index_kubelet::references::ManagerStatus;

#[derive(Debug)]
pub(crate) struct References(pub(crate) ReferenceManagers);

impl Collector for References {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let kinds = [("secret", counts.secrets), ("config_map", counts.config_maps)];
        let encoder = &mut encoder;
        let each = |value: fn(&ManagerStatus) -> usize| {
            kinds.iter().map(move |(kind, status)| ([("kind", *kind)], number(value(status))))
        };
        gauges(
            encoder,
            "referencing_pods",
            "Pods whose references are followed: those that have not ended.",
            each(|status| status.pods),
        )?;
        gauges(
            encoder,
            "referenced_objects",
            "Secrets and ConfigMaps that these pods reference.",
            each(|status| status.objects),
        )?;
        gauges(
            encoder,
            "referenced_objects_synced",
            "Referenced objects whose state is known, including those that do not exist.",
            each(|status| status.synced),
        )?;
        gauges(
            encoder,
            "referenced_objects_failing",
            "Referenced objects that currently cannot be followed or fetched.",
            each(|status| status.failing),
        )?;
        gauges(
            encoder,
            "reference_watches",
            "Open watches of referenced objects.",
            each(|status| status.watches),
        )
    }
}
