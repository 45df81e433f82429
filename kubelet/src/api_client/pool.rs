//! Assigns requests to connections and retires silent connections.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use kube::client::Body;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tower::BoxError;

use super::ConnectionOptions;
use super::connect::{Connection, Connections};
use super::outage::{Attempt, Outages};

/// All connections to one server.
pub(super) struct Pool {
    connections: Mutex<Connections>,
    /// Connections for the pod watch, for writes, and for all other requests about pods.
    pods: Mutex<Vec<Arc<PooledConnection>>>,
    /// Connections for all other requests.
    others: Mutex<Vec<Arc<PooledConnection>>>,
    outages: Outages,
    streams: usize,
    no_answer: Duration,
    no_event: Duration,
}

/// One HTTP/2 connection, or one HTTP/1.1 connection for each request under way.
struct PooledConnection {
    connection: Connection,
    /// Number of requests under way. Incremented under the lock of the list that holds it; decremented
    /// without it.
    streams: AtomicUsize,
    /// The last request was answered, so a connection exists.
    is_open: AtomicBool,
    /// Held by the request that opens the connection. Without it, each of many concurrent requests would open
    /// one.
    opening: AsyncMutex<()>,
    /// The connection was silent for too long. New requests use another one.
    is_retired: AtomicBool,
}

impl Pool {
    pub(super) fn new(connections: Connections, options: &ConnectionOptions) -> Self {
        Self {
            connections: Mutex::new(connections),
            pods: Mutex::default(),
            others: Mutex::default(),
            outages: Outages::new(),
            streams: options.streams.max(1),
            no_answer: options.no_answer,
            no_event: options.no_event,
        }
    }

    /// Sends a request that already has its address and credentials.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let mut stream = self.stream(&request);
        let pooled = Arc::clone(&stream.pooled);
        let opening = async {
            // Requests are sent one by one only while there is no connection.
            if pooled.is_open.load(Ordering::Relaxed) {
                return None;
            }
            let turn = pooled.opening.lock().await;
            if pooled.is_open.load(Ordering::Relaxed) { None } else { Some(turn) }
        };
        let turn = tokio::select! {
            biased;
            turn = opening => turn,
            unreachable = self.outages.failure() => return Err(unreachable.into()),
        };
        let is_pod_list = is_pod_list(&request);
        let attempt = self.outages.attempt(is_pod_list).await?;
        stream.silence = Some((Instant::now(), self.no_answer));
        let answer = pooled.connection.request(request).await;
        stream.silence = None;
        pooled.is_open.store(answer.is_ok(), Ordering::Relaxed);
        drop(turn);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let error = BoxError::from(error);
                attempt.failed(&crate::text::causes(&*error), Duration::ZERO);
                return Err(error);
            }
        };
        judge(attempt, &answer, is_pod_list);
        stream.silence = Some((Instant::now(), self.no_event));
        Ok(answer.map(|body| Answer { body, stream }))
    }

    /// Later requests use new connections. A connection that is in use closes after its last request.
    pub(super) fn replace(&self, connections: Connections) {
        *lock(&self.connections) = connections;
        lock(&self.pods).clear();
        lock(&self.others).clear();
    }

    /// There are credentials other than the refused ones: the next attempt does not wait.
    pub(super) fn try_now(&self) {
        self.outages.try_now();
    }

    /// Picks a connection that has a stream left.
    fn stream(&self, request: &Request<Body>) -> Stream {
        let connections = if is_of_pods(request) { &self.pods } else { &self.others };
        let mut connections = lock(connections);
        let mut kept = 0;
        connections.retain(|pooled| {
            let is_needed = kept == 0 || pooled.streams.load(Ordering::Relaxed) > 0;
            let keep = is_needed && !pooled.is_retired.load(Ordering::Relaxed);
            kept += usize::from(keep);
            keep
        });
        let free = connections.iter().find(|pooled| pooled.streams.load(Ordering::Relaxed) < self.streams);
        let pooled = if let Some(pooled) = free {
            Arc::clone(pooled)
        } else {
            let pooled = Arc::new(PooledConnection {
                connection: lock(&self.connections).another(),
                streams: AtomicUsize::new(0),
                is_open: AtomicBool::new(false),
                opening: AsyncMutex::default(),
                is_retired: AtomicBool::new(false),
            });
            connections.push(Arc::clone(&pooled));
            pooled
        };
        pooled.streams.fetch_add(1, Ordering::Relaxed);
        Stream { pooled, silence: None }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the request is a write or about pods. No other request may delay these.
fn is_of_pods(request: &Request<Body>) -> bool {
    request.method() != Method::GET || request.uri().path().split('/').any(|segment| segment == "pods")
}

/// Whether the request lists or watches pods.
fn is_pod_list(request: &Request<Body>) -> bool {
    request.method() == Method::GET && request.uri().path().ends_with("/pods")
}

/// Reports whether the server serves requests at all. A 500 may be about one object: the server cannot
/// decrypt it, or a webhook fails. For a pod list it means that the server cannot do its work.
fn judge<B>(attempt: Attempt<'_>, answer: &Response<B>, is_pod_list: bool) {
    match answer.status() {
        StatusCode::INTERNAL_SERVER_ERROR if !is_pod_list => attempt.unclear(),
        status @ (StatusCode::UNAUTHORIZED
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE) => {
            let wait = super::retry_after(answer).unwrap_or_default();
            attempt.failed(&format!("the API server answers {status}"), wait);
        }
        _ => attempt.answered(),
    }
}

/// A request's stream on a connection, held until its answer is read or abandoned.
struct Stream {
    pooled: Arc<PooledConnection>,
    /// When data last arrived, and the silence after which the connection is given up. `None` while no data
    /// is expected.
    silence: Option<(Instant, Duration)>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.silence.is_some_and(|(since, most)| since.elapsed() >= most) {
            self.pooled.is_retired.store(true, Ordering::Relaxed);
        }
        self.pooled.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer.
pub(super) struct Answer {
    body: Incoming,
    stream: Stream,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(_)) => {
                if let Some((since, _)) = &mut self.stream.silence {
                    *since = Instant::now();
                }
            }
            Some(Err(_)) => {
                self.stream.silence = None;
                self.stream.pooled.is_open.store(false, Ordering::Relaxed);
            }
            None => self.stream.silence = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
