//! The UIDs that manifests keep after the kubelet has stopped listing their pods.
//!
//! Suppose that a manifest is removed. The kubelet stops listing its pod, and the agent's own look at the directory comes
//! 60 ms later. Until then the manifest is there and no kubelet has its name. Shown under its computed UID, it would be a
//! second pod, which never ran, and questions about the name of the removed pod would get that one.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{ENDED_ANNOTATION, FullName, PodMeta, PodUid};

use crate::sources::pod::set_annotation;

/// A pod of a manifest under the UID that the kubelet gave it.
#[derive(Clone, Debug)]
pub(super) struct KeptPod {
    pub(super) uid: PodUid,
    /// As the kubelet, or its mirror pod, told of it last.
    pub(super) object: Arc<Pod>,
}

/// What is kept, and for which manifest.
#[derive(Debug)]
struct Kept {
    manifest: Arc<Pod>,
    pod: KeptPod,
}

/// The kept UIDs, at most one for each name.
///
/// A UID stays while the manifest is the same object, whatever the kubelet lists, and until the kubelet gives it another
/// one. It goes with the manifest, and with a change of it.
#[derive(Debug, Default)]
pub(super) struct KeptUids {
    by_name: HashMap<FullName, Kept>,
    names: HashMap<PodUid, FullName>,
}

impl KeptUids {
    /// Forgets what the manifest of this name kept, unless it is still this one. A changed manifest is another object.
    pub(super) fn forget_unless(&mut self, name: &FullName, manifest: Option<&Arc<Pod>>) {
        let is_same = |kept: &Kept| manifest.is_some_and(|manifest| Arc::ptr_eq(&kept.manifest, manifest));
        if self.by_name.get(name).is_some_and(|kept| !is_same(kept)) {
            self.remove(name);
        }
    }

    /// The kubelet tells of the manifest's pod, under this UID. Returns the other name that kept this UID, and no longer does.
    pub(super) fn keep(&mut self, name: &FullName, manifest: Arc<Pod>, pod: KeptPod) -> Option<FullName> {
        self.remove(name);
        if pod.uid == *manifest.uid() {
            return None;
        }
        let other = self.names.insert(pod.uid.clone(), name.clone());
        if let Some(other) = &other {
            self.by_name.remove(other);
        }
        self.by_name.insert(name.clone(), Kept { manifest, pod });
        other
    }

    /// The kubelet no longer tells of the manifest's pod: it holds no IP any more.
    pub(super) fn end(&mut self, name: &FullName) {
        if let Some(kept) = self.by_name.get_mut(name)
            && kept.pod.object.annotation(ENDED_ANNOTATION).is_none()
        {
            set_annotation(&mut kept.pod.object, ENDED_ANNOTATION, "");
        }
    }

    fn remove(&mut self, name: &FullName) {
        if let Some(kept) = self.by_name.remove(name) {
            self.names.remove(&kept.pod.uid);
        }
    }

    /// The kept pod of the manifest with this name.
    pub(super) fn named(&self, name: &FullName) -> Option<&KeptPod> {
        self.by_name.get(name).map(|kept| &kept.pod)
    }

    /// The name whose manifest keeps this UID.
    pub(super) fn name_of(&self, uid: &PodUid) -> Option<&FullName> {
        self.names.get(uid)
    }
}
