//! Pods that are kept although a list has no usable version of them.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

/// A pod's UID or, if it is empty, the pod's namespace and name. An empty namespace or name stands for any.
pub(in crate::sources) struct PodId {
    pub(in crate::sources) uid: String,
    pub(in crate::sources) namespace: String,
    pub(in crate::sources) name: String,
}

/// The pods of `before` that `listed` lacks and that may be one of the `unusable` pods of the same list.
///
/// In doubt, keeps a pod. If `listed` has a pod of the same name with another UID, keeps the old one only if
/// `unusable` has its UID.
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
