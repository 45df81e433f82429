//! The configured sources, each in a task that forwards its updates to the writer.

use crossbeam_channel::{Sender, TrySendError};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use super::writer::Report;
use crate::config::Settings;
use crate::config::failure::Failure;
use pod_index_kubelet::sources::api_server::ApiServer;
use pod_index_kubelet::sources::{
    Nudge, Problem, Source, SourceStatus, Updates, file, http, kubelet, redact_env,
};

/// A source, and what makes it read at once. It does nothing before it is polled.
pub(crate) type Opened = (Updates<Pod>, Nudge);

/// The sources that `settings` names.
pub(crate) fn open(settings: &Settings, client: Option<Client>) -> Result<Vec<Opened>, Failure> {
    let (given, node) = (&settings.given, &settings.node);
    let unable = |problem: Problem| Failure::Unable(problem.to_string());
    // Applied to each pod before it is stored.
    let transform: fn(&mut Pod) = if given.redact_env { redact_env } else { |_| {} };
    let mut sources = Vec::new();
    if let Some(path) = &given.static_pod_path {
        let (nudge, period) = (Nudge::default(), settings.period_of("file"));
        sources.push((file::follow_with(path, node.clone(), period, transform, nudge.clone()), nudge));
    }
    if let Some(mut config) = settings.http.clone() {
        config.transform = transform;
        let nudge = config.nudge.clone();
        sources.push((http::follow(config, node.clone()).map_err(unable)?, nudge));
    }
    if let Some(mut config) = settings.kubelet.clone() {
        config.transform = transform;
        let nudge = config.nudge.clone();
        sources.push((kubelet::follow(config).map_err(unable)?, nudge));
    }
    if let Some(client) = client {
        sources.push((pods_of(settings, client).pods(), Nudge::default()));
    }
    Ok(sources)
}

/// The selected pods of the API server.
pub(crate) fn pods_of(Settings { given, node, .. }: &Settings, client: Client) -> ApiServer {
    let mut server = ApiServer {
        namespace: given.namespace.clone(),
        labels: given.pod_selector.clone(),
        redact_env: given.redact_env,
        ..ApiServer::new(client)
    };
    server.fields.extend(given.pod_field_selector.clone());
    if given.all_nodes { server } else { server.node(node) }
}

/// The name of a source's task.
pub(crate) fn task_of(updates: &Updates<Pod>) -> &'static str {
    match updates.status().borrow().source {
        Source::File => "the source file",
        Source::Http => "the source http",
        Source::Kubelet => "the source kubelet",
        Source::Api => "the source api",
    }
}

/// Forwards the updates of a source. A source works only when polled for its next update, so its status belongs to its
/// last update, or to a check without changes. Ends with the writer thread.
pub(crate) async fn pass_on(mut updates: Updates<Pod>, reports: Sender<Report>) {
    let mut status = updates.status();
    let source = status.borrow().source;
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
        if say(&reports, Report { source, update, sound, read }).is_err() {
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
    let is_whole = || !status.problems.iter().any(|problem| problem.kind.is_grave());
    status.seen && (status.source == Source::Api || is_whole())
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

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
}
