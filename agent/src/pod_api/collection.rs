//! The objects of one resource, as clients see them: their history, and when it may be shown.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::Reader;
use pod_index_kubelet::records::Record;
use pod_index_kubelet::sources::SourceStatus;
use tokio::sync::watch as channel;
use tokio::time::timeout;

use super::asked::Asked;
use super::history::{History, Limits};
use super::resource::Resource;
use super::watch_limits::WatchLimits;
use crate::api::refusal::Refusal;
use crate::pipeline::readiness::Readiness;

/// Maximum number and age of stored events. A node with one change per second stores 300 of them.
const EVENTS: usize = 4096;
const AGE: Duration = Duration::from_secs(5 * 60);
/// Maximum memory of the replaced objects and of the encoded events: 900 pods of 9 KB of JSON, each with one encoded
/// event.
const BYTES: usize = 16 << 20;
/// How long a request waits for the history to reach the latest publication.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a request waits for the first answer of the API server. Fluent Bit asks once for a Namespace and remembers a
/// refusal.
const START: Duration = Duration::from_secs(5);

/// What all collections begin with.
#[derive(Clone, Copy)]
pub(super) struct Begin<'a> {
    /// The first version.
    pub(super) version: u64,
    pub(super) watch_limits: &'a Arc<WatchLimits>,
    /// Where the objects of the last run are.
    pub(super) directory: Option<&'a Path>,
}

impl Begin<'_> {
    /// An empty history.
    pub(super) fn history(self, of: &'static Resource) -> Arc<History> {
        let limits = Limits { events: EVENTS, age: AGE, bytes: BYTES };
        Arc::new(History::new(of, self.version, limits, self.watch_limits))
    }
}

/// What is known of the API server's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// When those of the last run were stored, if they are shown.
    pub(super) stored: Option<SystemTime>,
    pub(super) reading: Reading,
}

/// Whether all objects were read in this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The API server has not answered yet.
    Waiting,
    Read,
    /// They could not be read, and why.
    Failed(String),
}

impl Known {
    pub(super) const READ: Self = Self { stored: None, reading: Reading::Read };

    /// Nothing yet, but what was stored then.
    pub(super) fn stored(stored: Option<SystemTime>) -> Self {
        Self { stored, reading: Reading::Waiting }
    }

    pub(super) fn is_read(&self) -> bool {
        self.reading == Reading::Read
    }
}

/// Where objects come from.
#[derive(Debug)]
pub(super) enum Origin {
    /// The index, which has checkpoints of its own.
    Index {
        reader: Reader<Record>,
        /// The generation that the history has reached.
        reached: channel::Receiver<u64>,
        readiness: Arc<Readiness>,
    },
    Server {
        known: channel::Receiver<Known>,
        status: Option<channel::Receiver<SourceStatus>>,
        /// Told of each request, if what nobody asks for is requested late.
        asked: Option<Asked>,
    },
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) history: Arc<History>,
    pub(super) origin: Origin,
}

impl Collection {
    pub(super) fn of(&self) -> &'static Resource {
        self.history.of
    }

    /// Waits until the history includes everything that happened before the request. If the list has to be complete, fails
    /// until it is: an incomplete list would show existing objects as gone.
    pub(super) async fn current(&self, complete: bool) -> Result<(), Refusal> {
        let why = match &self.origin {
            Origin::Index { readiness, .. } if complete && !readiness.has_pods() => {
                format!("not every source has been read: {}", readiness.missing().join("; "))
            }
            Origin::Index { reader, reached, .. } => {
                let generation = reader.load().generation();
                let mut reached = reached.clone();
                match timeout(PATIENCE, reached.wait_for(|reached| *reached >= generation)).await {
                    Ok(Ok(_)) => return Ok(()),
                    _ => "the history has not reached the latest publication".to_owned(),
                }
            }
            Origin::Server { known, status, asked } => {
                asked.iter().for_each(Asked::ask);
                let mut known = known.clone();
                // The first pass over owners takes a request for each.
                let is_known = |known: &Known| {
                    known.reading != Reading::Waiting || (status.is_none() && known.stored.is_some())
                };
                let _ = timeout(START, known.wait_for(is_known)).await;
                let why = match known.borrow().clone() {
                    Known { stored: Some(_), .. } | Known { reading: Reading::Read, .. } => return Ok(()),
                    Known { reading: Reading::Failed(why), .. } => format!(": {why}"),
                    Known { reading: Reading::Waiting, .. } => String::new(),
                };
                format!("{} have not been read yet{why}", self.of().name)
            }
        };
        Err(Refusal::not_ready(why))
    }

    /// The state of its own source, if it has one.
    pub(super) fn status(&self) -> Option<SourceStatus> {
        let Origin::Server { status, .. } = &self.origin else { return None };
        status.as_ref().map(|status| status.borrow().clone())
    }

    /// What is known of the API server's objects.
    pub(super) fn known(&self) -> Option<Known> {
        let Origin::Server { known, .. } = &self.origin else { return None };
        Some(known.borrow().clone())
    }

    /// Its name, and the age of its objects in seconds, if they are known only from the last run.
    pub(super) fn restored(&self) -> Option<(String, u64)> {
        // The clock may have been set back.
        let age = self.known()?.stored?.elapsed().unwrap_or_default();
        Some((self.of().qualified(), age.as_secs()))
    }
}

/// The key of an object: its namespace, a slash and its name.
pub(super) fn key(metadata: &ObjectMeta) -> Arc<str> {
    let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name)).into()
}
