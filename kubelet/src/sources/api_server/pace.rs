//! A client wrapper with pauses, time limits and status reports.
//!
//! kube's watcher restarts a watch that ended normally without a pause, even if the server closes every watch
//! at once. It waits without limit for the answer to a list and for the events of a watch. It also hides
//! bookmarks and how a watch ended. None of this can be changed from outside, so this wrapper sits between
//! the watcher and the client.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::time::{self, Sleep};
use tower::{BoxError, service_fn};

use super::sift::{self, Check, Sifted};
use crate::backoff::Backoff;
use crate::sources::status::StatusWriter;

/// A watch that ended sooner than this counts as failed. client-go's "very short watch".
const SHORT: Duration = Duration::from_secs(1);
/// A watch that ends this much before its requested lifetime was cut off.
const EARLY: Duration = Duration::from_secs(5);

/// What the requests reveal that the watcher's results do not.
pub(super) struct Line {
    status: Arc<StatusWriter>,
    /// The last watch was cut off, or is still open.
    is_cut: AtomicBool,
    /// A watch continued from this version after another was cut off.
    resumed: Notify,
    resumed_from: AtomicU64,
    /// A watch was given up because it was silent.
    was_silent: AtomicBool,
    /// Objects that cannot be decoded are replaced.
    sifts: AtomicBool,
    check: Check,
}

impl Line {
    pub(super) fn new(status: Arc<StatusWriter>, check: Check) -> Self {
        Self {
            status,
            is_cut: AtomicBool::new(false),
            resumed: Notify::new(),
            resumed_from: AtomicU64::new(0),
            was_silent: AtomicBool::new(false),
            sifts: AtomicBool::new(false),
            check,
        }
    }

    /// Sets whether lists and watches requested from now on replace what cannot be decoded.
    pub(super) fn sift(&self, sifts: bool) {
        self.sifts.store(sifts, Ordering::Relaxed);
    }

    /// Waits until a watch continues after another was cut off. Returns the version.
    pub(super) async fn resumed(&self) -> u64 {
        self.resumed.notified().await;
        self.resumed_from.load(Ordering::Relaxed)
    }

    /// Whether a watch was given up because it was silent; resets the flag.
    pub(super) fn take_silence(&self) -> bool {
        self.was_silent.swap(false, Ordering::Relaxed)
    }
}

struct Pace {
    last: Option<Instant>,
    backoff: Backoff,
}

impl Pace {
    /// How long a watch has to wait before it starts.
    fn wait(&mut self, now: Instant) -> Duration {
        let short = self.last.is_some_and(|last| now.saturating_duration_since(last) < SHORT);
        let wait = if short { self.backoff.wait(now) } else { Duration::ZERO };
        self.last = Some(now + wait);
        wait
    }
}

/// Time limits.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// For the start of an answer and, except for watches, its end.
    pub(super) answer: Duration,
    /// For the next event or bookmark of a watch.
    pub(super) event: Duration,
}

/// The same client with two changes: watches that ended immediately wait before they restart, and answers and
/// events have time limits.
pub(super) fn paced(client: Client, backoff: Backoff, patience: Patience, line: Arc<Line>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let pace = Arc::new(Mutex::new(Pace { last: None, backoff }));
    let service = service_fn(move |request: Request<Body>| {
        let (client, pace, line) = (client.clone(), Arc::clone(&pace), Arc::clone(&line));
        async move {
            let watch = asked_watch(&request);
            let mut was_cut = false;
            if watch.is_some() {
                let wait = pace.lock().unwrap_or_else(PoisonError::into_inner).wait(Instant::now());
                time::sleep(wait).await;
                was_cut = line.is_cut.swap(true, Ordering::Relaxed);
            }
            let answer = async {
                let response = client.send(request).await?;
                let (head, body) = response.into_parts();
                let sifts = head.status.is_success() && line.sifts.load(Ordering::Relaxed);
                let body = if let Some(Asked { time, version }) = watch {
                    if head.status.is_success() {
                        line.status.checked(Vec::new(), false);
                        if was_cut {
                            line.resumed_from.store(version, Ordering::Relaxed);
                            line.resumed.notify_one();
                        }
                    }
                    let body =
                        if sifts { Either::Right(Sifted::new(body, line.check)) } else { Either::Left(body) };
                    Either::Left(Events::new(body, time, patience.event, Arc::clone(&line)))
                } else {
                    let mut body = body.collect().await?.to_bytes();
                    if sifts && let Some(sifted) = sift::list(&body, line.check) {
                        body = sifted;
                    }
                    if head.status.is_success() {
                        line.status.heard();
                        line.is_cut.store(false, Ordering::Relaxed);
                    }
                    Either::Right(Full::new(body))
                };
                Ok::<_, BoxError>(Response::from_parts(head, body))
            };
            time::timeout(patience.answer, answer).await.unwrap_or_else(|_| {
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer within {} s", patience.answer.as_secs_f32()),
                )
                .into())
            })
        }
    });
    Client::new(service, namespace)
}

/// The parameters of a watch request.
struct Asked {
    time: Duration,
    version: u64,
}

/// `None` if the request is not a watch.
fn asked_watch(request: &Request<Body>) -> Option<Asked> {
    let query = request.uri().query().unwrap_or_default();
    let value = |key: &str| {
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|pair| pair.0 == key).map(|pair| pair.1)
    };
    value("watch").filter(|watch| *watch == "true")?;
    let number = |key: &str| value(key).and_then(|number| number.parse().ok());
    let time = Duration::from_secs(number("timeoutSeconds").unwrap_or(u64::from(u32::MAX)));
    Some(Asked { time, version: number("resourceVersion").unwrap_or_default() })
}

/// The body of a watch.
struct Events {
    body: Either<Body, Sifted>,
    began: time::Instant,
    asked: Duration,
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
    line: Arc<Line>,
}

impl Events {
    fn new(body: Either<Body, Sifted>, asked: Duration, patience: Duration, line: Arc<Line>) -> Self {
        Self {
            body,
            began: time::Instant::now(),
            asked,
            patience,
            deadline: Box::pin(time::sleep(patience)),
            line,
        }
    }
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.line.status.heard();
                let deadline = time::Instant::now() + self.patience;
                self.deadline.as_mut().reset(deadline);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => {
                let is_early = self.began.elapsed() + EARLY < self.asked;
                self.line.is_cut.store(is_early, Ordering::Relaxed);
                Poll::Ready(None)
            }
            Poll::Pending => {
                std::task::ready!(self.deadline.as_mut().poll(context));
                self.line.was_silent.store(true, Ordering::Relaxed);
                let silence = format!("the watch was silent for {} s", self.patience.as_secs_f32());
                Poll::Ready(Some(Err(silence.into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watches_that_ended_immediately_wait() {
        let minute = Duration::from_secs(60);
        let mut pace = Pace { last: None, backoff: Backoff::new(SHORT, minute) };
        let start = Instant::now();
        assert_eq!(pace.wait(start), Duration::ZERO);
        assert_eq!(pace.wait(start + 2 * SHORT), Duration::ZERO);
        let first = pace.wait(start + 2 * SHORT);
        assert!(first > Duration::ZERO);
        // The watch itself must have lasted long enough, without the wait before it.
        assert!(pace.wait(start + 2 * SHORT + first) > Duration::ZERO);
        assert_eq!(pace.wait(start + minute), Duration::ZERO);
    }
}
