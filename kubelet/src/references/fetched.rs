//! One object that is fetched on request and cached for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::error::{GetError, GetErrorKind};
use super::key::ObjectKey;
use super::kind::{Object, ReferencedKind};
use super::request::Endpoint;
use super::slot::Known;
use super::watched::EntryStatus;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// One object that some pod names.
pub(super) struct Fetched<K> {
    key: ObjectKey,
    last: ArcSwap<Fetch<K>>,
    /// Held during a fetch: the others wait for its result. Holds the error of the last fetch.
    fetching: Mutex<Option<GetError>>,
    /// Number of completed fetches. Changed only while `fetching` is held.
    fetches: AtomicU64,
    is_failing: AtomicBool,
}

/// The API server's last answer.
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

    /// The object, if it is present and fresh.
    fn fresh(&self, ttl: Duration) -> Option<Object<K>> {
        let last = self.last.load();
        if last.at.elapsed() < ttl { last.known.clone().object() } else { None }
    }

    /// The object, fetched if it is not fresh. If the fetch fails, the last object is returned. "Not found"
    /// is never cached.
    pub(super) async fn get(&self, endpoint: &Endpoint<K>, ttl: Duration) -> Result<Object<K>, GetError> {
        if let Some(object) = self.fresh(ttl) {
            return Ok(object);
        }
        let before = self.fetches.load(Ordering::Acquire);
        let mut failure = self.fetching.lock().await;
        // If a fetch ended during the wait, use its result. Otherwise each waiter would try an unresponsive
        // server in turn, up to the time limit.
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
        // To refresh a known object, the server may answer from its cache.
        let fetched = endpoint.get(&self.key, matches!(before, Known::Present(_))).await;
        let is_absent = fetched.as_ref().is_err_and(|error| error.kind() == GetErrorKind::NotFound);
        self.is_failing.store(fetched.is_err() && !is_absent, Ordering::Relaxed);
        match (fetched, before) {
            (Ok(object), Known::Present(before)) if is_older(&object, &before) => Ok(before),
            (Ok(object), _) => {
                let object = Object::new(object);
                self.keep(Known::Present(object.clone()));
                Ok(object)
            }
            (Err(error), _) if is_absent => {
                self.keep(Known::Absent);
                Err(error)
            }
            (Err(_), Known::Present(before)) => Ok(before),
            (Err(_), Known::Absent) => Err(GetError::not_found(K::WORD, &self.key)),
            (Err(error), Known::Nothing) => Err(error),
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

/// Whether `new` is an older version than `old`, as a server's cache may return. Versions that are not
/// numbers are not compared.
fn is_older<K: ReferencedKind>(new: &K, old: &K) -> bool {
    let version = |object: &K| object.meta().resource_version.as_deref()?.parse::<u64>().ok();
    matches!((version(new), version(old)), (Some(new), Some(old)) if new < old)
}
