//! The objects of one resource, as clients see them: their history, and when it may be shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use futures_util::future::BoxFuture;
use pod_index_kubelet::sources::SourceStatus;
use serde_json::Value;

use super::Figures;
use super::history::{History, Limits, Sizes};
use super::resource::{Resource, described};
use super::routes;
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
    status: Option<tokio::sync::watch::Receiver<SourceStatus>>,
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

/// A collection of any resource.
pub(super) trait Served: Send + Sync {
    /// Its API version, and its entry in discovery.
    fn described(&self) -> (&'static str, Value);
    /// Adds its paths.
    fn routes(self: Arc<Self>, router: Router) -> Router;
    /// Adds its statistics.
    fn count(&self, figures: &mut Figures);
    /// Ends all watches.
    fn close(&self);
    /// The state of its own source, if it has one.
    fn status(&self) -> Option<SourceStatus>;
}

impl<R: Resource> Served for Collection<R> {
    fn described(&self) -> (&'static str, Value) {
        (R::API_VERSION, described::<R>())
    }

    fn routes(self: Arc<Self>, router: Router) -> Router {
        routes::of(self, router)
    }

    fn count(&self, figures: &mut Figures) {
        let Sizes { events, bytes, watches } = self.history.sizes();
        let counts = &self.history.counts;
        figures.watches += watches;
        figures.events += events;
        figures.bytes += bytes;
        let add = |sum: &mut u64, count: &AtomicU64| *sum += count.load(Ordering::Relaxed);
        add(&mut figures.sent, &counts.events_sent);
        add(&mut figures.encoded, &counts.encoded);
        add(&mut figures.coalesced, &counts.coalesced);
        add(&mut figures.too_old, &counts.too_old);
        add(&mut figures.refused, &counts.refused);
    }

    fn close(&self) {
        self.history.close();
    }

    fn status(&self) -> Option<SourceStatus> {
        self.status.as_ref().map(|status| status.borrow().clone())
    }
}
