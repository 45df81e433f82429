//! The current objects, the events that led to them, and the watches that follow.
//!
//! Each event has its own version. The first version is the time of the agent's start in microseconds since 1970. Each
//! later one is greater by one. Therefore,
//! - a client that is disconnected in the middle of a publication resumes at the next event;
//! - versions of an earlier run are smaller, unless the clock was set back in between.
//!
//! One thread appends. It encodes a replaced object before it takes the lock. A watch takes its next events under the lock,
//! and matches and encodes them after it has released it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use im::OrdMap;
use tokio::sync::watch;

use super::event::Event;
use super::object::Object;
use super::resource::{Item, Resource};
use super::selection::Selection;
use super::shape::{Form, Kind};
use super::status;
use super::watch_limits::{WatchLimits, WatchPermit};
use crate::api::client::ClientLimits;
use crate::api::refusal::Refusal;

/// The number of events that a watch takes at a time.
const TURN: usize = 128;
/// A watch matches events with at most this many terms of its selector before it yields.
const WORK: usize = 2048;

/// The objects in the API, by namespace, slash and name.
pub(super) type State = OrdMap<Arc<str>, Arc<Object>>;

/// Limits on the memory of the history and the watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of stored events.
    pub(super) events: usize,
    /// Maximum age of a stored event, when another one comes.
    pub(super) age: Duration,
    /// Maximum bytes of the objects that the stored events replaced, and of the encoded events. No event is an exception.
    pub(super) bytes: usize,
}

/// What to show for a key from now on.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) key: Arc<str>,
    /// `None`: nothing.
    pub(super) object: Option<ShownObject>,
}

/// An object to show.
#[derive(Debug)]
pub(super) struct ShownObject {
    pub(super) item: Arc<dyn Item>,
    /// Whether `/pods` has it, and not only the Kubernetes API.
    pub(super) is_in_kubelet_view: bool,
}

impl ShownObject {
    /// What is shown by this object, unless it was replaced.
    fn of(object: &Object) -> Option<Self> {
        Some(Self { item: object.current()?, is_in_kubelet_view: object.is_in_kubelet_view })
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.item, &other.item) && self.is_in_kubelet_view == other.is_in_kubelet_view
    }

    fn has_uid_of(&self, other: &Self) -> bool {
        self.item.metadata().uid == other.item.metadata().uid
    }
}

/// The current objects.
pub(super) struct Now {
    pub(super) objects: State,
    /// The version of the last event that led to them.
    pub(super) version: u64,
}

/// How large a history is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// The number of stored events.
    pub(super) events: usize,
    /// The memory of the objects that they replaced, and of the encoded events.
    pub(super) bytes: usize,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct History {
    pub(super) of: &'static Resource,
    limits: Limits,
    pub(super) watch_limits: Arc<WatchLimits>,
    inner: Mutex<Inner>,
    /// The version for which the watches were last woken. `None`: the agent is shutting down.
    latest: watch::Sender<Option<u64>>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// The version of the last event.
    version: u64,
    /// Versions are consecutive. The last is `version`.
    events: VecDeque<Kept>,
    /// The sum of the events' `bytes`.
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    event: Arc<Event>,
    since: Instant,
    /// The memory of the object that this event replaced, and of the encoded event. The new object does not count: it is
    /// current, or a later event replaced it.
    bytes: usize,
}

/// The next step of a watch.
#[derive(Debug)]
pub(super) enum Next {
    /// The next selected event. Only one at a time: a watch whose client does not read must not hold replaced objects.
    Event(Kind, Arc<Event>),
    /// None of the next events is selected. There may be more.
    More,
    /// There are no more events.
    Nothing,
    /// The next event is no longer stored, or the version does not exist yet.
    TooOld(Refusal),
    /// The agent is shutting down.
    Closed,
}

impl History {
    /// An empty history that starts at this version.
    pub(super) fn new(
        of: &'static Resource,
        version: u64,
        limits: Limits,
        watch_limits: &Arc<WatchLimits>,
    ) -> Self {
        let inner = Inner { state: State::new(), version, events: VecDeque::new(), bytes: 0 };
        let latest = watch::Sender::new(Some(version));
        Self { of, limits, watch_limits: Arc::clone(watch_limits), inner: Mutex::new(inner), latest }
    }

    /// Records the objects to show. Only one thread calls this.
    pub(super) fn show(&self, shown: Vec<Shown>) {
        for Shown { key, object } in shown {
            let was = self.get(&key);
            let current = was.as_deref().and_then(ShownObject::of);
            match (current, object) {
                (None, None) => {}
                (Some(current), Some(object)) if current.is_same(&object) => {}
                (Some(current), Some(object)) if !current.has_uid_of(&object) => {
                    self.append(Arc::clone(&key), was, None);
                    self.append(key, None, Some(object));
                }
                (_, object) => self.append(key, was, object),
            }
        }
        self.wake();
    }

    /// Wakes the watches, if there is a new event.
    fn wake(&self) {
        let version = self.lock().version;
        self.latest.send_if_modified(|latest| {
            latest.is_some_and(|latest| latest < version) && latest.replace(version).is_some()
        });
    }

    fn append(&self, key: Arc<str>, was: Option<Arc<Object>>, object: Option<ShownObject>) {
        let version = self.lock().version + 1;
        let now = object.map(|ShownObject { item, is_in_kubelet_view }| {
            Object::new(self.of, item, version, is_in_kubelet_view)
        });
        let bytes = was.as_ref().map_or(0, |was| was.replace());
        let event = Arc::new(Event::new(version, was, now.clone()));
        let mut inner = self.lock();
        match now {
            Some(now) => inner.state.insert(key, now),
            None => inner.state.remove(&key),
        };
        inner.version = version;
        inner.bytes += bytes;
        inner.events.push_back(Kept { event, since: Instant::now(), bytes });
        self.trim(inner);
        // Not at each event: a watch that is woken takes as many at once. But before large events fill the limit of bytes.
        if version.is_multiple_of(TURN as u64) || bytes > self.limits.bytes / TURN {
            self.wake();
        }
    }

    /// Drops the oldest events while a limit is exceeded, without the lock: freeing objects takes time.
    fn trim(&self, mut inner: MutexGuard<'_, Inner>) {
        let mut dropped = Vec::new();
        let Inner { events, bytes, .. } = &mut *inner;
        let Limits { events: most, age, bytes: most_bytes } = self.limits;
        while let Some(oldest) = events.front()
            && (events.len() > most || oldest.since.elapsed() > age || *bytes > most_bytes)
        {
            *bytes -= oldest.bytes;
            dropped.extend(events.pop_front());
        }
        drop(inner);
    }

    /// The current object with this key.
    pub(super) fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.lock().state.get(key).cloned()
    }

    pub(super) fn now(&self) -> Now {
        let inner = self.lock();
        Now { objects: inner.state.clone(), version: inner.version }
    }

    pub(super) fn sizes(&self) -> Sizes {
        let inner = self.lock();
        Sizes { events: inner.events.len(), bytes: inner.bytes }
    }

    /// Starts a watch `after` a version, or else at the current one, with the objects of now. Fails if there are too many. A
    /// watch that cannot start at that version ends with its first step.
    pub(super) fn watch(
        self: &Arc<Self>,
        selection: Arc<Selection>,
        client: &ClientLimits,
        after: Option<u64>,
    ) -> Result<(Watcher, State), Refusal> {
        let permit = self.watch_limits.acquire(client).map_err(|limit| {
            self.watch_limits.refused.fetch_add(1, Ordering::Relaxed);
            status::too_many_watches(&limit)
        })?;
        let inner = self.lock();
        let version = after.unwrap_or(inner.version);
        let history = Arc::clone(self);
        let latest = self.latest.subscribe();
        Ok((Watcher { history, version, selection, latest, _permit: permit }, inner.state.clone()))
    }

    /// The event as a line, which the other watches of this form share.
    pub(super) fn line(&self, event: &Event, form: Form, kind: Kind) -> Bytes {
        // Another watch may have encoded it in the meantime.
        if let Some(line) = event.kept_line(form, kind) {
            return line;
        }
        let line = event.encode(form, kind, false);
        self.watch_limits.encoded.fetch_add(1, Ordering::Relaxed);
        event.keep_line(form, kind, line.clone());
        let mut inner = self.lock();
        let at = inner.index_behind(event.version - 1);
        if let Some(kept) = at.and_then(|at| inner.events.get_mut(at)) {
            kept.bytes += line.len();
            inner.bytes += line.len();
            self.trim(inner);
        }
        line
    }

    /// Ends all watches.
    pub(super) fn close(&self) {
        self.latest.send_replace(None);
    }

    /// Fails if this version does not exist yet, or, if the list has to be `exact`, is not the latest.
    pub(super) fn check(&self, version: u64, exact: bool) -> Result<(), Refusal> {
        let inner = self.lock();
        let is_there = if exact { version == inner.version } else { version <= inner.version };
        if is_there { Ok(()) } else { Err(inner.expired(version)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The index of the first event after `version`. `None` if that event is no longer stored or the version does not
    /// exist yet.
    fn index_behind(&self, version: u64) -> Option<usize> {
        let behind = usize::try_from(self.version.checked_sub(version)?).ok()?;
        self.events.len().checked_sub(behind)
    }

    fn expired(&self, version: u64) -> Refusal {
        let Self { version: latest, events, .. } = self;
        status::expired(if version > *latest {
            format!("there is no resource version {version} yet (the latest is {latest})")
        } else {
            format!("too old resource version: {version} ({})", latest - events.len() as u64)
        })
    }
}

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) history: Arc<History>,
    /// The version that it has reached.
    pub(super) version: u64,
    selection: Arc<Selection>,
    latest: watch::Receiver<Option<u64>>,
    _permit: WatchPermit,
}

impl Watcher {
    /// Waits until there may be events.
    pub(super) async fn woken(&mut self) {
        let reached = self.version;
        // Fails only if the history is gone, but `self` holds it.
        let _ = self.latest.wait_for(|latest| latest.is_none_or(|latest| latest > reached)).await;
    }

    /// The next step. Advances the position. Bounded work: the caller yields after [`Next::More`].
    pub(super) fn next(&mut self) -> Next {
        if self.latest.borrow().is_none() {
            return Next::Closed;
        }
        let most = (WORK / self.selection.terms().max(1)).clamp(1, TURN);
        let inner = self.history.lock();
        let Some(first) = inner.index_behind(self.version) else {
            self.history.watch_limits.too_old.fetch_add(1, Ordering::Relaxed);
            return Next::TooOld(inner.expired(self.version));
        };
        let events: Vec<_> =
            inner.events.range(first..).take(most).map(|kept| Arc::clone(&kept.event)).collect();
        let latest = inner.version;
        drop(inner);
        for event in events {
            self.version = event.version;
            if let Some(kind) = event.to(&self.selection) {
                return Next::Event(kind, event);
            }
        }
        if self.version == latest { Next::Nothing } else { Next::More }
    }
}

#[cfg(test)]
mod tests;
