//! One object that is fetched when it is asked for, and kept for a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::error::GetError;
use super::key::ObjectKey;
use super::kind::{Object, ReferencedKind};
use super::request::{Endpoint, Failure};
use super::slot::Known;
use super::watched::EntryStatus;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// One object that some pod names.
pub(super) struct Fetched<K> {
    key: ObjectKey,
    last: ArcSwap<Fetch<K>>,
    /// Held by the one who fetches: the others wait for what that brings. In it, what was wrong with the last fetch.
    fetching: Mutex<Option<GetError>>,
    /// How many fetches have come to an end. Changed by whoever holds `fetching`.
    fetches: AtomicU64,
    is_failing: AtomicBool,
}

/// What the API server said last.
struct Fetch<K> {
    known: Known<K>,
    at: Instant,
}

impl<K: ReferencedKind> Fetched<K> {
    pub(super) fn new(key: ObjectKey) -> Self {
        let never = Fetch { known: Known::Nothing, at: Instant::now() };
        Self {
            key,
            last: ArcSwap::new(Arc::new(never)),
            fetching: Mutex::default(),
            fetches: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        }
    }

    /// The object, however old. No lock, no wait.
    pub(super) fn cached(&self) -> Known<K> {
        self.last.load().known.clone()
    }

    /// The object, if it is there and fresh.
    fn fresh(&self, ttl: Duration) -> Option<Object<K>> {
        let last = self.last.load();
        if last.at.elapsed() < ttl { last.known.clone().object() } else { None }
    }

    /// The object, fetched if it is not fresh. While the API server errs, what it said last stands. That there was none
    /// is asked anew each time.
    pub(super) async fn get(&self, endpoint: &Endpoint<K>, ttl: Duration) -> Result<Object<K>, GetError> {
        if let Some(object) = self.fresh(ttl) {
            return Ok(object);
        }
        let before = self.fetches.load(Ordering::Acquire);
        let mut failure = self.fetching.lock().await;
        // One that ended while this one waited will do. Else a server that does not answer would have each of those who wait
        // try in turn, each for as long as an answer may take.
        if self.fetches.load(Ordering::Acquire) != before {
            return match (&*failure, self.cached().object()) {
                (None, Some(object)) => Ok(object),
                (Some(failure), _) => Err(failure.clone()),
                (None, None) => Err(GetError::not_found(K::WORD, &self.key)),
            };
        }
        let fetched = self.fetch(endpoint).await;
        *failure = fetched.as_ref().err().cloned();
        self.fetches.fetch_add(1, Ordering::Release);
        fetched
    }

    async fn fetch(&self, endpoint: &Endpoint<K>) -> Result<Object<K>, GetError> {
        let before = self.cached();
        // To look after an object that is there, one that the server has at hand will do.
        let fetched = endpoint.get(&self.key, matches!(before, Known::Present(_))).await;
        let is_failing = !matches!(fetched, Ok(_) | Err(Failure::NotFound));
        self.is_failing.store(is_failing, Ordering::Relaxed);
        match (fetched, before) {
            (Ok(object), Known::Present(before)) if is_older(&object, &before) => Ok(before),
            (Ok(object), _) => {
                let object = Object::new(object);
                self.keep(Known::Present(object.clone()));
                Ok(object)
            }
            (Err(Failure::NotFound), _) => {
                self.keep(Known::Absent);
                Err(GetError::not_found(K::WORD, &self.key))
            }
            (Err(_), Known::Present(before)) => Ok(before),
            (Err(_), Known::Absent) => Err(GetError::not_found(K::WORD, &self.key)),
            (Err(failure), Known::Nothing) => Err(GetError::request(K::WORD, &self.key, failure.text())),
        }
    }

    pub(super) fn status(&self) -> EntryStatus {
        EntryStatus {
            is_synced: !matches!(self.cached(), Known::Nothing),
            is_watched: false,
            is_failing: self.is_failing.load(Ordering::Relaxed),
        }
    }

    fn keep(&self, known: Known<K>) {
        self.last.swap(Arc::new(Fetch { known, at: Instant::now() }));
    }
}

/// Whether `new` is an older version than `old`, which a server's cache may well have. Versions that are no numbers are
/// not compared.
fn is_older<K: ReferencedKind>(new: &K, old: &K) -> bool {
    let version = |object: &K| object.meta().resource_version.as_deref()?.parse::<u64>().ok();
    matches!((version(new), version(old)), (Some(new), Some(old)) if new < old)
}
