//! Restores the pods of the last run and saves those of this run, if a directory is configured.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::config::Settings;
use crate::config::failure::Failure;
use crate::metrics::{Scrape, number, registered};
use pod_index::{Operation, PodMeta, PodUid, Snapshot};
use pod_index_kubelet::checkpoint::{CheckpointStatus, Checkpointing, Checkpoints, Restored};
use pod_index_kubelet::sources::{Source, redact_env};

/// The directory, opened and read. `None` if none is configured. Skips bad files.
pub(crate) fn open(settings: &Settings) -> Result<Option<(Checkpoints, Restored)>, Failure> {
    let Some((path, which)) = &settings.checkpoints else { return Ok(None) };
    let opened = Checkpoints::open(path, *which);
    let (checkpoints, mut restored) = opened.map_err(|error| Failure::unable("checkpointDir", error))?;
    for error in &restored.errors {
        tracing::error!(path = error.path(), kind = error.kind().as_str(), "{error}");
    }
    if settings.given.redact_env {
        // The last run may have had other settings.
        restored.pods.iter_mut().for_each(|pod| redact_env(Arc::make_mut(pod)));
    }
    let pods = restored.pods.len();
    tracing::info!(pods, directory = %path.display(), "restored pods from checkpoints");
    Ok(Some((checkpoints, restored)))
}

/// The state of the checkpoints.
pub(crate) fn show(status: &CheckpointStatus, to: &mut Scrape<'_>) {
    to.gauge("checkpoint_files", "Checkpoints on disk.", number(status.files));
    let generation = i64::try_from(status.generation.unwrap_or_default()).unwrap_or(i64::MAX);
    let help = "The last generation of the index that is completely on disk.";
    to.gauge("checkpoint_generation", help, generation);
    let help = "Pods whose checkpoints are missing or outdated.";
    to.gauge("checkpoint_problems", help, number(status.wrong));
    let help = "Unusable files, or directories in their place, that were set aside.";
    to.gauge("checkpoint_files_set_aside", help, number(status.set_aside));
    let help = "Files that could not be read at the start and still exist.";
    to.gauge("checkpoint_files_unread", help, number(status.unread));
    to.counter("checkpoint_writes", "Checkpoints written.", status.written);
    to.counter("checkpoint_removals", "Checkpoints removed.", status.removed);
    to.counter("checkpoint_failures", "Failed attempts to write or remove a checkpoint.", status.failures);
    let last = status.last_failure.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let help = "Time of the last failed attempt; 0 if none.";
    to.gauge("checkpoint_last_failure_timestamp_seconds", help, last.map_or(0.0, |last| last.as_secs_f64()));
}

/// Writes the index to disk, within `patience`.
pub(crate) async fn finish(checkpointing: Checkpointing, patience: Duration) {
    if let Err(late) = checkpointing.finish(patience).await {
        tracing::error!("shutting down without writing the last checkpoints: {late}");
    }
}

/// The restored pods that no source has confirmed yet.
pub(crate) struct Unclaimed {
    /// Those left after the last update, with their UIDs.
    pods: Restored,
    uids: HashSet<PodUid>,
    /// Configured sources not heard yet. One that reports decides its restored pods, the last one all that remain.
    unheard: BTreeSet<Source>,
    /// The number of restored pods left.
    left: Gauge,
}

impl Unclaimed {
    /// All restored pods. Registers their number as a metric.
    pub(crate) fn register(metrics: &mut Registry, pods: Restored, sources: &[Source]) -> Self {
        let help = "Pods known only from checkpoints, because their sources have not reported yet";
        let left: Gauge = registered(metrics, "restored_pods", help, Gauge::default());
        left.set(number(pods.pods.len()));
        let uids = pods.pods.iter().map(|pod| PodUid::from(pod.uid())).collect();
        Self { pods, uids, unheard: sources.iter().copied().collect(), left }
    }

    /// The operations that put all of them into the index.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation<Pod>> {
        self.pods.operations()
    }

    /// Whether these operations may reduce the number of restored pods. While one source is silent, the others change
    /// other pods.
    pub(crate) fn are_concerned(&self, operations: &[Operation<Pod>]) -> bool {
        operations.iter().any(|operation| match operation {
            Operation::Set(_) => true,
            Operation::Add(pod) | Operation::Update(pod) => self.uids.contains(&PodUid::from(pod.uid())),
            Operation::Remove(uid) => self.uids.contains(uid),
        })
    }

    /// The restored pods to remove after these sources reported: their own and, with the last source, those of sources
    /// that are no longer configured.
    pub(crate) fn without(&mut self, sound: &[Source], snapshot: &Snapshot<Pod>) -> Vec<PodUid> {
        let news: Vec<_> = sound.iter().filter(|source| self.unheard.remove(source)).collect();
        if self.is_over() {
            return self.pods.unclaimed(None, snapshot);
        }
        news.iter().flat_map(|source| self.pods.unclaimed(Some(source.as_str()), snapshot)).collect()
    }

    /// Whether every source has reported.
    pub(crate) fn is_over(&self) -> bool {
        self.unheard.is_empty()
    }

    /// Drops those that a source claimed or that were removed, and counts the rest.
    pub(crate) fn count(&mut self, snapshot: &Snapshot<Pod>) {
        self.uids = self.pods.unclaimed(None, snapshot).into_iter().collect();
        // Compares the object itself: a claimed pod never becomes a restored pod again.
        self.pods.pods.retain(|pod| self.uids.contains(&PodUid::from(pod.uid())));
        self.left.set(number(self.uids.len()));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use pod_index::CONFIG_SOURCE_ANNOTATION;

    fn pod(uid: &str, source: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some(uid.to_owned());
        pod.metadata.namespace = Some("ns".to_owned());
        pod.metadata.annotations = Some([(CONFIG_SOURCE_ANNOTATION.to_owned(), source.to_owned())].into());
        Arc::new(pod)
    }

    #[test]
    fn remaining_restored_pods_are_counted_only_when_they_may_decrease() {
        let pods = [("f1", "file"), ("f2", "file"), ("a1", "api"), ("a2", "api"), ("h1", "http")];
        let pods = pods.map(|(uid, source)| pod(uid, source)).into();
        let restored = Restored { pods, ..Restored::default() };
        let (mut writer, reader) = pod_index::new();
        let mut unclaimed =
            Unclaimed::register(&mut Registry::default(), restored, &[Source::File, Source::Api]);
        let _ = writer.apply(unclaimed.operations());
        // As in the writer thread.
        let mut left = |operations: Vec<Operation<Pod>>, sound: &[Source]| {
            let concerned = unclaimed.are_concerned(&operations);
            let _ = writer.apply(operations);
            let gone = unclaimed.without(sound, writer.current());
            let _ = writer.apply(gone.iter().cloned().map(Operation::Remove));
            if concerned || !gone.is_empty() {
                unclaimed.count(writer.current());
            }
            (concerned, unclaimed.left.get(), unclaimed.is_over())
        };
        let update = |uid: &str| Operation::Update(pod(uid, "file"));
        assert_eq!(left(vec![update("other"), Operation::Remove(PodUid::from("x"))], &[]), (false, 5, false));
        assert_eq!(left(vec![update("f1")], &[]), (true, 4, false));
        // A rejected pod claims nothing.
        let nameless = Operation::Update(Arc::new(Pod {
            metadata: ObjectMeta { uid: Some("a1".to_owned()), ..ObjectMeta::default() },
            ..Pod::default()
        }));
        assert_eq!(left(vec![nameless], &[]), (true, 4, false));
        assert_eq!(left(vec![], &[Source::File]), (false, 3, false));
        assert_eq!(left(vec![update("f1"), update("f2")], &[Source::File]), (false, 3, false));
        assert_eq!(left(vec![Operation::Remove(PodUid::from("a2"))], &[Source::File]), (true, 2, false));
        // The last source also removes pods whose source is not configured.
        assert_eq!(left(vec![], &[Source::Api]), (false, 0, true));
        assert_eq!(reader.load().pods().len(), 3);
    }
}
