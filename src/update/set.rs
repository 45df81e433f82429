//! Replaces all pods of an index: empties it, and stores one pod after the other.

use std::sync::Arc;

use super::Draft;
use crate::error::Error;
use crate::moment::Moment;
use crate::pod::PodMeta;
use crate::pods::History;

/// A pod of an operation that was refused.
pub(crate) struct RefusedPod {
    /// Its place in the operation.
    pub(crate) position: usize,
    pub(crate) error: Error,
}

/// Maximum number of keys of a pod for which pages are reserved.
const RESERVED: usize = 4;

impl<P: PodMeta> Draft<'_, P> {
    /// Replaces everything in the draft by `pods`, as if stored one by one in order. Returns the refused pods.
    pub(crate) fn set(&mut self, pods: Vec<Arc<P>>, now: Option<&Moment>) -> Vec<RefusedPod> {
        let living = self.living();
        self.live_mut().clear(pods.len().saturating_mul(RESERVED));
        *self.history_mut() = History::default();
        let mut refused = Vec::new();
        for (position, pod) in pods.into_iter().enumerate() {
            if let Err(error) = self.store(&pod) {
                refused.push(RefusedPod { position, error });
            }
        }
        // Growing pages left smaller ones in the pool, more than a write needs.
        self.trim();
        if let Some(now) = now {
            self.keep_missing(living, now);
        }
        refused
    }
}
