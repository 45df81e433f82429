//! Searches through all pods, for what no key finds: the start of a container ID, and a name without its namespace.

use k8s_openapi::api::core::v1::Pod;
use pod_index::identity::{ContainerId, Identity};
use pod_index::{Found, PodMeta, Snapshot};
use pod_index_kubelet::records::Record;

use super::answer::full_name;
use super::query_text;
use super::search_budget::VISITED;

/// Maximum number of pods that are suggested.
const SUGGESTIONS: usize = 3;

/// The pod of a container, of whose ID the query has the start.
pub(super) struct FoundByStart<'a> {
    pub(super) found: Found<'a, Record>,
    pub(super) id: ContainerId,
}

/// Names pods that `name` perhaps means: those with this name, then those whose name only begins with it, as a static
/// pod's name does before the node's name. Visits `VISITED` pods at most.
pub(crate) fn suggestion(snapshot: &Snapshot<Record>, name: &str) -> Option<String> {
    let mut same = Vec::new();
    let mut longer = Vec::new();
    for pod in snapshot.pods().take(VISITED) {
        match pod.name().strip_prefix(name) {
            Some("") => same.push(pod),
            Some(rest) if rest.starts_with('-') && longer.len() < SUGGESTIONS => longer.push(pod),
            _ => {}
        }
    }
    let pods = same.into_iter().chain(longer).take(SUGGESTIONS);
    let mut names: Vec<_> = pods.map(|pod| full_name(pod)).collect();
    names.sort();
    (!names.is_empty()).then(|| format!("; did you mean {}?", names.join(" or ")))
}

/// The only current pod with this name, in whichever namespace. Visits `VISITED` pods at most.
pub(super) fn by_name_alone<'s>(snapshot: &'s Snapshot<Record>, name: &str) -> Option<Found<'s, Record>> {
    if snapshot.pods().len() > VISITED {
        return None;
    }
    let mut pods = snapshot.pods().filter(|pod| pod.name() == name);
    let pod = pods.next()?;
    let is_alone = pods.next().is_none();
    if !is_alone {
        return None;
    }
    Identity::Name { namespace: pod.namespace(), name: pod.name() }.resolve(snapshot)
}

/// The pod of the only container whose ID begins with the text, which is how `crictl ps` shows IDs. Goes through all pods.
pub(super) fn by_short_id<'s>(snapshot: &'s Snapshot<Record>, start: &str) -> Option<FoundByStart<'s>> {
    if !query_text::is_short_id(start) {
        return None;
    }
    let is_meant = |id: &&str| id.split_once("://").is_some_and(|(_, id)| id.starts_with(start));
    let mut ids = snapshot.pods().flat_map(|pod| container_ids(pod)).filter(is_meant);
    let id = ids.next()?;
    if ids.any(|other| other != id) {
        return None;
    }
    let id: ContainerId = id.parse().ok()?;
    let found = Identity::ContainerId(id).resolve(snapshot)?;
    Some(FoundByStart { found, id })
}

/// The present IDs of a pod's containers, with their runtimes, as its status has them.
fn container_ids(pod: &Pod) -> impl Iterator<Item = &str> {
    let lists = pod.status.iter().flat_map(|status| {
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses]
    });
    lists.flatten().flatten().filter_map(|container| container.container_id.as_deref())
}
