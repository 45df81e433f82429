//! loom: all interleavings, within the bound, of the index's own code on loom's atomics.
//!
//! ```sh
//! # Every interleaving within three preemptions:
//! RUSTFLAGS="--cfg pod_index_loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release --manifest-path loom-tests/Cargo.toml -- --nocapture
//! # The small models without a bound:
//! RUSTFLAGS="--cfg pod_index_loom" cargo test --release --manifest-path loom-tests/Cargo.toml small -- --nocapture
//! # Every planted bug must fail:
//! loom-tests/planted/run
//! ```
//!
//! Each model compares complete states: the plain maps of the property tests compute beforehand what the
//! writer will publish, and each snapshot that a reader gets must be the state of its generation in every
//! read.
#![cfg_attr(pod_index_loom, forbid(unsafe_code))]

#[cfg(pod_index_loom)]
extern crate modelled_index as pod_index;

#[cfg(pod_index_loom)]
mod coverage;
#[cfg(pod_index_loom)]
#[path = "../shared/explore.rs"]
mod explore;
#[cfg(pod_index_loom)]
mod follow;
#[cfg(pod_index_loom)]
#[path = "../shared/history.rs"]
mod history;
#[cfg(pod_index_loom)]
mod models;
#[cfg(pod_index_loom)]
mod retire;
#[cfg(pod_index_loom)]
#[path = "../../../tests/support/mod.rs"]
mod support;

/// Without the cfg, this makes the run report that it proved nothing.
#[cfg(not(pod_index_loom))]
#[test]
#[ignore = "needs RUSTFLAGS=\"--cfg pod_index_loom\""]
fn the_models_were_explored() {}
