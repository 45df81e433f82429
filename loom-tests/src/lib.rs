//! Models of the index for loom and for shuttle, and what they share.
//!
//! ```sh
//! # Every interleaving within three preemptions, and every planted bug:
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release --manifest-path loom-tests/Cargo.toml -- --nocapture
//! # The small models with no bound at all:
//! RUSTFLAGS="--cfg loom" cargo test --release --manifest-path loom-tests/Cargo.toml small -- --nocapture
//! # Random schedules of more threads and longer histories:
//! RUSTFLAGS="--cfg shuttle" cargo test --release --manifest-path loom-tests/Cargo.toml -- --nocapture
//! ```
//!
//! Without one of the two cfgs there is nothing to run here: the tests then say that they were ignored.
//!
//! Each model compares whole states: what the writer will publish is worked out beforehand, by the plain maps that the
//! property tests use, and whatever snapshot a reader gets must be the state of its generation in every read.
#![forbid(unsafe_code)]

#[cfg(any(loom, shuttle))]
pub mod explore;
pub mod history;
pub mod support;

/// The bug that this run is asked to have, if any. `pod_index` plants the bugs of its own cell under the same variable.
#[must_use]
pub fn planted(bug: &str) -> bool {
    std::env::var("POD_INDEX_PLANTED").is_ok_and(|planted| planted == bug)
}
