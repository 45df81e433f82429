//! Removed pods that are kept for a time, in tables of their own.
//!
//! Of several removed pods with one key, the one removed last holds it, and the others are contenders.

use std::sync::Arc;
use std::time::Instant;

use super::queue::Queue;
use super::tables::{Claimant, Tables};
use crate::id::PodUid;
use crate::options::KeepRemoved;
use crate::pod::{Claims, PodMeta, Strength};
use crate::table::Value;
use crate::table::versions::Sharing;

/// The removed pods of a snapshot. Only an index that keeps them has one.
pub(crate) struct RemovedSet<P> {
    pub(crate) tables: Tables<RemovedPod<P>>,
    /// Only the writer reads it.
    pub(crate) queue: Removals,
}

/// The removals, by their number.
pub(crate) type Removals = Queue<PodUid>;

/// A removed pod or mirror.
pub(crate) struct RemovedPod<P> {
    pub(crate) pod: Arc<P>,
    pub(crate) at: Instant,
    /// The number of the removal. Each removal has its own.
    pub(crate) number: u64,
}

impl<P> RemovedSet<P> {
    pub(crate) fn new(limits: KeepRemoved) -> Self {
        Self { tables: Tables::new(), queue: Queue::new(limits) }
    }

    /// The same pods in the next version.
    pub(crate) fn next(&self, sharing: &Sharing) -> Self {
        Self { tables: self.tables.next(sharing), queue: self.queue.clone() }
    }
}

impl<P> Value for RemovedPod<P> {
    type Item = P;

    fn item(&self) -> &Arc<P> {
        &self.pod
    }

    fn into_parts(self) -> (Arc<P>, Option<Arc<str>>) {
        (self.pod, None)
    }
}

impl<P: PodMeta> Claimant for RemovedPod<P> {
    fn strength(&self) -> Strength {
        Strength::of_removal(self.number)
    }

    fn claims(&self) -> Claims {
        let mut claims = Claims::of(&*self.pod);
        claims.strength = self.strength();
        claims
    }

    fn removed_at(&self) -> Option<Instant> {
        Some(self.at)
    }
}

impl<P> Clone for RemovedPod<P> {
    fn clone(&self) -> Self {
        Self { pod: Arc::clone(&self.pod), ..*self }
    }
}
