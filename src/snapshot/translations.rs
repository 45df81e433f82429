//! Both directions of the translation between static pods and their mirrors.

use std::sync::Arc;

use super::Snapshot;
use crate::id::{MirrorPodUid, PodUid, UidRef};
use crate::pod::{PodKind, PodMeta};

impl<P: PodMeta> Snapshot<P> {
    /// Every mirror that translates, with the UID it translates to.
    ///
    /// # Complexity
    /// O(1) to obtain, O(mirror pods) to iterate; no allocation for UIDs in a usual spelling.
    ///
    /// Kubelet: the second result of `GetUIDTranslations` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetUIDTranslations")]
    pub fn mirror_to_pod_uids(&self) -> impl Iterator<Item = (MirrorPodUid, PodUid)> {
        self.live.mirrors.iter().filter_map(|mirror| {
            let target = self.target_of(&mirror.value)?;
            Some((mirror.value.pod.uid().into(), target.clone()))
        })
    }

    /// Every static pod, and every other UID that a mirror translates to, with the mirror's UID. A static pod
    /// without a mirror has `None`. If several mirrors have one full name, the one that holds it is used.
    ///
    /// # Complexity
    /// O(1) to obtain, O(pods + mirror pods) to iterate, with one lookup per static pod; no allocation for UIDs in a
    /// usual spelling.
    ///
    /// Kubelet: the first result of `GetUIDTranslations` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetUIDTranslations")]
    pub fn pod_to_mirror_uids(&self) -> impl Iterator<Item = (PodUid, Option<MirrorPodUid>)> {
        let mirrored = self.live.mirrors.iter().filter_map(|mirror| {
            let target = mirror.value.target.uid()?;
            Some((target.clone(), Some(mirror.value.pod.uid().into())))
        });
        let unmirrored = self
            .static_pods()
            .filter(|pod| self.mirror_of_holder(pod).is_none())
            .map(|pod| (pod.uid().into(), None));
        mirrored.chain(unmirrored)
    }

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
    fn mirror_of_holder(&self, pod: &Arc<P>) -> Option<&Arc<P>> {
        let holder = self.by_name(PodKind::Pod, pod.name(), pod.namespace())?;
        Arc::ptr_eq(holder, pod).then_some(self.mirror_pod_by_pod(pod))?
    }
}
