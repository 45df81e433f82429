//! A kubelet's Pods API, as measured beside Kubernetes 1.36 and as documented for 1.37: a gRPC server on a Unix socket.
//!
//! It behaves like the kubelet where that hurts: a list and a watch right after the start know no pods, and say that they are
//! complete; a change of labels sends no event; a client that does not read is dropped after 100 events; `ListPods` has a rate
//! limit; the final removal of a pod is not sent.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// Events that a watch may be behind before it is dropped.
const MOST_EVENTS: usize = 100;
/// Requests that may come at once, and each second.
const BURST: f64 = 10.0;
const RATE: f64 = 100.0;

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Added = 1,
    Modified = 2,
    Deleted = 3,
    Synced = 4,
}

/// What the kubelet answers besides its pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// Its pods.
    Pods,
    /// No pods, as if that were all: Kubernetes 1.36 after its start.
    Nothing,
    /// `FAILED_PRECONDITION`: Kubernetes 1.37 after its start.
    NotReady,
    /// Not at all.
    Never,
}

struct State {
    /// The bytes of each pod, by its UID.
    pods: BTreeMap<String, Vec<u8>>,
    answers: Answers,
    watches: Vec<mpsc::Sender<Vec<u8>>>,
    lists: usize,
    tokens: f64,
    refilled: Instant,
}

/// A kubelet. Dropping it kills it: its socket's file stays.
pub struct Kubelet {
    path: PathBuf,
    state: Arc<Mutex<State>>,
    serving: Option<JoinHandle<()>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Kubelet {
    /// Serves no pods at this path.
    pub fn start(path: &Path) -> Self {
        let state = State {
            pods: BTreeMap::new(),
            answers: Answers::Pods,
            watches: Vec::new(),
            lists: 0,
            tokens: BURST,
            refilled: Instant::now(),
        };
        let mut kubelet = Self { path: path.to_owned(), state: Arc::new(Mutex::new(state)), serving: None };
        kubelet.restart();
        kubelet
    }

    /// Serves again after [`kill`](Self::kill), with the same pods and another file.
    pub fn restart(&mut self) {
        let temporary = self.path.with_extension("new");
        let _ = fs::remove_file(&temporary);
        let listener = UnixListener::bind(&temporary).unwrap();
        fs::rename(&temporary, &self.path).unwrap();
        self.serving = Some(tokio::spawn(serve(listener, Arc::clone(&self.state))));
    }

    /// Ends all connections. The file stays, and connections to it are refused.
    pub fn kill(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
        self.lock().watches.clear();
    }

    pub fn answers(&self, answers: Answers) {
        self.lock().answers = answers;
    }

    /// Sets a pod that lists show, without an event: a change of labels, or a pod that has no status yet.
    pub fn put(&self, uid: &str, pod: &[u8]) {
        self.lock().pods.insert(uid.to_owned(), pod.to_vec());
    }

    /// Sets a pod, and sends an event of it.
    pub fn put_status(&self, uid: &str, pod: &[u8]) {
        self.put(uid, pod);
        self.send(Event::Modified, pod);
    }

    /// Removes a pod without an event: the object of a finished pod is gone.
    pub fn remove(&self, uid: &str) {
        self.lock().pods.remove(uid);
    }

    /// Sends an event that fits no list, such as one that is late.
    pub fn send(&self, event: Event, pod: &[u8]) {
        let message = message_of(event, pod);
        // A watch that is full is dropped. It gets what is in its queue, and then an error.
        self.lock().watches.retain(|watch| watch.try_send(message.clone()).is_ok());
    }

    /// Uses up its limit of requests, as other clients do.
    pub fn exhaust(&self) {
        let mut state = self.lock();
        (state.tokens, state.refilled) = (-500.0, Instant::now());
    }

    /// How many lists were requested.
    pub fn lists(&self) -> usize {
        self.lock().lists
    }

    /// How many clients watch.
    pub fn watches(&self) -> usize {
        self.lock().watches.iter().filter(|watch| !watch.is_closed()).count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

async fn serve(listener: UnixListener, state: Arc<Mutex<State>>) {
    // Dropping them ends the connections.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&state)));
            let server = http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, state: Arc<Mutex<State>>) -> Result<Response<Body>, Infallible> {
    let answers = state.lock().unwrap().answers;
    let frames: BoxStream<'static, _> = match (request.uri().path(), answers) {
        (_, Answers::Never) => std::future::pending().await,
        (_, Answers::NotReady) => stream::once(async { status(9, "sources are not ready") }).boxed(),
        ("/v1alpha1.Pods/ListPods", _) => stream::iter(list(&state)).boxed(),
        ("/v1alpha1.Pods/WatchPods", _) => watch(&state),
        _ => stream::once(async { status(12, "unknown method") }).boxed(),
    };
    let mut response = Response::new(StreamBody::new(frames.map(Ok).boxed()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn list(state: &Mutex<State>) -> Vec<Frame<Bytes>> {
    let mut state = state.lock().unwrap();
    state.lists += 1;
    let now = Instant::now();
    let refill = now.duration_since(state.refilled).as_secs_f64() * RATE;
    state.tokens = (state.tokens + refill).min(BURST);
    state.refilled = now;
    if state.tokens < 1.0 {
        return vec![status(8, "rejected by rate limit")];
    }
    state.tokens -= 1.0;
    let mut message = Vec::new();
    state.visible().for_each(|pod| put(&mut message, 1, pod));
    vec![framed(&message), status(0, "")]
}

fn watch(state: &Mutex<State>) -> BoxStream<'static, Frame<Bytes>> {
    let mut state = state.lock().unwrap();
    let (sender, receiver) = mpsc::channel(MOST_EVENTS);
    let mut first: Vec<_> = state.visible().map(|pod| framed(&message_of(Event::Added, pod))).collect();
    first.push(framed(&message_of(Event::Synced, &[])));
    state.watches.push(sender);
    let later =
        stream::unfold(receiver, async |mut receiver| Some((framed(&receiver.recv().await?), receiver)));
    let end = stream::once(async { status(8, "watch client channel closed") });
    stream::iter(first).chain(later).chain(end).boxed()
}

impl State {
    fn visible(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.pods.values().filter(|_| self.answers != Answers::Nothing)
    }
}

fn message_of(event: Event, pod: &[u8]) -> Vec<u8> {
    let mut message = vec![0x08, event as u8];
    if !pod.is_empty() {
        put(&mut message, 2, pod);
    }
    message
}

/// Appends a field of bytes in protobuf.
fn put(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        message.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    message.push(u8::try_from(length).unwrap());
    message.extend_from_slice(bytes);
}

fn framed(message: &[u8]) -> Frame<Bytes> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    Frame::data([&[0][..], &length, message].concat().into())
}

fn status(code: u16, message: &'static str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    trailers.insert("grpc-message", HeaderValue::from_static(message));
    Frame::trailers(trailers)
}
