//! The watch of one object that pods name: when it runs, and what it reports.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use kube::Client;
use tokio::runtime::Handle;
use tokio::time::{self, Instant};

use super::followed::{Followed, Known};
use super::kind::{Object, ReferencedKind};
use super::options::Options;
use crate::backoff::{Backoff, bounded_pause};
use crate::reflector::{Decoders, Failure, Observer, Reflector, Requests, Undecodable, Update};

/// A defect of this program.
const PANICKED: &str = "its watch panicked, and begins anew";

/// How objects are followed.
#[derive(Clone)]
pub(super) struct Following {
    pub(super) client: Client,
    pub(super) runtime: Handle,
    pub(super) options: Options,
}

impl Following {
    /// Starts a watch of the object, unless one runs, or has ended because the object is immutable or was released.
    pub(super) fn watch<K: ReferencedKind>(&self, followed: &Arc<Followed<K>>) {
        followed.watch_by(|| {
            let first = follow(Arc::clone(followed), self);
            let again = {
                let followed = Arc::clone(followed);
                let this = self.clone();
                move || follow(Arc::clone(&followed), &this)
            };
            let followed = Arc::clone(followed);
            let task = self.runtime.spawn(restarted(first, again, move || followed.failed(PANICKED)));
            task.abort_handle()
        });
    }

    /// What is known of the object; waits until `until` for the first answer.
    pub(super) async fn get<K: ReferencedKind>(
        &self,
        followed: &Arc<Followed<K>>,
        until: Instant,
    ) -> Arc<Known<K>> {
        let first = async {
            loop {
                let changed = followed.next_change();
                let known = followed.read();
                if !matches!(*known, Known::Nothing) {
                    return known;
                }
                self.watch(followed);
                changed.await;
            }
        };
        time::timeout_at(until, first).await.unwrap_or_else(|_| Arc::new(Known::Nothing))
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
    let key = followed.key.clone();
    let options = &following.options;
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
    let decoders = Decoders::of_json();
    let mut reflector = Reflector::new(requests, decoders, options.times, Arc::clone(&followed), keep);
    let idle = bounded_pause(options.idle);
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
        Self::watching(self);
    }

    fn failed(&self, failure: &Failure) {
        Self::failed(self, &failure.message);
    }

    fn undecodable<'a>(&self, mut objects: impl ExactSizeIterator<Item = &'a Undecodable>) {
        let problem = objects
            .find(|object| *object.name == *self.key.name)
            .map(|object| format!("{} {}", object.field, object.message));
        Self::undecodable(self, problem.as_deref().map(str::trim_start));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::super::error::GetError;
    use super::super::manager::SecretManager;
    use super::*;

    /// A server that has the Secret `ns/a`. The first request for it panics in the task of its watch.
    fn panicking_once() -> Client {
        let requests = AtomicUsize::new(0);
        Client::new(
            service_fn(move |request: Request<Body>| {
                let number = requests.fetch_add(1, Ordering::Relaxed);
                async move {
                    assert!(number > 0, "the test's panic");
                    if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                        std::future::pending::<()>().await;
                    }
                    let metadata =
                        json!({ "name": "a", "namespace": "ns", "uid": "1", "resourceVersion": "1" });
                    let list = json!({ "metadata": { "resourceVersion": "1" }, "items": [{ "metadata": metadata }] });
                    Ok::<_, BoxError>(Response::new(Body::from(list.to_string().into_bytes())))
                }
            }),
            "ns",
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_get_says_that_the_watch_has_panicked_and_the_next_one_has_the_object() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "web", "uid": "u1" },
            "spec": { "containers": [{ "name": "c", "envFrom": [{ "secretRef": { "name": "a" } }] }] },
        }))
        .unwrap();
        // Shorter than the pause after the panic.
        let options = Options { first_sync: Duration::from_millis(100), ..Options::default() };
        let secrets = SecretManager::new(panicking_once(), options);
        secrets.register_pod(&pod);
        let first = secrets.get("ns", "a").await;
        assert!(matches!(&first, Err(GetError::NotSynced(why)) if why.ends_with(PANICKED)), "{first:?}");
        time::sleep(Duration::from_secs(2)).await;
        let second = secrets.get("ns", "a").await.expect("the watch has begun anew");
        assert_eq!(second.metadata.name.as_deref(), Some("a"));
        assert_eq!(secrets.status().failing, 0);
    }

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
}
