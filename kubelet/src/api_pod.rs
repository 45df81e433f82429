//! What a pod of the API server may not say of itself.

use k8s_openapi::api::core::v1::Pod;
use pod_index::{API_SERVER_SOURCE, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, ENDED_ANNOTATION};

/// The pod, marked as one of the API server. Whoever may create a pod sets its annotations: with any other source it would
/// count as a static pod, and as ended it would hide its IP. A mirror pod keeps its static pod's source until the merge has
/// derived that pod.
pub(crate) fn of_the_api_server(mut pod: Pod) -> Pod {
    let Some(annotations) = &mut pod.metadata.annotations else { return pod };
    annotations.remove(ENDED_ANNOTATION);
    if !annotations.contains_key(CONFIG_MIRROR_ANNOTATION)
        && let Some(source) = annotations.get_mut(CONFIG_SOURCE_ANNOTATION)
        && source != API_SERVER_SOURCE
    {
        API_SERVER_SOURCE.clone_into(source);
    }
    pod
}
