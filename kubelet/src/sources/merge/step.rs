//! What one update changes in the pods of its source, regardless of other sources.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{
    CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, ENDED_ANNOTATION, FullName, PodMeta, PodUid,
    is_mirror_pod,
};

use super::reported::{Reported, ReportedPod, described};
use crate::marks::{self, LEFT_OUT};
use crate::sources::pod::{differs_for_kubelet, node, remove_annotation, set_annotation};
use crate::sources::static_pods::UNCONFIRMED_ANNOTATION;
use crate::sources::{
    API_CONFIG_SEEN_ANNOTATION, API_CONFIG_SOURCE_ANNOTATION, Difference, NodeName, Problem, ProblemKind,
    Source,
};

/// One update on its way through the merge.
pub(super) struct Step {
    pub(super) source: Source,
    pub(super) now: String,
    /// Whether the source has not been seen before.
    pub(super) is_first: bool,
    /// The node whose kubelet is asked.
    pub(super) own: Option<NodeName>,
    pub(super) touched: Keys,
    /// The mirror pods of the API server, as received.
    pub(super) mirrors: Vec<Arc<Pod>>,
    pub(super) problems: Vec<Problem>,
    /// Whether the kubelet may not have a change of its node's pods yet.
    pub(super) concerns_kubelet: bool,
}

/// The pods that a change may affect: by their UIDs, and all static pods of these names.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) uids: Vec<PodUid>,
    pub(super) names: Vec<FullName>,
}

impl Keys {
    pub(super) fn add(&mut self, uid: PodUid, name: FullName) {
        self.uids.push(uid);
        self.names.push(name);
    }
}

impl Step {
    /// Applies a list by comparing every pod. `is_complete`: a pod that it lacks is gone.
    pub(super) fn list(&mut self, known: &mut Reported, pods: Vec<Arc<Pod>>, is_complete: bool) {
        let mut before = std::mem::take(known).pods;
        for pod in pods {
            let Some((uid, name)) = self.identify(&pod) else { continue };
            let is_named_twice = !self.source.may_repeat_names() && known.names.contains_key(&name);
            let (field, message) = if is_named_twice {
                ("metadata.name", "another pod of the set has this name")
            } else if known.pods.contains_key(&uid) {
                ("metadata.uid", "another pod of the set has this UID")
            } else {
                let pod = self.compare(&uid, before.remove(&uid), pod, name);
                known.insert_beside(uid, pod);
                continue;
            };
            self.refuse(&pod, ProblemKind::Duplicate, field, message);
        }
        // In an order independent of the hasher.
        let mut gone: Vec<_> = before.into_iter().collect();
        gone.sort_unstable_by(|a, b| (&a.1.name, &a.0).cmp(&(&b.1.name, &b.0)));
        for (uid, pod) in gone {
            // A list that has another pod of this name tells that this one is gone: no two exist at a time.
            if is_complete || pod.is_gone_at_api || known.names.contains_key(&pod.name) {
                self.lose(uid, &pod);
            } else {
                self.keep_unconfirmed(known, uid, pod);
            }
        }
    }

    /// Keeps a pod that an incomplete list lacks, and marks it as unconfirmed.
    fn keep_unconfirmed(&mut self, known: &mut Reported, uid: PodUid, mut pod: ReportedPod) {
        if pod.missing_since.is_none() {
            pod.missing_since = Some(Instant::now());
            set_annotation(&mut pod.object, UNCONFIRMED_ANNOTATION, &self.now);
            self.touched.add(uid.clone(), pod.name.clone());
        }
        known.insert(uid, pod);
    }

    /// Applies the pods one after the other.
    pub(super) fn upsert(&mut self, known: &mut Reported, pods: Vec<Arc<Pod>>) {
        for object in pods {
            let Some((uid, name)) = self.identify(&object) else { continue };
            if let Some(bearer) = known.names.get(&name).filter(|bearer| **bearer != uid).cloned() {
                self.remove(known, bearer);
            }
            let old = known.remove(&uid);
            let new = self.compare(&uid, old, object, name);
            known.insert(uid, new);
        }
    }

    pub(super) fn remove(&mut self, known: &mut Reported, uid: PodUid) {
        if let Some(pod) = known.remove(&uid) {
            self.lose(uid, &pod);
        }
    }

    fn lose(&mut self, uid: PodUid, pod: &ReportedPod) {
        self.concerns_kubelet |= self.is_of_kubelet(&pod.object);
        self.touched.add(uid, pod.name.clone());
    }

    /// Records and marks a new or changed pod. An unchanged pod keeps its object.
    fn compare(
        &mut self,
        uid: &PodUid,
        old: Option<ReportedPod>,
        mut pod: Arc<Pod>,
        name: FullName,
    ) -> ReportedPod {
        // The sources of this library have removed those that a pod brought along. Others may not have.
        let is_set_by_sources =
            |key: &str| key == LEFT_OUT || (key == ENDED_ANNOTATION && self.source.says_what_has_ended());
        for key in marks::forged(&pod, is_set_by_sources) {
            remove_annotation(&mut pod, &key);
        }
        // Without a comparison: pods of unchanged files are the same objects.
        let is_same_object = old.as_ref().is_some_and(|old| Arc::ptr_eq(&old.object, &pod));
        let is_mirror = self.source == Source::Api && is_mirror_pod(&*pod);
        if is_mirror && !is_same_object {
            self.mirrors.push(Arc::clone(&pod));
        }
        let difference = match &old {
            Some(_) if is_same_object => Difference::None,
            // The kubelet does not count another name under the same UID as a difference; the index does.
            Some(old) if old.name == name => Difference::between(&old.object, &pod),
            _ => Difference::Semantic,
        };
        let mut is_gone_at_api = false;
        let mut changed = None;
        if let Some(old) = old {
            if difference == Difference::None {
                return old;
            }
            is_gone_at_api = old.is_gone_at_api;
            changed = if differs_for_kubelet(&old.object, &pod) { Some(Instant::now()) } else { old.changed };
            self.mark(&mut pod, Some(&old.object));
            self.touched.names.push(old.name);
        } else {
            self.mark(&mut pod, None);
        }
        // The kubelet itself reports an ordinary pod's status to the API server.
        self.concerns_kubelet |=
            (is_mirror || difference == Difference::Semantic) && self.is_of_kubelet(&pod);
        self.touched.add(uid.clone(), name.clone());
        ReportedPod { object: pod, name, missing_since: None, is_gone_at_api, changed }
    }

    /// Whether another source reports this pod of the kubelet's node.
    fn is_of_kubelet(&self, pod: &Pod) -> bool {
        let is_own = |own: &NodeName| node(pod).is_none_or(|node| node == own.as_str());
        self.source.may_know_before_kubelet() && self.own.as_ref().is_none_or(is_own)
    }

    /// Marks a pod with its source and the time when it was first seen. A mirror pod from the API server carries its
    /// static pod's marks, which it keeps under other names; otherwise it would count as a static pod itself. The
    /// kubelet's pods have the kubelet's marks.
    fn mark(&self, pod: &mut Arc<Pod>, old: Option<&Pod>) {
        if self.source.has_marks_of_kubelet() {
            return;
        }
        if self.source == Source::Api {
            for (mark, kept) in [
                (CONFIG_SOURCE_ANNOTATION, API_CONFIG_SOURCE_ANNOTATION),
                (CONFIG_SEEN_ANNOTATION, API_CONFIG_SEEN_ANNOTATION),
            ] {
                if let Some(value) = pod.annotation(mark).map(str::to_owned) {
                    set_annotation(pod, kept, &value);
                }
            }
        }
        set_annotation(pod, CONFIG_SOURCE_ANNOTATION, self.source.as_str());
        let seen = match old {
            Some(old) => old.annotation(CONFIG_SEEN_ANNOTATION),
            // Manifests are marked when they are read.
            None if self.source.has_manifests() && pod.annotation(CONFIG_SEEN_ANNOTATION).is_some() => None,
            None => Some(&*self.now),
        };
        if let Some(seen) = seen {
            set_annotation(pod, CONFIG_SEEN_ANNOTATION, seen);
        }
    }

    /// The pod's identity. A pod without one is a problem.
    fn identify(&mut self, pod: &Pod) -> Option<(PodUid, FullName)> {
        if pod.uid().is_empty() {
            self.refuse(pod, ProblemKind::Invalid, "metadata.uid", "must not be empty");
            return None;
        }
        if !self.source.lists_mirror_pods() && is_mirror_pod(pod) {
            let field = "metadata.annotations[kubernetes.io/config.mirror]";
            self.refuse(pod, ProblemKind::Invalid, field, "this source has no mirror pods");
            return None;
        }
        let name = FullName::new(pod.namespace(), pod.name());
        let name =
            name.map_err(|error| self.refuse(pod, ProblemKind::Invalid, "metadata.name", &error.to_string()));
        Some((PodUid::from(pod.uid()), name.ok()?))
    }

    fn refuse(&mut self, pod: &Pod, kind: ProblemKind, field: &str, message: &str) {
        let message = format!("the pod {} is skipped: {message}", described(pod));
        self.problems.push(Problem::new(kind, self.source.as_str(), None, Some(field.to_owned()), message));
    }
}
