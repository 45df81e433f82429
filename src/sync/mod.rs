//! Where the threads of the core meet: a cell that holds the published value.
//!
//! One thread at a time stores, any number read. What is shipped is arc-swap's cell; under `cfg(loom)` and `cfg(shuttle)`
//! it is the same set of methods on the atomics of those two, so that the models run the very code that is shipped, this
//! module apart. It must not know what is published.

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
