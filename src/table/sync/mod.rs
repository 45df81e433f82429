//! Where the threads of the core meet: the cell that holds the published value, and what followers sleep on.
//!
//! One thread at a time stores; any number of threads read. Under `cfg(loom)` and `cfg(shuttle)`, `loom-tests`
//! replaces this module alone by the same methods on those tools' atomics, so that its models run the shipped code. It
//! does not depend on what is published.

#[cfg(not(any(loom, shuttle)))]
mod cell;
#[cfg(not(any(loom, shuttle)))]
mod park;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::{
    cell::{Arc, Cached, Guard, Mutex, Published, is_sole_owner},
    park::{AtomicBool, Parker, has_failed},
};

#[cfg(any(loom, shuttle))]
#[path = "../../../loom-tests/src/model.rs"]
mod model;
#[cfg(any(loom, shuttle))]
pub use self::model::freed_by_this_thread;
#[cfg(any(loom, shuttle))]
pub(crate) use self::model::{
    Arc, AtomicBool, Cached, Guard, Mutex, Parker, Published, has_failed, is_sole_owner,
};
