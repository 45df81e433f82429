//! The pods that one source reports.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{FullName, PodMeta, PodUid, is_static_pod};

use crate::sources::Source;
use crate::sources::pod::WholeStatus;

/// The pods that one source reports.
#[derive(Debug, Default)]
pub(super) struct Reported {
    pub(super) pods: HashMap<PodUid, ReportedPod>,
    /// The pod for each name. A source may report a name's new pod before it removes the old one. The kubelet
    /// lists both for a while.
    pub(super) names: HashMap<FullName, PodUid>,
}

/// A pod as one source reports it.
#[derive(Debug)]
pub(super) struct ReportedPod {
    pub(super) source: Source,
    pub(super) object: Arc<Pod>,
    pub(super) name: FullName,
    /// Whether an incomplete list of its source lacks it. Its object is marked as unconfirmed.
    pub(super) is_missing: bool,
    /// Whether the API server had this pod, and no longer has it.
    pub(super) is_gone_at_api: bool,
    /// When this source last showed a change of its spec, labels, annotations or deletion. `None`: not since it was first seen.
    pub(super) changed: Option<Instant>,
}

impl ReportedPod {
    /// `None`: its source knows only a part of the status, or nothing.
    pub(super) fn whole_status(&self) -> Option<WholeStatus<'_>> {
        WholeStatus::of(self.source, &self.object)
    }
}

impl Reported {
    pub(super) fn remove(&mut self, uid: &PodUid) -> Option<ReportedPod> {
        let pod = self.pods.remove(uid)?;
        if let Entry::Occupied(holder) = self.names.entry(pod.name.clone())
            && holder.get() == uid
        {
            holder.remove();
        }
        Some(pod)
    }

    pub(super) fn insert(&mut self, uid: PodUid, pod: ReportedPod) {
        self.names.insert(pod.name.clone(), uid.clone());
        self.pods.insert(uid, pod);
    }

    /// The pod with this name.
    pub(super) fn named(&self, name: &FullName) -> Option<(&PodUid, &ReportedPod)> {
        self.pods.get_key_value(self.names.get(name)?)
    }

    /// Inserts a pod that may share its name with another one. In any order of insertion, the name refers to
    /// the static pod, else to the pod with the smallest UID.
    pub(super) fn insert_beside(&mut self, uid: PodUid, pod: ReportedPod) {
        let rank = |uid: &PodUid, pod: &ReportedPod| (!is_static_pod(&*pod.object), uid.clone());
        let other = self.named(&pod.name).map(|(uid, pod)| rank(uid, pod));
        if other.is_some_and(|other| other < rank(&uid, &pod)) {
            self.pods.insert(uid, pod);
        } else {
            self.insert(uid, pod);
        }
    }
}

/// The pod in a message.
pub(super) fn described(pod: &Pod) -> String {
    let [namespace, name, uid] = [pod.namespace(), pod.name(), pod.uid()].map(crate::text::shorten);
    format!("{namespace}/{name} (UID {uid:?})")
}
