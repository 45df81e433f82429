//! How a query contradicts the pod that it has found: a path names one pod and has the UID of another one, for example.

use pod_index::identity::{ContainerLog, Identity};
use pod_index::{Found, FoundBy, PodMeta};
use pod_index_kubelet::memory::LEFT_OUT;
use pod_index_kubelet::records::Record;

use super::sought::{NamedPod, Sought};

impl Sought<'_> {
    /// How a path contradicts the pod that was found, and its containers.
    pub(super) fn contradiction(&self, path: &str, found: &Found<'_, Record>) -> Option<String> {
        self.contradiction_of_names(found)
            .or_else(|| contradiction_of_container(found))
            .or_else(|| self.contradiction_of_root(path))
    }

    /// How the names in the path of a log or of its directory, or in a link to a log, contradict the pod that its ID has found.
    pub(super) fn contradiction_of_names(&self, found: &Found<'_, Record>) -> Option<String> {
        if let Identity::ContainerLog(link) = self.identity
            && found.by == FoundBy::ContainerId
        {
            return contradiction_of_link(&link, found);
        }
        let NamedPod { namespace, name } = self.named?;
        let pod = &**found.pod;
        ((namespace, name) != (pod.namespace(), pod.name()))
            .then(|| format!("the path names {namespace}/{name}, and the UID is of another pod"))
    }

    /// Whether the path of a log is the node's: somebody may have put another one together.
    fn contradiction_of_root(&self, path: &str) -> Option<String> {
        if !matches!(self.identity, Identity::PodLog(_) | Identity::PodDirectory { .. }) {
            return None;
        }
        let is_rooted = path.trim_ascii().starts_with("/var/log/pods/") || !path.contains("/var/log/pods/");
        (!is_rooted).then(|| "the path does not begin with /var/log/pods".to_owned())
    }
}

/// How a link to a log contradicts the pod and the container that its container ID has found. The end of a long name is
/// missing in a link.
fn contradiction_of_link(link: &ContainerLog<'_>, found: &Found<'_, Record>) -> Option<String> {
    let pod = &**found.pod;
    let names_pod =
        link.name == pod.name() && link.namespace.is_none_or(|namespace| namespace == pod.namespace());
    if !names_pod {
        let namespace = link.namespace.unwrap_or("…");
        return Some(format!(
            "the link names {namespace}/{}, and the container ID is of another pod",
            link.name
        ));
    }
    let named = link.container?;
    (found.container? != named)
        .then(|| format!("the link names the container {named}, and the container ID is of another one"))
}

/// How the container that a path names contradicts the pod: the pod has no such container. Of a pod that lacks fields, nobody knows that,
/// nor of one without any container, as a manifest may be.
fn contradiction_of_container(found: &Found<'_, Record>) -> Option<String> {
    let pod = found.pod;
    let named = found.container?;
    let is_known = pod.annotation(LEFT_OUT).is_none() && !pod.containers().is_empty();
    (is_known && pod.container(named).is_none()).then(|| {
        format!("the path names the container {named}, and the agent knows no such container of this pod")
    })
}
