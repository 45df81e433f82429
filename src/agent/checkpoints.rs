//! The pods of the last run, and those of this one for the next, if the agent was given a directory for them.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::board::Board;
use super::exit::Failure;
use super::metrics::number;
use super::settings::Settings;
use crate::checkpoint::{Checkpointing, Checkpoints, Restored};
use crate::sources::Source;
use crate::{PodUid, Reader, Snapshot};

/// How long the last checkpoints may take once the agent is to leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// The directory, opened and read; nothing if none was named. A bad file in it keeps nobody from working.
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
pub(super) fn keep(
    checkpoints: Checkpoints,
    reader: &Reader<Pod>,
    board: &Board,
) -> Result<Checkpointing, Failure> {
    let checkpointing = checkpoints.keep(reader.clone());
    let checkpointing =
        checkpointing.map_err(|error| Failure::unable("cannot start the checkpoint thread", error))?;
    let notify = checkpointing.notifier();
    let mut publications = board.publications();
    tokio::spawn(async move {
        while publications.changed().await.is_ok() {
            notify();
        }
    });
    Ok(checkpointing)
}

/// Brings the index as it is now to disk. A disk that hangs is not waited for.
pub(super) fn finish(checkpointing: Checkpointing) {
    if let Err(late) = tokio::task::block_in_place(|| checkpointing.finish(PATIENCE)) {
        tracing::error!("leaving although the last checkpoints are not written: {late}");
    }
}

/// The restored pods that no source has told of yet.
pub(super) struct Unclaimed {
    pub(super) pods: Restored,
    /// The configured sources that were not heard yet. With the last of them, all pods have been claimed or let go.
    pub(super) unheard: BTreeSet<Source>,
    /// How many there are.
    left: Gauge,
}

impl Unclaimed {
    /// All of them, and how many that is among the metrics.
    pub(super) fn register(metrics: &mut Registry, pods: Restored, sources: &[Source]) -> Self {
        let left = Gauge::default();
        left.set(number(pods.pods.len()));
        let help = "Pods that are known from their checkpoints alone, as their sources were not heard yet";
        metrics.register("restored_pods", help, left.clone());
        Self { pods, unheard: sources.iter().copied().collect(), left }
    }

    /// The pods that are gone, now that these sources were heard: theirs and, with the last source, those of sources that
    /// are not configured any more.
    pub(super) fn without(&mut self, sound: &[Source], snapshot: &Snapshot<Pod>) -> Vec<PodUid> {
        for source in sound {
            self.unheard.remove(source);
        }
        if self.unheard.is_empty() {
            return self.pods.unclaimed(snapshot);
        }
        sound.iter().flat_map(|source| self.pods.unclaimed_from(source.as_str(), snapshot)).collect()
    }

    /// Counts those that are left.
    pub(super) fn count(&self, snapshot: &Snapshot<Pod>) {
        self.left.set(number(self.pods.unclaimed(snapshot).len()));
    }
}
