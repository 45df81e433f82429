//! What is known of one object that pods name: its newest version, why there is no newer one, and who waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::AbortHandle;

use super::error::GetError;
use super::kind::{Object, ReferencedKind};
use crate::names::dns_subdomain;

/// The namespace and name of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ObjectKey {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ObjectKey {
    /// `None` if no object can have this namespace and name. Others are safe in a path and in a field selector without
    /// escaping.
    pub(super) fn new(namespace: &str, name: &str) -> Option<Self> {
        let is_name = |name| dns_subdomain(name).is_none();
        (is_name(namespace) && is_name(name)).then(|| Self { namespace: namespace.into(), name: name.into() })
    }
}

/// What is known of an object.
pub(super) enum Known<K> {
    /// Nothing has been received yet, or the watch was idle and has ended.
    Nothing,
    /// The object does not exist.
    Absent,
    Present(Object<K>),
    /// No pod names the object any more.
    Released,
}

/// One object that at least one pod names. A read is one load.
pub(super) struct Followed<K> {
    pub(super) key: ObjectKey,
    /// Changed only while `follower` is held.
    known: ArcSwap<Known<K>>,
    /// Wakes tasks that wait for the first answer.
    changed: Notify,
    /// The object was read since the last check for idle watches.
    is_used: AtomicBool,
    follower: Mutex<Follower>,
}

#[derive(Default)]
struct Follower {
    /// `None` before the first watch, and after one that was idle.
    task: Option<AbortHandle>,
    /// Why the last list or watch failed.
    failure: Option<String>,
    /// Why the last version cannot be decoded.
    undecodable: Option<String>,
}

impl<K> Followed<K> {
    pub(super) fn new(key: ObjectKey) -> Self {
        let known = ArcSwap::from_pointee(Known::Nothing);
        let is_used = AtomicBool::new(true);
        Self { key, known, changed: Notify::new(), is_used, follower: Mutex::default() }
    }

    /// What is known. No lock, no wait.
    pub(super) fn read(&self) -> Arc<Known<K>> {
        // Readers on many threads write here only once between two checks.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.known.load_full()
    }

    pub(super) fn is_synced(&self) -> bool {
        !matches!(**self.known.load(), Known::Nothing)
    }

    /// Why nothing newer is known.
    pub(super) fn problem(&self) -> Option<String> {
        let follower = self.follower();
        follower.undecodable.clone().or_else(|| follower.failure.clone())
    }

    /// Ends the watch permanently, drops the object, and wakes all waiting tasks. A secret must not stay in memory because
    /// a task still holds this.
    pub(super) fn release(&self) {
        let mut follower = self.follower();
        if let Some(task) = std::mem::take(&mut *follower).task {
            task.abort();
        }
        self.set(Known::Released);
    }

    /// Writes the current state. Returns `false`, without effect, if the object was released.
    pub(super) fn write(&self, object: Option<Object<K>>) -> bool {
        let mut follower = self.follower();
        if matches!(**self.known.load(), Known::Released) {
            return false;
        }
        follower.failure = None;
        follower.undecodable = None;
        self.set(object.map_or(Known::Absent, Known::Present));
        true
    }

    /// Forgets the object if it was not read since the last call. Returns whether it did, so that the watch can end. A
    /// watch that has received nothing yet continues: otherwise its request would be wasted.
    pub(super) fn forget_if_unused(&self) -> bool {
        let mut follower = self.follower();
        if self.is_used.swap(false, Ordering::Relaxed) || !self.is_synced() {
            return false;
        }
        if !matches!(**self.known.load(), Known::Released) {
            *follower = Follower::default();
            self.set(Known::Nothing);
        }
        true
    }

    /// Records the watch that `start` starts, unless one runs, or has ended because the object is immutable or was released.
    pub(super) fn watch_by(&self, start: impl FnOnce() -> AbortHandle) {
        let mut follower = self.follower();
        if follower.task.is_none() && !matches!(**self.known.load(), Known::Released) {
            follower.task = Some(start());
        }
    }

    /// The next change of what is known. It is noticed from now on, also before somebody waits.
    pub(super) fn next_change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Call this while `follower` is held.
    fn set(&self, known: Known<K>) {
        self.known.store(Arc::new(known));
        self.changed.notify_waiters();
    }

    fn follower(&self) -> MutexGuard<'_, Follower> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: ReferencedKind> Followed<K> {
    /// The object, or why there is none. `None` if it was released.
    pub(super) fn result(&self, known: &Known<K>) -> Option<Result<Object<K>, GetError>> {
        let word = K::KIND.as_str();
        Some(Err(match known {
            Known::Present(object) => return Some(Ok(object.clone())),
            Known::Released => return None,
            Known::Absent => GetError::NotFound(format!("{word} {:?} not found", &*self.key.name)),
            Known::Nothing => {
                let problem = self.problem().map(|problem| format!(": {problem}")).unwrap_or_default();
                let late = "timed out waiting for the condition";
                GetError::NotSynced(format!("failed to sync {word} cache: {late}{problem}"))
            }
        }))
    }

    /// A watch has started: an earlier failure is over.
    pub(super) fn watching(&self) {
        self.follower().failure = None;
    }

    /// Records why the last list or watch failed.
    pub(super) fn failed(&self, problem: &str) {
        self.report(problem, |follower| &mut follower.failure);
    }

    /// Records why the last version cannot be decoded, or that it can be.
    pub(super) fn undecodable(&self, problem: Option<&str>) {
        match problem {
            Some(problem) => self.report(problem, |follower| &mut follower.undecodable),
            None => self.follower().undecodable = None,
        }
    }

    /// Records a problem, and logs it if it is new.
    fn report(&self, problem: &str, place: impl FnOnce(&mut Follower) -> &mut Option<String>) {
        let ObjectKey { namespace, name } = &self.key;
        if place(&mut self.follower()).replace(problem.to_owned()).as_deref() != Some(problem) {
            tracing::warn!(kind = K::KIND.as_str(), %namespace, %name, "cannot be followed: {problem}");
        }
    }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod two_secrets;

#[cfg(test)]
mod tests {
    use super::*;

    fn followed() -> Followed<u8> {
        Followed::new(ObjectKey::new("ns", "a").unwrap())
    }

    #[test]
    fn only_valid_object_names_become_keys() {
        assert!(ObjectKey::new("default", "ca.example.com").is_some());
        for bad in ["", "..", "../nodes", "a/b", "a?b", "a,b=c", "A", "-a", "a\0"] {
            assert!(ObjectKey::new("default", bad).is_none(), "{bad}");
            assert!(ObjectKey::new(bad, "a").is_none(), "{bad}");
        }
    }

    #[test]
    fn a_released_object_is_dropped_and_rejects_the_writes_of_a_follower_that_has_not_noticed() {
        let followed = followed();
        let secret = Object::new(1);
        assert!(followed.write(Some(secret.clone())));
        followed.release();
        assert_eq!(Arc::strong_count(&secret.into_arc()), 1, "no other reference is left");
        assert!(!followed.write(Some(Object::new(2))));
        assert!(matches!(*followed.read(), Known::Released));
        followed.is_used.store(false, Ordering::Relaxed);
        assert!(followed.forget_if_unused() && matches!(*followed.read(), Known::Released));
    }

    #[test]
    fn only_an_object_that_was_not_read_between_two_checks_is_forgotten_with_its_problem() {
        let followed = followed();
        followed.follower().failure = Some("one".to_owned());
        assert!(!followed.forget_if_unused() && !followed.forget_if_unused(), "nothing was received");
        assert!(followed.write(Some(Object::new(1))));
        assert!(matches!(*followed.read(), Known::Present(_)));
        assert!(!followed.forget_if_unused(), "it was read");
        followed.follower().failure = Some("two".to_owned());
        assert!(followed.forget_if_unused());
        assert!(matches!(*followed.read(), Known::Nothing));
        assert_eq!(followed.problem(), None);
    }
}
