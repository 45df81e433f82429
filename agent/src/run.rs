//! The agent's life: start, be ready, serve, drain, end.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use super::access::Access;
use super::api_clients::ApiClients;
use super::api_requests::ApiRequests;
use super::cli::Output;
use super::events::Events;
use super::exit::Failure;
use super::log::Log;
use super::metrics::Metrics;
use super::mirrors::MirrorKeeper;
use super::pod_api::PodApi;
use super::readiness::{Readiness, is_grave};
use super::reference_managers::ReferenceManagers;
use super::reload::Reload;
use super::serve::{self, App, Requests, Socket, Tags};
use super::settings::{Given, Settings};
use super::shutdown::Leaving;
use super::signals::{Hangups, Signals};
use super::source_tasks::SourceTasks;
use super::whois::{Lookups, Processes, Whois};
use super::writer_thread::WriterThread;
use super::{checkpoints, format, memory, own_node, source_tasks, systemd, table};
use pod_index::{Options, PodMeta, Reader, Snapshot};

/// Maximum number of threads for blocking work: one for each source that reads or waits for the writer, one for each
/// name lookup. Together with the other threads they stay below the unit's limit (`TasksMax`). Work that finds no free
/// thread waits.
const BLOCKING: usize = 16;

/// Runs the agent to its end. `given` is resolved again on a reload.
pub(super) fn run(given: &Given, settings: Settings) -> Result<(), Failure> {
    let log = Log::start(settings.log_filter.clone(), settings.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .map_err(|error| Failure::unable("cannot start the runtime", error))?;
    let done = runtime.block_on(live(given, settings, log.clone()));
    // Do not wait for a source: it may hang in a read on an unresponsive file system.
    runtime.shutdown_background();
    log.finish();
    done
}

async fn live(given: &Given, settings: Settings, log: Log) -> Result<(), Failure> {
    let unheard = |error| Failure::unable("cannot listen for signals", error);
    let signals = Signals::new().map_err(unheard)?;
    // Handled before the agent announces that it serves. Until then, and with `--once`, SIGHUP ends the process.
    let serving = if settings.once {
        None
    } else {
        Some((Listeners::bind(&settings).await?, Hangups::new().map_err(unheard)?))
    };
    let leaving = Leaving::default();
    let socket = socket(&settings).transpose()?;

    let (max_age, max_pods) = settings.keep_removed;
    let options = Options::new().container_ids(true).ips(true).keep_removed(max_age, max_pods);
    let (writer, reader) = pod_index::with_options(options);
    let readiness = Arc::new(Readiness::new());
    let mut metrics = Metrics::new(&reader, &readiness);
    if settings.kubelet_metrics {
        metrics.as_the_kubelet(&reader);
    }
    if let Some(tls) = &settings.tls {
        metrics.tls(tls);
    }
    let (checkpoints, restored) = checkpoints::open(&settings)?.unzip();
    let sources = source_tasks::configured(&settings);
    let (mut writer_thread, reports) = WriterThread::start(
        writer,
        restored,
        &sources,
        settings.derive(),
        Arc::clone(&readiness),
        metrics.ours(),
    )
    .map_err(|error| Failure::unable("cannot start the writer thread", error))?;
    let checkpoints = checkpoints.map(|found| checkpoints::keep(found, &reader)).transpose()?;
    let events = tokio::spawn(Events::register(metrics.ours()).follow(reader.changes()));
    let clients = ApiClients::start(&settings, ApiRequests::register(metrics.ours())).await?;
    own_node::start(clients.follow(), &settings.node, &writer_thread);
    let latest = clients.latest();
    let references = ReferenceManagers::start(&settings, latest.as_ref(), &reader);
    let mut source_tasks = SourceTasks::new(&readiness, reports);
    source_tasks.follow(&settings, clients.current()).await?;
    if let Some(checkpoints) = &checkpoints {
        metrics.checkpoints(checkpoints);
    }
    if let Some(references) = &references {
        metrics.references(references);
    }
    let mirrors = Arc::new(MirrorKeeper::new(settings.node.clone(), settings.mirrors));
    metrics.mirrors(&mirrors, &reader);
    let connections = metrics.connections();
    let pods = PodApi::start(&reader, &readiness, &settings.pod_api)
        .map_err(|error| Failure::unable("cannot start the thread of the pod API", error))?;
    metrics.watches(&pods);
    let lookups = Lookups::default();
    metrics.lookups(&lookups);
    let processes = Processes::new(&settings.proc).map_err(|error| Failure::unable("--proc", error))?;
    let whois = Whois::new(&reader, &readiness, processes, lookups);
    let requests = Requests::register(metrics.ours());
    let access = Access::new(&settings.access, latest.as_ref(), settings.node.as_str());
    metrics.log(&log);
    let metrics = Arc::new(metrics);
    let app = App {
        reader,
        readiness,
        mirrors,
        references,
        metrics,
        tags: Tags::new(),
        pods,
        whois,
        debug: settings.debug_endpoints.then(|| log.clone()),
        connections,
        requests,
        access,
    };

    let derive_own = writer_thread.derive_own();
    let work = async {
        let Some((listeners, hangups)) = serving else { return once(&settings, &app, signals).await };
        let reload = Reload { given, settings: &settings, log, source_tasks, clients, hangups };
        serve(&settings, listeners, socket, &app, signals, reload, &leaving).await
    };
    let done = tokio::select! {
        () = writer_thread.ended() => return Err(Failure::Unable("the writer thread has ended; see the log".to_owned())),
        failure = app.mirrors.keep(latest, &app.reader, &app.readiness, &derive_own) => Err(failure),
        done = work => done,
    };
    leaving.begin();
    writer_thread.stop();
    // Let every change be logged, but not longer than the shutdown may take.
    let _ = timeout(leaving.left(), events).await;
    if let Some(checkpoints) = checkpoints {
        checkpoints::finish(checkpoints, leaving.left());
    }
    done
}

/// The socket of `--socket`. `None` with `--once`, which does not serve.
fn socket(settings: &Settings) -> Option<Result<Socket, Failure>> {
    let (path, mode) = settings.socket.as_ref().filter(|_| !settings.once)?;
    let unable =
        |error| Failure::unable(format_args!("cannot serve on {} (--socket)", path.display()), error);
    Some(Socket::bind(path, *mode).map_err(unable))
}

/// Prints the pods once all sources are read.
async fn once(settings: &Settings, app: &App, mut signals: Signals) -> Result<(), Failure> {
    let ready = timeout(settings.once_timeout.unwrap_or(Duration::MAX), app.readiness.ready());
    let ready = tokio::select! {
        ready = ready => ready,
        (signal, _) = signals.next() => return Err(Failure::No(Some(format!("received {signal} before all sources were read")))),
    };
    if ready.is_err() {
        return Err(late(settings, &app.readiness));
    }
    show(settings.output, &app.reader)?;
    verdict(&app.readiness)
}

/// Serves until a signal arrives. Prints the pods once all sources are read.
async fn serve(
    settings: &Settings,
    listeners: Listeners,
    socket: Option<Socket>,
    app: &App,
    mut signals: Signals,
    reload: Reload<'_>,
    leaving: &Leaving,
) -> Result<(), Failure> {
    let Listeners { main, health } = listeners;
    let log = reload.log.clone();
    let address = main.local_addr().map_err(|error| Failure::unable("cannot serve", error))?;
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    tracing::info!(node = settings.node.as_str(), "serving on {scheme}://{address}");
    warn_of_strangers(settings, address);
    systemd::serving();
    let (stop, stopped) = watch::channel(false);
    if let Some(listener) = health {
        let address = listener.local_addr().map_err(|error| Failure::unable("cannot serve", error))?;
        tracing::info!("serving /livez and /readyz on http://{address}");
        tokio::spawn(serve::serve_health(listener, Arc::clone(&app.readiness), stopped.clone()));
    }
    let server = tokio::spawn(serve::serve(main, socket, settings.tls.clone(), app.clone(), stopped));
    if let Some(tls) = settings.tls.clone() {
        tokio::spawn(tls.keep_current());
    }
    tokio::spawn(memory::warn());

    let greeting = async {
        app.readiness.ready().await;
        let pods = app.reader.load().pods().len();
        tracing::info!(pods, "ready: the pods of every source are in the index");
        systemd::status(&format!("ready, started with {pods} pods"));
        // For interactive use only. Elsewhere standard output may share a stream with the log.
        if io::stdout().is_terminal() {
            show(settings.output, &app.reader)?;
            if settings.output == Output::Table {
                format::print(&format!("\nServing {scheme}://{address}/pods until Ctrl-C.\n"))?;
            }
        }
        std::future::pending().await
    };
    let (signal, _) = tokio::select! {
        signal = signals.next() => signal,
        failed = greeting => return failed,
        never = reload.whenever_asked() => never,
    };
    leaving.begin();
    tracing::info!(signal, "shutting down after the open requests");
    systemd::stopping();
    tokio::spawn(signals.insist(log));
    stop.send_replace(true);
    server.await.map_err(|error| Failure::unable("the server", error))
}

/// Logs a warning if anyone who can reach the agent can query it.
fn warn_of_strangers(settings: &Settings, address: SocketAddr) {
    let has_certificates = settings.tls.as_ref().is_some_and(|tls| tls.files().client_ca.is_some());
    let clients_are_known = has_certificates || settings.access.tokens;
    if !(address.ip().is_loopback() || clients_are_known) {
        tracing::warn!("anyone who can reach {address} can read every pod: there is no --client-ca-file");
    }
}

/// The error of `--once` after its timeout.
fn late(settings: &Settings, readiness: &Readiness) -> Failure {
    let timeout = settings.once_timeout.unwrap_or_default();
    let missing = readiness.missing().join("; ");
    Failure::Unable(format!("not all sources were read within {timeout:?} (--once-timeout): {missing}"))
}

/// The listening sockets.
struct Listeners {
    main: TcpListener,
    /// Serves only `/livez` and `/readyz`, if a separate address is configured.
    health: Option<TcpListener>,
}

impl Listeners {
    async fn bind(settings: &Settings) -> Result<Self, Failure> {
        let main = bind(settings.address, "--address, --port").await?;
        let health = match settings.health_address {
            Some(address) => Some(bind(address, "--health-address").await?),
            None => None,
        };
        Ok(Self { main, health })
    }
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| Failure::unable(format_args!("cannot serve on {address} ({flag})"), error))
}

/// Prints the pods in the index.
fn show(output: Output, reader: &Reader<Pod>) -> Result<(), Failure> {
    let snapshot = reader.snapshot();
    if output == Output::Table {
        return format::print(&summary(&snapshot));
    }
    let mut items: Vec<Pod> = snapshot.pods().iter().map(|pod| Pod::clone(pod)).collect();
    items
        .sort_unstable_by(|a, b| (a.namespace(), a.name(), a.uid()).cmp(&(b.namespace(), b.name(), b.uid())));
    format::answer(output, &List { items, ..List::default() }, |_| String::new())
}

/// The table and a summary line.
fn summary(snapshot: &Snapshot<Pod>) -> String {
    let (pods, mirrors) = (snapshot.pods(), snapshot.mirror_pods());
    let all = pods.iter().chain(mirrors.iter()).map(|pod| &**pod);
    let mirrored = snapshot.static_pods_with_mirrors().iter().filter(|(_, mirror)| mirror.is_some()).count();
    format!(
        "{}\n{} pods, {} of them static, {mirrored} of those with a mirror pod; generation {}\n",
        table::pods(all),
        pods.len(),
        snapshot.static_pods().len(),
        snapshot.generation(),
    )
}

/// The result of `--once`: whether every manifest was usable.
fn verdict(readiness: &Readiness) -> Result<(), Failure> {
    let sources = readiness.sources();
    let unusable =
        sources.iter().flat_map(|status| &status.problems).filter(|problem| is_grave(problem)).count();
    match unusable {
        0 => Ok(()),
        1 => Err(Failure::No(Some("1 problem; see above".to_owned()))),
        many => Err(Failure::No(Some(format!("{many} problems; see above")))),
    }
}
