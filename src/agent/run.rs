//! The agent's life: start, be ready, serve, drain, end.

use std::sync::Arc;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::board::{Board, is_grave};
use super::cli::Output;
use super::exit::Failure;
use super::index::Index;
use super::settings::Settings;
use super::signals::Signals;
use super::{feeds, format, log, serve, table};
use crate::{PodMeta, Reader, Snapshot};

/// Runs the agent to its end.
pub(super) fn run(settings: Settings) -> Result<(), Failure> {
    log::start(settings.log_level, settings.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::unable("cannot start the runtime", error))?;
    let done = runtime.block_on(live(settings));
    // A source may hang in a read of a file system that does not answer; it is not waited for.
    runtime.shutdown_background();
    done
}

async fn live(settings: Settings) -> Result<(), Failure> {
    let signals = Signals::new().map_err(|error| Failure::unable("cannot listen for signals", error))?;
    let listener = if settings.once { None } else { Some(bind(&settings).await?) };

    let (writer, reader) = crate::new();
    let board = Arc::new(Board::new());
    let (mut index, reports) = Index::start(writer, &feeds::configured(&settings), Arc::clone(&board))
        .map_err(|error| Failure::unable("cannot start the writer thread", error))?;
    feeds::start(&settings, &board, &reports).await?;

    let done = tokio::select! {
        () = index.ended() => return Err(Failure::Unable("the writer thread has ended; see the log".to_owned())),
        done = work(&settings, listener, &reader, &board, signals) => done,
    };
    index.stop();
    done
}

/// Prints, and serves until a signal comes.
async fn work(
    settings: &Settings,
    listener: Option<TcpListener>,
    reader: &Reader<Pod>,
    board: &Arc<Board>,
    mut signals: Signals,
) -> Result<(), Failure> {
    let Some(listener) = listener else {
        tokio::select! {
            () = board.ready() => {}
            (signal, _) = signals.next() => return Err(Failure::No(Some(format!("{signal} before all sources were read")))),
        }
        show(settings.output, reader)?;
        return verdict(board);
    };

    let address = listener.local_addr().map_err(|error| Failure::unable("cannot serve", error))?;
    tracing::info!(node = settings.node.as_str(), "serving on http://{address}");
    let (stop, stopped) = watch::channel(false);
    let app = serve::App { reader: reader.clone(), board: Arc::clone(board) };
    let server = tokio::spawn(serve::serve(listener, app, stopped));

    let greeting = async {
        board.ready().await;
        show(settings.output, reader)?;
        if settings.output == Output::Table {
            format::print(&format!("\nServing http://{address}/pods until Ctrl-C.\n"))?;
        }
        std::future::pending().await
    };
    let (signal, _) = tokio::select! {
        signal = signals.next() => signal,
        failed = greeting => return failed,
    };
    tracing::info!(signal, "leaving once the requests under way are answered");
    tokio::spawn(signals.insist());
    stop.send_replace(true);
    server.await.map_err(|error| Failure::unable("the server", error))
}

async fn bind(settings: &Settings) -> Result<TcpListener, Failure> {
    let address = settings.address;
    TcpListener::bind(address).await.map_err(|error| {
        Failure::unable(format_args!("cannot serve on {address} (--address, --port)"), error)
    })
}

/// Prints what is in the index.
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

/// The table, and a line that counts.
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

/// What `--once` ends with: whether every manifest could be used.
fn verdict(board: &Board) -> Result<(), Failure> {
    let sources = board.sources();
    let unusable =
        sources.iter().flat_map(|status| &status.problems).filter(|problem| is_grave(problem)).count();
    match unusable {
        0 => Ok(()),
        1 => Err(Failure::No(Some("1 problem; see above".to_owned()))),
        many => Err(Failure::No(Some(format!("{many} problems; see above")))),
    }
}
