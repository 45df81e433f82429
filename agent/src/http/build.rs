//! The HTTP server, built from the settings, then spawned: on the port and the socket, and in threads of their own on the
//! addresses for health and for metrics.

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use kube::Client;
use pod_index::Reader;
use pod_index_kubelet::records::Record;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::access::{Access, Decisions};
use super::listeners::{Listeners, address_of};
use super::serve::{self, App, Requests, Socket};
use super::tls::Tls;
use crate::config::Settings;
use crate::config::failure::Failure;
use crate::metrics::{Metrics, registered};
use crate::pipeline::mirrors::MirrorKeeper;
use crate::pipeline::readiness::Readiness;
use crate::pod_api::PodApi;
use crate::tasks::{End, Tasks, cannot_start};
use crate::vitals::Vitals;
use crate::whois::Whois;

/// What the server answers from.
pub(crate) struct Inputs {
    pub(crate) reader: Reader<Record>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) vitals: Vitals,
    pub(crate) mirrors: Arc<MirrorKeeper>,
    pub(crate) pods: PodApi,
    pub(crate) whois: Arc<Whois>,
}

/// The server, before it accepts connections.
pub(crate) struct Server {
    app: App,
    tls: Option<Arc<Tls>>,
}

/// The running server.
pub(crate) struct RunningServer {
    pub(crate) url: String,
    pub(crate) end: End,
}

/// The agent's certificate and key, if it serves over TLS.
pub(crate) fn certificate(settings: &Settings) -> Result<Option<Tls>, Failure> {
    settings.tls.clone().map(Tls::load).transpose().map_err(Failure::Usage)
}

impl Server {
    /// `reviews`: the client of the API server that asks it who clients are, and what they may do. Takes the metrics of all
    /// parts, because the server serves them.
    pub(crate) fn build(
        settings: &Settings,
        inputs: Inputs,
        reviews: Option<&Client>,
        mut metrics: Metrics,
    ) -> Result<Self, Failure> {
        let tls = certificate(settings)?.map(Arc::new);
        if let Some(tls) = tls.clone() {
            metrics.collect(move |to| tls.show(to));
        }
        let decisions = Decisions::register(metrics.ours());
        let access =
            Access::new(&settings.effective.access_rules(), reviews, settings.node.as_str(), decisions);
        let open = Gauge::default();
        let connections = registered(metrics.ours(), "http_connections", "Open client connections", open);
        let requests = Requests::register(metrics.ours());
        let Inputs { reader, readiness, vitals, mirrors, pods, whois } = inputs;
        let metrics = Arc::new(metrics);
        let app =
            App { reader, readiness, vitals, metrics, mirrors, pods, whois, connections, requests, access };
        Ok(Self { app, tls })
    }

    /// Decides on each request. `None` if clients need not identify themselves.
    pub(crate) fn access(&self) -> Option<Arc<Access>> {
        self.app.access.clone()
    }

    /// Serves until `stopped` becomes true.
    pub(crate) fn spawn(
        self,
        settings: &Settings,
        listeners: Listeners,
        tasks: &mut Tasks,
        stopped: watch::Receiver<bool>,
    ) -> Result<RunningServer, Failure> {
        let Self { app, tls } = self;
        let Listeners { main, health, metrics } = listeners;
        if let Some(listener) = health {
            tracing::info!("serving /livez and /readyz on http://{}", address_of(&listener)?);
            let router = serve::health_alone(Arc::clone(&app.readiness), app.vitals.clone());
            Apart { name: "health", listener, router }.spawn(settings, tasks, stopped.clone())?;
        }
        if let Some(listener) = metrics {
            tracing::info!("serving /metrics on http://{}", address_of(&listener)?);
            let router = serve::metrics_alone(Arc::clone(&app.metrics));
            Apart { name: "metrics", listener, router }.spawn(settings, tasks, stopped.clone())?;
        }
        // Bound last: others see its file at once.
        let socket = bind_socket(settings, "socket", settings.server.socket.as_deref())?;
        let address = address_of(&main)?;
        let url = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
        tracing::info!(node = settings.node.as_str(), "serving on {url}");
        let clients_are_known =
            settings.effective.tls.client_ca.is_some() || settings.effective.access.accept_tokens;
        if !(address.ip().is_loopback() || clients_are_known) {
            tracing::warn!(
                "anyone who can reach {address} can read every pod: clients need no certificate and no token"
            );
        }
        if let Some(tls) = tls.clone() {
            tasks.spawn("the reader of the TLS files", async { match tls.keep_current().await {} });
        }
        let end = tasks.spawn("the server", serve::serve(main, socket, tls, app, stopped));
        Ok(RunningServer { url, end })
    }
}

/// Listens on the Unix socket that this setting names, if it does.
pub(crate) fn bind_socket(
    settings: &Settings,
    flag: &str,
    path: Option<&Path>,
) -> Result<Option<Socket>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let socket = Socket::bind(path, settings.effective.listeners.socket_mode.0);
    socket.map(Some).map_err(|error| cannot_serve(settings, flag, path, &error))
}

/// Whether [`bind_socket`] can create the socket. Does not disturb an agent that serves on it.
pub(crate) fn check_socket(settings: &Settings, flag: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    Socket::check(path).map_err(|error| cannot_serve(settings, flag, path, &error))
}

fn cannot_serve(settings: &Settings, flag: &str, path: &Path, error: &io::Error) -> Failure {
    let name = settings.written.name(flag);
    Failure::unable(format_args!("cannot serve on {} ({name})", path.display()), error)
}

/// A server in a thread of its own, so that no request elsewhere delays an answer, nor the reverse.
struct Apart {
    name: &'static str,
    listener: TcpListener,
    router: Router,
}

impl Apart {
    fn spawn(
        self,
        settings: &Settings,
        tasks: &mut Tasks,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let Self { name, listener, router } = self;
        let cannot_start = |error| cannot_start(name, error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot_start)?;
        // From the agent's runtime to this thread's.
        let listener = listener.into_std().and_then(|listener| {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)
        });
        let listener = listener.map_err(cannot_start)?;
        let node = settings.node.to_string();
        let serve = async move { serve::serve_openly(listener, router, &node, stopped).await };
        tasks.thread(name, move || runtime.block_on(serve)).map(drop)
    }
}
