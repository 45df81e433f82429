//! Where the threads of the core meet: the cell that holds the published value, what followers sleep on, and the atomics of
//! both and of `pods::times`.
//!
//! One thread at a time stores; any number of threads read. Under `cfg(pod_index_loom)` and `cfg(pod_index_shuttle)`, `loom-tests`
//! replaces this module alone by the same methods on those tools' atomics, so that its models run the shipped code. It
//! does not depend on what is published.

#[cfg(not(any(pod_index_loom, pod_index_shuttle)))]
mod cell;
#[cfg(not(any(pod_index_loom, pod_index_shuttle)))]
mod park;
#[cfg(not(any(pod_index_loom, pod_index_shuttle)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64};

#[cfg(not(any(pod_index_loom, pod_index_shuttle)))]
pub(crate) use self::{
    cell::{Arc, Cached, Guard, Mutex, Published, is_sole_owner},
    park::{Parker, has_failed},
};

#[cfg(any(pod_index_loom, pod_index_shuttle))]
#[path = "../../../loom-tests/src/model.rs"]
mod model;
#[cfg(any(pod_index_loom, pod_index_shuttle))]
pub use self::model::freed_by_this_thread;
#[cfg(any(pod_index_loom, pod_index_shuttle))]
pub(crate) use self::model::{
    Arc, AtomicBool, AtomicI64, Cached, Guard, Mutex, Parker, Published, has_failed, is_sole_owner,
};
