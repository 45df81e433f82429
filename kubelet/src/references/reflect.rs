//! Follows one object: what a reflector receives goes into the slot.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::key::ObjectKey;
use super::kind::{Object, ReferencedKind};
use super::options::Options;
use super::request::Endpoint;
use super::slot::Slot;
use crate::reflector::{Failure, Observer, Reflector, Requests, Times, Undecodable, Update};

/// Follows the object at `key` until the task is dropped, its turn is over, or the object is immutable.
pub(super) fn reflect<K: ReferencedKind>(
    endpoint: &Endpoint<K>,
    slot: Arc<Slot<K>>,
    turn: u64,
    key: ObjectKey,
    options: &Options,
) -> impl Future<Output = ()> + Send + use<K> {
    let requests = Requests {
        client: endpoint.client.clone(),
        path: K::url_path(&(), Some(&key.namespace)),
        fields: Some(format!("metadata.name={}", key.name)),
        labels: None,
        is_metadata: false,
    };
    let times = Times {
        backoff: options.backoff,
        patience: options.patience,
        silence: options.silence,
        compare_after: options.backoff.1,
        watch: options.watch_time,
    };
    // A server that ignores the selector must not pass off one object as another.
    let wanted = key.clone();
    let keep = move |object: K| {
        let metadata = object.meta();
        let is_at = metadata.name.as_deref() == Some(&*wanted.name)
            && metadata.namespace.as_deref() == Some(&*wanted.namespace);
        is_at.then(|| Object::new(object))
    };
    let watcher =
        Watcher { slot: Arc::clone(&slot), turn, key: key.clone(), is_undecodable: AtomicBool::new(false) };
    let mut reflector = Reflector::new(requests, times, watcher, keep);
    async move {
        loop {
            let object = match reflector.next().await {
                Update::Set(mut objects) | Update::Upsert(mut objects) => objects.pop(),
                Update::Remove(_) => None,
            };
            // One that cannot be decoded is not absent.
            if object.is_none() && !reflector.is_empty() {
                continue;
            }
            let is_immutable = object.as_ref().is_some_and(|object| object.is_immutable());
            if !slot.write(turn, object) {
                return;
            }
            if is_immutable {
                let ObjectKey { namespace, name } = &key;
                tracing::debug!(kind = K::WORD, %namespace, %name, "immutable; no longer followed");
                return;
            }
        }
    }
}

/// Reports the problems of one object.
struct Watcher<K> {
    slot: Arc<Slot<K>>,
    turn: u64,
    key: ObjectKey,
    is_undecodable: AtomicBool,
}

impl<K: ReferencedKind> Watcher<K> {
    fn report(&self, problem: &str) {
        if self.slot.fail(self.turn, problem) {
            let ObjectKey { namespace, name } = &self.key;
            tracing::warn!(kind = K::WORD, %namespace, %name, "cannot be followed: {problem}");
        }
    }
}

impl<K: ReferencedKind> Observer for Watcher<K> {
    fn watching(&self) {
        if !self.is_undecodable.load(Relaxed) {
            self.slot.recovered(self.turn);
        }
    }

    fn failed(&self, failure: &Failure) {
        self.report(&failure.message);
    }

    fn undecodable<'a>(&self, mut objects: impl ExactSizeIterator<Item = &'a Undecodable>) {
        let object = objects.find(|object| *object.name == *self.key.name);
        self.is_undecodable.store(object.is_some(), Relaxed);
        if let Some(object) = object {
            self.report(&format!("{}: {}", object.field, object.message));
        }
    }
}
