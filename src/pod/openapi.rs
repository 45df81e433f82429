//! [`PodMeta`] for the full Kubernetes object. The Kubernetes version is chosen by the embedder, never here.

use k8s_openapi::api::core::v1::Pod;

use super::PodMeta;

impl PodMeta for Pod {
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
    fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
    fn ephemeral_container_count(&self) -> usize {
        self.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_ref()).map_or(0, Vec::len)
    }
}
