//! The pods of the last run, and those of this one for the next, if the agent was given a directory for them.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::exit::Failure;
use super::metrics::number;
use super::settings::Settings;
use pod_index::{Operation, PodMeta, PodUid, Reader, Snapshot};
use pod_index_kubelet::checkpoint::{Checkpointing, Checkpoints, Restored};
use pod_index_kubelet::sources::Source;

/// The directory, opened and read; `None` if none was named. A bad file in it keeps nobody from working.
pub(super) fn open(settings: &Settings) -> Result<Option<(Checkpoints, Restored)>, Failure> {
    let Some((path, which)) = &settings.checkpoints else { return Ok(None) };
    let opened = Checkpoints::open(path, *which);
    let (checkpoints, restored) = opened.map_err(|error| Failure::unable("checkpointDir", error))?;
    for error in &restored.errors {
        tracing::error!(path = error.path(), kind = error.kind().as_str(), "{error}");
    }
    let pods = restored.pods.len();
    tracing::info!(pods, directory = %path.display(), "restored the pods that have checkpoints");
    Ok(Some((checkpoints, restored)))
}

/// Keeps the checkpoints from now on. The restored pods must be in the index.
pub(super) fn keep(checkpoints: Checkpoints, reader: &Reader<Pod>) -> Result<Checkpointing, Failure> {
    let checkpointing = checkpoints.keep(reader.clone());
    checkpointing.map_err(|error| Failure::unable("cannot start the checkpoint thread", error))
}

/// Writes the index as it is now to disk, within `patience`.
pub(super) fn finish(checkpointing: Checkpointing, patience: Duration) {
    if let Err(late) = tokio::task::block_in_place(|| checkpointing.finish(patience)) {
        tracing::error!("leaving although the last checkpoints are not written: {late}");
    }
}

/// The restored pods that no source has told of yet.
pub(super) struct Unclaimed {
    /// Those that were left when somebody looked last, and their UIDs.
    pods: Restored,
    uids: HashSet<PodUid>,
    /// The configured sources that were not heard yet. With the last of them, all pods have been claimed or let go.
    unheard: BTreeSet<Source>,
    /// Those that were. What they did not name has been let go.
    heard: BTreeSet<Source>,
    /// How many pods there are.
    left: Gauge,
}

impl Unclaimed {
    /// All of them, and how many that is among the metrics.
    pub(super) fn register(metrics: &mut Registry, pods: Restored, sources: &[Source]) -> Self {
        let left = Gauge::default();
        left.set(number(pods.pods.len()));
        let help = "Pods that are known from their checkpoints alone, as their sources were not heard yet";
        metrics.register("restored_pods", help, left.clone());
        let uids = pods.pods.iter().map(|pod| PodUid::from(pod.uid())).collect();
        Self { pods, uids, unheard: sources.iter().copied().collect(), heard: BTreeSet::new(), left }
    }

    /// What puts all of them into the index.
    pub(super) fn operations(&self) -> impl Iterator<Item = Operation<Pod>> {
        self.pods.operations()
    }

    /// Whether these may leave fewer of them. While one source is silent, the others change other pods.
    pub(super) fn are_concerned(&self, operations: &[Operation<Pod>]) -> bool {
        operations.iter().any(|operation| match operation {
            Operation::Set(_) => true,
            Operation::Add(pod) | Operation::Update(pod) => self.uids.contains(&PodUid::from(pod.uid())),
            Operation::Remove(uid) => self.uids.contains(uid),
        })
    }

    /// The pods that are gone, now that these sources were heard: theirs and, with the last source, those of sources that
    /// are not configured any more.
    pub(super) fn without(&mut self, sound: &[Source], snapshot: &Snapshot<Pod>) -> Vec<PodUid> {
        let news: Vec<_> = sound.iter().copied().filter(|source| self.heard.insert(*source)).collect();
        for source in &news {
            self.unheard.remove(source);
        }
        if self.is_over() {
            return self.pods.unclaimed(snapshot);
        }
        news.iter().flat_map(|source| self.pods.unclaimed_from(source.as_str(), snapshot)).collect()
    }

    /// Whether every source was heard.
    pub(super) fn is_over(&self) -> bool {
        self.unheard.is_empty()
    }

    /// Forgets those that were claimed or let go, and counts the others.
    pub(super) fn count(&mut self, snapshot: &Snapshot<Pod>) {
        self.uids = self.pods.unclaimed(snapshot).into_iter().collect();
        // What was claimed once does not come back: what counts is the very object.
        self.pods.pods.retain(|pod| self.uids.contains(&PodUid::from(pod.uid())));
        self.left.set(number(self.uids.len()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
    fn what_is_left_is_counted_when_it_may_be_less_and_only_then() {
        let pods = [("f1", "file"), ("f2", "file"), ("a1", "api"), ("a2", "api"), ("h1", "http")];
        let pods = pods.map(|(uid, source)| pod(uid, source)).into();
        let restored = Restored { pods, ..Restored::default() };
        let (mut writer, reader) = pod_index::new();
        let mut unclaimed =
            Unclaimed::register(&mut Registry::default(), restored, &[Source::File, Source::Api]);
        let _ = writer.apply(unclaimed.operations());
        // As the writer's thread does it.
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
        // One that is refused claims nothing.
        let nameless = Operation::Update(Arc::new(Pod {
            metadata: ObjectMeta { uid: Some("a1".to_owned()), ..ObjectMeta::default() },
            ..Pod::default()
        }));
        assert_eq!(left(vec![nameless], &[]), (true, 4, false));
        assert_eq!(left(vec![], &[Source::File]), (false, 3, false));
        assert_eq!(left(vec![update("f1"), update("f2")], &[Source::File]), (false, 3, false));
        assert_eq!(left(vec![Operation::Remove(PodUid::from("a2"))], &[Source::File]), (true, 2, false));
        // With the last source, what is of none that is configured goes as well.
        assert_eq!(left(vec![], &[Source::Api]), (false, 0, true));
        assert_eq!(reader.load().pods().len(), 3);
    }
}
