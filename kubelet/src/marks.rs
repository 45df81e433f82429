//! The annotations with which this library marks pods, and what a pod may not say of itself.
//!
//! Whoever may create a pod sets its annotations. So a mark that a pod brings along means nothing, and could mislead whoever
//! reads it: `pod-index/ended` would hide the pod's IP, `pod-index/claimed-by` would make it look like a static pod. Each source
//! removes them from what it receives, before it sets its own.

use std::ops::Bound;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{API_SERVER_SOURCE, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION};

/// The names of all marks: from this prefix up to its successor, in the order of texts.
const FIRST: &str = "pod-index/";
const AFTER: &str = "pod-index0";

/// Set when an object is decoded: which of its fields were left out.
pub(crate) const LEFT_OUT: &str = "pod-index/left-out";

/// Marks a pod that was read from a checkpoint and that no source has sent yet.
pub(crate) const RESTORED: &str = "pod-index/restored";

/// The marks of a pod that `is_kept` does not keep.
pub(crate) fn forged(pod: &Pod, is_kept: impl Fn(&str) -> bool) -> Vec<String> {
    let names: (Bound<&str>, Bound<&str>) = (Bound::Included(FIRST), Bound::Excluded(AFTER));
    let annotations = pod.metadata.annotations.iter();
    let marks = annotations.flat_map(|annotations| annotations.range::<str, _>(names)).map(|(key, _)| key);
    marks.filter(|key| !is_kept(key)).cloned().collect()
}

/// Removes the marks of a pod that comes from elsewhere, except for the one that its decoder sets.
pub(crate) fn remove_forged(pod: &mut Pod) {
    for key in forged(pod, |key| key == LEFT_OUT) {
        pod.metadata.annotations.as_mut().and_then(|annotations| annotations.remove(&key));
    }
}

/// The pod, marked as one of the API server: with any other source it would count as a static pod. A mirror pod keeps its static
/// pod's source until the merge has derived that pod.
pub(crate) fn of_the_api_server(mut pod: Pod) -> Pod {
    remove_forged(&mut pod);
    let Some(annotations) = &mut pod.metadata.annotations else { return pod };
    if !annotations.contains_key(CONFIG_MIRROR_ANNOTATION)
        && let Some(source) = annotations.get_mut(CONFIG_SOURCE_ANNOTATION)
        && source != API_SERVER_SOURCE
    {
        API_SERVER_SOURCE.clone_into(source);
    }
    pod
}
