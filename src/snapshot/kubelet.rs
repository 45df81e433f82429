//! The reads that the kubelet's own interface has and hardly anybody else needs: from a pod to its mirror pod and back, and
//! counts. `translations` has those of UIDs; [`PodManager`](crate::PodManager) is the whole interface in one handle.

use std::sync::Arc;

use super::Snapshot;
use crate::id::FullName;
use crate::pod::{PodKind, PodMeta, is_mirror_pod};

impl<P: PodMeta> Snapshot<P> {
    /// The number of ephemeral containers in all pods, without mirrors.
    ///
    /// # Complexity
    /// O(n).
    ///
    /// Kubelet: the gauge `kubelet_managed_ephemeral_containers` (`pkg/kubelet/metrics/metrics.go`).
    #[must_use]
    #[doc(alias = "ManagedEphemeralContainers")]
    pub fn ephemeral_container_count(&self) -> usize {
        self.pods().map(|pod| pod.ephemeral_container_count()).fold(0, usize::saturating_add)
    }

    /// The pod with the full name of `mirror`.
    ///
    /// As in the kubelet, checks neither the config hash nor whether `mirror` is a mirror;
    /// [`is_mirror_pod_of`](crate::is_mirror_pod_of) does.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// Kubelet: `GetPodByMirrorPod` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetPodByMirrorPod")]
    #[must_use]
    pub fn pod_by_mirror_pod(&self, mirror: &P) -> Option<&Arc<P>> {
        self.pod_by_name(mirror.namespace(), mirror.name())
    }

    /// The mirror pod with the full name of `pod`.
    ///
    /// As in the kubelet, checks neither the config hash nor whether `pod` is static.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// Kubelet: `GetMirrorPodByPod` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetMirrorPodByPod")]
    #[must_use]
    pub fn mirror_pod_by_pod(&self, pod: &P) -> Option<&Arc<P>> {
        self.by_name(PodKind::Mirror, pod.name(), pod.namespace())
    }

    /// The pod that runs on the node and the API server's mirror of it, from either of the two.
    ///
    /// The given pod is returned unchanged, even if the index does not have it. Its counterpart is looked up
    /// by full name.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// Kubelet: `GetPodAndMirrorPod` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetPodAndMirrorPod")]
    #[must_use]
    pub fn pod_and_mirror_pod<'a>(&'a self, pod: &'a Arc<P>) -> (Option<&'a Arc<P>>, Option<&'a Arc<P>>) {
        if is_mirror_pod(&**pod) {
            (self.pod_by_mirror_pod(pod), Some(pod))
        } else {
            (Some(pod), self.mirror_pod_by_pod(pod))
        }
    }

    /// The full names of the mirrors without a pod.
    ///
    /// # Complexity
    /// O(1) to obtain; O(mirror pods) to iterate, with two allocations per name.
    ///
    /// Kubelet: `GetOrphanedMirrorPodNames` (`pkg/kubelet/pod/pod_manager.go`, until 1.26; since then a part of
    /// `GetPodsAndMirrorPods`).
    #[doc(alias = "GetOrphanedMirrorPodNames")]
    #[doc(alias = "GetPodsAndMirrorPods")]
    pub fn orphaned_mirror_pod_full_names(&self) -> impl Iterator<Item = FullName> + Clone {
        let is_orphan = |mirror: &&Arc<P>| {
            let holder = self.mirror_pod_by_pod(mirror);
            self.pod_by_mirror_pod(mirror).is_none()
                && holder.is_some_and(|holder| Arc::ptr_eq(holder, mirror))
        };
        self.mirror_pods().filter(is_orphan).filter_map(|pod| FullName::new(pod.namespace(), pod.name()).ok())
    }

    /// Every static pod with the mirror that holds its full name, if there is one.
    ///
    /// # Complexity
    /// O(1) to obtain; O(pods) to iterate, with one lookup for each static pod; no allocation.
    ///
    /// Kubelet: `GetStaticPodToMirrorPodMap` (`pkg/kubelet/pod/pod_manager.go`, since 1.32).
    #[doc(alias = "GetStaticPodToMirrorPodMap")]
    pub fn static_pods_with_mirrors(&self) -> impl Iterator<Item = (&Arc<P>, Option<&Arc<P>>)> + Clone {
        self.static_pods().map(|pod| (pod, self.mirror_pod_by_pod(pod)))
    }
}
