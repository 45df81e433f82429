//! The node's pods as a read-only Kubernetes API: get, list and watch for every Kubernetes client.
//!
//! ```text
//! index ─> follow ─> history ─┬─> list  ─┐
//!                             └─> watch ─┴─> write ─> HTTP
//! ```
//! One thread compares snapshots of the index and appends to the history. The index's writer never waits for it.
//! `docs/pod-api.md` lists the differences from the API server.

mod accept;
mod discovery;
mod event;
mod fields;
mod follow;
mod history;
mod labels;
mod list;
pub(crate) mod metrics;
mod object;
mod pod;
mod printed;
mod query;
mod resource;
mod routes;
mod selection;
mod shape;
mod status;
mod watch;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Reader, Snapshot, WaitError};
use tokio::sync::watch as channel;
use tokio::time::timeout;

use self::history::{History, Limits, Sizes};
pub(crate) use self::routes::{pods_as_they_are, router};
pub(crate) use self::status::Refusal;
use crate::config::values::PodApiSettings;
use crate::pipeline::readiness::Readiness;

/// Maximum number and age of stored events. A node with one change per second stores 300 of them.
const EVENTS: usize = 4096;
const AGE: Duration = Duration::from_secs(5 * 60);
/// Maximum memory of the replaced pods and of the encoded events: 900 pods of 9 KB of JSON, each with one encoded event.
const BYTES: usize = 16 << 20;
/// Interval between checks of the events' age.
const AGING: Duration = Duration::from_secs(10);
/// How long a request waits for the history to reach the latest publication.
const PATIENCE: Duration = Duration::from_secs(3);

/// Statistics of the pod API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Open watches.
    pub(crate) watches: usize,
    /// Stored events.
    pub(crate) events: usize,
    /// The memory of the pods that they replaced and of the encoded events, in bytes.
    pub(crate) bytes: usize,
    /// Events sent, counted once per watch.
    pub(crate) sent: u64,
    /// Objects encoded for watches.
    pub(crate) encoded: u64,
    /// Publications merged into a later one, without events of their own.
    pub(crate) coalesced: u64,
    /// Watches that ended because their next event was no longer stored.
    pub(crate) too_old: u64,
    /// Watches rejected because there were too many.
    pub(crate) refused: u64,
}

/// The pod API. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct PodApi {
    history: Arc<History<Pod>>,
    /// The index generation that the history has reached.
    reached: channel::Receiver<u64>,
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
}

impl PodApi {
    /// The pod API, and the work that follows the index, for a thread of its own.
    pub(crate) fn new(
        reader: &Reader<Pod>,
        readiness: &Arc<Readiness>,
        settings: &PodApiSettings,
    ) -> (Self, impl FnOnce() + Send + use<>) {
        let PodApiSettings { static_pods, watches, watches_per_client } = *settings;
        let limits = Limits { events: EVENTS, age: AGE, bytes: BYTES, watches, watches_per_client };
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let history = Arc::new(History::new(u64::try_from(started).unwrap_or(1).max(1), limits));
        let (reach, reached) = channel::channel(0);
        let api = Self { history, reached, reader: reader.clone(), readiness: Arc::clone(readiness) };
        let history = Arc::clone(&api.history);
        let mut changes = reader.changes();
        let follow = move || {
            loop {
                let step = match changes.wait_until(Instant::now() + AGING) {
                    Ok(step) => step,
                    Err(WaitError::TimedOut) => {
                        history.age();
                        continue;
                    }
                    Err(_) => return,
                };
                let before = step.before().map_or(0, Snapshot::generation);
                let passed = step.after().generation().saturating_sub(before + 1);
                history.counts.coalesced.fetch_add(passed, Ordering::Relaxed);
                history.show(follow::touched(&step.changes(), step.after(), static_pods));
                reach.send_replace(step.after().generation());
            }
        };
        (api, follow)
    }

    /// Statistics of the pod API.
    pub(crate) fn figures(&self) -> Figures {
        let Sizes { events, bytes, watches } = self.history.sizes();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.history.counts;
        Figures {
            watches,
            events,
            bytes,
            sent: count(&counts.events_sent),
            encoded: count(&counts.encoded),
            coalesced: count(&counts.coalesced),
            too_old: count(&counts.too_old),
            refused: count(&counts.refused),
        }
    }

    /// Ends all watches.
    pub(crate) fn close(&self) {
        self.history.close();
    }

    /// Waits until the history includes everything published before the request. If the list has to be `complete`, fails
    /// until every source has been read or the pods of the last run are restored: an incomplete list would show existing
    /// pods as gone.
    async fn current(&self, complete: bool) -> Result<(), Refusal> {
        if complete && !self.readiness.has_pods() {
            let missing = self.readiness.missing().join("; ");
            return Err(Refusal::unavailable(format!("not every source has been read: {missing}")));
        }
        let generation = self.reader.load().generation();
        let mut reached = self.reached.clone();
        match timeout(PATIENCE, reached.wait_for(|reached| *reached >= generation)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Refusal::unavailable("the history has not reached the latest publication".to_owned())),
        }
    }
}
