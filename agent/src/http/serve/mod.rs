//! The HTTP server. Its limits keep a slow or hostile client from affecting others.
//!
//! | limit | against |
//! |---|---|
//! | connections on the port, and on the socket; a new one closes the oldest | clients that open connections and hold them |
//! | time for the TLS handshake | clients that connect and do not complete it |
//! | time for a request's head, idle time between requests included | slow headers |
//! | size and number of headers | long URLs, many headers |
//! | time without progress, and a minimum rate | clients that read responses slowly or not at all |
//! | time for open requests at shutdown | all of the above, at shutdown |
//! | the `Host` name, on loopback | DNS rebinding by a page in a browser on this machine |
//! | turns, see [`client`](crate::api::client) | requests that take long to answer |
//!
//! This module knows connections. [`routes`] defines the responses.

mod host;
mod measure;
mod page;
mod routes;
pub(crate) mod socket;
mod stall;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::http::Extensions;
use axum::middleware::from_fn_with_state;
use futures_util::future::OptionFuture;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tower::ServiceExt;

pub(crate) use self::measure::Requests;
use self::measure::measured;
pub(crate) use self::routes::{health_alone, metrics_alone};
pub(crate) use self::socket::Socket;
use self::stall::StallGuard;
use super::access::{Access, Identity, guarded};
use super::tls::Tls;
use crate::api::client::{Clients, Peer};
use crate::config::descriptors;
use crate::config::shutdown::DRAIN;
use crate::metrics::Metrics;
use crate::pipeline::mirrors::MirrorKeeper;
use crate::pipeline::readiness::Readiness;
use crate::pod_api::PodApi;
use crate::whois::Whois;
use pod_index::Reader;

/// Maximum number of open connections of a listener.
const CONNECTIONS: usize = 256;
/// Maximum number of listeners: the port, the socket, and the addresses for health and for metrics.
const LISTENERS: usize = 4;
/// A listener accepts no new connection while so many closed ones still have their descriptors, because their tasks
/// have not ended. Otherwise a flood of connections could take more descriptors than `CONNECTIONS`.
const CLOSING: usize = 4;
/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a request's head, from the end of the previous request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the head; hyper's minimum is 8 KiB.
const HEAD_BYTES: usize = 16 * 1024;
/// Maximum number of headers.
const HEADERS: usize = 64;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Failed accepts are logged this often.
const ACCEPT_WARNING: Duration = Duration::from_secs(60);

/// The state that handlers use.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) reader: Reader<Pod>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) mirrors: Arc<MirrorKeeper>,
    pub(crate) pods: PodApi,
    pub(crate) whois: Whois,
    /// The number of open connections.
    pub(crate) connections: Gauge,
    /// The request metrics.
    pub(crate) requests: Requests,
    /// Access control. `None`: every client that completes the handshake.
    pub(crate) access: Option<Arc<Access>>,
}

/// A client's connection.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Serves until `stop` becomes true, then finishes open requests. Speaks plain HTTP without `tls`, and on the socket.
pub(crate) async fn serve(
    port: TcpListener,
    socket: Option<Socket>,
    tls: Option<Arc<Tls>>,
    app: App,
    stop: watch::Receiver<bool>,
) {
    let is_private = tls.is_none() && port.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let (clients, connections) = (Clients::new(), app.connections.clone());
    let (pods, access, requests) = (app.pods.clone(), app.access.clone(), app.requests.clone());
    let router = routes::router(app);
    let counted = |router: Router| router.layer(from_fn_with_state(requests.clone(), measured));
    // The socket's permissions control access, and browser pages cannot reach it.
    let on_socket = counted(router.clone());
    let on_port = match access {
        Some(access) => counted(router.layer(from_fn_with_state(access, guarded))),
        None => on_socket.clone(),
    };
    let on_port = if is_private { host::checked(on_port) } else { on_port };
    let same_clients = clients.clone();
    let next = async move || {
        let (stream, address) = accept_on_port(&port).await?;
        Ok((Box::new(stream) as Box<dyn Stream>, clients.at(address)))
    };
    let port = accept(next, on_port, tls, &connections, stop.clone());
    let socket = socket.map(|socket| {
        let next = async move || {
            let (stream, client) = socket.accept().await?;
            Ok((Box::new(stream) as Box<dyn Stream>, same_clients.peer(&client)))
        };
        accept(next, on_socket, None, &connections, stop.clone())
    });
    // Watches do not end by themselves.
    let close = async {
        stopped(stop.clone()).await;
        pods.close();
    };
    tokio::join!(port, OptionFuture::from(socket), close);
}

/// Serves these paths in plain HTTP and without access control, until `stop` becomes true.
pub(crate) async fn serve_openly(port: TcpListener, router: Router, stop: watch::Receiver<bool>) {
    let clients = Clients::new();
    let next = async move || {
        let (stream, address) = accept_on_port(&port).await?;
        Ok((Box::new(stream) as Box<dyn Stream>, clients.at(address)))
    };
    accept(next, router, None, &Gauge::default(), stop).await;
}

/// Accepts connections until `stop` becomes true, then waits for open requests. `next`: the next connection and its peer.
/// `open` counts the connections.
async fn accept(
    next: impl AsyncFn() -> io::Result<(Box<dyn Stream>, Arc<Peer>)>,
    router: Router,
    tls: Option<Arc<Tls>>,
    open: &Gauge,
    stop: watch::Receiver<bool>,
) {
    let router = host::single(router);
    let (mut tasks, mut oldest_first, mut warned) = (JoinSet::new(), VecDeque::new(), None::<Instant>);
    // So many of each listener, so that a flood on one takes no descriptor from the others.
    let most = CONNECTIONS.min(descriptors::half() / LISTENERS);
    loop {
        let accepted = tokio::select! {
            accepted = next(), if tasks.len() < oldest_first.len() + CLOSING => accepted,
            Some(_) = tasks.join_next() => {
                open.dec();
                continue;
            }
            () = stopped(stop.clone()) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                make_room(&mut oldest_first, most);
                peer.has_handshake.store(tls.is_none(), Ordering::Relaxed);
                let served =
                    serve_connection(stream, tls.clone(), Arc::clone(&peer), router.clone(), stop.clone());
                oldest_first.push_back((tasks.spawn(served), peer));
                open.inc();
            }
            Err(error) => {
                if warned.is_none_or(|warned| warned.elapsed() >= ACCEPT_WARNING) {
                    tracing::warn!(%error, "cannot accept connections");
                    warned = Some(Instant::now());
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(next);
    let drained = tokio::time::timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(connections = tasks.len(), "closing connections that did not end");
    }
}

/// The next connection on the port.
async fn accept_on_port(port: &TcpListener) -> io::Result<(TcpStream, IpAddr)> {
    let (stream, address) = port.accept().await?;
    // Otherwise an event of a watch may wait for the client's acknowledgement of the one before, which many clients
    // delay by 40 ms. Fails if the client has gone, which the first read finds.
    let _ = stream.set_nodelay(true);
    Ok((stream, address.ip()))
}

/// If there are `most` connections or more, closes the oldest, first among those that have not completed the handshake.
/// Normal requests are short, so the oldest is likely idle or hostile. Watches do not count: they are long and have
/// their own limits.
fn make_room(oldest_first: &mut VecDeque<(AbortHandle, Arc<Peer>)>, most: usize) {
    oldest_first.retain(|(task, _)| !task.is_finished());
    let is_short = |(_, peer): &(AbortHandle, Arc<Peer>)| !peer.is_watching.load(Ordering::Relaxed);
    if oldest_first.iter().filter(|connection| is_short(connection)).count() < most {
        return;
    }
    let stranger = oldest_first.iter().position(|(_, peer)| !peer.has_handshake.load(Ordering::Relaxed));
    let oldest = stranger.or_else(|| oldest_first.iter().position(is_short));
    if let Some((task, _)) = oldest.and_then(|at| oldest_first.remove(at)) {
        task.abort();
    }
}

/// Serves one connection to its end, with TLS if configured.
async fn serve_connection(
    stream: Box<dyn Stream>,
    tls: Option<Arc<Tls>>,
    peer: Arc<Peer>,
    router: Router,
    stop: watch::Receiver<bool>,
) {
    let mut stream: Box<dyn Stream> = Box::new(StallGuard::new(stream));
    // What handlers know of the client.
    let mut known = Extensions::new();
    known.insert(Arc::clone(&peer));
    if let Some(tls) = tls {
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
        let done = tokio::select! {
            done = handshake => done,
            // No request has been made yet.
            () = stopped(stop.clone()) => return,
        };
        let encrypted = match done {
            Ok(Ok(encrypted)) => encrypted,
            Ok(Err(error)) => return tracing::debug!(%error, "a client failed the TLS handshake"),
            Err(_) => return tracing::debug!("a TLS handshake timed out"),
        };
        peer.has_handshake.store(true, Ordering::Relaxed);
        let shown = encrypted.get_ref().1.peer_certificates().and_then(<[_]>::first);
        if let Some(identity) = shown.and_then(|certificate| Identity::of_certificate(certificate)) {
            if let Some(name) = identity.named() {
                known.insert(name);
            }
            known.insert(Arc::new(identity));
        }
        stream = Box::new(encrypted);
    }
    let service = tower::service_fn(move |mut request: Request<_>| {
        request.extensions_mut().extend(known.clone());
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
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

/// Waits until the agent shuts down.
async fn stopped(mut stop: watch::Receiver<bool>) {
    // Fails if the sender is gone: the agent has shut down already.
    let _ = stop.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_to_a_client_is_sent_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, origin) = accept_on_port(&listener).await.unwrap();
        assert!(accepted.nodelay().unwrap());
        assert_eq!(origin, client.local_addr().unwrap().ip());
    }
}
