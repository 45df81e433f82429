//! The differences between two snapshots.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Snapshot;
use crate::id::UidRef;
use crate::map::Side;
use crate::pod::PodMeta;

/// One difference between two snapshots. Mirror pods are included; [`is_mirror_pod`](crate::is_mirror_pod)
/// distinguishes them.
#[non_exhaustive]
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
    /// The UID was removed.
    Removed(&'a Arc<P>),
}

pub(super) fn between<'a, P: PodMeta>(old: &'a Snapshot<P>, new: &'a Snapshot<P>) -> Vec<Change<'a, P>> {
    let mut changes = Vec::new();
    // The tables show which pods may differ. A pod may have become a mirror or the reverse, so both sides are
    // looked up by UID.
    let mut removed = |pod: &'a Arc<P>| {
        if new.any_by_uid(UidRef::from(pod.uid())).is_none() {
            changes.push(Change::Removed(pod));
        }
    };
    let mut upserts = Vec::new();
    let mut differs = |side| {
        match side {
            Side::Old(pod) => removed(pod),
            Side::New(pod) => upserts.push(pod),
        }
        ControlFlow::Continue(())
    };
    let _ = new.live.pods.compare(&old.live.pods, |side| differs(side.map(|entry| &entry.value)));
    let _ = new.live.mirrors.compare(&old.live.mirrors, |side| differs(side.map(|entry| &entry.value.pod)));
    changes.extend(upserts.into_iter().filter_map(|pod| match old.any_by_uid(UidRef::from(pod.uid())) {
        None => Some(Change::Added(pod)),
        Some(before) if Arc::ptr_eq(before, pod) => None,
        Some(before) => Some(Change::Updated { old: before, new: pod }),
    }));
    changes
}

impl<'a, P> Change<'a, P> {
    /// The pod as it is now or, if it was removed, as it was.
    #[must_use]
    pub fn pod(&self) -> &'a Arc<P> {
        match *self {
            Self::Added(pod) | Self::Updated { new: pod, .. } | Self::Removed(pod) => pod,
        }
    }

    /// The pod as it was; `None` if the UID is new.
    #[must_use]
    pub fn before(&self) -> Option<&'a Arc<P>> {
        match *self {
            Self::Updated { old: pod, .. } | Self::Removed(pod) => Some(pod),
            Self::Added(_) => None,
        }
    }

    /// The pod as it is now; `None` if the UID was removed.
    #[must_use]
    pub fn after(&self) -> Option<&'a Arc<P>> {
        match *self {
            Self::Added(pod) | Self::Updated { new: pod, .. } => Some(pod),
            Self::Removed(_) => None,
        }
    }
}

impl<'a, P: PodMeta> Change<'a, P> {
    /// The UID of the pod; the same before and after.
    #[must_use]
    pub fn uid(&self) -> &'a str {
        self.pod().uid()
    }
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
