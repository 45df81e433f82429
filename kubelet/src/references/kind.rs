//! The two kinds of objects.

use std::fmt;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use serde::de::DeserializeOwned;

use super::names::ReferencingPod;

/// The kinds that a [`Manager`](super::Manager) supports: Secrets and `ConfigMaps`.
pub trait ReferencedKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Send + Sync + 'static
{
    /// The kubelet's word for the kind in its messages.
    const WORD: &'static str;

    /// Calls `visit` with the name of each object of this kind that the pod names.
    fn visit_names<'p, P: ReferencingPod>(pod: &'p P, visit: &mut dyn FnMut(&'p str));

    /// Whether the object is marked as immutable.
    fn is_immutable(&self) -> bool;
}

impl ReferencedKind for Secret {
    const WORD: &'static str = "secret";

    fn visit_names<'p, P: ReferencingPod>(pod: &'p P, visit: &mut dyn FnMut(&'p str)) {
        pod.visit_secret_names(visit);
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl ReferencedKind for ConfigMap {
    const WORD: &'static str = "configmap";

    fn visit_names<'p, P: ReferencingPod>(pod: &'p P, visit: &mut dyn FnMut(&'p str)) {
        pod.visit_config_map_names(visit);
    }

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
