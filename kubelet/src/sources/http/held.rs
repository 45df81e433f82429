//! Pods that stay although a list has no usable version of them.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

/// A pod's UID, or its namespace and name if that is unknown. An empty namespace or name may be any.
pub(in crate::sources) struct PodId {
    pub(in crate::sources) uid: String,
    pub(in crate::sources) namespace: String,
    pub(in crate::sources) name: String,
}

/// The pods of `before` that `listed` lacks and that may be one of the `unusable` pods of the same list.
///
/// Keeps a pod too many rather than removing a living one. A pod whose name `listed` has under another UID is not
/// kept, unless the list has its UID.
pub(super) fn held(before: &[Arc<Pod>], listed: &[Arc<Pod>], unusable: &[PodId]) -> Vec<Arc<Pod>> {
    if unusable.is_empty() {
        return Vec::new();
    }
    let listed_uids: HashSet<_> = listed.iter().map(PodMeta::uid).collect();
    let listed_names: HashSet<_> = listed.iter().map(|pod| (pod.namespace(), pod.name())).collect();
    let uids: HashSet<_> = unusable.iter().map(|id| &*id.uid).filter(|uid| !uid.is_empty()).collect();
    let without_uid = unusable.iter().filter(|id| id.uid.is_empty());
    let names: HashSet<_> = without_uid.map(|id| (&*id.namespace, &*id.name)).collect();
    let is_held = |pod: &&Arc<Pod>| {
        let (namespace, name) = (pod.namespace(), pod.name());
        let maybe = [(namespace, name), (namespace, ""), ("", name), ("", "")];
        let may_be_listed =
            maybe.iter().any(|key| names.contains(key)) && !listed_names.contains(&(namespace, name));
        !listed_uids.contains(pod.uid()) && (uids.contains(pod.uid()) || may_be_listed)
    };
    before.iter().filter(is_held).cloned().collect()
}
