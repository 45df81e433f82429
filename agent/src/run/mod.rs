//! The agent's life: start, be ready, serve, drain, end.

pub(crate) mod check;
pub(crate) mod signals;
mod systemd;
mod tasks;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api::table;
use crate::cli::format;
use crate::config::Settings;
use crate::config::args::Output;
use crate::config::descriptors;
use crate::config::failure::Failure;
use crate::config::log::Log;
use crate::config::shutdown::BUDGET;
use crate::config::values::Bounds;
use crate::http;
use crate::http::access::Access;
use crate::http::serve::{App, Requests, Socket};
use crate::http::tls::Tls;
use crate::metrics::{Metrics, registered};
use crate::pipeline::api_clients::Clients;
use crate::pipeline::api_requests::ApiRequests;
use crate::pipeline::events::Events;
use crate::pipeline::mirrors::MirrorKeeper;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::writer::{Command, WriterThread};
use crate::pipeline::{checkpoints, mirror_metrics, own_node, source_metrics, sources};
use crate::pod_api::{self, PodApi};
use crate::run::signals::Signals;
use crate::run::tasks::{End, Tasks};
use crate::whois::{self, Lookups, Processes, Whois};
use pod_index::{Options, PodMeta, Reader, Snapshot};
use pod_index_kubelet::checkpoint::Checkpointing;
use pod_index_kubelet::sources::Merge;
use prometheus_client::metrics::gauge::Gauge;

/// Maximum number of threads for blocking work: one for each source that reads or waits for the writer, and one for
/// each name lookup. Together with the other threads they stay below the unit's limit (`TasksMax`). Work that finds no
/// free thread waits.
const BLOCKING: usize = 16;
/// How long `--once` waits for the sources.
const ONCE: Duration = Duration::from_secs(30);

/// Runs the agent to its end.
pub(crate) fn run(settings: Settings) -> Result<(), Failure> {
    let log = Log::start(settings.given.log_level, settings.given.log_format);
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .map_err(|error| tasks::cannot_start("the runtime", error))?;
    let done = runtime.block_on(live(Arc::new(settings), log.clone()));
    // Do not wait for a source: it may hang in a read on an unresponsive file system.
    runtime.shutdown_background();
    log.finish();
    done
}

/// From the first moment on, the agent hears signals. Nothing here blocks the thread.
async fn live(settings: Arc<Settings>, log: Log) -> Result<(), Failure> {
    let mut tasks = Tasks::default();
    let mut signals = Signals::start(&mut tasks, log.clone())?;
    let started = tokio::select! {
        started = start(&settings, &log, &mut tasks) => started?,
        signal = signals.end() => return unfinished(&settings, signal, "the start is complete"),
    };
    let app = started.app;
    let (stop, stopped) = watch::channel(false);
    let tls = started.tls;
    let serve = |listeners| serve(&settings, listeners, tls, &app, &mut tasks, stopped);
    let server = started.listeners.map(serve).transpose()?;
    let done = tokio::select! {
        failure = tasks.ended() => return Err(failure),
        failure = app.mirrors.keep(started.client, &app.reader, &app.readiness, &started.writer.commands) => Err(failure),
        done = when_ready(&settings, &app, server.as_ref()) => done,
        signal = signals.end() => {
            if settings.once {
                unfinished(&settings, signal, "all sources were read")
            } else {
                tracing::info!(signal, "shutting down after the open requests");
                Ok(())
            }
        }
    };
    let began = Instant::now();
    let left = || BUDGET.saturating_sub(began.elapsed());
    if let Some(server) = server.filter(|_| done.is_ok()) {
        systemd::notify("STOPPING=1");
        stop.send_replace(true);
        server.end.wait().await;
    }
    // Fails if the thread has ended.
    let _ = started.writer.commands.send(Command::Stop);
    let _ = timeout(left(), started.writer_end.wait()).await;
    // Let every change be logged, but not longer than the shutdown may take.
    let _ = timeout(left(), started.follower.wait()).await;
    if let Some(checkpoints) = started.checkpoints
        && let Err(late) = checkpoints.finish(left()).await
    {
        tracing::error!("shutting down without writing the last checkpoints: {late}");
    }
    done
}

/// The result of a signal that came first.
fn unfinished(settings: &Settings, signal: &str, what: &str) -> Result<(), Failure> {
    if settings.once {
        return Err(Failure::No(Some(format!("received {signal} before {what}"))));
    }
    tracing::info!(signal, "shutting down before {what}");
    Ok(())
}

/// The parts of the agent.
struct Started {
    app: App,
    tls: Option<Arc<Tls>>,
    /// `None` with `--once`.
    listeners: Option<Listeners>,
    writer: WriterThread,
    writer_end: End,
    checkpoints: Option<Checkpointing>,
    /// The end of the thread that follows the index.
    follower: End,
    /// Of the API server, for mirror pods.
    client: Option<Client>,
}

/// Starts all parts. Waits for no server.
async fn start(settings: &Arc<Settings>, log: &Log, tasks: &mut Tasks) -> Result<Started, Failure> {
    let listeners = if settings.once { None } else { Some(Listeners::bind(settings).await?) };
    let given = &settings.given;
    let options = Options::new().keep_removed(given.keep_removed.0, given.keep_removed_max).keep_times(true);
    let (index, reader) = pod_index::with_options(options);
    let mut metrics = Metrics::new(&reader);
    let tls = check::certificate(settings)?.map(Arc::new);
    if let Some(tls) = tls.clone() {
        metrics.collect(move |to| tls.show(to));
    }
    let of_the_last_run = Arc::clone(settings);
    // A disk may hang.
    let opened = tokio::task::spawn_blocking(move || checkpoints::open(&of_the_last_run)).await;
    let opened = opened.map_err(|error| Failure::unable("cannot open the checkpoints", error))?;
    let (checkpoints, restored) = opened?.unzip();
    let has_restored = restored.as_ref().is_some_and(|restored| !restored.pods.is_empty());
    let requests = ApiRequests::register(metrics.ours());
    let Clients { pods, others: client, reviews } = Clients::new(settings, &requests).await?;
    let opened = sources::open(settings, pods)?;
    let sources: Vec<_> = opened.iter().map(|(updates, _)| updates.status().borrow().source).collect();
    let states = opened.iter().map(|(updates, nudge)| (updates.status(), nudge.clone()));
    let readiness = Arc::new(Readiness::new(states, has_restored));
    let of_sources = Arc::clone(&readiness);
    metrics.collect(move |to| source_metrics::show(&of_sources, to));
    let mut merge = Merge::new(sources.iter().copied()).derive_static_pods(settings.node.clone());
    if settings.mirrors {
        // This agent has the static pods of this node.
        let _ = merge.manage_own_mirror_pods(true);
    }
    let (writer, reports, write) =
        WriterThread::new(index, restored, &sources, merge, Arc::clone(&readiness), &mut metrics);
    let writer_end = tasks.thread("index", write)?;
    let checkpoints = checkpoints.map(|found| found.keep(reader.clone())).transpose();
    let checkpoints = checkpoints.map_err(|error| tasks::cannot_start("the checkpoint thread", error))?;
    if let Some(client) = client.clone() {
        let (needed, commands) = (writer.needs_own_node.clone(), writer.commands.clone());
        let follow = own_node::follow(client, settings.node.to_string(), needed, commands);
        tasks.spawn("the reader of the Node", follow);
    }
    for (updates, _) in opened {
        tasks.spawn(sources::task_of(&updates), sources::pass_on(updates, reports.clone()));
    }
    if let Some(status) = checkpoints.as_ref().map(Checkpointing::status) {
        let reader = reader.clone();
        metrics.collect(move |to| checkpoints::show(&status.borrow(), &reader.load(), to));
    }
    let mirrors = Arc::new(MirrorKeeper::new(settings.node.clone(), settings.mirrors));
    if mirrors.is_asked_to_keep() {
        let (mirrors, reader) = (Arc::clone(&mirrors), reader.clone());
        metrics.collect(move |to| mirror_metrics::show(&mirrors, &reader, to));
    }
    let connections =
        registered(metrics.ours(), "http_connections", "Open client connections", Gauge::default());
    let events = Events::register(metrics.ours());
    let (all, server) = (Arc::clone(settings), client.clone());
    let (of_pods, until) = (reader.clone(), Arc::clone(&readiness));
    // Reads the lists of the last run. A disk may hang.
    let api = move || PodApi::new(&all, server.as_ref(), &of_pods, &until, events);
    let api = tokio::task::spawn_blocking(api).await;
    let (pods, follow, work) = api.map_err(|error| Failure::unable("cannot serve the pods", error))?;
    let follower = tasks.thread("changes", follow)?;
    for (name, work) in work {
        tasks.spawn(name, work);
    }
    let api = pods.clone();
    metrics.collect(move |to| pod_api::metrics::show(&api, to));
    let lookups = Lookups::register(metrics.ours());
    let processes = Processes::new(&given.proc, given.cgroup_root.as_deref());
    let processes = processes.map_err(|error| Failure::unable("--proc", error))?;
    let bounds = Bounds { skew: given.clock_skew.0, delay: given.source_delay.0 };
    let whois = Whois {
        reader: reader.clone(),
        readiness: Arc::clone(&readiness),
        processes,
        lookups,
        owners: pods.owners().clone(),
        bounds,
        bodies: whois::places(),
    };
    let requests = Requests::register(metrics.ours());
    let access = Access::new(&settings.access, reviews.as_ref(), settings.node.as_str());
    let log = log.clone();
    metrics.collect(move |to| {
        let help = "Log lines dropped because standard error blocked.";
        to.counter("dropped_log_lines", help, log.dropped_lines());
    });
    let metrics = Arc::new(metrics);
    let app = App { reader, readiness, metrics, mirrors, pods, whois, connections, requests, access };
    Ok(Started { app, tls, listeners, writer, writer_end, checkpoints, follower, client })
}

/// The running server.
struct Server {
    url: String,
    end: End,
}

/// Serves until `stopped` becomes true.
fn serve(
    settings: &Settings,
    listeners: Listeners,
    tls: Option<Arc<Tls>>,
    app: &App,
    tasks: &mut Tasks,
    stopped: watch::Receiver<bool>,
) -> Result<Server, Failure> {
    let Listeners { port, socket, apart } = listeners;
    let address = address_of(&port)?;
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{address}");
    tracing::info!(node = settings.node.as_str(), "serving on {url}");
    warn_of_strangers(settings, address);
    systemd::notify("READY=1\nSTATUS=waiting for the pods of every source");
    for (name, listener) in apart {
        let (paths, router) = match name {
            "health" => ("/livez and /readyz", http::serve::health_alone(Arc::clone(&app.readiness))),
            _ => ("/metrics", http::serve::metrics_alone(Arc::clone(&app.metrics))),
        };
        tracing::info!("serving {paths} on http://{}", address_of(&listener)?);
        serve_apart(name, listener, router, tasks, stopped.clone())?;
    }
    let end = tasks.spawn("the server", http::serve::serve(port, socket, tls.clone(), app.clone(), stopped));
    if let Some(tls) = tls {
        tasks.spawn("the reader of the TLS files", async { match tls.keep_current().await {} });
    }
    Ok(Server { url, end })
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::unable("cannot serve", error))
}

/// Serves in a thread of its own, so that no request elsewhere delays an answer, nor the reverse.
fn serve_apart(
    name: &'static str,
    listener: TcpListener,
    router: axum::Router,
    tasks: &mut Tasks,
    stopped: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let cannot_start = |error| tasks::cannot_start(name, error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot_start)?;
    let listener = listener.into_std().map_err(cannot_start)?;
    let serve = async move {
        match TcpListener::from_std(listener) {
            Ok(listener) => http::serve::serve_openly(listener, router, stopped).await,
            Err(error) => tracing::error!(%error, "cannot serve"),
        }
    };
    tasks.thread(name, move || runtime.block_on(serve)).map(drop)
}

/// Prints the pods once all sources are read. With `--once`, that is all.
async fn when_ready(settings: &Settings, app: &App, server: Option<&Server>) -> Result<(), Failure> {
    let mut seen = app.readiness.seen();
    // Fails only if the sender is gone, but `app` holds it.
    let ready = seen.wait_for(|ready| *ready);
    let Some(Server { url, .. }) = server else {
        if timeout(ONCE, ready).await.is_err() {
            let missing = app.readiness.missing().join("; ");
            return Err(Failure::Unable(format!("not all sources were read within {ONCE:?}: {missing}")));
        }
        show(settings.output, &app.reader)?;
        return verdict(&app.readiness);
    };
    let _ = ready.await;
    let pods = app.reader.load().pods().len();
    tracing::info!(pods, "ready: the pods of every source are in the index");
    systemd::notify(&format!("STATUS=ready, started with {pods} pods"));
    // For interactive use only. Elsewhere standard output may share a stream with the log.
    if io::stdout().is_terminal() {
        show(settings.output, &app.reader)?;
        if settings.output == Output::Table {
            format::print(&format!("\nServing {url}/pods until Ctrl-C.\n"))?;
        }
    }
    std::future::pending().await
}

/// Logs a warning if anyone who can reach the agent can query it.
fn warn_of_strangers(settings: &Settings, address: SocketAddr) {
    let has_certificates = settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let clients_are_known = has_certificates || settings.access.tokens;
    if !(address.ip().is_loopback() || clients_are_known) {
        tracing::warn!("anyone who can reach {address} can read every pod: there is no --client-ca-file");
    }
}

/// The listening sockets.
struct Listeners {
    port: TcpListener,
    socket: Option<Socket>,
    /// Those that serve only `/livez` and `/readyz`, or only `/metrics`.
    apart: Vec<(&'static str, TcpListener)>,
}

impl Listeners {
    async fn bind(settings: &Settings) -> Result<Self, Failure> {
        let bind = async |address: SocketAddr, flag: &str| {
            let listener = TcpListener::bind(address).await;
            listener
                .map_err(|error| Failure::unable(format_args!("cannot serve on {address} ({flag})"), error))
        };
        let address = SocketAddr::new(settings.server.address, settings.server.port);
        let port = bind(address, "--address, --port").await?;
        let (given, mut apart) = (&settings.given, Vec::new());
        for (name, address) in [("health", given.health_address), ("metrics", given.metrics_address)] {
            if let Some(address) = address {
                apart.push((name, bind(address, &format!("--{name}-address")).await?));
            }
        }
        // Last: it is a file that others see.
        let socket = settings.server.socket.as_ref().map(|path| {
            let unable =
                |error| Failure::unable(format_args!("cannot serve on {} (--socket)", path.display()), error);
            Socket::bind(path, settings.given.socket_mode).map_err(unable)
        });
        Ok(Self { port, socket: socket.transpose()?, apart })
    }
}

/// Prints the pods in the index.
fn show(output: Output, reader: &Reader<Pod>) -> Result<(), Failure> {
    let snapshot = reader.snapshot();
    if output == Output::Table {
        return format::print(&summary(&snapshot));
    }
    let mut items: Vec<Pod> = snapshot.pods().map(|pod| Pod::clone(pod)).collect();
    items
        .sort_unstable_by(|a, b| (a.namespace(), a.name(), a.uid()).cmp(&(b.namespace(), b.name(), b.uid())));
    format::answer(output, &List { items, ..List::default() }, |_| String::new())
}

/// The table and a summary line.
fn summary(snapshot: &Snapshot<Pod>) -> String {
    let (pods, mirrors) = (snapshot.pods(), snapshot.mirror_pods());
    let all = pods.clone().chain(mirrors.clone()).map(|pod| &**pod);
    let mirrored = snapshot.static_pods_with_mirrors().filter(|(_, mirror)| mirror.is_some()).count();
    format!(
        "{}\n{} pods, {} of them static, {mirrored} of those with a mirror pod; generation {}\n",
        table::pods(all),
        pods.len(),
        snapshot.static_pods().count(),
        snapshot.generation(),
    )
}

/// The result of `--once`: whether every manifest was usable.
fn verdict(readiness: &Readiness) -> Result<(), Failure> {
    let sources = readiness.sources();
    let unusable =
        sources.iter().flat_map(|status| &status.problems).filter(|problem| problem.kind.is_grave()).count();
    match unusable {
        0 => Ok(()),
        1 => Err(Failure::No(Some("1 problem; see above".to_owned()))),
        many => Err(Failure::No(Some(format!("{many} problems; see above")))),
    }
}
