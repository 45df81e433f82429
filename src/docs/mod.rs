//! Chapters that belong to no single item.

/// The tests behind each guarantee, and what is not proved.
pub mod verification {
    #![doc = include_str!("verification.md")]
}

/// The lock-free tables below the pods: the algorithm, its rules and orderings, and what it costs.
pub mod table {
    #![doc = include_str!("table.md")]
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
