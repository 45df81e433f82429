//! The kubelet's own view of pods and their mirror pods: what its pod manager answers, beside plain lookups.
//!
//! You need it if you write for the kubelet's interface, or if you manage mirror pods. Most programs do not: they find pods by
//! [`Snapshot::get`](crate::Snapshot::get), and a mirror pod's UID by
//! [`Snapshot::translate_pod_uid`](crate::Snapshot::translate_pod_uid). The methods are those of
//! [`Snapshot`](crate::Snapshot#kubelet), and [`PodManager`](crate::PodManager) is the whole interface in one handle. Here are the
//! types of what they return.
//!
//! | kubelet | here |
//! |---|---|
//! | `GetPodByMirrorPod`, `GetMirrorPodByPod` | [`pod_by_mirror_pod`](crate::Snapshot::pod_by_mirror_pod), [`mirror_pod_by_pod`](crate::Snapshot::mirror_pod_by_pod) |
//! | `GetPodAndMirrorPod` | [`pod_and_mirror_pod`](crate::Snapshot::pod_and_mirror_pod) |
//! | `GetStaticPodToMirrorPodMap` | [`static_pods_with_mirrors`](crate::Snapshot::static_pods_with_mirrors) |
//! | `GetUIDTranslations` | [`pod_to_mirror_uids`](crate::Snapshot::pod_to_mirror_uids), [`mirror_to_pod_uids`](crate::Snapshot::mirror_to_pod_uids) |
//! | `GetOrphanedMirrorPodNames` | [`orphaned_mirror_pod_full_names`](crate::Snapshot::orphaned_mirror_pod_full_names) |
//! | the gauge `kubelet_managed_ephemeral_containers` | [`ephemeral_container_count`](crate::Snapshot::ephemeral_container_count) |

//!
//! # Examples
//! ```
//! use std::sync::Arc;
//!
//! use pod_index::{CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, SimplePod};
//!
//! let annotated = |uid: &str, key: &str, value: &str| SimplePod {
//!     annotations: [(key.to_owned(), value.to_owned())].into(),
//!     ..SimplePod::new(uid, "kube-system", "etcd-node-1")
//! };
//! let (mut writer, reader) = pod_index::new();
//! writer.upsert_pod(annotated("from-a-manifest", CONFIG_SOURCE_ANNOTATION, "file"))?;
//! let mirror = Arc::new(annotated("from-the-api-server", CONFIG_MIRROR_ANNOTATION, "its hash"));
//! writer.upsert_pod(Arc::clone(&mirror))?;
//!
//! let pods = reader.load();
//! let both = pods.pod_and_mirror_pod(&mirror);
//! assert_eq!(both.pod.expect("the static pod").uid, "from-a-manifest");
//! assert_eq!(both.mirror.expect("the mirror pod").uid, "from-the-api-server");
//!
//! let one = pods.mirror_to_pod_uids().next().expect("one mirror pod");
//! assert_eq!((one.mirror.to_string(), one.pod.to_string()), ("from-the-api-server".into(), "from-a-manifest".into()));
//! let same = pods.pod_to_mirror_uids().next().expect("one static pod");
//! assert_eq!((same.pod, same.mirror), (one.pod, Some(one.mirror)));
//! assert_eq!(pods.static_pods_with_mirrors().count(), 1);
//! # Ok::<(), pod_index::Error>(())
//! ```

use std::sync::Arc;

use super::Snapshot;
use crate::id::{FullName, MirrorPodUid, PodUid};
use crate::pod::{PodKind, PodMeta, is_mirror_pod};

/// A pod that runs on the node and the API server's mirror of it, as far as the index has them.
///
/// # Examples
/// See [the module](self#examples).
#[non_exhaustive]
pub struct PodAndMirror<'a, P> {
    /// The pod that runs on the node.
    pub pod: Option<&'a Arc<P>>,
    /// Its mirror pod.
    pub mirror: Option<&'a Arc<P>>,
}

/// A static pod, and its mirror pod if it has one.
///
/// # Examples
/// See [the module](self#examples).
#[non_exhaustive]
pub struct StaticPod<'a, P> {
    /// The static pod.
    pub pod: &'a Arc<P>,
    /// The mirror pod that holds its full name.
    pub mirror: Option<&'a Arc<P>>,
}

/// To which UID a mirror pod's UID translates.
///
/// # Examples
/// See [the module](self#examples).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct MirrorToPod {
    /// The mirror pod's UID.
    pub mirror: MirrorPodUid,
    /// The static pod's UID. That pod may be gone.
    pub pod: PodUid,
}

/// By which mirror pod's UID the API server knows a pod.
///
/// # Examples
/// See [the module](self#examples).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct PodToMirror {
    /// The static pod's UID. That pod may be gone.
    pub pod: PodUid,
    /// The mirror pod's UID, if there is one.
    pub mirror: Option<MirrorPodUid>,
}

/// # Kubelet
/// What only the [kubelet's interface](crate::kubelet) needs.
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
        self.by_name(PodKind::Mirror, pod.namespace(), pod.name())
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
    pub fn pod_and_mirror_pod<'a>(&'a self, pod: &'a Arc<P>) -> PodAndMirror<'a, P> {
        if is_mirror_pod(&**pod) {
            PodAndMirror { pod: self.pod_by_mirror_pod(pod), mirror: Some(pod) }
        } else {
            PodAndMirror { pod: Some(pod), mirror: self.mirror_pod_by_pod(pod) }
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
    pub fn static_pods_with_mirrors(&self) -> impl Iterator<Item = StaticPod<'_, P>> + Clone {
        self.static_pods().map(|pod| StaticPod { pod, mirror: self.mirror_pod_by_pod(pod) })
    }

    /// Every mirror that translates, with the UID it translates to.
    ///
    /// # Complexity
    /// O(1) to obtain, O(mirror pods) to iterate; no allocation for UIDs in a usual spelling.
    ///
    /// Kubelet: the second result of `GetUIDTranslations` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetUIDTranslations")]
    pub fn mirror_to_pod_uids(&self) -> impl Iterator<Item = MirrorToPod> {
        self.live.mirrors.iter().filter_map(|mirror| {
            let pod = self.target_of(&mirror.value)?.clone();
            Some(MirrorToPod { mirror: mirror.value.pod.uid().into(), pod })
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
    pub fn pod_to_mirror_uids(&self) -> impl Iterator<Item = PodToMirror> {
        let mirrored = self.live.mirrors.iter().filter_map(|mirror| {
            let pod = mirror.value.target.uid()?.clone();
            Some(PodToMirror { pod, mirror: Some(mirror.value.pod.uid().into()) })
        });
        let unmirrored = self
            .static_pods()
            .filter(|pod| self.mirror_of_holder(pod).is_none())
            .map(|pod| PodToMirror { pod: pod.uid().into(), mirror: None });
        mirrored.chain(unmirrored)
    }
}

copied!(PodAndMirror, StaticPod);

shown!(PodAndMirror<'_>, |it| pod: it.pod.map(|pod| pod.uid()), mirror: it.mirror.map(|mirror| mirror.uid()));
shown!(StaticPod<'_>, |it| pod: it.pod.uid(), mirror: it.mirror.map(|mirror| mirror.uid()));
