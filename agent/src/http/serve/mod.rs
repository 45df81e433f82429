//! The HTTP server. Its limits keep a slow or hostile client from affecting others.
//!
//! | limit | against |
//! |---|---|
//! | connections on the port, and on the socket; see [`connections`] for which one is closed | clients that open connections and hold them |
//! | time for the TLS handshake | clients that connect and do not complete it |
//! | time for a request's head, and, apart from that, idle time | slow headers, connections that nobody uses |
//! | size and number of headers | long URLs, many headers |
//! | time without progress, and a minimum rate | clients that read responses slowly or not at all |
//! | TCP's keep-alive, and its timeout | clients that have vanished |
//! | time for open requests at shutdown | all of the above, at shutdown |
//! | the `Host` name, without TLS | DNS rebinding by a page in a browser that can reach the agent |
//! | turns, and a thread for large responses: see [`client`](crate::api::client) | requests that take long to answer |
//!
//! This module knows connections. [`routes`] defines the responses.

mod activity;
mod connection;
mod connections;
#[cfg(test)]
mod documented;
mod host;
mod measure;
mod page;
mod routes;
pub(crate) mod socket;
mod stall;
mod tcp;
mod watched;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::from_fn_with_state;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, OptionFuture};
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) use self::activity::{Activity, State};
use self::connection::Served;
pub(crate) use self::connection::Stream;
use self::connections::{Connection, Connections};
use self::host::Hosts;
pub(crate) use self::measure::Requests;
use self::measure::measured;
pub(crate) use self::routes::{health_alone, metrics_alone};
pub(crate) use self::socket::Socket;
pub(crate) use self::stall::StallGuard;
use super::access::{Access, guarded};
use super::tls::Tls;
use crate::api::client::{Clients, Peer};
use crate::config::descriptors;
use crate::config::shutdown::DRAIN;
use crate::metrics::Metrics;
use crate::pipeline::mirrors::MirrorKeeper;
use crate::pipeline::readiness::Readiness;
use crate::pod_api::PodApi;
use crate::vitals::Vitals;
use crate::whois::Whois;
use pod_index::Reader;
use pod_index_kubelet::records::Record;

/// Maximum number of open connections of a listener.
const CONNECTIONS: usize = 256;
/// Who needs descriptors besides the watches of the pod API: the port, the socket, the addresses for health and for metrics, and the
/// socket of the Pods API, for its connections and for its watches.
const SHARES: usize = 6;
/// A listener accepts no new connection while so many closed ones still have their descriptors, because their tasks
/// have not ended. Otherwise a flood of connections could take more descriptors than `CONNECTIONS`.
const CLOSING: usize = 4;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Failed accepts are logged this often.
const ACCEPT_WARNING: Duration = Duration::from_secs(60);

/// The state that handlers use.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) reader: Reader<Record>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) vitals: Vitals,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) mirrors: Arc<MirrorKeeper>,
    pub(crate) pods: PodApi,
    pub(crate) whois: Arc<Whois>,
    /// The number of open connections.
    pub(crate) connections: Gauge,
    /// The request metrics.
    pub(crate) requests: Requests,
    /// Access control. `None`: every client that completes the handshake.
    pub(crate) access: Option<Arc<Access>>,
}

/// Serves until `stop` becomes true, then finishes open requests. Speaks plain HTTP without `tls`, and on the socket.
pub(crate) async fn serve(
    port: TcpListener,
    socket: Option<Socket>,
    tls: Option<Arc<Tls>>,
    app: App,
    stop: watch::Receiver<bool>,
) {
    let clients = Clients::new();
    let connections = app.connections.clone();
    let pods = app.pods.clone();
    let access = app.access.clone();
    let requests = app.requests.clone();
    let node = app.mirrors.node.to_string();
    let router = routes::router(app);
    let counted = |router: Router| router.layer(from_fn_with_state(requests.clone(), measured));
    // The socket's permissions control access, and browser pages cannot reach it.
    let on_socket = counted(router.clone());
    let on_port = match access {
        Some(access) => counted(router.layer(from_fn_with_state(access, guarded))),
        None => on_socket.clone(),
    };
    // With TLS, a page's name would have to be in the certificate.
    let hosts = if tls.is_some() { Hosts::All } else { Hosts::Private { node } };
    let same_clients = clients.clone();
    let next = async move || {
        let (stream, address) = tcp::accept(&port).await?;
        Ok((Box::new(stream) as Box<dyn Stream>, clients.at(address)))
    };
    let on_port = Served { router: on_port, hosts, tls, stop: stop.clone() };
    let port = accept(next, served(on_port), CONNECTIONS, &connections, stop.clone());
    let socket = socket.map(|socket| {
        let next = async move || {
            let (stream, client) = socket.accept().await?;
            Ok((Box::new(stream) as Box<dyn Stream>, same_clients.peer(&client)))
        };
        let on_socket = Served { router: on_socket, hosts: Hosts::All, tls: None, stop: stop.clone() };
        accept(next, served(on_socket), CONNECTIONS, &connections, stop.clone())
    });
    // Watches do not end by themselves.
    let close = async {
        stopped(stop.clone()).await;
        pods.close();
    };
    tokio::join!(port, OptionFuture::from(socket), close);
}

/// Serves these paths in plain HTTP and without access control, until `stop` becomes true. `node`: the node's name.
pub(crate) async fn serve_openly(port: TcpListener, router: Router, node: &str, stop: watch::Receiver<bool>) {
    let clients = Clients::new();
    let next = async move || {
        let (stream, address) = tcp::accept(&port).await?;
        Ok((Box::new(stream) as Box<dyn Stream>, clients.at(address)))
    };
    let on_address =
        Served { router, hosts: Hosts::Private { node: node.to_owned() }, tls: None, stop: stop.clone() };
    accept(next, served(on_address), CONNECTIONS, &Gauge::default(), stop).await;
}

/// Serves HTTP on a connection.
fn served(
    served: Served,
) -> impl Fn(Box<dyn Stream>, Arc<Peer>, Arc<Activity>) -> BoxFuture<'static, ()> + Send + Sync {
    let served = Arc::new(served);
    move |stream, peer, activity| connection::serve(stream, peer, activity, Arc::clone(&served)).boxed()
}

/// Accepts connections until `stop` becomes true, then waits for open requests. `next`: the next connection and its peer.
/// `serve`: serves a connection to its end. `most`: how many connections may be open. `open` counts them.
pub(crate) async fn accept<S: Future<Output = ()> + Send + 'static>(
    next: impl AsyncFn() -> io::Result<(Box<dyn Stream>, Arc<Peer>)>,
    serve: impl Fn(Box<dyn Stream>, Arc<Peer>, Arc<Activity>) -> S,
    most: usize,
    open: &Gauge,
    stop: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    let mut connections = Connections::default();
    let mut warned = None::<Instant>;
    // So many of each listener, so that a flood on one takes no descriptor from the others.
    let most = most.min(share_of_descriptors());
    loop {
        let accepted = tokio::select! {
            accepted = next(), if tasks.len() < connections.len() + CLOSING => accepted,
            Some(_) = tasks.join_next() => {
                open.dec();
                continue;
            }
            () = stopped(stop.clone()) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                connections.make_room(most);
                let activity = Arc::new(Activity::new());
                let task = tasks.spawn(serve(stream, Arc::clone(&peer), Arc::clone(&activity)));
                connections.add(Connection { task, peer, activity });
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

/// How many descriptors one listener may use.
pub(crate) fn share_of_descriptors() -> usize {
    descriptors::half() / SHARES
}

/// Waits until the agent shuts down.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // Fails if the sender is gone: the agent has shut down already.
    let _ = stop.wait_for(|stop| *stop).await;
}
