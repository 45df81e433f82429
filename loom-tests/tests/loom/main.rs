//! loom: every interleaving, within the bound, of the index's own code on loom's atomics.

#[cfg(loom)]
mod follow;
#[cfg(loom)]
mod models;
#[cfg(loom)]
mod planted;
#[cfg(loom)]
mod retire;

/// So that a run without the cfg says that it has shown nothing.
#[cfg(not(loom))]
#[test]
#[ignore = "needs RUSTFLAGS=\"--cfg loom\""]
fn the_models_were_explored() {}
