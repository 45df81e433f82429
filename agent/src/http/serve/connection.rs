//! One connection, from the handshake to its end.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tower::ServiceExt;

use super::activity::{Activity, CHECK, Expired, KEEP_ALIVE, State};
use super::host::Hosts;
use super::stall::StallGuard;
use super::stopped;
use super::watched::Watched;
use crate::api::client::Peer;
use crate::http::access::Identity;
use crate::http::tls::Tls;

/// Timeout of the TLS handshake.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the head; hyper's minimum is 8 KiB.
pub(super) const HEAD_BYTES: usize = 16 * 1024;
/// Maximum number of headers.
pub(super) const HEADERS: usize = 64;

/// A client's connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What all connections of a listener have in common.
pub(super) struct Served {
    pub(super) router: Router,
    pub(super) hosts: Hosts,
    pub(super) tls: Option<Arc<Tls>>,
    /// Becomes true when the agent ends.
    pub(super) stop: watch::Receiver<bool>,
}

/// Serves one connection to its end, with TLS if configured.
pub(super) async fn serve(
    stream: Box<dyn Stream>,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
    served: Arc<Served>,
) {
    let stream = StallGuard::new(stream);
    let Some(tls) = &served.tls else {
        activity.set(State::Head);
        return serve_requests(stream, None, peer, activity, served).await;
    };
    let handshake = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
    let done = tokio::select! {
        done = handshake => done,
        // No request has been made yet.
        () = stopped(served.stop.clone()) => return,
    };
    let encrypted = match done {
        Ok(Ok(encrypted)) => encrypted,
        Ok(Err(error)) => return tracing::debug!(%error, "a client failed the TLS handshake"),
        Err(_) => return tracing::debug!("a TLS handshake timed out"),
    };
    activity.set(State::Head);
    let shown = encrypted.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let identity = shown.and_then(|certificate| Identity::of_certificate(certificate)).map(Arc::new);
    serve_requests(encrypted, identity, peer, activity, served).await;
}

/// Serves the requests on a connection. `identity`: of the client's certificate.
async fn serve_requests(
    stream: impl Stream + 'static,
    identity: Option<Arc<Identity>>,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
    served: Arc<Served>,
) {
    let stop = served.stop.clone();
    let stream = Watched::new(stream, Arc::clone(&activity));
    let of_request = Arc::clone(&activity);
    let service = tower::service_fn(move |mut request: Request<Incoming>| {
        of_request.set(State::Serving);
        let end = EndOfRequest(Arc::clone(&of_request));
        introduce(&mut request, &peer, identity.as_ref());
        respond(&served, request, end)
    });
    let connection = http1::Builder::new()
        // Here, so that an idle connection may live longer than a request's head may take.
        .header_read_timeout(None)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = pin!(connection);
    let mut stopped = pin!(stopped(stop));
    let mut check = pin!(sleep_until(Instant::now() + CHECK));
    let mut is_ending = false;
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = &mut stopped, if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut check => {
                check.as_mut().reset(Instant::now() + CHECK);
                match activity.expired() {
                    None => {}
                    Some(Expired::Idle) => {
                        is_ending = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    Some(Expired::Head) => return tracing::debug!("a request's head took too long"),
                }
            }
        }
    };
    if let Err(error) = ended {
        // hyper's error says what was done, its source why that failed.
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        tracing::debug!(%error, cause, "a connection ended early");
    }
}

/// Adds to a request what handlers know of the client.
fn introduce(request: &mut Request<Incoming>, peer: &Arc<Peer>, identity: Option<&Arc<Identity>>) {
    let known = request.extensions_mut();
    known.insert(Arc::clone(peer));
    if let Some(identity) = identity {
        if let Some(name) = identity.named() {
            known.insert(name);
        }
        known.insert(Arc::clone(identity));
    }
}

/// The response of the router, unless the request's host is refused.
fn respond(
    served: &Served,
    request: Request<Incoming>,
    end: EndOfRequest,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + use<> {
    let response = match served.hosts.check(&request) {
        Ok(()) => Ok(served.router.clone().oneshot(request.map(axum::body::Body::new))),
        Err(refusal) => Err(refusal),
    };
    async move {
        let mut response = match response {
            Ok(response) => response.await?,
            Err(refusal) => refusal,
        };
        let keep_alive = HeaderValue::from_static(KEEP_ALIVE);
        response.headers_mut().insert(HeaderName::from_static("keep-alive"), keep_alive);
        Ok(response.map(|body| ResponseBody { body, _end: end }))
    }
}

/// The end of a request, when its response has been handed to the connection, or when the client has gone.
struct EndOfRequest(Arc<Activity>);

impl Drop for EndOfRequest {
    fn drop(&mut self) {
        self.0.set(State::Idle);
    }
}

/// A response's body, and with it the end of the request.
struct ResponseBody {
    body: axum::body::Body,
    _end: EndOfRequest,
}

impl Body for ResponseBody {
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

#[cfg(test)]
mod tests {
    use axum::http::header;
    use axum::routing::get;
    use futures_util::{StreamExt, stream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::{advance, sleep};

    use super::super::activity::{HEAD_TIMEOUT, IDLE_TIMEOUT};
    use super::*;
    use crate::api::client::Clients;

    /// What a client can leave unread.
    const UNREAD: usize = 64 * 1024;

    /// A connection to a server that answers at once or after a second, with more than the client can leave unread, or with
    /// little in two parts. The clock is paused.
    fn connect() -> (DuplexStream, Arc<Activity>) {
        let (client, server) = duplex(UNREAD);
        let activity = Arc::new(Activity::new());
        let slowly = get(async || {
            sleep(Duration::from_secs(1)).await;
            "ok"
        });
        let large = get(async || "x".repeat(4 * UNREAD) + "ok");
        let in_parts = get(async || {
            let parts = stream::iter(["x".repeat(2048), "ok".to_owned()]).then(async |part| {
                if part == "ok" {
                    sleep(Duration::from_secs(1)).await;
                }
                Ok::<_, Infallible>(part)
            });
            ([(header::CONTENT_LENGTH, "2050")], axum::body::Body::from_stream(parts))
        });
        let router = Router::new().route("/slowly", slowly).route("/", get(async || "ok"));
        let router = router.route("/large", large).route("/in-parts", in_parts);
        let peer = Clients::new().peer("client");
        let (stop, stopped) = watch::channel(false);
        // The agent does not end.
        std::mem::forget(stop);
        let listener = Served { router, hosts: Hosts::All, tls: None, stop: stopped };
        tokio::spawn(serve(Box::new(server), peer, Arc::clone(&activity), Arc::new(listener)));
        (client, activity)
    }

    async fn send(client: &mut DuplexStream, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: l\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
    }

    /// The response to a request, or what came before the connection was closed.
    async fn ask(client: &mut DuplexStream, path: &str) -> String {
        send(client, path).await;
        rest(client).await
    }

    /// The rest of a response, or of what came before the connection was closed.
    async fn rest(client: &mut DuplexStream) -> String {
        let mut response = Vec::new();
        while !response.ends_with(b"ok") {
            if client.read_buf(&mut response).await.unwrap() == 0 {
                break;
            }
        }
        String::from_utf8(response).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_every_minute_and_a_half_needs_one_connection() {
        let (mut client, activity) = connect();
        for seconds in [0, 10, 30, 60, 90, 90, 90] {
            sleep(Duration::from_secs(seconds)).await;
            let response = ask(&mut client, "/").await;
            assert!(
                response.starts_with("HTTP/1.1 200") && response.ends_with("ok"),
                "{seconds}: {response}"
            );
            assert!(response.contains("keep-alive: timeout=90\r\n"), "{response}");
            tokio::task::yield_now().await;
            assert_eq!(activity.state(), State::Idle);
        }
        // It ends in order, with time for a client that closes it too.
        let began = Instant::now();
        assert_eq!(client.read(&mut [0; 16]).await.unwrap(), 0);
        assert!((IDLE_TIMEOUT..IDLE_TIMEOUT + 2 * CHECK).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    /// The first request, and one after it.
    #[tokio::test(start_paused = true)]
    async fn a_head_must_be_complete_in_time() {
        for is_first in [true, false] {
            let (mut client, _) = connect();
            if !is_first {
                ask(&mut client, "/").await;
                sleep(Duration::from_secs(60)).await;
            }
            let began = Instant::now();
            client.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
            assert_eq!(client.read(&mut [0; 16]).await.unwrap_or(0), 0, "{is_first}");
            assert!(
                (HEAD_TIMEOUT..HEAD_TIMEOUT + 2 * CHECK).contains(&began.elapsed()),
                "{:?}",
                began.elapsed()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_under_way_is_served_and_is_no_idle_connection() {
        let (mut client, activity) = connect();
        let asked = tokio::spawn(async move { ask(&mut client, "/slowly").await });
        advance(Duration::from_millis(500)).await;
        assert_eq!(activity.state(), State::Serving);
        assert!(asked.await.unwrap().ends_with("ok"));
    }

    /// Of one that is large, the server has no part left and the client most; of one that comes in parts, the client has read what
    /// there is.
    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_response_is_being_read_is_no_idle_connection() {
        for path in ["/large", "/in-parts"] {
            let (mut client, activity) = connect();
            send(&mut client, path).await;
            client.read_exact(&mut [0; 1024]).await.unwrap();
            sleep(Duration::from_millis(500)).await;
            assert_eq!(activity.state(), State::Serving, "{path}");
            assert!(rest(&mut client).await.ends_with("xok"), "{path}");
            sleep(Duration::from_millis(1)).await;
            assert_eq!(activity.state(), State::Idle, "{path}");
        }
    }
}
