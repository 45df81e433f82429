//! Runs the configured sources, each as a task of its own, and passes on what they say.
//!
//! No source may take the agent down: one that panics is logged and started again.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;

use super::board::Board;
use super::exit::Failure;
use super::index::Report;
use super::settings::{ApiSettings, FileSettings, Settings};
use crate::sources::api_server::{ApiServer, connect};
use crate::sources::file::FileSource;
use crate::sources::http::HttpSource;
use crate::sources::{Problem, Source, SourceUpdate};

/// How long a source that panicked stays down.
const AFTER_A_PANIC: Duration = Duration::from_secs(10);

/// The sources that `settings` names.
pub(super) fn configured(settings: &Settings) -> Vec<Source> {
    let file = settings.file.as_ref().map(|_| Source::File);
    let http = settings.http.as_ref().map(|_| Source::Http);
    let api = settings.api.as_ref().map(|_| Source::Api);
    file.into_iter().chain(http).chain(api).collect()
}

/// Starts every source that `settings` names. They end when nobody listens any more.
pub(super) async fn start(
    settings: &Settings,
    board: &Arc<Board>,
    reports: &Sender<Report>,
) -> Result<(), Failure> {
    if let Some(FileSettings { path, period }) = settings.file.clone() {
        let (node, board) = (settings.node.clone(), Arc::clone(board));
        keep_running(Source::File, reports.clone(), AFTER_A_PANIC, move || {
            let source = FileSource::with_period(&path, node.clone(), period);
            board.join(Source::File, source.status());
            Ok(source)
        })?;
    }
    if let Some(config) = settings.http.clone() {
        let (node, board) = (settings.node.clone(), Arc::clone(board));
        keep_running(Source::Http, reports.clone(), AFTER_A_PANIC, move || {
            let source = HttpSource::new(config.clone(), node.clone())?;
            board.join(Source::Http, source.status());
            Ok(source)
        })?;
    }
    if let Some(ApiSettings { kubeconfig, all_nodes }) = settings.api.clone() {
        let client = connect(kubeconfig.as_deref()).await;
        let client = client.map_err(|problem| Failure::Usage(problem.to_string()))?;
        let (node, board) = (settings.node.clone(), Arc::clone(board));
        keep_running(Source::Api, reports.clone(), AFTER_A_PANIC, move || {
            let server = ApiServer::new(client.clone());
            let source = if all_nodes { server } else { server.node(&node) }.pods();
            board.join(Source::Api, source.status());
            Ok(source)
        })?;
    }
    Ok(())
}

/// Runs the streams that `open` gives, one after the other, until one ends by itself. The first is opened at once, another
/// one `pause` after a panic.
fn keep_running<S>(
    source: Source,
    reports: Sender<Report>,
    pause: Duration,
    open: impl Fn() -> Result<S, Problem> + Send + 'static,
) -> Result<(), Failure>
where
    S: Stream<Item = SourceUpdate<Pod>> + Send + Unpin + 'static,
{
    let mut stream = open().map_err(|problem| Failure::Unable(problem.to_string()))?;
    tokio::spawn(async move {
        while tokio::spawn(pass_on(source, stream, reports.clone()))
            .await
            .is_err_and(|error| error.is_panic())
        {
            tracing::error!(source = source.as_str(), "the source panicked; it is started again soon");
            stream = loop {
                tokio::time::sleep(pause).await;
                match open() {
                    Ok(stream) => break stream,
                    Err(problem) => tracing::error!(source = source.as_str(), "cannot be started: {problem}"),
                }
            };
        }
    });
    Ok(())
}

async fn pass_on(
    source: Source,
    mut updates: impl Stream<Item = SourceUpdate<Pod>> + Unpin,
    reports: Sender<Report>,
) {
    while let Some(update) = updates.next().await {
        // Waits while the writer is behind, and with it the source, which then has fewer and newer things to say.
        let sent = tokio::task::block_in_place(|| reports.send(Report { source, update }));
        if sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossbeam_channel::bounded;
    use futures_util::stream;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_source_that_panics_is_started_again() {
        let (reports, received) = bounded(1);
        let opened = AtomicUsize::new(0);
        let open = move || {
            let first = opened.fetch_add(1, Ordering::Relaxed) == 0;
            let update = async move {
                assert!(!first, "a panic that the test wants");
                SourceUpdate::Set(Vec::new())
            };
            Ok(stream::once(update).boxed())
        };
        assert!(keep_running(Source::File, reports, Duration::ZERO, open).is_ok());
        let report = tokio::task::spawn_blocking(move || received.recv_timeout(Duration::from_secs(60)));
        assert_eq!(report.await.unwrap().unwrap().source, Source::File);
    }
}
