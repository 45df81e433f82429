//! The answer to a query for which a pod was found: how it was found, how certain that is, and what the pod is.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::workload::controller;
use pod_index::{Bounds, Found, Key, PodMeta, Snapshot, is_mirror_pod};
use pod_index_kubelet::owners::Owners;
use pod_index_kubelet::records::{Attributes, Record};

use super::answer::{Controller, Line, NO_ATTRIBUTES, Shown, full_name, is_passed_on, range, time_of};
use super::attributes;
use super::query_text;
use super::sought::Sought;

/// A pod, and how it was found.
pub(super) struct Match<'a> {
    pub(super) sought: &'a Sought<'a>,
    /// What the query was taken for.
    pub(super) kind: &'static str,
    pub(super) found: Found<'a, Record>,
    /// What found it, if other pods can claim that, too.
    pub(super) contestable_key: Option<Key<'a>>,
    /// When it had the key that found it, if the query has a time.
    pub(super) had_key: Option<KeyTimes>,
}

/// From when until when a pod had a key, as the answer shows it.
#[derive(Clone, Copy)]
pub(super) struct KeyTimes {
    pub(super) from: Bounds,
    pub(super) until: Bounds,
}

impl Match<'_> {
    /// Whether another pod may soon be found by the same query: a removed pod's IP or name goes to the next one. A query with a time
    /// is about the past.
    pub(super) fn may_be_succeeded(&self) -> bool {
        let Found { by, removed_at, .. } = self.found;
        is_passed_on(by.as_str()) && removed_at.is_some() && self.sought.at.is_none()
    }

    /// Appends the answer to `query`.
    pub(super) fn write(
        &self,
        query: &str,
        snapshot: &Snapshot<Record>,
        owners: &Owners,
        shown: Shown,
        to: &mut Vec<u8>,
    ) {
        let mut line = Line::new(true, query, to);
        self.write_how(query, snapshot, &mut line);
        self.write_pod(snapshot, &mut line);
        self.write_workload(owners, &mut line);
        self.write_labels(&mut line);
        if shown.details {
            self.write_details(&mut line);
        }
        line.put("attributes", shown.attributes.then(|| attributes::Object(self.attributes())));
        line.end();
    }

    /// How the pod was found, and how certain that is.
    fn write_how(&self, query: &str, snapshot: &Snapshot<Record>, line: &mut Line<'_>) {
        let Self { sought, found, had_key, .. } = self;
        line.put("kind", Some(self.kind));
        // For a cgroup, for example, the pod's UID or the container's ID.
        line.put("foundBy", Some(found.by.as_str()));
        line.put("contradiction", sought.contradiction(query, found));
        line.put("at", sought.at.map(query_text::written));
        line.put("from", had_key.map(|times| range(times.from)));
        line.put("until", had_key.map(|times| range(times.until)));
        let others: Vec<_> = self.other_claimants(snapshot).map(|other| full_name(other.pod)).collect();
        line.put("contested", (!others.is_empty()).then_some(others));
        line.put("removed", found.removed_at.map(|at| time_of(at).to_string()));
    }

    /// The other pods that claim what has found this one. A container ID is one pod's for ever, so a removed pod that had it counts, too.
    fn other_claimants<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
    ) -> impl Iterator<Item = Found<'s, Record>> {
        let lasting = self.contestable_key.filter(|key| matches!(key, Key::ContainerId(_)));
        let current = self.contestable_key.into_iter().flat_map(|key| snapshot.claimants(key));
        let removed = lasting.map(|key| snapshot.removed().claimants(key).collect::<Vec<_>>());
        current.chain(removed.into_iter().flatten()).filter(|other| !Arc::ptr_eq(other.pod, self.found.pod))
    }

    /// Which pod it is.
    fn write_pod(&self, snapshot: &Snapshot<Record>, line: &mut Line<'_>) {
        let pod = self.found.pod;
        let metadata = &pod.metadata;
        line.put("namespace", metadata.namespace.as_ref());
        line.put("name", metadata.name.as_ref());
        // The UID under which the node knows the pod.
        line.put("podUID", metadata.uid.as_ref().filter(|_| !is_mirror_pod(&**pod)));
        line.put("mirrorUID", self.mirror(snapshot).and_then(|mirror| mirror.metadata.uid.as_ref()));
        line.put("container", self.found.container);
        line.put("node", pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()));
        let owner = controller(metadata);
        let owner = owner.map(|owner| Controller { kind: &owner.kind, name: &owner.name, derived: None });
        line.put("owner", owner);
    }

    /// The pod itself, if it is a mirror pod, or else the pod's mirror pod.
    fn mirror<'s>(&'s self, snapshot: &'s Snapshot<Record>) -> Option<&'s Arc<Record>> {
        let pod = self.found.pod;
        if is_mirror_pod(&**pod) {
            return Some(pod);
        }
        match self.found.removed_at {
            None => snapshot.mirror_pod_by_pod(pod),
            // The mirror pod of a removed pod's name may be that of another pod.
            Some(_) => snapshot.mirror_uid_of_pod(pod.uid()).and_then(|uid| snapshot.mirror_pod_by_uid(&uid)),
        }
    }

    /// The workload. One that follows from names alone is asked about, so that a later answer has its name from the API server.
    fn write_workload(&self, owners: &Owners, line: &mut Line<'_>) {
        let Some(workload) = self.found.pod.workload() else { return };
        if workload.derived {
            drop(owners.asked_of(self.found.pod));
        }
        line.put("workload", Some(Controller::of_workload(workload)));
    }

    /// The pod's labels, also if it has none.
    fn write_labels(&self, line: &mut Line<'_>) {
        line.put("labels", Some(self.found.pod.metadata.labels.as_ref().unwrap_or(&BTreeMap::new())));
    }

    /// What a table shows only on request.
    fn write_details(&self, line: &mut Line<'_>) {
        let pod = self.found.pod;
        let status = pod.status.as_ref();
        let containers =
            pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let shown = containers.filter(|one| self.found.container.is_none_or(|only| *only == *one.name));
        let images: Vec<_> = shown.filter_map(|one| one.image.as_deref()).collect();
        let first_of_list =
            || status.and_then(|status| status.pod_ips.iter().flatten().next()).map(|first| &first.ip);
        let ip = status.and_then(|status| status.pod_ip.as_ref()).or_else(first_of_list);
        line.put("podIP", ip);
        line.put("phase", status.and_then(|status| status.phase.as_ref()));
        line.put("image", Some(images.join(",")));
        line.put("annotations", pod.metadata.annotations.as_ref());
    }

    /// Appends the attributes alone: an object that can be merged into an event. An IP that several running pods claim has none, nor has a
    /// container ID that several pods claim, nor a path that names another pod than its ID: wrong ones are worse.
    pub(super) fn write_attributes(&self, snapshot: &Snapshot<Record>, to: &mut Vec<u8>) {
        let names_another = self.sought.contradiction_of_names(&self.found).is_some();
        if !names_another && self.is_uncontested(snapshot) {
            // Writing text to memory does not fail.
            drop(serde_json::to_writer(&mut *to, &attributes::Object(self.attributes())));
        } else {
            to.extend_from_slice(NO_ATTRIBUTES);
        }
        to.push(b'\n');
    }

    fn attributes(&self) -> Attributes<'_> {
        let id = match self.contestable_key {
            Some(Key::ContainerId(id)) => Some(id),
            _ => self.sought.container_id(),
        };
        attributes::of(self.found.pod, self.found.container, id)
    }

    /// Whether no other pod claims what has found this one.
    fn is_uncontested(&self, snapshot: &Snapshot<Record>) -> bool {
        let Some(key) = self.contestable_key else { return true };
        let is_lasting = matches!(key, Key::ContainerId(_));
        !self
            .other_claimants(snapshot)
            .any(|other| is_lasting || (has_not_finished(other.pod) && has_not_finished(self.found.pod)))
    }
}

/// A pod that has finished keeps an IP in its status that it no longer has.
fn has_not_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}
