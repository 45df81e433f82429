//! Follows the objects of one kind on the API server: one list, then watches, and recovery from every failure.
//!
//! # Rules
//! * The first list comes from the server's watch cache. A later one is not older than what was received. Only if
//!   the server refuses such a list, or is found to have another history, it reads etcd.
//! * A broken watch continues from the last version. After doubt (410, silence, disorder), the objects are listed
//!   again, and only differences are emitted.
//! * An object that cannot be decoded is a problem of its own. Its earlier version stays.
//! * Every wait after a failure is here: waits grow, with jitter. `Retry-After` is obeyed.
//! * A server may have been restored from a backup. After a watch was cut off, the versions held here are compared
//!   with a metadata list. A difference that the watch does not resolve causes a [`Update::Set`].
//!
//! Nothing that an object holds is in an error.

mod compare;
mod failure;
mod items;
mod known;
mod reflect;
mod request;
mod waits;

use std::time::Duration;

use pod_index::PodUid;

pub(crate) use failure::Failure;
pub(crate) use known::Undecodable;
pub(crate) use reflect::Reflector;
pub(crate) use request::Requests;

/// What has changed. An update may be empty.
#[derive(Debug)]
pub(crate) enum Update<T> {
    /// All objects.
    Set(Vec<T>),
    /// New and changed objects.
    Upsert(Vec<T>),
    /// These are gone. Left out are objects of which no version was emitted.
    Remove(Vec<PodUid>),
}

/// Receives what is no change.
pub(crate) trait Observer {
    /// The server has sent something.
    fn heard(&self) {}
    /// A watch has started: an earlier failure is over.
    fn watching(&self) {}
    /// The objects are listed again.
    fn relisting(&self) {}
    /// A list or a watch failed, and will be repeated.
    fn failed(&self, failure: &Failure);
    /// The objects that cannot be decoded now.
    fn undecodable<'a>(&self, objects: impl ExactSizeIterator<Item = &'a Undecodable>);
}

/// The times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The first and the longest wait after failures.
    pub(crate) backoff: (Duration, Duration),
    /// Time limit for the beginning of an answer, and for each part of a list.
    pub(crate) patience: Duration,
    /// A watch without an event or a bookmark for this long counts as dead.
    pub(crate) silence: Duration,
    /// Delay of the comparison after a watch was cut off.
    pub(crate) compare_after: Duration,
    /// Requested lifetime of a watch. By default random, so that watches do not all end at once.
    pub(crate) watch: Option<Duration>,
}
