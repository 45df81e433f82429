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
//! A client is a user of the socket.
//!
//! | limit | against |
//! |---|---|
//! | connections; a new one closes another, as over HTTP | clients that open many |
//! | calls of a connection | likewise |
//! | watches of a client and of all (`--max-watches-per-client`, `--max-watches`) | likewise |
//! | lists and single pods of a client and of all, until they are read | likewise |
//! | a pod is encoded once for all that have yet to read it, and the bytes of all are limited | the memory of what nobody reads |
//! | the time in which a client must read, and a minimum rate | clients that read slowly or not at all |
//! | bytes and time of a request | slow and endless requests |
//! | a thread of its own, in which clients take turns | the time that answers take: they delay no probe |
//!
//! This module knows gRPC and the index. It must not know where pods come from.

mod answer;
mod call;
mod caller;
mod connection;
mod encodings;
mod events;
mod metrics;
mod wire;

use std::sync::Arc;

use tokio::sync::watch;

use self::encodings::Encodings;
use self::metrics::PodsApiMetrics;
use crate::api::client::Clients;
use crate::config::Settings;
use crate::config::changing::Changing;
use crate::config::failure::Failure;
use crate::config::values::MostWatches;
use crate::http::build::bind_socket;
use crate::http::serve::{self, Socket, Stream, share_of_descriptors};
use crate::metrics::Metrics;
use crate::pipeline::readiness::Readiness;
use crate::pod_api::watch_limits::WatchLimits;
use crate::tasks::{Tasks, cannot_start};
use pod_index::Reader;
use pod_index_kubelet::records::Record;

/// Maximum number of open connections, without those that watch.
const CONNECTIONS: usize = 64;
/// The name of the thread.
const NAME: &str = "the Pods API";

/// What the calls need.
pub(crate) struct KubeletApi {
    reader: Reader<Record>,
    readiness: Arc<Readiness>,
    watch_limits: Arc<WatchLimits>,
    encodings: Encodings,
    metrics: PodsApiMetrics,
}

impl KubeletApi {
    /// `None` without `--pods-api-socket`.
    pub(crate) fn build(
        settings: &Settings,
        reader: &Reader<Record>,
        readiness: &Arc<Readiness>,
        most_watches: &Changing<MostWatches>,
        metrics: &mut Metrics,
    ) -> Option<Self> {
        settings.effective.listeners.pods_api_socket.as_ref()?;
        Some(Self {
            reader: reader.clone(),
            readiness: Arc::clone(readiness),
            watch_limits: WatchLimits::new(most_watches.clone(), share_of_descriptors()),
            encodings: Encodings::new(),
            metrics: PodsApiMetrics::register(metrics.ours()),
        })
    }

    /// Serves on the socket of `--pods-api-socket` until `stopped` becomes true.
    pub(crate) fn spawn(
        self,
        settings: &Settings,
        tasks: &mut Tasks,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let path = settings.effective.listeners.pods_api_socket.as_deref();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot_start(NAME, error))?;
        let socket = {
            let _inside = runtime.enter();
            bind_socket(settings, "pods-api-socket", path)
        };
        match socket {
            Ok(Some(socket)) => {
                let serve = self.serve(socket, stopped.clone());
                tasks.thread(NAME, move || runtime.block_on(serve)).map(drop)
            }
            failed => {
                // Dropping it here, inside another runtime, would panic.
                runtime.shutdown_background();
                failed.map(drop)
            }
        }
    }

    /// Serves until `stop` becomes true.
    async fn serve(self, socket: Socket, stop: watch::Receiver<bool>) {
        let api = Arc::new(self);
        let connections = api.metrics.connections.clone();
        let clients = Clients::new();
        let next = async move || {
            let (stream, client) = socket.accept().await?;
            Ok((Box::new(stream) as Box<dyn Stream>, clients.peer(&client)))
        };
        let of_connections = stop.clone();
        let serve = move |stream, peer, activity| {
            connection::serve(stream, peer, activity, Arc::clone(&api), of_connections.clone())
        };
        serve::accept(next, serve, CONNECTIONS, &connections, stop).await;
    }
}
