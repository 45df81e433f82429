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

/// Whether to embed the index in your own agent, how to begin, and how to test and upgrade.
#[cfg(any(not(doctest), feature = "k8s-openapi"))]
pub mod embedders {
    #![doc = include_str!("../../docs/embedders.md")]
}

/// Which call finds the pod of an event, now or at its time, and what it costs.
#[cfg(any(not(doctest), feature = "k8s-openapi"))]
pub mod lookups {
    #![doc = include_str!("../../docs/lookups.md")]
}

/// How to write, follow and stop, with a pod type of your own, and what to watch meanwhile.
#[cfg(any(not(doctest), feature = "k8s-openapi"))]
pub mod writing {
    #![doc = include_str!("../../docs/writing.md")]
}
