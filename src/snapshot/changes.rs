//! The differences between two snapshots.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Snapshot;
use crate::id::UidRef;
use crate::pod::PodMeta;
use crate::table::Side;

/// One difference between two snapshots. Mirror pods are included; [`is_mirror_pod`](crate::is_mirror_pod)
/// distinguishes them.
///
/// # Examples
/// See [`Snapshot::changes_since`], and [`Changes`](crate::Changes) to follow an index.
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

/// Reports the differences until `report` stops.
pub(crate) fn between<'a, P: PodMeta>(
    old: &'a Snapshot<P>,
    new: &'a Snapshot<P>,
    mut report: impl FnMut(Change<'a, P>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    // The tables show which pods may differ. A pod may have become a mirror or the reverse, so the other side is looked up
    // by UID.
    let mut differs = |side, pod: &'a Arc<P>| {
        let uid = UidRef::from(pod.uid());
        match side {
            Side::Old if new.any_by_uid(uid).is_none() => report(Change::Removed(pod)),
            Side::Old => ControlFlow::Continue(()),
            Side::New => match old.any_by_uid(uid) {
                None => report(Change::Added(pod)),
                Some(before) if Arc::ptr_eq(before, pod) => ControlFlow::Continue(()),
                Some(before) => report(Change::Updated { old: before, new: pod }),
            },
        }
    };
    new.live.pods.compare(&old.live.pods, |side, entry| differs(side, &entry.value))?;
    new.live.mirrors.compare(&old.live.mirrors, |side, entry| differs(side, &entry.value.pod))
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

copied!(Change);

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
