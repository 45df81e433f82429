//! The objects of one resource, as clients see them: their history, and when it may be shown.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index_kubelet::sources::SourceStatus;
use tokio::sync::watch as channel;

use super::history::{History, Limits};
use super::resource::Resource;
use super::seats::Seats;
use super::status::Refusal;

/// Maximum number and age of stored events. A node with one change per second stores 300 of them.
const EVENTS: usize = 4096;
const AGE: Duration = Duration::from_secs(5 * 60);
/// Maximum memory of the replaced objects and of the encoded events: 900 pods of 9 KB of JSON, each with one encoded
/// event.
const BYTES: usize = 16 << 20;

/// Waits until the history includes everything that happened before the request. If the list has to be complete, fails
/// until it is: an incomplete list would show existing objects as gone.
pub(super) type Current = Box<dyn Fn(bool) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync>;

/// What is known of the API server's objects: why nothing; else when those of the last run were stored, until they are read.
pub(super) type Known = Result<Option<SystemTime>, String>;

/// See the [module](self).
pub(super) struct Collection<R> {
    pub(super) history: Arc<History<R>>,
    pub(super) current: Current,
    pub(super) status: Option<channel::Receiver<SourceStatus>>,
    /// `None` for pods, which have checkpoints of their own.
    pub(super) known: Option<channel::Receiver<Known>>,
    /// The version on disk.
    pub(super) saved: AtomicU64,
}

impl<R: Resource> Collection<R> {
    /// Without objects, at the first version of this run.
    pub(super) fn new(
        history: Arc<History<R>>,
        current: Current,
        status: Option<channel::Receiver<SourceStatus>>,
        known: Option<channel::Receiver<Known>>,
    ) -> Arc<Self> {
        Arc::new(Self { history, current, status, known, saved: AtomicU64::new(0) })
    }
}

/// The key of an object: its namespace, a slash and its name.
pub(super) fn key(metadata: &ObjectMeta) -> Arc<str> {
    let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name)).into()
}

/// An empty history that starts at this version.
pub(super) fn history<R: Resource>(version: u64, seats: &Arc<Seats>) -> Arc<History<R>> {
    Arc::new(History::new(version, Limits { events: EVENTS, age: AGE, bytes: BYTES }, seats))
}
