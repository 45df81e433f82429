//! The HTTP server, so bounded that a slow or hostile client harms nobody but itself.
//!
//! | bound | against |
//! |---|---|
//! | connections; a new one ends the oldest | clients that open and hold |
//! | time for the handshake, where the agent speaks TLS | clients that open and do not shake hands |
//! | time for a request's head, idle time between requests included | slow headers |
//! | size and number of headers | long URLs, many headers |
//! | time without a byte taken, and a least rate | clients that ask and do not read, or hardly |
//! | time for all to end, at the end | all of the above, at shutdown |
//! | the name it is called by, on loopback | pages of others, in a browser on this machine |
//!
//! This module knows connections. What is answered is [`routes`]'.

mod debug;
pub(super) mod gzip;
mod health;
mod host;
mod measure;
mod page;
pub(super) mod pod_list;
mod routes;
pub(super) mod socket;
mod stall;
mod tag;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;

pub(super) use self::measure::Requests;
use self::measure::measured;
pub(super) use self::socket::Socket;
use self::stall::{Bounds, StallGuard};
pub(super) use self::tag::Tags;
use super::access::{Access, Certified, Identity, guarded};
use super::log::Log;
use super::metrics::Metrics;
use super::mirrors::MirrorKeeper;
use super::pod_api::{Peer, PodApi};
use super::readiness::Readiness;
use super::reference_managers::ReferenceManagers;
use super::shutdown::DRAIN;
use super::tls::{self, Tls};
use pod_index::Reader;

/// How many connections are served at once.
const CONNECTIONS: usize = 256;
/// How long a client may take to shake hands.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request's head may take, from the end of the request before.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How large it may be; hyper's least is 8 KiB.
const HEAD_BYTES: usize = 16 * 1024;
/// How many headers it may have.
const HEADERS: usize = 64;
/// How slowly a client may take its answer. Half a minute is for what a socket's buffer, of some megabytes, hides of one that
/// takes it steadily: it has to be a third empty before it takes more.
const SLOWNESS: Bounds =
    Bounds { stall: Duration::from_secs(10), rate: 64 * 1024, credit: Duration::from_secs(30) };
/// How long to wait when a connection cannot be accepted, for instance for want of a file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The answer to plain HTTP where TLS is spoken.
const SPEAK_TLS: &str = concat!(
    "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n",
    r#"{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"BadRequest","code":400,"#,
    r#""message":"this port speaks TLS: ask by https, or by pod-index with --certificate-authority"}"#,
);

/// What the handlers answer from.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub(super) reader: Reader<Pod>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) mirrors: Arc<MirrorKeeper>,
    /// `None` if they are not followed.
    pub(super) references: Option<ReferenceManagers>,
    pub(super) tags: Tags,
    pub(super) pods: PodApi,
    /// What clients may change, if they may.
    pub(super) debug: Option<Log>,
    /// How many connections are open.
    pub(super) connections: Gauge,
    /// How many requests there were.
    pub(super) requests: Requests,
    /// Who may ask; `None`: whoever has shaken hands.
    pub(super) access: Option<Arc<Access>>,
}

/// A client's connection.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Serves until `stop` becomes true, and then until the requests under way are answered.
/// Without `tls` it speaks plain HTTP, as it does on the socket.
pub(super) async fn serve(
    listener: TcpListener,
    socket: Option<Socket>,
    tls: Option<Arc<Tls>>,
    app: App,
    stop: watch::Receiver<bool>,
) {
    let is_private = tls.is_none() && listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let connections = app.connections.clone();
    let pods = app.pods.clone();
    let (access, requests) = (app.access.clone(), app.requests.clone());
    let router = routes::router(app);
    let counted = |router: Router| router.layer(from_fn_with_state(requests.clone(), measured));
    // Who may write to the socket may ask; no page in a browser gets to it.
    let on_socket = counted(router.clone());
    let on_port = match access {
        Some(access) => counted(router.layer(from_fn_with_state(access, guarded))),
        None => on_socket.clone(),
    };
    let on_port = if is_private { host::checked(on_port) } else { on_port };
    let socket = socket.map(|socket| (socket, on_socket));
    // Watches would not end by themselves.
    accept(listener, on_port, socket, tls, connections, stop, || pods.close()).await;
}

/// Serves `/livez` and `/readyz` to whoever asks, until `stop` becomes true.
pub(super) async fn serve_health(
    listener: TcpListener,
    readiness: Arc<Readiness>,
    stop: watch::Receiver<bool>,
) {
    accept(listener, health::router(readiness), None, None, Gauge::default(), stop, || {}).await;
}

/// Accepts connections on the port, and on the socket if there is one, until `stop` becomes true, and then waits until the requests
/// under way are answered. `connections` counts those that are open.
async fn accept(
    listener: TcpListener,
    on_port: Router,
    socket: Option<(Socket, Router)>,
    tls: Option<Arc<Tls>>,
    connections: Gauge,
    stop: watch::Receiver<bool>,
    stopping: impl FnOnce(),
) {
    let mut tasks = JoinSet::new();
    let mut oldest_first = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => {
                accepted.map(|(stream, address)| (Stream::Tcp(stream), address.ip().to_string(), &on_port))
            }
            accepted = accept_on(socket.as_ref()) => {
                accepted.map(|(stream, client, router)| (Stream::Unix(stream), client, router))
            }
            Some(_) = tasks.join_next() => continue,
            () = stopped(stop.clone()) => break,
        };
        match accepted {
            Ok((stream, client, router)) => {
                make_room(&mut oldest_first);
                let tls = tls.clone().filter(|_| matches!(stream, Stream::Tcp(_)));
                let is_greeted = Arc::new(AtomicBool::new(tls.is_none()));
                let peer = Peer::new(client);
                let service =
                    Service { router: router.clone(), peer: Arc::clone(&peer), certified: Certified(None) };
                let met = meet(stream, tls, Arc::clone(&is_greeted), service, stop.clone());
                let counted = Counted::new(&connections);
                let met = async move {
                    met.await;
                    drop(counted);
                };
                oldest_first.push_back(Connection { task: tasks.spawn(met), is_greeted, peer });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(socket);
    drop(listener);
    stopping();
    let drained = tokio::time::timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(connections = tasks.len(), "cutting off connections that did not end");
    }
}

/// The next connection on the socket, if there is one.
async fn accept_on(socket: Option<&(Socket, Router)>) -> io::Result<(UnixStream, String, &Router)> {
    match socket {
        Some((socket, router)) => socket.accept().await.map(|(stream, client)| (stream, client, router)),
        None => std::future::pending().await,
    }
}

/// A connection, and whether its client has shaken hands, where the agent speaks TLS.
struct Connection {
    task: AbortHandle,
    is_greeted: Arc<AtomicBool>,
    peer: Arc<Peer>,
}

/// What answers the requests of one connection.
#[derive(Clone)]
struct Service {
    router: Router,
    peer: Arc<Peer>,
    certified: Certified,
}

/// A connection that is open as long as this is there; one that is ended goes with its task.
struct Counted(Gauge);

impl Counted {
    fn new(connections: &Gauge) -> Self {
        connections.inc();
        Self(connections.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Ends the oldest connection if there are too many, of those first that have not shaken hands. Honest ones are short, so the
/// oldest is hardly one of them. Watches are long, and have limits of their own: they do not count.
fn make_room(oldest_first: &mut VecDeque<Connection>) {
    oldest_first.retain(|connection| !connection.task.is_finished());
    let is_short = |connection: &Connection| !connection.peer.is_watching.load(Ordering::Relaxed);
    if oldest_first.iter().filter(|connection| is_short(connection)).count() < CONNECTIONS {
        return;
    }
    let stranger = oldest_first.iter().position(|connection| !connection.is_greeted.load(Ordering::Relaxed));
    if let Some(oldest) =
        stranger.or_else(|| oldest_first.iter().position(is_short)).and_then(|at| oldest_first.remove(at))
    {
        oldest.task.abort();
    }
}

/// Serves one connection to its end, by TLS if that is what the agent speaks.
async fn meet(
    stream: Stream,
    tls: Option<Arc<Tls>>,
    is_greeted: Arc<AtomicBool>,
    mut service: Service,
    stop: watch::Receiver<bool>,
) {
    let (stream, tls) = match (stream, tls) {
        (Stream::Tcp(stream), Some(tls)) => (stream, tls),
        (Stream::Tcp(stream), None) => {
            return converse(StallGuard::new(stream, SLOWNESS), service, stop).await;
        }
        (Stream::Unix(stream), _) => {
            return converse(StallGuard::new(stream, SLOWNESS), service, stop).await;
        }
    };
    let greeting = tokio::time::timeout(HANDSHAKE_TIMEOUT, greet(&tls, stream));
    let greeted = tokio::select! {
        greeted = greeting => greeted,
        // Nothing has been asked yet.
        () = stopped(stop.clone()) => return,
    };
    match greeted {
        Ok(Ok(Some(stream))) => {
            is_greeted.store(true, Ordering::Relaxed);
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let identity = shown.and_then(|certificate| Identity::of_certificate(certificate));
            service.certified = Certified(identity.map(Arc::new));
            converse(stream, service, stop).await;
        }
        Ok(Ok(None)) => tracing::debug!("a client spoke plain HTTP, and was told to speak TLS"),
        Ok(Err(error)) => tracing::debug!(%error, "a client did not shake hands"),
        Err(_) => tracing::debug!("a client took too long to shake hands"),
    }
}

/// Shakes hands; `None` if the client does not know that it should.
async fn greet(tls: &Tls, stream: TcpStream) -> io::Result<Option<TlsStream<StallGuard<TcpStream>>>> {
    let speaks_tls = tls::speaks_tls(&stream).await?;
    let stream = StallGuard::new(stream, SLOWNESS);
    if !speaks_tls {
        return tls::turn_away(stream, SPEAK_TLS).await.map(|()| None);
    }
    tls.accept(stream).await.map(Some)
}

/// Serves what a connection asks.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: Service,
    stop: watch::Receiver<bool>,
) {
    let io = TokioIo::new(stream);
    let Service { router, peer, certified } = service;
    let service = tower::service_fn(move |mut request: axum::extract::Request<_>| {
        request.extensions_mut().insert(Arc::clone(&peer));
        request.extensions_mut().insert(certified.clone());
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(io, TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Waits until the agent is to leave.
async fn stopped(mut stop: watch::Receiver<bool>) {
    // Fails when the sender is gone, and then the agent has left already.
    let _ = stop.wait_for(|stop| *stop).await;
}
