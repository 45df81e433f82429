//! The objects of one resource, as clients see them: their history, and when it may be shown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pod_index_kubelet::sources::SourceStatus;

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

/// See the [module](self).
pub(super) struct Collection<R> {
    pub(super) history: Arc<History<R>>,
    pub(super) current: Current,
    pub(super) status: Option<tokio::sync::watch::Receiver<SourceStatus>>,
}

impl<R: Resource> Collection<R> {
    /// Without objects, at the first version of this run.
    pub(super) fn new(
        history: Arc<History<R>>,
        current: Current,
        status: Option<tokio::sync::watch::Receiver<SourceStatus>>,
    ) -> Arc<Self> {
        Arc::new(Self { history, current, status })
    }
}

/// An empty history that starts at this version.
pub(super) fn history<R: Resource>(version: u64, seats: &Arc<Seats>) -> Arc<History<R>> {
    Arc::new(History::new(version, Limits { events: EVENTS, age: AGE, bytes: BYTES }, seats))
}
