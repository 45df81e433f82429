//! One object that is followed by a watch: its newest version, when the watch runs, and what a get waits for.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use kube::Client;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};

use super::error::GetError;
use super::kind::{Object, ReferencedKind};
use super::options::Options;
use crate::backoff::{Backoff, bounded};
use crate::names::dns_subdomain;
use crate::reflector::{Failure, Observer, Reflector, Requests, Undecodable, Update};

/// A defect of this program.
const PANICKED: &str = "its watch panicked, and begins anew";

/// How objects are followed.
#[derive(Clone)]
pub(super) struct Following {
    pub(super) client: Client,
    pub(super) runtime: Handle,
    pub(super) options: Options,
}

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
    key: ObjectKey,
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
        let (known, is_used) = (ArcSwap::from_pointee(Known::Nothing), AtomicBool::new(true));
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
    fn write(&self, object: Option<Object<K>>) -> bool {
        let mut follower = self.follower();
        if matches!(**self.known.load(), Known::Released) {
            return false;
        }
        (follower.failure, follower.undecodable) = (None, None);
        self.set(object.map_or(Known::Absent, Known::Present));
        true
    }

    /// Forgets the object if it was not read since the last call. Returns whether it did, so that the watch can end. A
    /// watch that has received nothing yet continues: otherwise its request would be wasted.
    fn forget_if_unused(&self) -> bool {
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
    /// Starts a watch, unless one runs, or has ended because the object is immutable or was released.
    pub(super) fn run(self: &Arc<Self>, following: &Following) {
        let mut follower = self.follower();
        if follower.task.is_some() || matches!(**self.known.load(), Known::Released) {
            return;
        }
        let first = follow(Arc::clone(self), following);
        let again = {
            let this = Arc::clone(self);
            let following = following.clone();
            move || follow(Arc::clone(&this), &following)
        };
        let this = Arc::clone(self);
        let task = following.runtime.spawn(restarted(first, again, move || {
            this.report(PANICKED, |follower| &mut follower.failure);
        }));
        follower.task = Some(task.abort_handle());
    }

    /// What is known; waits until `until` for the first answer.
    pub(super) async fn get(self: &Arc<Self>, following: &Following, until: Instant) -> Arc<Known<K>> {
        let first = async {
            loop {
                let changed = self.changed.notified();
                let known = self.read();
                if !matches!(*known, Known::Nothing) {
                    return known;
                }
                self.run(following);
                changed.await;
            }
        };
        time::timeout_at(until, first).await.unwrap_or_else(|_| Arc::new(Known::Nothing))
    }

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

    /// Records a problem, and logs it if it is new.
    fn report(&self, problem: &str, place: impl FnOnce(&mut Follower) -> &mut Option<String>) {
        let ObjectKey { namespace, name } = &self.key;
        if place(&mut self.follower()).replace(problem.to_owned()).as_deref() != Some(problem) {
            tracing::warn!(kind = K::KIND.as_str(), %namespace, %name, "cannot be followed: {problem}");
        }
    }
}

/// Runs a watch. If it panics, reports that, and runs another one after a pause: an object that nobody follows any more
/// would never change again.
async fn restarted<W: Future<Output = ()>>(first: W, again: impl Fn() -> W, report: impl Fn()) {
    let mut pauses = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    let mut watch = first;
    while AssertUnwindSafe(watch).catch_unwind().await.is_err() {
        report();
        time::sleep(pauses.wait(std::time::Instant::now())).await;
        watch = again();
    }
}

/// Follows the object until the task is dropped, or the object is released, not read for a while, or immutable.
fn follow<K: ReferencedKind>(
    followed: Arc<Followed<K>>,
    following: &Following,
) -> impl Future<Output = ()> + Send + use<K> {
    let (key, options) = (followed.key.clone(), &following.options);
    let requests = Requests {
        client: following.client.clone(),
        path: K::url_path(&(), Some(&key.namespace)),
        fields: Some(format!("metadata.name={}", key.name)),
        labels: None,
        is_metadata: false,
        accepts_protobuf: false,
        is_http1: Arc::default(),
    };
    // A server that ignores the selector must not pass off one object as another.
    let wanted = key.clone();
    let keep = move |object: K| {
        let metadata = object.meta();
        let is_at = metadata.name.as_deref() == Some(&*wanted.name)
            && metadata.namespace.as_deref() == Some(&*wanted.namespace);
        is_at.then(|| Object::new(object))
    };
    let mut reflector = Reflector::new(requests, options.times, Arc::clone(&followed), keep);
    let idle = bounded(options.idle).max(Duration::from_millis(1));
    async move {
        let mut checks = time::interval_at(Instant::now() + idle, idle);
        loop {
            let update = {
                let mut next = pin!(reflector.next());
                loop {
                    tokio::select! {
                        update = &mut next => break update,
                        _ = checks.tick() => if followed.forget_if_unused() { return },
                    }
                }
            };
            let object = match update {
                Update::Set(mut objects) | Update::Upsert(mut objects) => objects.pop(),
                Update::Remove(_) => None,
            };
            // One that cannot be decoded is not absent.
            if object.is_none() && !reflector.is_empty() {
                continue;
            }
            let is_immutable = object.as_ref().is_some_and(|object| object.is_immutable());
            if !followed.write(object) || is_immutable {
                return;
            }
        }
    }
}

/// Reports the problems of one object.
impl<K: ReferencedKind> Observer for Followed<K> {
    fn watching(&self) {
        self.follower().failure = None;
    }

    fn failed(&self, failure: &Failure) {
        self.report(&failure.message, |follower| &mut follower.failure);
    }

    fn undecodable<'a>(&self, mut objects: impl ExactSizeIterator<Item = &'a Undecodable>) {
        match objects.find(|object| *object.name == *self.key.name) {
            Some(object) => {
                let problem = format!("{} {}", object.field, object.message);
                self.report(problem.trim_start(), |follower| &mut follower.undecodable);
            }
            None => self.follower().undecodable = None,
        }
    }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod two_secrets;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test(start_paused = true)]
    #[expect(
        clippy::redundant_closure,
        reason = "a reference to an async closure gives futures of another type"
    )]
    async fn a_watch_that_panics_is_reported_and_begins_anew_after_a_pause() {
        let [began, reported] = [const { AtomicUsize::new(0) }; 2];
        let watch = async || {
            assert!(began.fetch_add(1, Ordering::Relaxed) == 3, "the test's panic");
        };
        let start = Instant::now();
        let report = || {
            reported.fetch_add(1, Ordering::Relaxed);
        };
        restarted(watch(), || watch(), report).await;
        assert_eq!((began.into_inner(), reported.into_inner()), (4, 3));
        assert!(
            start.elapsed() >= Duration::from_secs(4),
            "after pauses of 1, 2 and 4 s, each shortened by a third"
        );
    }

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
