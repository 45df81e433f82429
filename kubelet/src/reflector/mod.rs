//! Follows the objects of one kind on the API server: one list, then watches, and recovery from every failure.
//!
//! # Rules
//! * The first list comes from the server's watch cache. A later one is not older than what was received. Only if
//!   the server refuses such a list, or is found to have another history, it reads etcd.
//! * A broken watch continues from the last version, and so does a silent one. After doubt (410, disorder), the objects are
//!   listed again, and only differences are emitted.
//! * A server that is asked for protobuf may answer in JSON. After an answer in protobuf that cannot be read, all are in JSON.
//! * An object that cannot be decoded is a problem of its own, also if this program panics on it. Its earlier version stays.
//! * Every wait after a failure is here: waits grow, with jitter. `Retry-After` is obeyed.
//! * A server may have been restored from a backup. After a watch was cut off, the versions held here are compared
//!   with a metadata list. A difference that the watch does not resolve causes a [`Update::Set`].
//!
//! * A watch that was cut off, or that began late, first sends what was missed. At its first events, others may be still to come, so
//!   nothing later counts as reported before a bookmark, which the server sends after all of them; or before the server's list has a
//!   version that has arrived.
//!
//! Nothing that an object holds is in an error.

mod arrival;
mod compare;
mod encoded;
mod failure;
mod items;
mod known;
mod lifetime;
mod protobuf_items;
mod reflect;
mod request;
mod split;
mod version;
mod waits;

use std::time::{Duration, Instant};

use pod_index::PodUid;

use crate::backoff::{Pauses, bounded, bounded_pause};

pub(crate) use encoded::Decoders;
pub(crate) use failure::Failure;
pub(crate) use known::{Cause, Undecodable};
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
    /// Every change before this moment has been emitted, and whoever asks for updates has them.
    fn reported(&self, _until: Instant) {}
    /// Nothing is requested for this long; `None`: the next request begins.
    fn pauses(&self, _pause: Option<Duration>) {}
    /// A watch has started: an earlier failure is over.
    fn watching(&self) {}
    /// The objects are listed again.
    fn relisting(&self) {}
    /// A list or a watch failed, and will be repeated.
    fn failed(&self, failure: &Failure);
    /// The objects that cannot be decoded now.
    fn undecodable<'a>(&self, objects: impl ExactSizeIterator<Item = &'a Undecodable>);
}

/// How long to wait for an API server.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::sources::api_server::Times;
///
/// let times = Times { patience: Duration::from_secs(10), ..Times::default() };
/// # drop(times);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The first and the longest wait after failures; 0.8 s and 7.5 s by default. Each wait is randomly shortened by up
    /// to a third.
    pub backoff: Pauses,
    /// Time limit for the beginning of an answer, and for each part of a list; 60 s by default.
    pub patience: Duration,
    /// A watch without an event or a bookmark for this long is given up, and continued over another connection; 150 s by
    /// default. API servers send a bookmark about once a minute. One whose etcd sends few progress notices sends none while
    /// nothing changes: it is then asked for shorter watches (60 to 80 % of this), because the end of a watch also shows that the
    /// connection works.
    pub silence: Duration,
    /// Over HTTP/1.1, which has no pings, a watch lasts no longer than this, randomly shortened by up to a third; 30 s by
    /// default. If it does not end a third of this later, or does not begin by then, it counts as dead, too. So a proxy that keeps
    /// a connection open and swallows the events is noticed within 40 s, as over HTTP/2, for a request every 25 s.
    pub http1_watch: Duration,
    /// After a broken watch was continued, the objects are compared with the server's list. This is the delay of the
    /// comparison; 10 s by default, randomly shortened by up to a third.
    pub compare_after: Duration,
}

impl Times {
    /// The same times, short enough to be added to any `Instant`. Those for which a loop pauses are never zero.
    fn bounded(self) -> Self {
        Self {
            backoff: self.backoff.bounded(),
            patience: bounded(self.patience),
            silence: bounded(self.silence),
            http1_watch: bounded(self.http1_watch),
            compare_after: bounded_pause(self.compare_after),
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            // client-go's reflector also starts with 0.8 s, but waits up to 30 s.
            backoff: Pauses::new(Duration::from_millis(800), Duration::from_millis(7500)),
            patience: Duration::from_secs(60),
            silence: Duration::from_secs(150),
            http1_watch: Duration::from_secs(30),
            compare_after: Duration::from_secs(10),
        }
    }
}
