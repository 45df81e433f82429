//! Pods of which only the metadata is fetched.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;

use crate::sources::{Difference, SourcePod};
use pod_index::PodMeta;

/// A pod's metadata, as the API server sends it on request.
#[derive(Clone, Debug)]
pub struct PodMetadata(pub PartialObjectMeta<Pod>);

impl PodMeta for PodMetadata {
    fn uid(&self) -> &str {
        self.0.metadata.uid.as_deref().unwrap_or_default()
    }
    fn name(&self) -> &str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }
    fn namespace(&self) -> &str {
        self.0.metadata.namespace.as_deref().unwrap_or_default()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.0.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

impl SourcePod for PodMetadata {
    fn set_annotation(&mut self, key: &str, value: &str) {
        self.0.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    }

    /// A change of the spec is invisible in metadata, so it counts as a change of the status.
    fn difference(&self, newer: &Self) -> Difference {
        let as_pod = |partial: &Self| Pod { metadata: partial.0.metadata.clone(), ..Pod::default() };
        let difference = as_pod(self).difference(&as_pod(newer));
        let same_version = self.0.metadata.resource_version == newer.0.metadata.resource_version;
        if difference == Difference::None && !same_version { Difference::Status } else { difference }
    }

    fn is_terminating(&self) -> bool {
        self.0.metadata.deletion_timestamp.is_some()
    }
}
