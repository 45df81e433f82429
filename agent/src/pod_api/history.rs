//! The current pods, the events that led to them, and the watches that follow, all under one lock.
//!
//! Each event has its own version. The first version is the time of the agent's start in microseconds since 1970. Each
//! later one is greater by one. Therefore,
//! - a client that is disconnected in the middle of a publication resumes at the next event;
//! - versions of an earlier run are smaller, unless the clock was set back in between.
//!
//! A watch has a selection and a position in the history. A new event wakes the watches whose selection it affects. The
//! positions of the others advance.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use im::OrdMap;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use tokio::sync::Notify;

use super::encodings::Encodings;
use super::event::Event;
use super::footprint;
use super::object::Object;
use super::selection::{Marks, Selection};
use super::shape::Kind;
use super::status::Refusal;

/// The number of changes or events to process before releasing the lock.
const TURN: usize = 512;

/// The pods in the API, by namespace, slash and name.
pub(super) type State = OrdMap<Arc<str>, Arc<Object>>;

/// Limits on the memory of the history and the watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of stored events.
    pub(super) events: usize,
    /// Maximum age of a stored event.
    pub(super) age: Duration,
    /// Maximum of the estimated bytes of the pods that the stored events replaced.
    pub(super) replaced: usize,
    /// This many events are stored even if they exceed `replaced`.
    pub(super) least: usize,
    /// Maximum bytes of cached encodings.
    pub(super) encoded: usize,
    /// Maximum number of watches.
    pub(super) watches: usize,
    /// Maximum number of watches per client.
    pub(super) watches_per_client: usize,
}

/// Counters of watches and events.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) events_sent: AtomicU64,
    pub(super) coalesced: AtomicU64,
    pub(super) too_old: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct History {
    limits: Limits,
    inner: Mutex<Inner>,
    pub(super) encodings: Encodings,
    pub(super) counts: Counts,
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
    /// Estimated memory of the pod that this event replaced. The new pod does not count: it is current, or a later event
    /// replaced it.
    bytes: usize,
}

/// The position of a watch.
#[derive(Debug)]
struct Place {
    client: Arc<str>,
    selection: Arc<Selection>,
    marks: Marks,
    /// The version that the watch has reached.
    version: u64,
    wake: Arc<Notify>,
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The current version.
    Now,
    /// After this version.
    After(u64),
}

/// The sizes of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Stored events.
    pub(super) events: usize,
    /// Estimated memory of the pods that they replaced, in bytes.
    pub(super) bytes: usize,
    /// Open watches.
    pub(super) watches: usize,
}

/// The next step of a watch.
#[derive(Debug)]
pub(super) enum Next {
    /// The next selected event. Only one at a time: a watch whose client does not read must not hold replaced pods.
    Event(Kind, Arc<Object>, u64),
    /// No events. This version is the latest.
    Nothing(u64),
    /// The next event is no longer stored.
    TooOld(Refusal),
    /// The agent is shutting down.
    Closed,
}

impl History {
    /// An empty history that starts at this version.
    pub(super) fn new(version: u64, limits: Limits) -> Self {
        let inner = Inner {
            state: State::new(),
            version,
            events: VecDeque::new(),
            bytes: 0,
            watches: Vec::new(),
            is_closed: false,
        };
        let encodings = Encodings::new(limits.encoded);
        Self { limits, inner: Mutex::new(inner), encodings, counts: Counts::default() }
    }

    /// Records the objects to show for these names.
    pub(super) fn show(&self, names: Vec<(Arc<str>, Option<Arc<Pod>>)>) {
        let mut names = names.into_iter().peekable();
        while names.peek().is_some() {
            let now = Instant::now();
            let mut inner = self.lock();
            let before = inner.version;
            for (key, pod) in names.by_ref().take(TURN) {
                inner.change(key, pod, now);
            }
            inner.wake(before);
            let dropped = inner.trim(&self.limits, now);
            drop(inner);
            drop(dropped);
        }
    }

    /// Drops events past their maximum age.
    pub(super) fn age(&self) {
        let dropped = self.lock().trim(&self.limits, Instant::now());
        drop(dropped);
    }

    /// The current pods and their version.
    pub(super) fn now(&self) -> (State, u64) {
        let inner = self.lock();
        (inner.state.clone(), inner.version)
    }

    /// The pods at this version, if every later event is still stored.
    pub(super) fn at(&self, version: u64) -> Option<State> {
        let (mut state, events): (_, Vec<_>) = {
            let inner = self.lock();
            let first = inner.index_behind(version)?;
            (inner.state.clone(), inner.events.range(first..).map(|kept| Arc::clone(&kept.event)).collect())
        };
        for event in events.iter().rev() {
            match &event.was {
                Some(was) => state.insert(Arc::clone(&event.key), Arc::clone(was)),
                None => state.remove(&event.key),
            };
        }
        Some(state)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let inner = self.lock();
        Sizes { events: inner.events.len(), bytes: inner.bytes, watches: inner.places().count() }
    }

    /// Starts a watch. The outer error means too many watches, the inner one that a watch cannot start at that version.
    pub(super) fn watch(
        self: &Arc<Self>,
        selection: Selection,
        client: &Arc<str>,
        start: Start,
    ) -> Result<Result<Begun, Refusal>, Refusal> {
        let mut inner = self.lock();
        let Limits { watches, watches_per_client, .. } = self.limits;
        let limit = if inner.places().count() >= watches {
            Some(format!("all clients together may have {watches} (--max-watches)"))
        } else if inner.places().filter(|place| place.client == *client).count() >= watches_per_client {
            Some(format!("one client may have {watches_per_client} (--max-watches-per-client)"))
        } else {
            None
        };
        if let Some(limit) = limit {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::too_many_watches(&limit));
        }
        let version = match start {
            Start::Now => inner.version,
            Start::After(version) => version,
        };
        if inner.index_behind(version).is_none() {
            return Ok(Err(inner.expired(version)));
        }
        let (client, marks, wake) = (Arc::clone(client), selection.marks(), Arc::new(Notify::new()));
        let place = Place { client, selection: Arc::new(selection), marks, version, wake: Arc::clone(&wake) };
        // There may already be later events.
        wake.notify_one();
        let id = inner.watches.iter().position(Option::is_none).unwrap_or(inner.watches.len());
        if id == inner.watches.len() {
            inner.watches.push(None);
        }
        inner.watches[id] = Some(place);
        let watcher = Watcher { history: Arc::clone(self), id, wake };
        Ok(Ok(Begun { watcher, state: inner.state.clone(), version }))
    }

    /// Ends all watches and rejects new ones.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.places().for_each(|place| place.wake.notify_one());
    }

    /// Fails if this version does not exist yet.
    pub(super) fn check(&self, version: u64) -> Result<(), Refusal> {
        let inner = self.lock();
        if version > inner.version { Err(inner.expired(version)) } else { Ok(()) }
    }

    /// The error for this version.
    pub(super) fn expired(&self, version: u64) -> Refusal {
        self.lock().expired(version)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn places(&self) -> impl Iterator<Item = &Place> {
        self.watches.iter().flatten()
    }

    /// Records the events of one name.
    fn change(&mut self, key: Arc<str>, pod: Option<Arc<Pod>>, now: Instant) {
        let was = self.state.get(&key).cloned();
        match (was, pod) {
            (None, None) => {}
            (Some(was), Some(pod)) if Arc::ptr_eq(&was.pod, &pod) => {}
            (Some(was), Some(pod)) if was.pod.uid() != pod.uid() => {
                self.append(Arc::clone(&key), Some(was), None, now);
                self.append(key, None, Some(pod), now);
            }
            (was, pod) => self.append(key, was, pod, now),
        }
    }

    fn append(&mut self, key: Arc<str>, was: Option<Arc<Object>>, pod: Option<Arc<Pod>>, since: Instant) {
        self.version += 1;
        let object = pod.map(|pod| Object::new(pod, self.version));
        match &object {
            Some(object) => self.state.insert(Arc::clone(&key), Arc::clone(object)),
            None => self.state.remove(&key),
        };
        let bytes = was.as_ref().map_or(0, |was| footprint::bytes(&was.pod));
        let event = Arc::new(Event::new(self.version, key, was, object));
        self.bytes += bytes;
        self.events.push_back(Kept { event, since, bytes });
    }

    /// Wakes the watches that a version after `before` affects, and advances the others.
    fn wake(&mut self, before: u64) {
        let Some(first) = self.index_behind(before) else { return };
        let last = self.version;
        for place in self.watches.iter_mut().flatten() {
            // A watch at an older version has been woken but has not run yet.
            if place.version != before {
                continue;
            }
            let mut events = self.events.range(first..);
            if events.any(|kept| {
                kept.event.marks.may_have(place.marks) && kept.event.to(&place.selection).is_some()
            }) {
                place.wake.notify_one();
            } else {
                place.version = last;
            }
        }
    }

    /// Removes the oldest events while a limit is exceeded. Drop them without the lock: freeing pods takes time.
    #[must_use]
    fn trim(&mut self, limits: &Limits, now: Instant) -> Vec<Kept> {
        let mut dropped = Vec::new();
        while let Some(oldest) = self.events.front() {
            let stored = self.events.len();
            let is_over = stored > limits.events
                || now.saturating_duration_since(oldest.since) > limits.age
                || self.bytes > limits.replaced && stored > limits.least;
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
    /// The pods at the start.
    pub(super) state: State,
    /// The version after which its events begin.
    pub(super) version: u64,
}

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Watcher {
    history: Arc<History>,
    id: usize,
    wake: Arc<Notify>,
}

impl Watcher {
    /// Waits until there may be events.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The next step. Advances the position.
    pub(super) fn next(&self) -> Next {
        loop {
            // Lock once per turn: a watch that has much to catch up on must not block others.
            let mut inner = self.history.lock();
            let Inner { events, watches, version, is_closed, .. } = &mut *inner;
            let Some(place) = watches[self.id].as_mut().filter(|_| !*is_closed) else { return Next::Closed };
            let behind = usize::try_from(*version - place.version).unwrap_or(usize::MAX);
            let Some(first) = events.len().checked_sub(behind) else {
                let version = place.version;
                self.history.counts.too_old.fetch_add(1, Ordering::Relaxed);
                return Next::TooOld(inner.expired(version));
            };
            for kept in events.range(first..).take(TURN) {
                place.version = kept.event.version;
                if !kept.event.marks.may_have(place.marks) {
                    continue;
                }
                if let Some((kind, object)) = kept.event.to(&place.selection) {
                    return Next::Event(kind, Arc::clone(object), place.version);
                }
            }
            if place.version == *version {
                return Next::Nothing(*version);
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.history.lock().watches[self.id] = None;
    }
}

/// The pods of a namespace, or of all namespaces, from a key on.
pub(super) fn range<'a>(
    state: &'a State,
    namespace: Option<&str>,
    start: Option<&str>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)> + use<'a> {
    let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let start: Arc<str> = start.filter(|start| *start >= &*prefix).unwrap_or(&prefix).into();
    state
        .range::<_, Arc<str>>((Bound::Included(start), Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(&prefix))
}

#[cfg(test)]
mod tests;
