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
//! Without one of the two cfgs there is nothing to run; the tests then report that they were ignored.
//!
//! Each model compares complete states: the plain maps of the property tests compute beforehand what the
//! writer will publish, and each snapshot that a reader gets must be the state of its generation in every
//! read.
#![forbid(unsafe_code)]

#[cfg(any(loom, shuttle))]
pub mod explore;
pub mod history;
pub mod support;

/// The bug requested for this run, if any. `pod_index` plants the bugs of its own cell using the same
/// variable.
#[must_use]
pub fn planted(bug: &str) -> bool {
    std::env::var("POD_INDEX_PLANTED").is_ok_and(|planted| planted == bug)
}
