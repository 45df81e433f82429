//! The HTTP server, so bounded that a slow or hostile client harms nobody but itself.
//!
//! | bound | against |
//! |---|---|
//! | connections; a new one ends the oldest | clients that open and hold |
//! | time for a request's head, idle time between requests included | slow headers |
//! | size and number of headers | long URLs, many headers |
//! | time without a byte taken | clients that ask and do not read |
//! | time for all to end, at the end | all of the above, at shutdown |
//! | the name it is called by, on loopback | pages of others, in a browser on this machine |
//!
//! This room knows connections. What is answered is [`routes`]'.

mod debug;
mod gzip;
mod host;
mod page;
mod pod_list;
mod routes;
mod stall;
mod tag;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::core::v1::Pod;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use self::stall::StallGuard;
pub(super) use self::tag::Tags;
use super::board::Board;
use super::log::Log;
use super::metrics::Metrics;
use super::mirrors::MirrorKeeper;
use super::references::References;
use crate::Reader;

/// How many connections are served at once.
const CONNECTIONS: usize = 256;
/// How long a request's head may take, from the end of the request before.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How large it may be; hyper's least is 8 KiB.
const HEAD_BYTES: usize = 16 * 1024;
/// How many headers it may have.
const HEADERS: usize = 64;
/// How long a client may take no byte of its answer.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests under way may take to end once the agent is to leave.
const DRAIN: Duration = Duration::from_secs(10);
/// How long to wait when a connection cannot be accepted, for instance for want of a file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the handlers answer from.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub(super) reader: Reader<Pod>,
    pub(super) board: Arc<Board>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) mirrors: Arc<MirrorKeeper>,
    /// Nothing: they are not followed.
    pub(super) references: Option<References>,
    pub(super) tags: Tags,
    /// What clients may change, if they may.
    pub(super) debug: Option<Log>,
}

/// Serves until `stop` becomes true, and then until the requests under way are answered.
pub(super) async fn serve(listener: TcpListener, app: App, stop: watch::Receiver<bool>) {
    let is_private = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let router = routes::router(app);
    let router = if is_private { host::checked(router) } else { router };
    let mut tasks = JoinSet::new();
    let mut oldest_first = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
            () = stopped(stop.clone()) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                make_room(&mut oldest_first);
                oldest_first.push_back(tasks.spawn(converse(stream, router.clone(), stop.clone())));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let drained = tokio::time::timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(connections = tasks.len(), "cutting off connections that did not end");
    }
}

/// Ends the oldest connection if there are too many. Honest ones are short, so the oldest is hardly one of them.
fn make_room(oldest_first: &mut VecDeque<AbortHandle>) {
    oldest_first.retain(|connection| !connection.is_finished());
    if oldest_first.len() >= CONNECTIONS
        && let Some(oldest) = oldest_first.pop_front()
    {
        oldest.abort();
    }
}

/// Serves one connection to its end.
async fn converse(stream: TcpStream, router: Router, stop: watch::Receiver<bool>) {
    let io = TokioIo::new(StallGuard::new(stream, STALL_TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(io, TowerToHyperService::new(router));
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
