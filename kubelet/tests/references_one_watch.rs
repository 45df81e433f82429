//! There are never two watches of one object at a time, not even while the first is ending. Observed inside
//! the client, without delays.
#![cfg(feature = "api-server")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use pod_index_kubelet::references::{Options, SecretManager};
use serde_json::json;
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(60);

/// Number of open watches of each object: now, at most, and ever.
type Counts = BTreeMap<String, (usize, usize, usize)>;

/// What `Either` makes of two bodies that never fail.
type Never = Box<dyn std::error::Error + Send + Sync>;

/// The open watches of a server inside this process.
#[derive(Clone)]
struct Server {
    counts: Arc<Mutex<Counts>>,
    changed: watch::Sender<()>,
    /// Once its body is read, the first watch blocks its thread until it receives from this channel, so it
    /// cannot end earlier.
    stuck: Arc<Mutex<Option<Receiver<()>>>>,
    is_stuck: watch::Sender<bool>,
}

struct Open(Server, String);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.count(&self.1, |(open, _, _)| *open -= 1);
    }
}

impl Server {
    fn new() -> (Self, SyncSender<()>) {
        let (unstick, stuck) = sync_channel(1);
        let server = Self {
            counts: Arc::default(),
            changed: watch::Sender::new(()),
            stuck: Arc::new(Mutex::new(Some(stuck))),
            is_stuck: watch::Sender::new(false),
        };
        (server, unstick)
    }

    fn count(&self, name: &str, change: impl FnOnce(&mut (usize, usize, usize))) {
        change(self.counts().entry(name.to_owned()).or_default());
        self.changed.send_replace(());
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, what: &str, holds: impl Fn(&Counts) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            while !holds(&self.counts()) {
                changes.changed().await.unwrap();
            }
        };
        let came = tokio::time::timeout(PATIENCE, wait).await;
        assert!(came.is_ok(), "never came: {what}; {:?}", self.counts());
    }

    /// Answers lists with an empty list, and watches with silence.
    fn answer(
        &self,
        request: &Request<Body>,
    ) -> Response<impl hyper::body::Body<Data = Bytes, Error = Never> + use<>> {
        let query = request.uri().query().unwrap_or_default();
        let name = query.split("metadata.name%3D").nth(1).unwrap().split('&').next().unwrap().to_owned();
        if !query.contains("watch=true") {
            let list = json!({ "metadata": { "resourceVersion": "1" }, "items": [] });
            return Response::new(Either::Left(Full::new(Bytes::from(list.to_string()))));
        }
        self.count(&name, |(open, most, begun)| {
            *open += 1;
            *most = (*most).max(*open);
            *begun += 1;
        });
        let open = Open(self.clone(), name);
        Response::new(Either::Right(StreamBody::new(stream::unfold(open, async |open| {
            let stuck = open.0.stuck.lock().unwrap().take();
            if let Some(stuck) = stuck {
                open.0.is_stuck.send_replace(true);
                tokio::task::block_in_place(|| stuck.recv_timeout(PATIENCE)).unwrap();
            }
            std::future::pending::<()>().await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::new())), open))
        }))))
    }
}

fn pod(uid: &str, secret: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "namespace": "ns", "name": uid, "uid": uid },
        "spec": { "containers": [], "imagePullSecrets": [{ "name": secret }] },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_begins_only_after_the_previous_one_has_ended() {
    let (server, unstick) = Server::new();
    let answering = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answering.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let secrets = SecretManager::new(kube::Client::new(service, "ns"), Options::default());
    secrets.register_pod(&pod("u1", "a"));
    // Answered is not enough: the watch can be ended until its body is read.
    let mut is_stuck = server.is_stuck.subscribe();
    tokio::time::timeout(PATIENCE, is_stuck.wait_for(|stuck| *stuck)).await.expect("a watch of a").unwrap();
    // It should end but cannot yet. Meanwhile the object is named and released many times.
    for _ in 0..5 {
        secrets.unregister_pod("u1");
        secrets.register_pod(&pod("u1", "a"));
        // Another object's watch does not wait. Any second watch of `a` would have come before it.
        secrets.register_pod(&pod("u2", "b"));
        server.until("a watch of b", |counts| counts.get("b").is_some_and(|(open, ..)| *open == 1)).await;
        secrets.unregister_pod("u2");
        server.until("no watch of b", |counts| counts["b"].0 == 0).await;
        assert_eq!(server.counts()["a"], (1, 1, 1));
    }
    unstick.send(()).unwrap();
    server.until("another watch of a", |counts| counts["a"].2 == 2 && counts["a"].0 == 1).await;
    assert_eq!(server.counts()["a"].1, 1, "never two at a time");
    drop(secrets);
    server.until("no watch", |counts| counts.values().all(|(open, ..)| *open == 0)).await;
}
