//! The number of dropped log lines.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::counter;
use crate::config::log::Log;

#[derive(Debug)]
pub(super) struct LogLines(pub(super) Log);

impl Collector for LogLines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        counter(
            &mut encoder,
            "dropped_log_lines",
            "Log lines dropped because standard error blocked.",
            self.0.dropped_lines(),
        )
    }
}
