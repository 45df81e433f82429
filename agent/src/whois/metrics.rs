//! Lookups by clients, by kind and outcome.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::metrics::counters;
use crate::whois::Lookups;

#[derive(Debug)]
pub(crate) struct ByClients(pub(crate) Lookups);

impl Collector for ByClients {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        counters(
            &mut encoder,
            "lookups",
            "Pods that clients looked up, by kind of identity and outcome.",
            self.0.series(),
        )
    }
}
