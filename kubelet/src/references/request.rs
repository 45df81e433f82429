//! The requests: get, list and watch of one object.
//!
//! kube's client only sends the requests. Its decoder would log the whole body of an unreadable answer, and
//! serde's errors quote what they found: both could be a Secret. Here, errors about an unreadable answer give
//! its position, never its text.

use std::marker::PhantomData;
use std::time::Duration;

use http::Response;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Client;
use kube::api::{GetParams, ListParams, WatchEvent, WatchParams};
use kube::client::Body;
use kube::core::{Request, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time;

use super::key::ObjectKey;
use super::kind::ReferencedKind;
use crate::text::{api_causes, shorten};

/// Size limit of an answer or an event in bytes. etcd accepts at most 1.5 MiB for an object.
const LARGEST: usize = 8 << 20;
/// Size limit of an error response in bytes.
const LARGEST_REFUSAL: usize = 64 << 10;
/// Limit of concurrent lists: a starting node has hundreds of objects to follow.
const LISTS_AT_ONCE: usize = 32;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    NotFound,
    /// The resource version is too old to continue from.
    Gone,
    /// The connection broke, or could not be opened.
    Broken(String),
    /// Everything else, in a message that quotes nothing of an object.
    Other(String),
}

impl Failure {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::NotFound => "the API server does not know the resource",
            Self::Gone => "the resource version is too old",
            Self::Broken(text) | Self::Other(text) => text,
        }
    }
}

/// An event of a watch.
pub(super) enum Event<K> {
    /// The object's current state and the version to continue from; likewise below.
    Present(Box<K>, String),
    Absent(String),
    Bookmark(String),
}

/// Objects of one kind on one API server.
pub(super) struct Endpoint<K> {
    client: Client,
    patience: Duration,
    lists: Semaphore,
    kind: PhantomData<fn() -> K>,
}

#[derive(Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
struct List<K> {
    metadata: ListMeta,
    items: Vec<K>,
}

impl<K: ReferencedKind> Endpoint<K> {
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        Self { client, patience, lists: Semaphore::new(LISTS_AT_ONCE), kind: PhantomData }
    }

    /// The object. With `stale`, the API server may answer from its cache.
    pub(super) async fn get(&self, key: &ObjectKey, stale: bool) -> Result<K, Failure> {
        let params = if stale { GetParams::any() } else { GetParams::default() };
        let request = requests::<K>(key).get(&key.name, &params).map_err(|error| unsendable(&error))?;
        self.whole(request).await
    }

    /// The object, if it exists, and the version to watch from. With `stale`, the API server may answer from
    /// its cache, which does not load etcd.
    pub(super) async fn list(&self, key: &ObjectKey, stale: bool) -> Result<(Option<K>, String), Failure> {
        // The semaphore is never closed.
        let _turn = self.lists.acquire().await;
        let params = ListParams::default().fields(&selector(key));
        let params = if stale { params.at("0") } else { params };
        let request = requests::<K>(key).list(&params).map_err(|error| unsendable(&error))?;
        let list: List<K> = self.whole(request).await?;
        let object = list.items.into_iter().find(|object| is_at(object, key));
        Ok((object, list.metadata.resource_version.unwrap_or_default()))
    }

    /// Watches the object from `version` on.
    pub(super) async fn watch(
        &self,
        key: &ObjectKey,
        version: &str,
        seconds: u32,
    ) -> Result<Events<K>, Failure> {
        let params = WatchParams { bookmarks: true, ..WatchParams::default() };
        let params = params.fields(&selector(key)).timeout(seconds);
        let request = requests::<K>(key).watch(&params, version).map_err(|error| unsendable(&error))?;
        let response =
            time::timeout(self.patience, self.send(request)).await.map_err(|_| self.silence())??;
        Ok(Events {
            body: response.into_body(),
            buffer: Vec::new(),
            searched: 0,
            key: key.clone(),
            kind: PhantomData,
        })
    }

    /// A complete answer, which must arrive within the time limit.
    async fn whole<T: DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, Failure> {
        let answer = async {
            let body = self.send(request).await?.into_body();
            let body = Limited::new(body, LARGEST).collect().await;
            body.map_err(|error| Failure::Broken(format!("the answer was cut off: {}", api_causes(&*error))))
        };
        let body = time::timeout(self.patience, answer).await.map_err(|_| self.silence())??;
        decode(&body.to_bytes())
    }

    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<Response<Body>, Failure> {
        let response = self.client.send(request.map(Body::from)).await;
        let response = response.map_err(|error| Failure::Broken(api_causes(&error)))?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    fn silence(&self) -> Failure {
        Failure::Other(format!("no answer from the API server within {} s", self.patience.as_secs_f32()))
    }
}

/// The events of one watch, until it ends.
pub(super) struct Events<K> {
    body: Body,
    buffer: Vec<u8>,
    /// This many bytes of the buffer are known to contain no newline.
    searched: usize,
    key: ObjectKey,
    kind: PhantomData<fn() -> K>,
}

impl<K: ReferencedKind> Events<K> {
    /// The next event; `None` at the end of the watch.
    pub(super) async fn next(&mut self) -> Result<Option<Event<K>>, Failure> {
        while let Some(line) = self.line().await? {
            let event = match decode::<WatchEvent<K>>(&line)? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) if is_at(&object, &self.key) => {
                    let version = version(&object);
                    Event::Present(Box::new(object), version)
                }
                WatchEvent::Deleted(object) if is_at(&object, &self.key) => Event::Absent(version(&object)),
                WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => continue,
                WatchEvent::Bookmark(bookmark) => Event::Bookmark(bookmark.metadata.resource_version),
                WatchEvent::Error(status) => return Err(of_status(&status, status.code)),
            };
            return Ok(Some(event));
        }
        Ok(None)
    }

    async fn line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + end + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LARGEST {
                return Err(Failure::Other("an event of the watch is too large".to_owned()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.buffer.extend_from_slice(&bytes);
                    }
                }
                Some(Err(error)) => {
                    return Err(Failure::Broken(format!("the watch was cut off: {}", api_causes(&error))));
                }
                // An incomplete event at the end of a watch is dropped.
                None => return Ok(None),
            }
        }
    }
}

fn requests<K: ReferencedKind>(key: &ObjectKey) -> Request {
    Request::new(K::url_path(&(), Some(&key.namespace)))
}

fn selector(key: &ObjectKey) -> String {
    format!("metadata.name={}", key.name)
}

/// A server that ignores the selector must not pass off one object as another.
fn is_at<K: ReferencedKind>(object: &K, key: &ObjectKey) -> bool {
    let metadata = object.meta();
    metadata.name.as_deref() == Some(&*key.name) && metadata.namespace.as_deref() == Some(&*key.namespace)
}

fn version<K: ReferencedKind>(object: &K) -> String {
    object.meta().resource_version.clone().unwrap_or_default()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        // The error itself is left out: it may quote a value.
        let (line, column) = (error.line(), error.column());
        Failure::Other(format!("the API server's answer cannot be decoded (line {line}, column {column})"))
    })
}

fn unsendable(error: &kube::core::request::Error) -> Failure {
    Failure::Other(api_causes(error))
}

/// The API server's message is meant for people. A refusal that is not a `Status` is reported by its code
/// alone.
async fn refusal(response: Response<Body>) -> Failure {
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), LARGEST_REFUSAL).collect().await;
    let status = body.ok().and_then(|body| serde_json::from_slice::<Status>(&body.to_bytes()).ok());
    match status {
        Some(status) => of_status(&status, code),
        None => of_status(&Status::default(), code),
    }
}

fn of_status(status: &Status, code: u16) -> Failure {
    match code {
        404 => Failure::NotFound,
        410 => Failure::Gone,
        code if status.message.is_empty() => Failure::Other(format!("the API server answers {code}")),
        code => Failure::Other(format!("{} ({code})", shorten(&status.message))),
    }
}
