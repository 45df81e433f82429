//! What a source is for its user: a stream of updates, and a status.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt};
use tokio::sync::watch;

use super::{SourceStatus, SourceUpdate};

/// The updates of a source, as a stream that never ends.
///
/// Nothing happens unless polled. Poll the stream inside a tokio runtime with time and I/O enabled.
///
/// A source that cannot read, or that panics, does not end: its last pods count on, it tries again, and its
/// [`status`](Self::status) says why.
///
/// # Complexity
/// A source that is not polled keeps no queue: it goes on reading when it is polled again. The kernel and the server may keep
/// events for it meanwhile; if they lose some, it lists its pods again.
///
/// # Examples
/// ```no_run
/// # #[cfg(all(unix, feature = "file"))]
/// # async fn run() {
/// use futures_util::StreamExt;
/// use pod_index_kubelet::sources::{NodeName, SourceUpdate, file};
///
/// let mut source = file::follow("/etc/kubernetes/manifests", NodeName::new("node-1"));
/// let status = source.status();
/// while let Some(SourceUpdate::Set(pods)) = source.next().await {
///     println!("{} pods, {} problems", pods.len(), status.borrow().problems.len());
/// }
/// # }
/// ```
#[must_use = "a stream does nothing unless polled"]
pub struct Updates<P> {
    updates: BoxStream<'static, SourceUpdate<P>>,
    status: watch::Receiver<SourceStatus>,
}

impl<P> Updates<P> {
    /// These updates, with the status of the source from which they come: of a source of your own, by
    /// [`StatusWriter::subscribe`](super::StatusWriter::subscribe), which has an example.
    pub fn new(
        updates: impl Stream<Item = SourceUpdate<P>> + Send + 'static,
        status: watch::Receiver<SourceStatus>,
    ) -> Self {
        Self { updates: updates.boxed(), status }
    }

    /// The source's status. The receiver keeps the last value after the source is dropped.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<SourceStatus> {
        self.status.clone()
    }
}

impl<P> Stream for Updates<P> {
    type Item = SourceUpdate<P>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.updates.poll_next_unpin(context)
    }
}

impl<P> fmt::Debug for Updates<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("status", &*self.status.borrow()).finish_non_exhaustive()
    }
}
