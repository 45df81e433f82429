//! The pods of the node as the API server would show them: get, list and watch, for every client of Kubernetes. Read-only.
//!
//! ```text
//! index ─> follow ─> history ─┬─> list  ─┐
//!                             └─> watch ─┴─> write ─> HTTP
//! ```
//! One thread compares snapshots of the index and appends to the history; the writer of the index waits for nobody here.
//! What differs from the API server is a page of the documents: `docs/pod-api.md`.

mod accept;
mod continuation;
mod discovery;
mod encodings;
mod event;
mod fields;
mod follow;
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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Reader, Snapshot, WaitError};
use tokio::sync::watch as channel;
use tokio::time::timeout;

pub(crate) use self::follow::StaticPods;
use self::history::{History, Limits};
pub(crate) use self::query::is_meant;
pub(crate) use self::routes::{collection_of_rows, router};
use self::status::Refusal;
use crate::readiness::Readiness;

/// How many events are kept, and for how long. With pods of 20 KiB each, which is a lot, 4096 events hold 80 MiB; a node
/// with a change a second holds 300 of them.
const EVENTS: usize = 4096;
const AGE: Duration = Duration::from_secs(5 * 60);
/// How many bytes of encoded events are kept for watches that want them too.
const ENCODED: usize = 16 << 20;
/// How often it is looked whether events are too old.
const AGING: Duration = Duration::from_secs(10);
/// How long a request waits until the history has come to the latest publication.
const PATIENCE: Duration = Duration::from_secs(3);

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) static_pods: StaticPods,
    /// How many watches there may be.
    pub(crate) watches: usize,
    /// How many of them one client may have.
    pub(crate) watches_per_client: usize,
}

/// Who is at the other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// What its watches are counted by.
    pub(crate) client: Arc<str>,
    /// Whether the connection serves a watch now.
    pub(crate) is_watching: AtomicBool,
}

impl Peer {
    pub(crate) fn new(client: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self { client: client.into(), is_watching: AtomicBool::new(false) })
    }
}

/// Numbers of the pod API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Watches that are open.
    pub(crate) watches: usize,
    /// Events that are kept.
    pub(crate) events: usize,
    /// Events that were sent, each as often as it was.
    pub(crate) sent: u64,
    /// Objects that were encoded for a watch.
    pub(crate) encoded: u64,
    /// Publications that made no events of their own, as a later one came first.
    pub(crate) coalesced: u64,
    /// Watches that ended because what they had to be told next was not kept.
    pub(crate) too_old: u64,
    /// Watches that were too many.
    pub(crate) refused: u64,
}

/// The pod API. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct PodApi {
    history: Arc<History>,
    /// The generation of the index to which the history has come.
    reached: channel::Receiver<u64>,
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
}

impl PodApi {
    /// Follows the index on a thread of its own.
    pub(crate) fn start(
        reader: &Reader<Pod>,
        readiness: &Arc<Readiness>,
        settings: &Settings,
    ) -> io::Result<Self> {
        let Settings { static_pods, watches, watches_per_client } = *settings;
        let limits = Limits { events: EVENTS, age: AGE, encoded: ENCODED, watches, watches_per_client };
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

    /// What has come of the watches so far.
    pub(crate) fn figures(&self) -> Figures {
        let (events, watches) = self.history.sizes();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.history.counts;
        Figures {
            watches,
            events,
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

    /// Waits until what was published before the request can be seen. Before every source was read, nobody is told that a
    /// pod is not there.
    async fn current(&self) -> Result<(), Refusal> {
        if !self.readiness.is_ready() {
            let missing = self.readiness.missing().join("; ");
            return Err(Refusal::unavailable(format!("not every source has been read: {missing}")));
        }
        let generation = self.reader.load().generation();
        let mut reached = self.reached.clone();
        match timeout(PATIENCE, reached.wait_for(|reached| *reached >= generation)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Refusal::unavailable("the history has not come to the latest publication".to_owned())),
        }
    }
}
