//! Answers clients that close their half of the connection after the request, as `nc -N` does.
//!
//! hyper closes a connection that ends before its response is sent. [`HalfClose`] hides the end of the stream from hyper
//! until then, but only for a few seconds if nothing is sent meanwhile: a client that has gone ends its stream, too, and
//! must not hold a connection. Watches are the exception: they have no last byte, and a client that has gone must not
//! count as a watcher.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::api::client::Peer;

/// How often a hidden end of the stream is reconsidered: the request may have become a watch.
const RECHECK: Duration = Duration::from_secs(1);

/// How long the end is hidden while nothing is sent.
const HIDDEN: Duration = Duration::from_secs(10);

/// Whether a connection has a request whose response is not sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Answering(Arc<AtomicBool>);

impl Answering {
    /// Begins a request. HTTP/1.1 serves one at a time on a connection.
    pub(super) fn begin(&self) -> Request {
        self.0.store(true, Ordering::Relaxed);
        Request(Arc::clone(&self.0))
    }
}

/// A request. Ends when dropped.
#[derive(Debug)]
pub(super) struct Request(Arc<AtomicBool>);

impl Request {
    /// The body of the response. The request ends with it.
    pub(super) fn answered_by(self, body: Body) -> Body {
        Body::new(Answer { body, _request: self })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

struct Answer {
    body: Body,
    _request: Request,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose end is hidden while a request waits for its response.
pub(super) struct HalfClose<S> {
    stream: S,
    answering: Answering,
    peer: Arc<Peer>,
    recheck: Option<Pin<Box<Sleep>>>,
    /// When the end was first hidden during this request, or since the last part of the response was sent.
    hidden_since: Option<Instant>,
}

impl<S> HalfClose<S> {
    pub(super) fn new(stream: S, answering: Answering, peer: Arc<Peer>) -> Self {
        Self { stream, answering, peer, recheck: None, hidden_since: None }
    }

    fn hides_the_end(&self) -> bool {
        self.answering.0.load(Ordering::Relaxed) && !self.peer.is_watching.load(Ordering::Relaxed)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HalfClose<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            let is_end = buf.filled().len() == before && buf.remaining() > 0;
            if !is_end || !self.hides_the_end() {
                self.hidden_since = None;
                return Poll::Ready(Ok(()));
            }
            if self.hidden_since.get_or_insert_with(Instant::now).elapsed() >= HIDDEN {
                return Poll::Ready(Ok(()));
            }
            // The end can be read again at any time. hyper reads again once the response is sent.
            let recheck = self.recheck.get_or_insert_with(|| Box::pin(sleep(RECHECK)));
            ready!(recheck.as_mut().poll(cx));
            self.recheck = None;
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HalfClose<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf));
        self.hidden_since = None;
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs));
        self.hidden_since = None;
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::Extension;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    use super::*;
    use crate::api::client::Clients;
    use crate::http::access::Certified;
    use crate::http::serve::{Service, serve_requests};

    /// A response whose body never ends, with or without being a watch.
    fn endless() -> Body {
        let first = Ok::<_, io::Error>(Bytes::from_static(b"first"));
        Body::from_stream(futures_util::StreamExt::chain(
            futures_util::stream::iter([first]),
            futures_util::stream::pending(),
        ))
    }

    /// The response to a client that closes its half before the server reads the request.
    async fn response(path: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: l\r\n\r\n").as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let router = Router::new()
            .route("/", get(async || "answer"))
            .route("/later", get(later))
            .route("/slow", get(slow))
            .route("/never", get(std::future::pending::<()>))
            .route("/watch", get(watched));
        let service = Service { router, peer: Clients::new().peer("client"), certified: Certified(None) };
        let (_stop, stopped) = watch::channel(false);
        let mut response = String::new();
        // Without a deadline: the paused clock could jump to it before a packet arrives.
        let ((), read) =
            tokio::join!(serve_requests(accepted, service, stopped), client.read_to_string(&mut response));
        read.unwrap();
        response
    }

    async fn later() -> &'static str {
        sleep(Duration::from_millis(10)).await;
        "answer"
    }

    /// A body that is sent in parts, for longer than the end is hidden.
    async fn slow() -> Body {
        Body::from_stream(futures_util::stream::unfold(0, async |part| {
            sleep(HIDDEN / 4).await;
            (part < 8).then_some((Ok::<_, io::Error>(Bytes::from_static(b"part")), part + 1))
        }))
    }

    async fn watched(Extension(peer): Extension<Arc<Peer>>) -> Body {
        peer.is_watching.store(true, Ordering::Relaxed);
        endless()
    }

    #[tokio::test]
    async fn a_client_that_closes_its_half_gets_its_answer() {
        for path in ["/", "/later"] {
            let response = response(path).await;
            assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {response:?}");
            assert!(response.contains("\r\ncontent-length: 6\r\n"), "{path}: {response:?}");
            assert!(response.ends_with("\r\n\r\nanswer"), "{path}: {response:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_answer_is_sent_to_its_end() {
        let response = response("/slow").await;
        assert_eq!(response.matches("part").count(), 8, "{response:?}");
        assert!(response.ends_with("\r\n0\r\n\r\n"), "{response:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_gone_does_not_hold_its_connection() {
        assert_eq!(response("/never").await, "");
    }

    #[tokio::test]
    async fn a_watch_ends_when_its_client_closes_its_half() {
        assert!(response("/watch").await.starts_with("HTTP/1.1 200 OK\r\n"));
    }
}
