//! The mark of a removed pod in an answer.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

/// The annotation of a removed pod: when it was removed, in RFC 3339.
pub(crate) const REMOVED_ANNOTATION: &str = "pod-index/removed";

/// Removes [`REMOVED_ANNOTATION`] from a pod sent by a source. A pod without it is not copied.
pub(crate) fn unmark(pod: &mut Arc<Pod>) {
    let is_marked = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(REMOVED_ANNOTATION));
    if is_marked && let Some(annotations) = &mut Arc::make_mut(pod).metadata.annotations {
        annotations.remove(REMOVED_ANNOTATION);
    }
}
