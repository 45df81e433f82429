//! Both directions of the translation between a static pod's UID and its mirror pod's, one UID at a time. `kubelet` lists all.

use std::sync::Arc;

use super::Snapshot;
use crate::id::{MirrorPodUid, PodUid, UidRef};
use crate::pod::{PodKind, PodMeta};

impl<P: PodMeta> Snapshot<P> {
    /// The static pod's UID to which this mirror UID translates, if it does.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    #[must_use]
    pub fn pod_uid_of_mirror<'u>(&self, mirror: impl Into<UidRef<'u>>) -> Option<PodUid> {
        self.target_of(self.live.mirror(mirror.into(), &self.hashing)?).cloned()
    }

    /// The UID of the mirror that translates to this pod UID, if there is one.
    ///
    /// # Complexity
    /// O(1) expected, O(log n) for a removed pod; no allocation for UIDs in a usual spelling.
    #[must_use]
    pub fn mirror_uid_of_pod<'u>(&self, pod: impl Into<UidRef<'u>>) -> Option<MirrorPodUid> {
        let uid = pod.into();
        let mirror = match self.pod_by_uid(uid) {
            Some(pod) => self.mirror_of_holder(pod)?,
            None if self.history.tombstones.is_empty() => return None,
            None => {
                let full_name = self.history.tombstones.get(&PodUid::from(uid))?;
                self.mirror_pod_by_full_name(full_name.as_str())?
            }
        };
        Some(mirror.uid().into())
    }

    /// The mirror of `pod`, if `pod` holds its full name.
    pub(super) fn mirror_of_holder(&self, pod: &Arc<P>) -> Option<&Arc<P>> {
        let holder = self.by_name(PodKind::Pod, pod.namespace(), pod.name())?;
        Arc::ptr_eq(holder, pod).then_some(self.mirror_pod_by_pod(pod))?
    }
}
