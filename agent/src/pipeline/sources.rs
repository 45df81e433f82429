//! Runs each configured source as a task and forwards its updates.
//!
//! A source must not take the agent down: one that panics is logged and restarted.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, TrySendError};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::readiness::Readiness;
use super::writer::Report;
use crate::config::Settings;
use crate::config::failure::Failure;
use crate::config::selection::Selection;
use pod_index_kubelet::sources::api_server::ApiServer;
use pod_index_kubelet::sources::{
    Problem, Source, SourceStatus, SourceUpdate, Updates, file, http, kubelet, redact_env,
};

/// Pause before a source restarts after a panic.
const AFTER_A_PANIC: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(10) };

/// The sources named in `settings`.
pub(crate) fn configured(settings: &Settings) -> Vec<Source> {
    let sources = [
        (Source::File, settings.given.static_pod_path.is_some()),
        (Source::Http, settings.http.is_some()),
        (Source::Kubelet, settings.kubelet.is_some()),
        (Source::Api, settings.given.has_api_server()),
    ];
    sources.into_iter().filter_map(|(source, is_named)| is_named.then_some(source)).collect()
}

/// A source, and the work of its task.
type Prepared = (Source, BoxFuture<'static, ()>);

/// The running sources.
#[derive(Debug)]
pub(crate) struct SourceTasks {
    readiness: Arc<Readiness>,
    reports: Sender<Report>,
    /// A task for each.
    running: Vec<(Source, JoinSet<()>)>,
}

impl SourceTasks {
    /// No sources yet. Their updates will go to `reports`.
    pub(crate) fn new(readiness: &Arc<Readiness>, reports: Sender<Report>) -> Self {
        Self { readiness: Arc::clone(readiness), reports, running: Vec::new() }
    }

    /// Runs exactly the sources named in `settings`. A source that already runs is restarted; its pods stay until it
    /// reports again. The pods of a source that is no longer named are removed.
    ///
    /// On an error, nothing changes.
    pub(crate) async fn follow(
        &mut self,
        settings: &Settings,
        client: Option<Client>,
    ) -> Result<(), Failure> {
        let prepared = self.prepare(settings, client)?;
        // Stop each source first: the old one's last update must not follow the new one's first.
        for (source, mut task) in self.running.drain(..) {
            task.shutdown().await;
            if prepared.iter().all(|(prepared, _)| *prepared != source) {
                // The source is not configured any more: its pods go.
                let update = Some(SourceUpdate::Set(Vec::new()));
                let report = Report { source, update, sound: true, read: None };
                let _ = say(&self.reports, report);
                self.readiness.leave(source);
            }
        }
        let run = |(source, work)| (source, JoinSet::from_iter([work]));
        self.running = prepared.into_iter().map(run).collect();
        Ok(())
    }

    fn prepare(&self, settings: &Settings, client: Option<Client>) -> Result<Vec<Prepared>, Failure> {
        let mut prepared = Vec::new();
        // Applied to each pod before it is stored.
        let redacts = settings.given.redact_env;
        let transform: fn(&mut Pod) = if redacts { redact_env } else { |_| {} };
        let nudge = |source| self.readiness.nudge(source);
        let node = settings.node.clone();
        if let Some(path) = settings.given.static_pod_path.clone() {
            let (node, nudge, period) = (node.clone(), nudge(Source::File), settings.period_of("file"));
            let open = move || Ok(file::follow_with(&path, node.clone(), period, transform, nudge.clone()));
            prepared.push(self.keep_running(Source::File, open)?);
        }
        if let Some(mut config) = settings.http.clone() {
            (config.transform, config.nudge) = (transform, nudge(Source::Http));
            let node = node.clone();
            let open = move || http::follow(config.clone(), node.clone());
            prepared.push(self.keep_running(Source::Http, open)?);
        }
        if let Some(mut config) = settings.kubelet.clone() {
            (config.transform, config.nudge) = (transform, nudge(Source::Kubelet));
            let open = move || kubelet::follow(config.clone());
            prepared.push(self.keep_running(Source::Kubelet, open)?);
        }
        if let Some(client) = client {
            let pods = ApiServer { redact_env: redacts, ..pods_of(settings, client)? };
            let open = move || Ok(pods.clone().pods());
            prepared.push(self.keep_running(Source::Api, open)?);
        }
        Ok(prepared)
    }

    /// Prepares to run the streams that `open` returns until one ends by itself. Opens the first now, and another one a
    /// while after a panic.
    fn keep_running(
        &self,
        source: Source,
        open: impl Fn() -> Result<Updates<Pod>, Problem> + Send + 'static,
    ) -> Result<Prepared, Failure> {
        let (reports, readiness) = (self.reports.clone(), Arc::clone(&self.readiness));
        let open = move || {
            let stream = open()?;
            let status = stream.status();
            readiness.join(source, status.clone());
            Ok::<_, Problem>((stream, status))
        };
        let (mut stream, mut status) = open().map_err(|problem| Failure::Unable(problem.to_string()))?;
        let work = async move {
            while AssertUnwindSafe(pass_on(source, stream, status, &reports)).catch_unwind().await.is_err() {
                tracing::error!(source = source.as_str(), "the source panicked and restarts soon");
                (stream, status) = loop {
                    tokio::time::sleep(AFTER_A_PANIC).await;
                    match open() {
                        Ok(opened) => break opened,
                        Err(problem) => {
                            tracing::error!(source = source.as_str(), "cannot be started: {problem}");
                        }
                    }
                };
            }
        };
        Ok((source, work.boxed()))
    }
}

/// The selected pods of the API server.
pub(crate) fn pods_of(Settings { given, node, .. }: &Settings, client: Client) -> Result<ApiServer, Failure> {
    let server = Selection::new(given)?.of(ApiServer::new(client));
    Ok(if given.all_nodes { server } else { server.node(node) })
}

/// Forwards the updates of a source. A source works only when polled for its next update, so its status belongs to its
/// last update, or to a check without changes.
async fn pass_on(
    source: Source,
    mut updates: Updates<Pod>,
    mut status: watch::Receiver<SourceStatus>,
    reports: &Sender<Report>,
) {
    let (mut was_sound, mut last_read) = (false, None);
    loop {
        let update = tokio::select! {
            biased;
            update = updates.next() => match update {
                Some(update) => Some(update),
                None => return,
            },
            Ok(()) = status.changed() => None,
        };
        let (sound, read) = {
            let status = status.borrow_and_update();
            (is_sound(&status), status.last_read)
        };
        if update.is_none() && (was_sound || !sound) && read == last_read {
            continue;
        }
        (was_sound, last_read) = (sound, read);
        if say(reports, Report { source, update, sound, read }).is_err() {
            return;
        }
    }
}

/// Blocks while the channel is full. This also blocks the source, which then reports fewer and newer changes.
/// `block_in_place` moves the worker's other tasks to another thread; trying first avoids that for most reports.
fn say(reports: &Sender<Report>, report: Report) -> Result<(), ()> {
    match reports.try_send(report) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(report)) => tokio::task::block_in_place(|| reports.send(report)).map_err(drop),
        Err(TrySendError::Disconnected(_)) => Err(()),
    }
}

/// Whether the source has reported all its pods and no problem hides one. An API server's list is complete even if its
/// watch broke later.
fn is_sound(status: &SourceStatus) -> bool {
    let is_whole = || !status.problems.iter().any(|problem| problem.kind().is_grave());
    status.seen && (status.source == Source::Api || is_whole())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossbeam_channel::bounded;
    use futures_util::stream;

    use super::*;

    /// Blocking needs another worker thread. This runtime has none, so it would panic.
    #[tokio::test]
    async fn a_report_that_fits_into_the_channel_uses_no_other_thread() {
        let (reports, received) = bounded(1);
        let report = || Report { source: Source::File, update: None, sound: true, read: None };
        assert_eq!(say(&reports, report()), Ok(()));
        assert_eq!(received.len(), 1);
        drop(received);
        assert_eq!(say(&reports, report()), Err(()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_source_that_panics_is_restarted() {
        let (reports, received) = bounded(1);
        let opened = AtomicUsize::new(0);
        let status = file::follow("/nonexistent", pod_index_kubelet::sources::NodeName::new("n")).status();
        let open = move || {
            let first = opened.fetch_add(1, Ordering::Relaxed) == 0;
            let update = async move {
                assert!(!first, "a panic that the test wants");
                SourceUpdate::Set(Vec::new())
            };
            Ok(Updates::new(stream::once(update), status.clone()))
        };
        let tasks = SourceTasks::new(&Arc::new(Readiness::new()), reports);
        let (_, work) = tasks.keep_running(Source::File, open).map_err(|_| ()).unwrap();
        tokio::spawn(work);
        let report = tokio::task::spawn_blocking(move || received.recv_timeout(Duration::from_secs(60)));
        assert_eq!(report.await.unwrap().unwrap().source, Source::File);
    }
}
