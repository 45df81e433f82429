//! Makes a source read at once, before its next period.

use std::sync::Arc;

use tokio::sync::Notify;

/// Makes a source read at once, because another source has reported a change. Clones nudge the same source.
///
/// A URL and a kubelet are read at most once a second, and again after 1, 2, 4 seconds and so on until their period:
/// they may not have the change yet.
#[derive(Clone, Debug, Default)]
pub struct Nudge(Arc<Notify>);

impl Nudge {
    /// Nudges the source. Several nudges before it reads count as one.
    pub fn nudge(&self) {
        self.0.notify_one();
    }

    pub(super) async fn nudged(&self) {
        self.0.notified().await;
    }
}
