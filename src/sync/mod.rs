//! The one place where threads meet: a cell that holds the published value.
//!
//! One thread stores, any number read. Outside loom it is arc-swap's; under `cfg(loom)` it is the same set of methods on
//! loom's atomics, so that the models run the very code that is shipped, this file apart. This room must not know what
//! is published.

#[cfg(not(loom))]
mod swap;
#[cfg(not(loom))]
pub(crate) use self::swap::{Arc, Cached, Guard, Mutex, Published, is_sole_owner};

#[cfg(loom)]
mod loom;
#[cfg(loom)]
pub(crate) use self::loom::{Arc, Cached, Guard, Mutex, Published, is_sole_owner};
