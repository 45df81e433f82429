//! Status of the checkpoints, for people and metrics. Plain data.

use super::error::CheckpointError;

/// Status of the checkpoints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CheckpointStatus {
    /// The latest generation of the index that is completely on disk. `None` before the first.
    pub generation: Option<u64>,
    /// Number of checkpoints on disk.
    pub files: usize,
    /// Current errors, at most 100. Each is retried until it is resolved.
    pub errors: Vec<CheckpointError>,
    /// Number of pods whose checkpoints do not match the index.
    pub wrong: usize,
    /// Number of checkpoints written so far.
    pub written: u64,
    /// Number of failed writes and removals.
    pub failures: u64,
    /// Number of files that were set aside.
    pub set_aside: usize,
    /// Number of files that were not read at the start, or could not be, and were not replaced, removed or set aside since.
    pub unread: usize,
}
