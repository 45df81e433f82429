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

/// The longest name, namespace or UID of a pod, in bytes. The API server and the kubelet accept no longer names, and the
/// directory of a pod on the node is named by its UID, so that no pod with a longer one can run.
const LONGEST_NAME: usize = 253;

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

/// By what the merge knows a pod.
struct Identity {
    uid: PodUid,
    name: FullName,
}

/// What two pods of one list have in common, and must not.
struct Duplicate {
    field: &'static str,
    message: &'static str,
}

impl Step {
    /// Applies a list by comparing every pod. `is_complete`: a pod that it lacks is gone.
    pub(super) fn list(&mut self, reported: &mut Reported, pods: Vec<Arc<Pod>>, is_complete: bool) {
        let mut before = std::mem::take(reported).pods;
        for object in pods {
            let Some(Identity { uid, name }) = self.identify(&object) else { continue };
            if let Some(Duplicate { field, message }) = self.duplicate(reported, &uid, &name) {
                self.refuse(&object, ProblemKind::Duplicate, field, message);
                continue;
            }
            let pod = self.compare(&uid, before.remove(&uid), object, name);
            reported.insert_beside(uid, pod);
        }
        // In an order independent of the hasher.
        let mut missing: Vec<_> = before.into_iter().collect();
        missing.sort_unstable_by(|(uid, pod), (other_uid, other)| {
            (&pod.name, uid).cmp(&(&other.name, other_uid))
        });
        for (uid, pod) in missing {
            // A list that has another pod of this name tells that this one is gone: no two exist at a time.
            let is_replaced = reported.names.contains_key(&pod.name);
            if is_complete || pod.is_gone_at_api || is_replaced {
                self.lose(uid, &pod);
            } else {
                self.keep_unconfirmed(reported, uid, pod);
            }
        }
    }

    /// What an earlier pod of the list has in common with this one, and must not.
    fn duplicate(&self, reported: &Reported, uid: &PodUid, name: &FullName) -> Option<Duplicate> {
        if !self.source.may_repeat_names() && reported.names.contains_key(name) {
            let message = "another pod of the set has this name";
            return Some(Duplicate { field: "metadata.name", message });
        }
        if reported.pods.contains_key(uid) {
            let message = "another pod of the set has this UID";
            return Some(Duplicate { field: "metadata.uid", message });
        }
        None
    }

    /// Keeps a pod that an incomplete list lacks, and marks it as unconfirmed.
    fn keep_unconfirmed(&mut self, reported: &mut Reported, uid: PodUid, mut pod: ReportedPod) {
        if !pod.is_missing {
            pod.is_missing = true;
            set_annotation(&mut pod.object, UNCONFIRMED_ANNOTATION, &self.now);
            self.touched.add(uid.clone(), pod.name.clone());
        }
        reported.insert(uid, pod);
    }

    /// Applies the pods one after the other.
    pub(super) fn upsert(&mut self, reported: &mut Reported, pods: Vec<Arc<Pod>>) {
        for object in pods {
            let Some(Identity { uid, name }) = self.identify(&object) else { continue };
            if let Some(bearer) = reported.names.get(&name).filter(|bearer| **bearer != uid).cloned() {
                self.remove(reported, bearer);
            }
            let old = reported.remove(&uid);
            let new = self.compare(&uid, old, object, name);
            reported.insert(uid, new);
        }
    }

    pub(super) fn remove(&mut self, reported: &mut Reported, uid: PodUid) {
        if let Some(pod) = reported.remove(&uid) {
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
        mut object: Arc<Pod>,
        name: FullName,
    ) -> ReportedPod {
        self.remove_forged_marks(&mut object);
        // Without a comparison: pods of unchanged files are the same objects.
        let is_same_object = old.as_ref().is_some_and(|old| Arc::ptr_eq(&old.object, &object));
        let is_mirror = is_mirror_pod(&*object);
        if is_mirror && !is_same_object {
            self.mirrors.push(Arc::clone(&object));
        }
        let difference = match &old {
            Some(_) if is_same_object => Difference::None,
            // The kubelet does not count another name under the same UID as a difference; the index does.
            Some(old) if old.name == name => Difference::between(&old.object, &object),
            _ => Difference::Semantic,
        };
        let source = self.source;
        let pod = match old {
            Some(old) if difference == Difference::None => return old,
            Some(old) => {
                let is_changed = differs_for_kubelet(&old.object, &object);
                self.mark(&mut object, Some(&old.object));
                self.touched.names.push(old.name);
                let changed = if is_changed { Some(Instant::now()) } else { old.changed };
                let is_gone_at_api = old.is_gone_at_api;
                ReportedPod { source, object, name, is_missing: false, is_gone_at_api, changed }
            }
            None => {
                self.mark(&mut object, None);
                ReportedPod { source, object, name, is_missing: false, is_gone_at_api: false, changed: None }
            }
        };
        // The kubelet itself reports an ordinary pod's status to the API server.
        let is_news_to_kubelet = is_mirror || difference == Difference::Semantic;
        self.concerns_kubelet |= is_news_to_kubelet && self.is_of_kubelet(&pod.object);
        self.touched.add(uid.clone(), pod.name.clone());
        pod
    }

    /// The sources of this library have removed the marks that a pod brought along. Others may not have.
    fn remove_forged_marks(&self, pod: &mut Arc<Pod>) {
        let is_set_by_sources = |key: &str| match key {
            LEFT_OUT => true,
            ENDED_ANNOTATION => self.source.says_what_has_ended(),
            _ => false,
        };
        for key in marks::forged(pod, is_set_by_sources) {
            remove_annotation(pod, &key);
        }
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
    fn identify(&mut self, pod: &Pod) -> Option<Identity> {
        if pod.uid().is_empty() {
            self.refuse(pod, ProblemKind::Invalid, "metadata.uid", "must not be empty");
            return None;
        }
        let texts = [
            ("metadata.uid", pod.uid()),
            ("metadata.name", pod.name()),
            ("metadata.namespace", pod.namespace()),
        ];
        if let Some((field, _)) = texts.into_iter().find(|(_, text)| text.len() > LONGEST_NAME) {
            self.refuse(pod, ProblemKind::Invalid, field, "must be no more than 253 bytes");
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
        Some(Identity { uid: PodUid::from(pod.uid()), name: name.ok()? })
    }

    fn refuse(&mut self, pod: &Pod, kind: ProblemKind, field: &str, message: &str) {
        let message = format!("the pod {} is skipped: {message}", described(pod));
        self.problems.push(Problem::new(kind, self.source.as_str(), None, Some(field.to_owned()), message));
    }
}
