//! loom: all interleavings, within the bound, of the index's own code on loom's atomics.

#[cfg(loom)]
mod follow;
#[cfg(loom)]
mod models;
#[cfg(loom)]
mod planted;
#[cfg(loom)]
mod retire;

/// Without the cfg, this makes the run report that it proved nothing.
#[cfg(not(loom))]
#[test]
#[ignore = "needs RUSTFLAGS=\"--cfg loom\""]
fn the_models_were_explored() {}
