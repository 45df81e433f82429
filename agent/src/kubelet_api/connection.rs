//! One connection: HTTP/2, its calls, and its end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, RecvStream};
use hyper::Request;
use hyper::body::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::KubeletApi;
use super::call::answer;
use super::caller::Caller;
use crate::api::client::Peer;
use crate::http::serve::{Activity, StallGuard, State, Stream, stopped};

/// Maximum number of calls at a time on a connection.
const CALLS: usize = 32;
/// Maximum size of a request's headers.
const HEAD_BYTES: u32 = 16 * 1024;
/// Bytes of one call that wait for the socket. What waits for the client's permission is not counted: it is not handed to `h2`.
const SEND_BUFFER: usize = 64 * 1024;
/// Timeout of HTTP/2's handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection whose client does not answer a ping is closed.
const PING: Duration = Duration::from_secs(30);

/// Serves a connection to its end, or until `stop` becomes true.
pub(super) async fn serve(
    stream: Box<dyn Stream>,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
    api: Arc<KubeletApi>,
    stop: watch::Receiver<bool>,
) {
    // Its client has not asked for anything.
    activity.set(State::Idle);
    let mut server = Builder::new();
    server.max_concurrent_streams(u32::try_from(CALLS).unwrap_or(u32::MAX));
    server.max_header_list_size(HEAD_BYTES).max_send_buffer_size(SEND_BUFFER);
    let handshake = timeout(HANDSHAKE_TIMEOUT, server.handshake(StallGuard::new(stream))).await;
    let Ok(Ok(mut connection)) = handshake else {
        return tracing::debug!("a client of the Pods API does not speak HTTP/2");
    };
    let mut unanswered = pin!(unanswered(connection.ping_pong()));
    let mut stopped = pin!(stopped(stop));
    let caller = Arc::new(Caller::new(peer));
    // Dropping them ends the calls.
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            call = next_call(&mut connection, calls.len()) => {
                let Some((request, respond)) = call else { return };
                if calls.is_empty() {
                    activity.set(State::Serving);
                }
                calls.spawn(answer(Arc::clone(&api), Arc::clone(&caller), request, respond));
            }
            Some(_) = calls.join_next() => {
                if calls.is_empty() {
                    activity.set(State::Idle);
                }
            }
            () = &mut unanswered => return tracing::debug!("a client of the Pods API answers no ping"),
            () = &mut stopped => return,
        }
    }
}

/// The next call, while the connection sends and receives. `None`: it is closed.
async fn next_call<S: Stream>(
    connection: &mut Connection<S, Bytes>,
    open_calls: usize,
) -> Option<(Request<RecvStream>, SendResponse<Bytes>)> {
    if open_calls < CALLS {
        return connection.accept().await?.ok();
    }
    // HTTP/2 counts a call that the client has ended no more, while its task may be at work still.
    let _ = poll_fn(|context| connection.poll_closed(context)).await;
    None
}

/// Waits until the client does not answer a ping.
async fn unanswered(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return };
    loop {
        sleep(PING).await;
        if !matches!(timeout(PING, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}
