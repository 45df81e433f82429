//! Checkpoint metrics, if this agent keeps checkpoints.

use std::fmt;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{counter, gauge, number};
use pod_index_kubelet::checkpoint::CheckpointStatus;

/// Collects the state of the checkpoints on each scrape.
pub(super) struct Checkpoints(pub(super) Box<dyn Fn() -> CheckpointStatus + Send + Sync>);

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Checkpoints").field(&(self.0)()).finish()
    }
}

impl Collector for Checkpoints {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = (self.0)();
        let encoder = &mut encoder;
        gauge(encoder, "checkpoint_files", "Checkpoints on disk.", number(status.files))?;
        gauge(
            encoder,
            "checkpoint_generation",
            "The last generation of the index that is completely on disk.",
            i64::try_from(status.generation.unwrap_or_default()).unwrap_or(i64::MAX),
        )?;
        gauge(
            encoder,
            "checkpoint_problems",
            "Pods whose checkpoints are missing or outdated.",
            number(status.wrong),
        )?;
        gauge(
            encoder,
            "checkpoint_files_set_aside",
            "Unusable files, or directories in their place, that were set aside.",
            number(status.set_aside),
        )?;
        gauge(
            encoder,
            "checkpoint_files_unread",
            "Files that could not be read at the start and still exist.",
            number(status.unread),
        )?;
        counter(encoder, "checkpoint_writes", "Checkpoints written.", status.written)?;
        counter(encoder, "checkpoint_removals", "Checkpoints removed.", status.removed)?;
        let help = "Failed attempts to write or remove a checkpoint.";
        counter(encoder, "checkpoint_failures", help, status.failures)?;
        let last = status.last_failure.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        gauge(
            encoder,
            "checkpoint_last_failure_timestamp_seconds",
            "Time of the last failed attempt; 0 if none.",
            last.map_or(0.0, |last| last.as_secs_f64()),
        )
    }
}
