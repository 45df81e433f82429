//! The agent's life: start, be ready, serve, end.
//!
//! Whatever ends the agent, it ends in [`end`]: a signal, a failure, and a part that has ended.

pub(crate) mod check;
mod guard;
pub(crate) mod signals;
mod systemd;
mod tasks;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::OptionFuture;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::api::table;
use crate::cli::format;
use crate::config::Settings;
use crate::config::args::Output;
use crate::config::descriptors;
use crate::config::failure::Failure;
use crate::config::log::Log;
use crate::config::shutdown::{BUDGET, STUCK};
use crate::config::values::Bounds;
use crate::http;
use crate::http::access::{Access, Decisions};
use crate::http::serve::{App, Requests, Socket};
use crate::http::tls::Tls;
use crate::kubelet_api::KubeletApi;
use crate::metrics::{Metrics, Scrape, registered};
use crate::pipeline::api_requests::ApiRequests;
use crate::pipeline::events::Events;
use crate::pipeline::mirrors::MirrorKeeper;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::records::Feed;
use crate::pipeline::removed::KeptWhole;
use crate::pipeline::writer::{Command, Setup, WriterThread};
use crate::pipeline::{api_clients, checkpoints, mirror_metrics, own_node, records, source_metrics, sources};
use crate::pod_api::{self, PodApi};
use crate::run::guard::Deadline;
use crate::run::signals::Signals;
use crate::run::tasks::{End, Tasks};
use crate::vitals::{Part, Vitals};
use crate::whois::{Lookups, Processes, Whois};
use pod_index::{Options, PodMeta, Reader, Snapshot};
use pod_index_kubelet::api_client::end_plugins;
use pod_index_kubelet::checkpoint::{CheckpointStatus, Checkpointing};
use pod_index_kubelet::records::Record;
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
    let log = Log::start(settings.given.log.level, settings.given.log.format);
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
    end_plugins();
    log.finish();
    done
}

/// From the first moment on, the agent hears signals. Nothing here blocks the thread.
async fn live(settings: Arc<Settings>, log: Log) -> Result<(), Failure> {
    let began = Instant::now();
    let vitals = Vitals::new(began);
    let mut tasks = Tasks::default();
    let mut signals = watch_over(&mut tasks, &log, &vitals, began)?;
    let mut beats = pin!(vitals.heartbeat(Part::Main).keep());
    let (stop, stopped) = watch::channel(false);
    let start = tokio::spawn(start(Arc::clone(&settings), log, vitals.clone(), tasks, stopped));
    let started = tokio::select! {
        started = start => started.map_err(|error| Failure::unable("cannot start", error))??,
        signal = signals.end() => return unfinished(&settings, signal, "the start is complete"),
        never = &mut beats => match never {},
    };
    let Started { app, mut tasks, server, writer, checkpoints, follower, client } = started;
    let url = server.as_ref().map(|server| server.url.clone());
    let done = tokio::select! {
        failure = tasks.ended() => Err(failure),
        failure = app.mirrors.keep(client, &app.reader, &app.readiness, &writer.commands) => Err(failure),
        done = when_ready(&settings, &app, url) => done,
        signal = signals.end() => {
            if settings.once {
                unfinished(&settings, signal, "the pods were printed")
            } else {
                tracing::info!(signal, "shutting down after the open requests");
                Ok(())
            }
        }
        never = &mut beats => match never {},
    };
    // Said now, because the end may take seconds. With `--once` it takes none, and the command's last line says the same.
    if let Some(message) = done.as_ref().err().and_then(Failure::message)
        && !settings.once
    {
        tracing::error!("shutting down: {message}");
    }
    let budget = if vitals.are_well(Instant::now()) { BUDGET } else { STUCK };
    end(Ending { stop, server, writer, follower, checkpoints }, budget).await;
    done
}

/// Starts the threads that receive signals and watch over all others.
fn watch_over(tasks: &mut Tasks, log: &Log, vitals: &Vitals, began: Instant) -> Result<Signals, Failure> {
    let deadline = Deadline::new(began);
    let signals = Signals::start(tasks, log.clone(), vitals.clone(), deadline.clone())?;
    let workers = tokio::runtime::Handle::current().metrics();
    let watched = vitals.clone();
    tasks.thread("vitals", move || guard::watch(&watched, &workers, &deadline))?;
    let beats = guard::wake_workers(vitals.heartbeat(Part::Tasks));
    tasks.spawn("the heartbeat of the tasks", async { match beats.await {} });
    Ok(signals)
}

/// What has to be ended.
struct Ending {
    /// Tells the listeners to stop.
    stop: watch::Sender<bool>,
    server: Option<Server>,
    writer: WriterThread,
    follower: End,
    checkpoints: Option<Checkpointing>,
}

/// Ends the agent: lets open requests finish, then writes and logs every change. Takes at most `budget`.
async fn end(parts: Ending, budget: Duration) {
    let Ending { stop, server, writer, follower, checkpoints } = parts;
    let began = Instant::now();
    let left = || budget.saturating_sub(began.elapsed());
    if let Some(server) = server {
        systemd::notify("STOPPING=1");
        stop.send_replace(true);
        // Nothing is sent. The server limits the time itself, unless its threads have stopped.
        let _ = timeout(left(), server.end).await;
    }
    // Fails if the thread has ended.
    let _ = writer.commands.send(Command::Stop);
    // Let every change be written and logged, but not longer than the shutdown may take.
    let _ = timeout(left(), follower).await;
    if let Some(checkpoints) = checkpoints
        && let Err(late) = checkpoints.finish(left()).await
    {
        tracing::error!("shutting down without writing the last checkpoints: {late}");
    }
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
    tasks: Tasks,
    /// `None` with `--once`.
    server: Option<Server>,
    writer: WriterThread,
    checkpoints: Option<Checkpointing>,
    /// The end of the thread that follows the index. It ends after the writer thread.
    follower: End,
    /// Of the API server, for mirror pods.
    client: Option<Client>,
}

/// The running server.
struct Server {
    url: String,
    end: End,
}

/// Starts all parts, which serve until `stopped` becomes true. Waits for no server, but a disk may hang.
async fn start(
    settings: Arc<Settings>,
    log: Log,
    vitals: Vitals,
    mut tasks: Tasks,
    stopped: watch::Receiver<bool>,
) -> Result<Started, Failure> {
    let given = &settings.given;
    let listeners = Listeners::bind(&settings).await?;
    let options =
        Options::new().keep_removed(given.removed_pods.keep, given.removed_pods.max).keep_times(true);
    let (index, reader) = pod_index::with_options(options);
    let (records, feed) = start_records(&settings, options, &reader, &vitals, &mut tasks)?.unzip();
    let mut metrics = Metrics::new(&reader);
    let tls = check::certificate(&settings)?.map(Arc::new);
    let requests = ApiRequests::register(metrics.ours());
    let [pods, client, reviews] = api_clients::clients(&settings, &requests).await?;
    let opened = sources::open(&settings, pods)?;
    let sources: Vec<_> = opened.iter().map(|(updates, _)| updates.status().borrow().source).collect();
    let (checkpoints, restored) = block_in_place(|| checkpoints::open(&settings))?.unzip();
    let has_restored = restored.as_ref().is_some_and(|restored| !restored.pods.is_empty());
    let states = opened.iter().map(|(updates, nudge)| (updates.status(), nudge.clone()));
    let readiness = Arc::new(Readiness::new(states, has_restored));
    let mut merge = Merge::new(sources.iter().copied()).derive_static_pods(settings.node.clone());
    if given.kubelet.socket.is_some() {
        merge = merge.trust_kubelet();
    }
    if settings.mirrors {
        // This agent has the static pods of this node.
        let _ = merge.manage_own_mirror_pods(true);
    }
    let heartbeat = vitals.heartbeat(Part::Index);
    let kept_whole = KeptWhole::new(given.removed_pods.keep, given.removed_pods.max);
    let setup = Setup { writer: index, merge, readiness: Arc::clone(&readiness), heartbeat, kept_whole };
    let (writer, reports, write) = WriterThread::new(setup, restored, &sources, &mut metrics);
    tasks.thread("index", write)?;
    let checkpoints = checkpoints.map(|found| found.keep(reader.clone())).transpose();
    let checkpoints = checkpoints.map_err(|error| tasks::cannot_start("the checkpoint thread", error))?;
    if let Some(client) = client.clone() {
        let (needed, commands) = (writer.needs_own_node.clone(), writer.commands.clone());
        let follow = own_node::follow(client, settings.node.to_string(), needed, commands);
        tasks.spawn("the reader of the Node", follow);
    }
    let mirrors = Arc::new(MirrorKeeper::new(settings.node.clone(), settings.mirrors));
    let connections =
        registered(metrics.ours(), "http_connections", "Open client connections", Gauge::default());
    let events = Events::register(metrics.ours());
    // Reads the lists of the last run.
    let heartbeat = vitals.heartbeat(Part::Changes);
    let api =
        || PodApi::new(&settings, client.as_ref(), &reader, &readiness, events, heartbeat, feed.as_ref());
    let (pods, follow, work) = block_in_place(api);
    let follower = tasks.thread("changes", follow)?;
    for (name, work) in work {
        tasks.spawn(name, work);
    }
    let processes = Processes::new(&given.processes.proc, given.processes.cgroup_root.as_deref());
    let whois = Whois {
        reader: reader.clone(),
        readiness: Arc::clone(&readiness),
        processes: processes.map_err(|error| Failure::unable(settings.written.name("proc"), error))?,
        lookups: Lookups::register(metrics.ours()),
        owners: pods.owners().clone(),
        records,
        bounds: Bounds { skew: given.times.clock_skew, delay: given.times.source_delay },
    };
    let requests = Requests::register(metrics.ours());
    let decisions = Decisions::register(metrics.ours());
    let access = Access::new(&settings.access, reviews.as_ref(), settings.node.as_str(), decisions);
    let measured = Measured {
        vitals: vitals.clone(),
        readiness: Arc::clone(&readiness),
        reader: reader.clone(),
        pods: pods.clone(),
        checkpoints: checkpoints.as_ref().map(Checkpointing::status),
        mirrors: Arc::clone(&mirrors),
        tls: tls.clone(),
        log,
    };
    metrics.collect(move |to: &mut Scrape<'_>| measured.show(to));
    let metrics = Arc::new(metrics);
    let app = App { reader, readiness, vitals, metrics, mirrors, pods, whois, connections, requests, access };
    let server = listeners.map(|listeners| serve(&settings, listeners, tls, &app, &mut tasks, stopped));
    let server = server.transpose()?;
    // The sources start last: an agent that cannot serve requests no pods.
    for ((updates, _), source) in opened.into_iter().zip(sources) {
        tasks.spawn(format!("the source {source}"), sources::pass_on(updates, reports.clone()));
    }
    Ok(Started { app, tasks, server, writer, checkpoints, follower, client })
}

/// The TCP listeners of the server, bound before anything else starts: a taken port is then the only error.
struct Listeners {
    main: TcpListener,
    health: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// `None` with `--once`, which serves nothing.
    async fn bind(settings: &Settings) -> Result<Option<Self>, Failure> {
        if settings.once {
            return Ok(None);
        }
        let written = &settings.written;
        let address = SocketAddr::new(settings.server.address, settings.server.port);
        let main = bind(address, &format!("{}, {}", written.name("address"), written.name("port"))).await?;
        let extra = async |address: Option<SocketAddr>, setting: &str| {
            let name = written.name(setting);
            OptionFuture::from(address.map(|address| bind(address, &name))).await.transpose()
        };
        let given = &settings.given.listeners;
        let health = extra(given.health_address, "health-address").await?;
        let metrics = extra(given.metrics_address, "metrics-address").await?;
        Ok(Some(Self { main, health, metrics }))
    }
}

/// The index of records, and what feeds it, if `--extract` asks for attributes.
fn start_records(
    settings: &Settings,
    options: Options,
    reader: &Reader<Pod>,
    vitals: &Vitals,
    tasks: &mut Tasks,
) -> Result<Option<(Reader<Record>, Feed)>, Failure> {
    let Some(extract) = block_in_place(|| records::rules(settings))? else { return Ok(None) };
    let started = records::start(extract, options, reader, vitals.heartbeat(Part::Records));
    let (records, feed, work) = started.map_err(|error| tasks::cannot_start("the records", error))?;
    tasks.thread("records", work)?;
    Ok(Some((records, feed)))
}

/// What `/metrics` reads when it is asked. All other metrics count by themselves.
struct Measured {
    vitals: Vitals,
    readiness: Arc<Readiness>,
    reader: Reader<Pod>,
    pods: PodApi,
    checkpoints: Option<watch::Receiver<CheckpointStatus>>,
    mirrors: Arc<MirrorKeeper>,
    tls: Option<Arc<Tls>>,
    log: Log,
}

impl Measured {
    fn show(&self, to: &mut Scrape<'_>) {
        self.vitals.show(Instant::now(), to);
        source_metrics::show(&self.readiness, to);
        pod_api::metrics::show(&self.pods, to);
        if let Some(status) = &self.checkpoints {
            checkpoints::show(&status.borrow(), &self.reader.load(), to);
        }
        if self.mirrors.is_asked_to_keep {
            mirror_metrics::show(&self.mirrors, &self.reader, to);
        }
        if let Some(tls) = &self.tls {
            tls.show(to);
        }
        let help = "Log lines dropped because standard error blocked.";
        to.counter("dropped_log_lines", help, self.log.dropped_lines());
    }
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
    let given = &settings.given;
    let health_alone = http::serve::health_alone(Arc::clone(&app.readiness), app.vitals.clone());
    let metrics_alone = http::serve::metrics_alone(Arc::clone(&app.metrics));
    for (name, listener, paths, router) in [
        ("health", listeners.health, "/livez and /readyz", health_alone),
        ("metrics", listeners.metrics, "/metrics", metrics_alone),
    ] {
        let Some(listener) = listener else { continue };
        tracing::info!("serving {paths} on http://{}", address_of(&listener)?);
        serve_apart(name, listener, router, settings.node.to_string(), tasks, stopped.clone())?;
    }
    // The sockets are bound last: others see their files at once.
    let socket = bind_socket(settings, "socket", settings.server.socket.as_deref())?;
    let pods_api = bind_socket(settings, "pods-api-socket", given.listeners.pods_api_socket.as_deref())?;
    if let Some(socket) = pods_api {
        let most_watches = given.pod_api.max_watches.min(descriptors::half());
        let api = KubeletApi::new(app.reader.clone(), Arc::clone(&app.readiness), most_watches);
        tasks.spawn("the server of the Pods API", api.serve(socket, stopped.clone()));
    }
    let address = address_of(&listeners.main)?;
    let url = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
    tracing::info!(node = settings.node.as_str(), "serving on {url}");
    let clients_are_known = given.tls.client_ca.is_some() || settings.access.tokens;
    if !(address.ip().is_loopback() || clients_are_known) {
        tracing::warn!("anyone who can reach {address} can read every pod: there is no --client-ca-file");
    }
    systemd::notify("READY=1\nSTATUS=waiting for the pods of every source");
    let end = tasks
        .spawn("the server", http::serve::serve(listeners.main, socket, tls.clone(), app.clone(), stopped));
    if let Some(tls) = tls {
        tasks.spawn("the reader of the TLS files", async { match tls.keep_current().await {} });
    }
    Ok(Server { url, end })
}

/// Listens on the Unix socket that this setting names, if it does.
fn bind_socket(settings: &Settings, flag: &str, path: Option<&Path>) -> Result<Option<Socket>, Failure> {
    let socket = path.map(|path| {
        let unable = |error| {
            let name = settings.written.name(flag);
            Failure::unable(format_args!("cannot serve on {} ({name})", path.display()), error)
        };
        Socket::bind(path, settings.given.listeners.socket_mode.0).map_err(unable)
    });
    socket.transpose()
}

/// Listens on this address, which the flag gives.
async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| Failure::unable(format_args!("cannot serve on {address} ({flag})"), error))
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::unable("cannot serve", error))
}

/// Serves in a thread of its own, so that no request elsewhere delays an answer, nor the reverse.
fn serve_apart(
    name: &'static str,
    listener: TcpListener,
    router: axum::Router,
    node: String,
    tasks: &mut Tasks,
    stopped: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let cannot_start = |error| tasks::cannot_start(name, error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot_start)?;
    let listener = listener.into_std().and_then(|listener| {
        let _inside = runtime.enter();
        TcpListener::from_std(listener)
    });
    let listener = listener.map_err(cannot_start)?;
    let serve = async move { http::serve::serve_openly(listener, router, &node, stopped).await };
    tasks.thread(name, move || runtime.block_on(serve)).map(drop)
}

/// Prints the pods once all sources are read. With `--once`, without a URL, that is all.
async fn when_ready(settings: &Settings, app: &App, url: Option<String>) -> Result<(), Failure> {
    let mut seen = app.readiness.seen();
    // Fails only if the sender is gone, but `app` holds it.
    let ready = seen.wait_for(|ready| *ready);
    let (output, reader) = (settings.output, app.reader.clone());
    let Some(url) = url else {
        if timeout(ONCE, ready).await.is_err() {
            let missing = app.readiness.missing().join("; ");
            return Err(Failure::Unable(format!("not all sources were read within {ONCE:?}: {missing}")));
        }
        printing(move || show(output, &reader)).await?;
        return verdict(&app.readiness);
    };
    let _ = ready.await;
    let pods = app.reader.load().pods().len();
    tracing::info!(pods, "ready: the pods of every source are in the index");
    systemd::notify(&format!("STATUS=ready, started with {pods} pods"));
    // For interactive use only. Elsewhere standard output may share a stream with the log.
    if io::stdout().is_terminal() {
        let print = move || {
            show(output, &reader)?;
            if output == Output::Table {
                format::print(&format!("\nServing {url}/pods until Ctrl-C.\n"))?;
            }
            Ok(())
        };
        printing(print).await?;
    }
    std::future::pending().await
}

/// Prints in a thread of its own. A terminal that was stopped by Ctrl-S, or a pipe that nobody reads, then keeps that thread
/// and not the agent.
async fn printing(print: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    let (done, printed) = oneshot::channel();
    let work = move || drop(done.send(print()));
    thread::Builder::new()
        .name("print".to_owned())
        .spawn(work)
        .map_err(|error| tasks::cannot_start("the thread that prints", error))?;
    // Fails if the thread has panicked.
    printed.await.unwrap_or_else(|error| Err(Failure::unable("cannot print the pods", error)))
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
