//! The kubelet's Pods API (`v1alpha1.Pods`, KEP-4188), served from the index on a Unix socket: for nodes whose kubelet does not
//! serve it, and for clients that are not root.
//!
//! # Differences from the kubelet's
//! | | here | kubelet |
//! |---|---|---|
//! | a change of labels, annotations or spec | an event | no event |
//! | `DELETED` | once, when the containers have ended or, if no source tells that, when the pod is gone | when the containers have ended, possibly several times |
//! | before all pods are known | `FAILED_PRECONDITION` | the same since 1.37; 1.36 lists what it has |
//! | environment variables | with `--redact-env`, without their values | with their values |
//!
//! # Limits
//! | limit | against |
//! |---|---|
//! | connections, and calls of a connection | clients that open many |
//! | watches of all clients (`--max-watches`) | likewise |
//! | lists at a time | the memory of many encoded lists |
//! | events that a watch may be behind, and for how long | clients that read slowly or not at all |
//! | bytes and time of a request | slow and endless requests |
//!
//! This module knows gRPC and the index. It must not know where pods come from.

mod call;
mod events;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use self::call::answer;
use crate::config::failure::Failure;
use crate::config::{Settings, descriptors};
use crate::http::build::bind_socket;
use crate::http::serve::Socket;
use crate::pipeline::readiness::Readiness;
use crate::tasks::Tasks;
use pod_index::Reader;
use pod_index_kubelet::records::Record;

/// Maximum number of open connections.
const CONNECTIONS: usize = 64;
/// Maximum number of calls at a time on a connection.
const CALLS: u32 = 32;
/// Maximum number of lists at a time.
const LISTS: usize = 4;
/// A connection whose client does not answer a ping is closed.
const PING: Duration = Duration::from_secs(30);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the calls need.
#[derive(Clone)]
pub(crate) struct KubeletApi {
    reader: Reader<Record>,
    readiness: Arc<Readiness>,
    watches: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

impl KubeletApi {
    pub(crate) fn build(settings: &Settings, reader: &Reader<Record>, readiness: &Arc<Readiness>) -> Self {
        let most_watches = settings.given.pod_api.max_watches.min(descriptors::half());
        Self {
            reader: reader.clone(),
            readiness: Arc::clone(readiness),
            watches: Arc::new(Semaphore::new(most_watches.min(Semaphore::MAX_PERMITS))),
            lists: Arc::new(Semaphore::new(LISTS)),
        }
    }

    /// Serves on the socket of `--pods-api-socket`, if it is given, until `stopped` becomes true.
    pub(crate) fn spawn(
        self,
        settings: &Settings,
        tasks: &mut Tasks,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let path = settings.given.listeners.pods_api_socket.as_deref();
        if let Some(socket) = bind_socket(settings, "pods-api-socket", path)? {
            tasks.spawn("the server of the Pods API", self.serve(socket, stopped.clone()));
        }
        Ok(())
    }

    /// Serves until `stop` becomes true.
    async fn serve(self, socket: Socket, mut stop: watch::Receiver<bool>) {
        // Dropping them closes the connections.
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                accepted = socket.accept(), if connections.len() < CONNECTIONS => accepted,
                _ = connections.join_next(), if connections.len() >= CONNECTIONS => continue,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let api = self.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| answer(api.clone(), request));
                let mut server = http2::Builder::new(TokioExecutor::new());
                server.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
                server.max_concurrent_streams(CALLS);
                // A client that goes away is no error.
                drop(server.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    }
}
