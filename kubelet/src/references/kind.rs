//! The two kinds of objects.

use std::fmt;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use serde::de::DeserializeOwned;

kinds! {
/// The two kinds, each with the kubelet's word for it in its messages.
pub enum Referenced {
    /// A Secret.
    Secret = "secret",
    /// A `ConfigMap`.
    ConfigMap = "configmap",
}
}

/// The kinds that a [`Manager`](super::Manager) supports: Secrets and `ConfigMaps`.
pub trait ReferencedKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Send + Sync + 'static
{
    /// Which of the two it is.
    const KIND: Referenced;

    /// Whether the object is marked as immutable.
    fn is_immutable(&self) -> bool;
}

impl ReferencedKind for Secret {
    const KIND: Referenced = Referenced::Secret;

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl ReferencedKind for ConfigMap {
    const KIND: Referenced = Referenced::ConfigMap;

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

/// A shared object of the API server. Its debug output hides the content, which may be secret.
///
/// It dereferences to the object itself; printing *that* prints the content.
pub struct Object<K>(std::sync::Arc<K>);

impl<K> Object<K> {
    pub(super) fn new(object: K) -> Self {
        Self(std::sync::Arc::new(object))
    }

    /// The object itself.
    #[must_use]
    pub fn into_arc(self) -> std::sync::Arc<K> {
        self.0
    }
}

impl<K> std::ops::Deref for Object<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self(std::sync::Arc::clone(&self.0))
    }
}

/// Prints the object's identity and version, never its content.
impl<K: Resource> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metadata = self.0.meta();
        f.debug_struct("Object")
            .field("namespace", &metadata.namespace)
            .field("name", &metadata.name)
            .field("resource_version", &metadata.resource_version)
            .finish_non_exhaustive()
    }
}
