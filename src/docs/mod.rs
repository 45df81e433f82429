//! Chapters that belong to no single item.

/// The tests behind each guarantee, and what is not proved.
pub mod verification {
    #![doc = include_str!("verification.md")]
}

/// How pods are stored, how a write makes the next version, and when memory is freed.
pub mod internals {
    #![doc = include_str!("internals.md")]
}

/// What lookups and writes cost, where the time goes, and how to measure it.
pub mod performance {
    #![doc = include_str!("performance.md")]
}

/// How to embed the index in your own agent.
#[cfg(any(not(doctest), feature = "k8s-openapi"))]
pub mod embedders {
    #![doc = include_str!("../../docs/embedders.md")]
}
