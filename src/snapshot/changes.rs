//! What lies between two snapshots.

use std::fmt;
use std::sync::Arc;

use super::{Mirror, Snapshot};
use crate::id::UidRef;
use crate::map::Slab;
use crate::pod::PodMeta;

/// One difference between two snapshots. A mirror pod counts as a pod here; ask
/// [`is_mirror_pod`](crate::is_mirror_pod) to tell them apart.
pub enum Change<'a, P> {
    /// The UID is new.
    Added(&'a Arc<P>),
    /// Another object is stored under the UID.
    Updated {
        /// The pod as it was.
        old: &'a Arc<P>,
        /// The pod as it is now.
        new: &'a Arc<P>,
    },
    /// The UID is gone.
    Removed(&'a Arc<P>),
}

pub(super) fn between<'a, P: PodMeta>(old: &'a Snapshot<P>, new: &'a Snapshot<P>) -> Vec<Change<'a, P>> {
    let mut changes = Vec::new();
    // A pod may have moved to another slab or number, so both sides of a difference are looked up by UID.
    let mut differs = |before: Option<&'a Arc<P>>, after: Option<&'a Arc<P>>| {
        if let (Some(before), Some(after)) = (before, after)
            && Arc::ptr_eq(before, after)
        {
            return;
        }
        if let Some(before) = before
            && new.place_by_uid(UidRef::from(before.uid())).is_none()
        {
            changes.push(Change::Removed(before));
        }
        let Some(after) = after else { return };
        match old.place_by_uid(UidRef::from(after.uid())).and_then(|place| old.at(place)) {
            None => changes.push(Change::Added(after)),
            Some(before) if Arc::ptr_eq(before, after) => {}
            Some(before) => changes.push(Change::Updated { old: before, new: after }),
        }
    };
    Slab::compare(&new.store.pods, &old.store.pods, &mut differs);
    let pod = |mirror: Option<&'a Mirror<P>>| mirror.map(|mirror| &mirror.pod);
    Slab::compare(&new.store.mirrors, &old.store.mirrors, &mut |before, after| {
        differs(pod(before), pod(after));
    });
    changes
}

impl<P> Clone for Change<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Change<'_, P> {}

impl<P: PodMeta> fmt::Debug for Change<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, pod) = match self {
            Self::Added(pod) => ("Added", pod),
            Self::Updated { new, .. } => ("Updated", new),
            Self::Removed(pod) => ("Removed", pod),
        };
        write!(f, "{what}({}_{}, {})", pod.name(), pod.namespace(), pod.uid())
    }
}
