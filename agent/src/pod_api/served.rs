//! Collections of all resources alike: discovery, paths, statistics and storing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use pod_index_kubelet::sources::SourceStatus;
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::collection::Collection;
use super::history::Sizes;
use super::resource::{Resource, described, qualified};
use super::{Figures, keep, routes};

/// The pause after a pass, once more for each 256 KiB written, with success or without: large lists that change often do
/// not wear out the disk.
const PAUSE: Duration = Duration::from_secs(2);

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
    /// Its name, and the age of its objects in seconds, if they are known only from the last run.
    fn restored(&self) -> Option<(String, u64)>;
    /// Stores its objects if they have changed. Returns the number of bytes, and what failed.
    fn save(&self, directory: &Path) -> (usize, Result<(), String>);
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

    fn restored(&self) -> Option<(String, u64)> {
        let written = self.known.as_ref()?.borrow().as_ref().ok().copied().flatten()?;
        // The clock may have been set back.
        Some((qualified::<R>(), written.elapsed().unwrap_or_default().as_secs()))
    }

    fn save(&self, directory: &Path) -> (usize, Result<(), String>) {
        keep::save(self, directory)
    }
}

/// Stores what has changed, for ever.
pub(super) async fn keep(served: Vec<Arc<dyn Served>>, directory: PathBuf) {
    let (mut written, mut reported) = (0, None);
    loop {
        sleep(PAUSE * (1 + u32::try_from(written >> 18).unwrap_or(u32::MAX / 2))).await;
        let (bytes, failed) = block_in_place(|| pass(&served, &directory));
        if let Some(why) = failed.as_ref().filter(|_| failed != reported) {
            tracing::warn!("a list cannot be written: {why}");
        }
        (written, reported) = (bytes, failed);
    }
}

/// Stores each list that has changed. Returns the number of bytes, of failed attempts too, and the first error.
fn pass(served: &[Arc<dyn Served>], directory: &Path) -> (usize, Option<String>) {
    let (mut bytes, mut failed) = (0, None);
    for served in served {
        let (attempted, saved) = served.save(directory);
        bytes += attempted;
        failed = failed.or(saved.err());
    }
    (bytes, failed)
}
