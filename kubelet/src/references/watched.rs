//! One object that is followed by a watch: when the watch runs, and what a get waits for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time;

use super::error::GetError;
use super::key::ObjectKey;
use super::kind::{Object, ReferencedKind};
use super::options::Options;
use super::places::{Place, Places};
use super::reflect::reflect;
use super::request::Endpoint;
use super::slot::{Heard, Known, Slot};

/// What every watched object of a manager shares.
pub(super) struct Watching<K> {
    pub(super) endpoint: Arc<Endpoint<K>>,
    pub(super) runtime: Handle,
    pub(super) options: Options,
    pub(super) places: Places,
    /// Accesses are counted in milliseconds from here.
    pub(super) epoch: Instant,
}

impl<K> Watching<K> {
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// How one object is doing.
pub(super) struct EntryStatus {
    /// Something is known of it.
    pub(super) is_synced: bool,
    /// Its watch runs.
    pub(super) is_watched: bool,
    /// What was tried last has failed.
    pub(super) is_failing: bool,
}

/// One object that some pod names.
pub(super) struct Watched<K> {
    key: ObjectKey,
    slot: Arc<Slot<K>>,
    place: Place,
    /// When it was asked for last, to about a second: readers on many threads must not all write here.
    accessed: AtomicU64,
    watch: Mutex<Watch>,
}

enum Watch {
    Running(AbortHandle),
    /// Nobody has asked for long; the next get starts it.
    Idle,
    /// Nobody names the object any more; nothing starts it again.
    Released,
}

impl<K: ReferencedKind> Watched<K> {
    /// Starts to follow the object.
    pub(super) fn start(key: ObjectKey, watching: &Watching<K>) -> Self {
        let watched = Self {
            place: watching.places.of(&key),
            key,
            slot: Arc::new(Slot::new()),
            accessed: AtomicU64::new(watching.now()),
            watch: Mutex::new(Watch::Idle),
        };
        watched.run(&mut watched.watch(), watching);
        watched
    }

    /// The object as it came last. No lock, no wait.
    pub(super) fn cached(&self, watching: &Watching<K>) -> Known<K> {
        self.touch(watching);
        self.slot.read()
    }

    /// The object; waits for a first word of it until then. `None` if nobody names it any more.
    pub(super) async fn get(
        &self,
        watching: &Watching<K>,
        until: time::Instant,
    ) -> Option<Result<Object<K>, GetError>> {
        let mut known = self.cached(watching);
        if matches!(known, Known::Nothing) {
            self.restart_if_idle(watching);
            // In time or not: what counts is what is known then.
            if matches!(time::timeout_at(until, self.slot.heard()).await, Ok(Heard::Released)) {
                return None;
            }
            known = self.slot.read();
        }
        Some(match known {
            Known::Present(object) => Ok(object),
            Known::Absent => Err(GetError::not_found(K::WORD, &self.key)),
            Known::Nothing => Err(GetError::not_synced(K::WORD, &self.key, self.slot.problem().as_deref())),
        })
    }

    fn touch(&self, watching: &Watching<K>) {
        const COARSE: u64 = 1000;
        let now = watching.now();
        let idle = u64::try_from(watching.options.idle.as_millis()).unwrap_or(u64::MAX);
        // Relaxed: a lost or late mark shortens an idle time by a second at most.
        if now.saturating_sub(self.accessed.load(Ordering::Relaxed)) >= COARSE.min(idle / 8) {
            self.accessed.store(now, Ordering::Relaxed);
        }
    }

    fn restart_if_idle(&self, watching: &Watching<K>) {
        let mut watch = self.watch();
        if matches!(*watch, Watch::Idle) {
            self.run(&mut watch, watching);
        }
    }

    fn run(&self, watch: &mut Watch, watching: &Watching<K>) {
        let follow = reflect(
            Arc::clone(&watching.endpoint),
            Arc::clone(&self.slot),
            self.slot.next_turn(),
            self.key.clone(),
            &watching.options,
        );
        let place = Arc::clone(&self.place);
        let follow = async move {
            // One that was told to end may be at work for a moment yet. First in, so last out: the watch ends before.
            let _place = place.lock_owned().await;
            follow.await;
        };
        *watch = Watch::Running(watching.runtime.spawn(follow).abort_handle());
    }

    /// Ends the watch if nobody has asked for the object for long. One that has not brought anything yet goes on: what it
    /// has cost the API server would be lost. One that has ended by itself, because the object never changes, keeps it.
    pub(super) fn stop_if_idle(&self, watching: &Watching<K>) {
        if self.stopped_as_idle(watching) {
            let ObjectKey { namespace, name } = &self.key;
            tracing::debug!(kind = K::WORD, %namespace, %name, "not asked for, and followed no more");
        }
    }

    fn stopped_as_idle(&self, watching: &Watching<K>) -> bool {
        let mut watch = self.watch();
        let Watch::Running(task) = &*watch else { return false };
        let idle =
            Duration::from_millis(watching.now().saturating_sub(self.accessed.load(Ordering::Relaxed)));
        if idle <= watching.options.idle || !self.slot.is_synced() || task.is_finished() {
            return false;
        }
        task.abort();
        self.slot.forget();
        *watch = Watch::Idle;
        true
    }

    pub(super) fn status(&self) -> EntryStatus {
        let is_watched = matches!(&*self.watch(), Watch::Running(task) if !task.is_finished());
        EntryStatus {
            is_synced: self.slot.is_synced(),
            is_watched,
            is_failing: self.slot.problem().is_some(),
        }
    }
}

impl<K> Watched<K> {
    /// Ends the watch for good, and forgets what it brought. Whoever waits for it is told.
    pub(super) fn release(&self) {
        let before = std::mem::replace(&mut *self.watch(), Watch::Released);
        if let Watch::Running(task) = before {
            task.abort();
        }
        self.slot.release();
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The manager is gone.
impl<K> Drop for Watched<K> {
    fn drop(&mut self) {
        self.release();
    }
}
