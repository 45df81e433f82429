//! The node's pods as a read-only Kubernetes API: get, list and watch for every Kubernetes client.
//!
//! ```text
//! index ─> follow ─> history ─┬─> list  ─┐
//!                             └─> watch ─┴─> write ─> HTTP
//! ```
//! One thread compares snapshots of the index and appends to the history. The index's writer never waits for it.
//! `docs/pod-api.md` lists the differences from the API server.

mod accept;
mod client;
mod continuation;
mod discovery;
mod encodings;
mod event;
mod fields;
mod follow;
mod footprint;
mod history;
mod labels;
mod list;
#[cfg(test)]
mod load;
mod object;
mod printed;
mod query;
mod routes;
mod selection;
mod shape;
mod status;
mod watch;
mod write;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Reader, Snapshot, WaitError};
use tokio::sync::watch as channel;
use tokio::time::timeout;

pub(crate) use self::client::{Client, Peer};
pub(crate) use self::follow::StaticPods;
use self::history::{History, Limits, Sizes};
pub(crate) use self::object::API_SERVER_VERSION;
pub(crate) use self::query::is_meant;
pub(crate) use self::routes::{collection_of_rows, router};
use self::status::Refusal;
use crate::readiness::Readiness;

/// Maximum number and age of stored events. A node with one change per second stores 300 of them.
const EVENTS: usize = 4096;
const AGE: Duration = Duration::from_secs(5 * 60);
/// Maximum memory of the pods that the events replaced: 900 pods of 9 KB of JSON. The last `LEAST` events stay even if
/// they exceed it. Otherwise a watch of large pods could not keep up.
const REPLACED: usize = 32 << 20;
const LEAST: usize = 64;
/// Maximum bytes of encodings shared between watches.
const ENCODED: usize = 16 << 20;
/// Interval between checks of the events' age.
const AGING: Duration = Duration::from_secs(10);
/// How long a request waits for the history to reach the latest publication.
const PATIENCE: Duration = Duration::from_secs(3);

/// The settings of the pod API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) static_pods: StaticPods,
    /// Maximum number of watches.
    pub(crate) watches: usize,
    /// Maximum number of watches per client.
    pub(crate) watches_per_client: usize,
}

/// Statistics of the pod API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Open watches.
    pub(crate) watches: usize,
    /// Stored events.
    pub(crate) events: usize,
    /// Estimated memory of the pods that they replaced, in bytes.
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
    history: Arc<History>,
    /// The index generation that the history has reached.
    reached: channel::Receiver<u64>,
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
}

impl PodApi {
    /// Starts a thread that follows the index.
    pub(crate) fn start(
        reader: &Reader<Pod>,
        readiness: &Arc<Readiness>,
        settings: &Settings,
    ) -> io::Result<Self> {
        let Settings { static_pods, watches, watches_per_client } = *settings;
        let limits = Limits {
            events: EVENTS,
            age: AGE,
            replaced: REPLACED,
            least: LEAST,
            encoded: ENCODED,
            watches,
            watches_per_client,
        };
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let history = Arc::new(History::new(u64::try_from(started).unwrap_or(1).max(1), limits));
        let (reach, reached) = channel::channel(0);
        let api = Self { history, reached, reader: reader.clone(), readiness: Arc::clone(readiness) };
        let history = Arc::clone(&api.history);
        let mut changes = reader.changes();
        thread::Builder::new().name("pod-api".to_owned()).spawn(move || {
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
        })?;
        Ok(api)
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
            encoded: self.history.encodings.made(),
            coalesced: count(&counts.coalesced),
            too_old: count(&counts.too_old),
            refused: count(&counts.refused),
        }
    }

    /// Ends all watches.
    pub(crate) fn close(&self) {
        self.history.close();
    }

    /// Waits until the history includes everything published before the request. Fails until every source has been
    /// read: an incomplete list would show existing pods as gone.
    async fn current(&self) -> Result<(), Refusal> {
        if !self.readiness.is_ready() {
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
