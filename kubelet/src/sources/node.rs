//! The node for which manifests are read.

use std::fmt;
use std::sync::Arc;

/// The name of the node that static pods are bound to.
///
/// It becomes part of each static pod's name (in lower case), `spec.nodeName` and UID, so that one manifest
/// on two nodes makes two pods.
///
/// # Examples
/// ```
/// use pod_index_kubelet::sources::NodeName;
///
/// let node = NodeName::new("Node-1");
/// assert_eq!(node.as_str(), "Node-1");
/// assert_eq!(node.pod_name("etcd"), "etcd-node-1");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// A node of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// The name as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name on this node of a static pod that its manifest calls `name`.
    ///
    /// Kubelet: `generatePodName` (`pkg/kubelet/config/common.go`).
    #[must_use]
    pub fn pod_name(&self, name: &str) -> String {
        format!("{name}-{}", self.0.to_lowercase())
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
