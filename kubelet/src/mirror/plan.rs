//! From a snapshot to what mirrors there should be. Pure: no clock, no client.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use pod_index::{FullName, PodMeta, Snapshot, is_mirror_pod_of};

/// How a static pod and its mirror stand to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MirrorState {
    /// The mirror is as it should be.
    InSync,
    /// There is no mirror: one is to be created.
    Missing,
    /// The mirror is of another version of the pod: it is to be deleted, and one created unless the pod has ended.
    WrongHash,
    /// The mirror is being deleted: it is to be deleted at once, and one created unless the pod has ended.
    Terminating,
    /// There is no static pod of the mirror's name: it is to be deleted.
    Orphaned,
    /// The static pod has ended, has no mirror, and gets no new one (k/k#29845, k/k#116483).
    Finished,
}

/// One static pod, one mirror, or a pair of them.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The name that they share.
    pub full_name: FullName,
    /// The static pod; `None` for an orphan.
    pub pod: Option<Arc<Pod>>,
    /// The mirror, if there is one.
    pub mirror: Option<Arc<Pod>>,
    /// How they stand to each other.
    pub state: MirrorState,
}

impl Planned {
    /// The static pod that should have a mirror and has none, or not the right one.
    pub(super) fn to_mirror(&self) -> Option<&Arc<Pod>> {
        self.pod.as_ref().filter(|pod| self.state != MirrorState::InSync && !has_ended(pod))
    }
}

/// Every static pod and every mirror of `node`, and how they stand to each other, in the order of their names.
///
/// Of several static pods of one name, the one that holds it in the index counts.
///
/// A departure: the kubelet leaves the mirror of a static pod that has ended as it is. Here one that is being deleted, or
/// is of another version, goes: there is nobody else on the node who would ever end its deletion, and it tells of a pod
/// that is not there.
///
/// # Complexity
/// O(static pods + mirror pods), times the logarithm of it.
///
/// Kubelet: `syncPod` (`pkg/kubelet/kubelet.go`) for the pairs, `HandlePodCleanups` for the orphans.
#[must_use]
pub fn plan(snapshot: &Snapshot<Pod>, node: &str) -> Vec<Planned> {
    let mut planned = BTreeMap::new();
    for pod in &snapshot.static_pods() {
        let Ok(full_name) = FullName::new(pod.name(), pod.namespace()) else { continue };
        let holds_name =
            snapshot.pod_by_full_name(full_name.as_str()).is_some_and(|held| Arc::ptr_eq(held, pod));
        if planned.contains_key(&full_name) && !holds_name {
            continue;
        }
        let mirror =
            snapshot.mirror_pod_by_full_name(full_name.as_str()).filter(|mirror| is_on(mirror, node));
        let state = state(pod, mirror.map(|mirror| &**mirror));
        let pair = Planned {
            full_name: full_name.clone(),
            pod: Some(Arc::clone(pod)),
            mirror: mirror.cloned(),
            state,
        };
        planned.insert(full_name, pair);
    }
    for mirror in &snapshot.mirror_pods() {
        let Ok(full_name) = FullName::new(mirror.name(), mirror.namespace()) else { continue };
        let has_pod =
            planned.contains_key(&full_name) || snapshot.pod_by_full_name(full_name.as_str()).is_some();
        if is_on(mirror, node) && !has_pod {
            let mirror = Some(Arc::clone(mirror));
            let orphan =
                Planned { full_name: full_name.clone(), pod: None, mirror, state: MirrorState::Orphaned };
            planned.insert(full_name, orphan);
        }
    }
    planned.into_values().collect()
}

fn state(pod: &Pod, mirror: Option<&Pod>) -> MirrorState {
    let in_sync = mirror.is_some_and(|mirror| !is_terminating(mirror) && is_mirror_pod_of(mirror, pod));
    match mirror {
        _ if in_sync => MirrorState::InSync,
        Some(mirror) if is_terminating(mirror) => MirrorState::Terminating,
        Some(_) => MirrorState::WrongHash,
        None if has_ended(pod) => MirrorState::Finished,
        None => MirrorState::Missing,
    }
}

fn is_on(pod: &Pod, node: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    is_terminating(pod) || matches!(phase, Some("Failed" | "Succeeded"))
}
