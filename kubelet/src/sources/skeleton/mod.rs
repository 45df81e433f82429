//! What sources have in common. To add a source, write what is particular to it. How much that is depends on its kind: one that
//! is read as a whole leaves almost everything to [`poll`]; one that keeps a connection does most of it by itself.
//!
//! | a source that | implements | examples |
//! |---|---|---|
//! | is read again and again, each time as a whole | [`Read`]: one read in, one [`Reading`] out | a path, a URL, a kubelet |
//! | keeps a connection, over which changes come | [`Follow`](follow::Follow): waits for the next update | a kubelet's socket, an API server |
//!
//! [`follow`] runs the second kind, and the first kind through [`poll`]. Who does what?
//!
//! | | a [`Read`] | a [`Follow`](follow::Follow) |
//! |---|---|---|
//! | when to read or connect: period, nudges, retries and their pauses | `poll` | the source |
//! | what may block, on one thread of the source | the source, by the [`OneThread`](crate::blocking::OneThread) that it is given | the source |
//! | records each read in the status (`read`, `read_incompletely`, `failed`) | `poll`, from the [`Reading`] | the source |
//! | records a sign of life that is no read (`heard`), and the next try (`tries_again`) | `poll` | the source |
//! | refuses mirror pods, removes forged marks, transforms: makes an [`Admitted`] pod of a decoded one | the source, by [`Admission::admit`] | the same |
//! | compares with the last set of pods, and records that an update is emitted (`updated`) | `poll` | the source, by [`Emitted::news`] |
//! | after a panic: records it, pauses, begins again | `follow` | `follow` |
//!
//! A source that panics, which is a defect of its decoder, say, ends nothing else: its status says so, its last pods stay, and
//! it begins again after a pause that grows to a minute.
//!
//! Nothing here knows what is read, or how.

mod admission;
mod follow;
mod poll;

pub(super) use admission::{Admission, Admitted, Emitted, UnexpectedMirrorPod, as_first_seen, objects};

#[cfg(any(feature = "api-server", all(unix, feature = "kubelet-socket")))]
pub(super) use follow::{Follow, follow};
pub(super) use poll::{Pace, Read, ReadResult, Reading, poll};
