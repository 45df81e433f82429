//! The cell that holds the published value: where the threads of the core meet.
//!
//! One thread at a time stores; any number of threads read. Releases use arc-swap's cell. Under `cfg(loom)`
//! and `cfg(shuttle)`, the same methods use those tools' atomics, so that the models run the shipped code
//! except for this module. It does not depend on what is published.

#[cfg(not(any(loom, shuttle)))]
mod swap;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::swap::{Arc, Cached, Guard, Mutex, Published, is_sole_owner};

#[cfg(any(loom, shuttle))]
mod model;
#[cfg(any(loom, shuttle))]
pub use self::model::freed_by_this_thread;
#[cfg(any(loom, shuttle))]
pub(crate) use self::model::{Arc, Cached, Guard, Mutex, Published, is_sole_owner, planted};

pub(crate) mod park;
