//! Collections of all resources alike: discovery, paths and statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use pod_index_kubelet::sources::SourceStatus;
use serde_json::Value;

use super::collection::Collection;
use super::history::Sizes;
use super::resource::{Resource, described};
use super::{Figures, routes};

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
