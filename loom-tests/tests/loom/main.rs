//! loom: all interleavings, within the bound, of the index's own code on loom's atomics.
//!
//! ```sh
//! # Every interleaving within three preemptions:
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release --manifest-path loom-tests/Cargo.toml -- --nocapture
//! # The small models without a bound:
//! RUSTFLAGS="--cfg loom" cargo test --release --manifest-path loom-tests/Cargo.toml small -- --nocapture
//! # Every planted bug must fail:
//! loom-tests/planted/run
//! ```
//!
//! Each model compares complete states: the plain maps of the property tests compute beforehand what the
//! writer will publish, and each snapshot that a reader gets must be the state of its generation in every
//! read.
#![cfg_attr(loom, forbid(unsafe_code))]

#[cfg(loom)]
extern crate modelled_index as pod_index;

#[cfg(loom)]
#[path = "../shared/explore.rs"]
mod explore;
#[cfg(loom)]
mod follow;
#[cfg(loom)]
#[path = "../shared/history.rs"]
mod history;
#[cfg(loom)]
mod models;
#[cfg(loom)]
mod retire;
#[cfg(loom)]
#[path = "../../../tests/support/mod.rs"]
mod support;

/// Without the cfg, this makes the run report that it proved nothing.
#[cfg(not(loom))]
#[test]
#[ignore = "needs RUSTFLAGS=\"--cfg loom\""]
fn the_models_were_explored() {}
