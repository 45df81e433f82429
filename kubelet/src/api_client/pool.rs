//! Assigns the requests of one client to connections and retires silent connections.

use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response, Version};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Error, ResponseFuture};
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::BoxError;

use super::connect::{Connection, Connections};
use super::options::{ConnectionOptions, Silences};

/// How many requests a connection carries at a time. API servers allow 100.
const STREAMS: usize = 80;

/// How connections are opened now. Replaced with the client certificate.
pub(super) type Latest = Arc<Mutex<Arc<Connections>>>;

/// The body of an answer. It holds the stream until it is read or abandoned.
pub(super) struct Answer {
    body: Incoming,
    stream: Stream,
    /// Ends when the connection's server is no longer trusted.
    distrusted: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.distrusted.as_mut().poll(context));
            // As if the server had ended the answer: a watch goes on over another connection.
            self.stream.since = None;
            return Poll::Ready(None);
        };
        match &frame {
            Some(Ok(_)) => self.stream.since = Some(Instant::now()),
            Some(Err(_)) => self.stream.pooled.is_open.store(false, Ordering::Relaxed),
            // Nothing more is expected.
            None => self.stream.since = None,
        }
        Poll::Ready(frame)
    }
}

/// The connections of one client.
pub(super) struct Pool {
    latest: Latest,
    pooled: Mutex<Vec<Arc<PooledConnection>>>,
    requests: Arc<Semaphore>,
    silences: Silences,
}

/// One HTTP/2 connection, or one HTTP/1.1 connection for each request under way.
struct PooledConnection {
    connection: Connection,
    opened_by: Arc<Connections>,
    /// Number of requests under way. Incremented under the lock of the list that holds it; decremented
    /// without it.
    streams: AtomicUsize,
    /// The last request was answered, so a connection exists.
    is_open: AtomicBool,
    /// Held while a request opens the connection: see [`opened`].
    opening: AsyncMutex<()>,
    /// The connection was silent for too long. New requests use another one.
    is_retired: AtomicBool,
}

impl Pool {
    /// Sends at most `requests` requests at a time; others wait.
    pub(super) fn new(latest: &Latest, requests: usize, options: &ConnectionOptions) -> Self {
        Self {
            latest: Arc::clone(latest),
            pooled: Mutex::default(),
            requests: Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS))),
            silences: options.silences,
        }
    }

    /// Sends a request that already has its address and credentials.
    pub(super) async fn send(
        &self,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Answer>, BoxError> {
        let permit = Arc::clone(&self.requests).acquire_owned().await?;
        let mut stream = self.stream(permit);
        let pooled = Arc::clone(&stream.pooled);
        stream.is_silent_from_now(self.silences.request);
        let answer = if pooled.is_open.load(Ordering::Relaxed) {
            pooled.connection.request(request).await
        } else {
            sent_first(&pooled, request).await?
        };
        stream.since = None;
        pooled.is_open.store(answer.is_ok(), Ordering::Relaxed);
        let answer = answer?;
        let is_http1 = answer.version() < Version::HTTP_2;
        stream.is_silent_from_now(if is_http1 { self.silences.http1_answer } else { self.silences.answer });
        let distrusted = Box::pin(pooled.opened_by.distrusted());
        Ok(answer.map(|body| Answer { body, stream, distrusted }))
    }

    /// Picks a connection that has a stream left.
    fn stream(&self, permit: OwnedSemaphorePermit) -> Stream {
        let latest = Arc::clone(&lock(&self.latest));
        let mut all = lock(&self.pooled);
        // A connection of an old certificate closes after its last request.
        all.retain(|pooled| {
            !pooled.is_retired.load(Ordering::Relaxed) && Arc::ptr_eq(&pooled.opened_by, &latest)
        });
        let streams = |pooled: &PooledConnection| pooled.streams.load(Ordering::Relaxed);
        // If all others are full, an idle one stays: otherwise each short request would open and close one.
        let mut is_spare = !all.iter().any(|pooled| (1..STREAMS).contains(&streams(pooled)));
        all.retain(|pooled| streams(pooled) > 0 || mem::take(&mut is_spare));
        let free = all.iter().find(|pooled| streams(pooled) < STREAMS);
        let pooled = free.cloned().unwrap_or_else(|| {
            let pooled = Arc::new(PooledConnection {
                connection: latest.another(),
                opened_by: latest,
                streams: AtomicUsize::new(0),
                is_open: AtomicBool::new(false),
                opening: AsyncMutex::default(),
                is_retired: AtomicBool::new(false),
            });
            all.push(Arc::clone(&pooled));
            pooled
        });
        pooled.streams.fetch_add(1, Ordering::Relaxed);
        Stream { pooled, since: None, most: Duration::ZERO, _permit: permit }
    }
}

/// Sends a request over a connection that may have to be opened: by this request, or by another one that it waits for.
///
/// A task does this, because a program may stop polling a request for a while: in a `select!`, another branch may go on. The
/// turn to open the connection would then never end, and every other request would wait for it.
async fn sent_first(
    pooled: &Arc<PooledConnection>,
    request: Request<kube::client::Body>,
) -> Result<Result<Response<Incoming>, Error>, BoxError> {
    // Ends the task if the request is dropped.
    let mut opening = JoinSet::new();
    opening.spawn(opened(Arc::clone(pooled), request));
    match opening.join_next().await {
        Some(Ok(First::Answered(answer))) => Ok(answer),
        Some(Ok(First::Sent(answer))) => Ok(answer.await),
        Some(Err(error)) => Err(error.into()),
        None => unreachable!("one task was spawned"),
    }
}

/// How far a request has come when the connection is open.
enum First {
    Answered(Result<Response<Incoming>, Error>),
    Sent(ResponseFuture),
}

/// Waits for the turn to open the connection, and opens it if nobody has meanwhile.
async fn opened(pooled: Arc<PooledConnection>, mut request: Request<kube::client::Body>) -> First {
    // Without turns, each of many concurrent requests would open a connection.
    let _turn = pooled.opening.lock().await;
    if pooled.is_open.load(Ordering::Relaxed) {
        return First::Sent(pooled.connection.request(request));
    }
    let mut connected = capture_connection(&mut request);
    let mut answer = pooled.connection.request(request);
    tokio::select! {
        biased;
        answer = &mut answer => {
            pooled.is_open.store(answer.is_ok(), Ordering::Relaxed);
            First::Answered(answer)
        }
        // The others need not wait for the answer.
        () = async { drop(connected.wait_for_connection_metadata().await) } => {
            pooled.is_open.store(true, Ordering::Relaxed);
            First::Sent(answer)
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request's stream on a connection, held until its answer is read or abandoned.
struct Stream {
    pooled: Arc<PooledConnection>,
    /// When data last arrived. `None` while no data is expected.
    since: Option<Instant>,
    /// The silence after which the connection is given up.
    most: Duration,
    _permit: OwnedSemaphorePermit,
}

impl Stream {
    fn is_silent_from_now(&mut self, most: Duration) {
        (self.since, self.most) = (Some(Instant::now()), most);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() >= self.most) {
            self.pooled.is_retired.store(true, Ordering::Relaxed);
        }
        self.pooled.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
