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

/// Shared by all watched objects of a manager.
pub(super) struct Watching<K> {
    pub(super) endpoint: Endpoint<K>,
    pub(super) runtime: Handle,
    pub(super) options: Options,
    pub(super) places: Places,
    /// Access times are milliseconds since this moment.
    pub(super) epoch: Instant,
}

impl<K> Watching<K> {
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Status of one object.
pub(super) struct EntryStatus {
    /// Its state is known.
    pub(super) is_synced: bool,
    /// Its watch is running.
    pub(super) is_watched: bool,
    /// The last attempt failed.
    pub(super) is_failing: bool,
}

/// One object that at least one pod names.
pub(super) struct Watched<K> {
    key: ObjectKey,
    slot: Arc<Slot<K>>,
    place: Place,
    /// Time of the last access, updated about once a second, so that not every reader on every thread writes here.
    accessed: AtomicU64,
    watch: Mutex<Watch>,
}

enum Watch {
    Running(AbortHandle),
    /// Not requested for long; the next get starts it again.
    Idle,
    /// No pod names the object any more; it never starts again.
    Released,
}

impl<K: ReferencedKind> Watched<K> {
    /// Starts following the object.
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

    /// The newest version received. No lock, no wait.
    pub(super) fn cached(&self, watching: &Watching<K>) -> Known<K> {
        self.touch(watching);
        self.slot.read()
    }

    /// The object; waits until `until` for the first answer. `None` if no pod names it any more.
    pub(super) async fn get(
        &self,
        watching: &Watching<K>,
        until: time::Instant,
    ) -> Option<Result<Object<K>, GetError>> {
        let mut known = self.cached(watching);
        if matches!(known, Known::Nothing) {
            self.restart_if_idle(watching);
            // Use what is known now, whether or not the answer came in time.
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
        // Relaxed: a lost or late store shortens an idle time by a second at most.
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
            &watching.endpoint,
            Arc::clone(&self.slot),
            self.slot.next_turn(),
            self.key.clone(),
            &watching.options,
        );
        let place = Arc::clone(&self.place);
        let follow = async move {
            // An earlier task may still be ending: wait for its lock. This task drops the lock last, after its watch
            // has ended.
            let _place = place.lock_owned().await;
            follow.await;
        };
        *watch = Watch::Running(watching.runtime.spawn(follow).abort_handle());
    }

    /// Ends the watch if the object was not requested for a long time. A watch that has not received anything yet
    /// continues: otherwise the request to the API server would be wasted. A watch that ended because the object is
    /// immutable keeps the object.
    pub(super) fn stop_if_idle(&self, watching: &Watching<K>) {
        if self.stopped_as_idle(watching) {
            let ObjectKey { namespace, name } = &self.key;
            tracing::debug!(kind = K::WORD, %namespace, %name, "not requested for a while; no longer followed");
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
    /// Ends the watch permanently, drops the object, and wakes all waiting tasks.
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

/// Ends the watch when the manager is dropped.
impl<K> Drop for Watched<K> {
    fn drop(&mut self) {
        self.release();
    }
}
