//! What all sources have in common. To add a source, write what is particular to it, and leave the rest to this module.
//!
//! | a source that | implements | examples |
//! |---|---|---|
//! | is read again and again, each time as a whole | [`Read`]: one read in, one [`Reading`] out | a path, a URL, a kubelet |
//! | keeps a connection, over which changes come | [`Follow`](follow::Follow): waits for the next update | a kubelet's socket, an API server |
//!
//! [`poll`] runs the first kind: it decides when to read (the period, nudges, retries), does what may block on one thread of
//! the source, records the status, and emits a set of pods if it differs from the last one. [`follow`] runs the second kind,
//! and the first kind through it. A source that panics, which is a defect of its decoder, say, ends nothing else: its status
//! says so, its last pods stay, and it begins again after a pause that grows to a minute.
//!
//! Nothing here knows what is read, or how.

mod follow;
mod poll;

#[cfg(any(feature = "api-server", all(unix, feature = "kubelet-socket")))]
pub(super) use follow::{Follow, follow};
pub(super) use poll::{Pace, Read, ReadResult, Reading, poll};
