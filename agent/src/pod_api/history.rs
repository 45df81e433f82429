//! The current objects, the events that led to them, and the positions of the watches that follow, under one lock.
//!
//! Each event has its own version. The first version is the time of the agent's start in microseconds since 1970. Each
//! later one is greater by one. Therefore,
//! - a client that is disconnected in the middle of a publication resumes at the next event;
//! - versions of an earlier run are smaller, unless the clock was set back in between.
//!
//! One thread appends. It encodes the replaced objects, and the events for the watches that they may affect, before it
//! takes the lock. A watch matches events with its selector after it has released the lock.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use im::OrdMap;
use tokio::sync::Notify;

use super::event::Event;
use super::object::{Content, Object};
use super::resource::{Item, Resource};
use super::seats::{Seat, Seats};
use super::selection::{Marks, Selection};
use super::shape::{Form, Kind};
use super::status::Refusal;

/// The number of events to append, or to look through, before releasing the lock.
const TURN: usize = 128;
/// Maximum bytes to encode before appending.
const TURN_BYTES: usize = 1 << 20;
/// A watch matches events with at most this many terms of its selector before it yields.
const WORK: usize = 2048;

/// The objects in the API, by namespace, slash and name.
pub(super) type State = OrdMap<Arc<str>, Arc<Object>>;

/// Limits on the memory of the history and the watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of stored events.
    pub(super) events: usize,
    /// Maximum age of a stored event.
    pub(super) age: Duration,
    /// Maximum bytes of the objects that the stored events replaced, and of the encoded events. No event is an exception.
    pub(super) bytes: usize,
}

/// The object to show for a key, and whether `/pods` has it.
pub(super) type Shown = (Arc<str>, Option<(Arc<dyn Item>, bool)>);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct History {
    pub(super) of: &'static Resource,
    limits: Limits,
    pub(super) seats: Arc<Seats>,
    inner: Mutex<Inner>,
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
    /// A watch keeps its index here. New watches reuse free indices.
    watches: Vec<Option<Place>>,
    is_closed: bool,
}

#[derive(Debug)]
struct Kept {
    event: Arc<Event>,
    since: Instant,
    /// The memory of the object that this event replaced, and of the encoded event. The new object does not count: it is
    /// current, or a later event replaced it.
    bytes: usize,
}

/// The position of a watch.
#[derive(Debug)]
struct Place {
    marks: Marks,
    form: Form,
    /// The version that the watch has reached.
    version: u64,
    wake: Arc<Notify>,
}

/// The sizes of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Stored events.
    pub(super) events: usize,
    /// The memory of the objects that they replaced, and of the encoded events.
    pub(super) bytes: usize,
    /// Open watches.
    pub(super) watches: usize,
}

/// The next step of a watch.
#[derive(Debug)]
pub(super) enum Next {
    /// The next selected event. Only one at a time: a watch whose client does not read must not hold replaced objects.
    Event(Kind, Arc<Event>),
    /// No selected events up to this version. There may be more.
    More(u64),
    /// No events. This version is the latest.
    Nothing(u64),
    /// The next event is no longer stored.
    TooOld(Refusal),
    /// The agent is shutting down.
    Closed,
}

impl History {
    /// An empty history that starts at this version.
    pub(super) fn new(of: &'static Resource, version: u64, limits: Limits, seats: &Arc<Seats>) -> Self {
        let inner = Inner {
            state: State::new(),
            version,
            events: VecDeque::new(),
            bytes: 0,
            watches: Vec::new(),
            is_closed: false,
        };
        Self { of, limits, seats: Arc::clone(seats), inner: Mutex::new(inner) }
    }

    /// Records the objects to show. Only one thread calls this.
    pub(super) fn show(&self, shown: Vec<Shown>) {
        let mut shown = shown.into_iter().peekable();
        while shown.peek().is_some() {
            let mut turn = {
                let inner = self.lock();
                let watched = inner.places().map(|place| (place.marks, place.form)).collect();
                Turn {
                    of: self.of,
                    state: inner.state.clone(),
                    version: inner.version,
                    watched,
                    kept: Vec::new(),
                    bytes: 0,
                }
            };
            while turn.kept.len() < TURN && turn.bytes < TURN_BYTES {
                let Some((key, object)) = shown.next() else { break };
                turn.change(key, object);
            }
            let encoded: usize = turn.kept.iter().map(|kept| kept.event.encoded()).sum();
            self.seats.counts.encoded.fetch_add(encoded as u64, Ordering::Relaxed);
            let dropped = self.lock().append(turn, &self.limits);
            drop(dropped);
        }
    }

    /// Drops events past their maximum age.
    pub(super) fn age(&self) {
        let dropped = self.lock().trim(&self.limits, Instant::now());
        drop(dropped);
    }

    /// The current objects and their version.
    pub(super) fn now(&self) -> (State, u64) {
        let inner = self.lock();
        (inner.state.clone(), inner.version)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let inner = self.lock();
        Sizes { events: inner.events.len(), bytes: inner.bytes, watches: inner.places().count() }
    }

    /// Starts a watch `after` a version, or else at the current one. The outer error means too many watches, the inner one
    /// that a watch cannot start at that version.
    pub(super) fn watch(
        self: &Arc<Self>,
        selection: Arc<Selection>,
        form: Form,
        client: &Arc<str>,
        after: Option<u64>,
    ) -> Result<Result<Begun, Refusal>, Refusal> {
        let marks = selection.marks();
        let seat = self.seats.take(client).map_err(|limit| {
            self.seats.counts.refused.fetch_add(1, Ordering::Relaxed);
            Refusal::too_many_watches(&limit)
        })?;
        let mut inner = self.lock();
        let version = after.unwrap_or(inner.version);
        if inner.index_behind(version).is_none() {
            return Ok(Err(inner.expired(version)));
        }
        let wake = Arc::new(Notify::new());
        let place = Place { marks, form, version, wake: Arc::clone(&wake) };
        // There may already be later events.
        wake.notify_one();
        let id = inner.watches.iter().position(Option::is_none).unwrap_or(inner.watches.len());
        if id == inner.watches.len() {
            inner.watches.push(None);
        }
        inner.watches[id] = Some(place);
        let watcher = Watcher { history: Arc::clone(self), id, selection, wake, _seat: seat };
        Ok(Ok(Begun { watcher, state: inner.state.clone(), version }))
    }

    /// Ends all watches and rejects new ones.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.places().for_each(|place| place.wake.notify_one());
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

/// Events that are not appended yet.
struct Turn {
    of: &'static Resource,
    state: State,
    version: u64,
    /// The marks and the form of each watch.
    watched: Vec<(Marks, Form)>,
    kept: Vec<Kept>,
    bytes: usize,
}

impl Turn {
    /// Records the events of one key.
    fn change(&mut self, key: Arc<str>, object: Option<(Arc<dyn Item>, bool)>) {
        let was = self.state.get(&key).cloned();
        match (was, object) {
            (None, None) => {}
            (Some(was), Some((object, is_listed))) if was.is(&object) && was.is_listed == is_listed => {}
            (Some(was), Some(object)) if uid(&was) != object.0.metadata().uid => {
                self.event(key.clone(), Some(was), None);
                self.event(key, None, Some(object));
            }
            (was, object) => self.event(key, was, object),
        }
    }

    fn event(&mut self, key: Arc<str>, was: Option<Arc<Object>>, object: Option<(Arc<dyn Item>, bool)>) {
        self.version += 1;
        let now = object.map(|(object, is_listed)| Object::new(self.of, object, self.version, is_listed));
        match &now {
            Some(now) => self.state.insert(key, Arc::clone(now)),
            None => self.state.remove(&key),
        };
        let watched = &self.watched;
        let forms = |marks: Marks| {
            let mut forms = Vec::new();
            for (wanted, form) in watched {
                if !forms.contains(form) && marks.may_have(*wanted) {
                    forms.push(*form);
                }
            }
            forms
        };
        let event = Event::new(self.version, was, now, forms);
        let bytes = event.bytes() + event.was.as_ref().map_or(0, |was| was.replace());
        self.bytes += bytes;
        self.kept.push(Kept { event: Arc::new(event), since: Instant::now(), bytes });
    }
}

/// The UID of a current object.
pub(super) fn uid(object: &Object) -> Option<String> {
    match object.content() {
        Content::Live(object) => object.metadata().uid.clone(),
        Content::Replaced(_) => None,
    }
}

impl Inner {
    fn places(&self) -> impl Iterator<Item = &Place> {
        self.watches.iter().flatten()
    }

    /// Appends events and wakes the watches that they may affect. Advances the others. Returns what to drop without the
    /// lock: freeing objects takes time.
    #[must_use]
    fn append(&mut self, turn: Turn, limits: &Limits) -> (State, Vec<Kept>) {
        let before = self.version;
        for place in self.watches.iter_mut().flatten() {
            // A watch at an older version has been woken but has not run yet.
            if place.version != before {
                continue;
            }
            if turn.kept.iter().any(|kept| kept.event.marks.may_have(place.marks)) {
                place.wake.notify_one();
            } else {
                place.version = turn.version;
            }
        }
        let state = std::mem::replace(&mut self.state, turn.state);
        self.version = turn.version;
        self.bytes += turn.bytes;
        self.events.extend(turn.kept);
        (state, self.trim(limits, Instant::now()))
    }

    /// Removes the oldest events while a limit is exceeded. Drop them without the lock.
    #[must_use]
    fn trim(&mut self, limits: &Limits, now: Instant) -> Vec<Kept> {
        let mut dropped = Vec::new();
        while let Some(oldest) = self.events.front() {
            let is_over = self.events.len() > limits.events
                || now.saturating_duration_since(oldest.since) > limits.age
                || self.bytes > limits.bytes;
            if !is_over {
                break;
            }
            self.bytes -= oldest.bytes;
            dropped.extend(self.events.pop_front());
        }
        dropped
    }

    /// The index of the first event after `version`. `None` if that event is no longer stored or the version does not
    /// exist yet.
    fn index_behind(&self, version: u64) -> Option<usize> {
        let behind = usize::try_from(self.version.checked_sub(version)?).ok()?;
        self.events.len().checked_sub(behind)
    }

    fn expired(&self, version: u64) -> Refusal {
        let oldest = self.version - self.events.len() as u64;
        if version > self.version {
            return Refusal::expired(format!(
                "there is no resource version {version} yet (the latest is {})",
                self.version
            ));
        }
        Refusal::expired(format!("too old resource version: {version} ({oldest})"))
    }
}

/// A started watch.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) watcher: Watcher,
    /// The objects at the start.
    pub(super) state: State,
    /// The version after which its events begin.
    pub(super) version: u64,
}

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) history: Arc<History>,
    id: usize,
    pub(super) selection: Arc<Selection>,
    wake: Arc<Notify>,
    _seat: Seat,
}

impl Watcher {
    /// Waits until there may be events.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The next step. Advances the position. Bounded work: the caller yields after [`Next::More`].
    pub(super) fn next(&self) -> Next {
        // The events that the watch may select.
        let most = (WORK / self.selection.terms().max(1)).clamp(1, TURN);
        let mut may_match = Vec::new();
        let mut reached;
        {
            let mut inner = self.history.lock();
            let Inner { events, watches, version, is_closed, .. } = &mut *inner;
            let Some(place) = watches[self.id].as_mut().filter(|_| !*is_closed) else { return Next::Closed };
            let behind = usize::try_from(*version - place.version).unwrap_or(usize::MAX);
            let Some(first) = events.len().checked_sub(behind) else {
                let version = place.version;
                self.history.seats.counts.too_old.fetch_add(1, Ordering::Relaxed);
                return Next::TooOld(inner.expired(version));
            };
            reached = place.version;
            for kept in events.range(first..).take(TURN) {
                reached = kept.event.version;
                if kept.event.marks.may_have(place.marks) {
                    may_match.push(Arc::clone(&kept.event));
                    if may_match.len() == most {
                        break;
                    }
                }
            }
        }
        let found = may_match.into_iter().find_map(|event| Some((event.to(&self.selection)?, event)));
        if let Some((_, event)) = &found {
            reached = event.version;
        }
        let mut inner = self.history.lock();
        let latest = inner.version;
        if let Some(place) = &mut inner.watches[self.id] {
            place.version = reached;
        }
        drop(inner);
        match found {
            Some((kind, event)) => Next::Event(kind, event),
            None if reached == latest => Next::Nothing(latest),
            None => Next::More(reached),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.history.lock().watches[self.id] = None;
    }
}

/// The objects of a namespace, or of all namespaces, after a key.
pub(super) fn range<'a>(
    state: &'a State,
    namespace: Option<&str>,
    after: Option<&Arc<str>>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)> + use<'a> {
    let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let start = match after {
        Some(after) => Bound::Excluded(Arc::clone(after)),
        None => Bound::Included(Arc::from(&*prefix)),
    };
    state.range::<_, Arc<str>>((start, Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(&prefix))
}

#[cfg(test)]
mod tests;
