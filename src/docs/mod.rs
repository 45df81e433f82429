//! Chapters that belong to no single item.

/// What is promised, and what holds the promise.
pub mod verification {
    #![doc = include_str!("verification.md")]
}
