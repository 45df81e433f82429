//! What one update changes in the pods of its source, regardless of other sources.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, FullName, PodMeta, PodUid, is_mirror_pod};

use super::known::{Known, KnownPod, described, identity};
use crate::sources::pod::set_annotation;
use crate::sources::{
    API_CONFIG_SEEN_ANNOTATION, API_CONFIG_SOURCE_ANNOTATION, Difference, Problem, ProblemKind, Source,
};

/// One update on its way through the merge.
pub(super) struct Step {
    pub(super) source: Source,
    pub(super) now: String,
    /// The pods that are new or have changed, with their previous versions.
    pub(super) touched: Vec<Touched>,
    /// The mirror pods of the API server, as received.
    pub(super) mirrors: Vec<Arc<Pod>>,
    pub(super) problems: Vec<Problem>,
    /// Whether the source has not been seen before.
    pub(super) is_first: bool,
}

/// A pod that has changed in its source.
pub(super) struct Touched {
    pub(super) source: Source,
    pub(super) uid: PodUid,
    pub(super) before: Option<KnownPod>,
}

/// The previous versions of the pods that a batch touches, in the order in which they are touched.
struct Before {
    order: Vec<(PodUid, Option<KnownPod>)>,
    seen: HashSet<PodUid>,
}

impl Before {
    fn note(&mut self, uid: PodUid, pod: Option<KnownPod>) {
        // Only the first time counts.
        if self.seen.insert(uid.clone()) {
            self.order.push((uid, pod));
        }
    }
}

impl Step {
    /// Applies a set by comparing every pod.
    pub(super) fn set(&mut self, mut before: Known, pods: Vec<Arc<Pod>>, gone: &mut Vec<KnownPod>) -> Known {
        let mut known = Known::default();
        for pod in pods {
            let Some((uid, name)) = self.identify(&pod) else { continue };
            // The kubelet may list two pods of one name.
            let (field, message) = if self.source != Source::Kubelet && known.names.contains_key(&name) {
                ("metadata.name", "another pod of the set has this name")
            } else if known.pods.contains_key(&uid) {
                ("metadata.uid", "another pod of the set has this UID")
            } else {
                let old = before.pods.remove(&uid);
                let pod = self.compare(&uid, old, pod, name);
                known.insert_beside(uid, pod);
                continue;
            };
            self.refuse(&pod, ProblemKind::Duplicate, field, message);
        }
        gone.extend(in_order(before.pods));
        known
    }

    /// Applies the pods one after the other. Each change is the difference between the first and the last
    /// state.
    pub(super) fn upsert(&mut self, known: &mut Known, pods: Vec<Arc<Pod>>, gone: &mut Vec<KnownPod>) {
        let mut before = Before { order: Vec::with_capacity(pods.len()), seen: HashSet::new() };
        for object in pods {
            let Some((uid, name)) = self.identify(&object) else { continue };
            if let Some(bearer) = known.names.get(&name).filter(|bearer| **bearer != uid).cloned() {
                let old = known.remove(&bearer);
                before.note(bearer, old);
            }
            before.note(uid.clone(), known.remove(&uid));
            known.insert(uid, KnownPod { object, name, leaving: false });
        }
        for (uid, old) in before.order {
            match known.pods.remove(&uid) {
                Some(new) => {
                    let new = self.compare(&uid, old, new.object, new.name);
                    known.insert(uid, new);
                }
                None => gone.extend(old),
            }
        }
    }

    /// Records and marks a new or changed pod. An unchanged pod keeps its object.
    fn compare(
        &mut self,
        uid: &PodUid,
        old: Option<KnownPod>,
        mut pod: Arc<Pod>,
        name: FullName,
    ) -> KnownPod {
        // Without a comparison: pods of unchanged files are the same objects.
        if let Some(old) = old.as_ref().filter(|old| Arc::ptr_eq(&old.object, &pod)) {
            return self.unchanged(uid, old);
        }
        if self.source == Source::Api && is_mirror_pod(&*pod) {
            self.mirrors.push(Arc::clone(&pod));
        }
        // The kubelet does not count another name under the same UID as a difference; the index does.
        let is_same =
            |old: &&KnownPod| old.name == name && Difference::between(&old.object, &pod) == Difference::None;
        if let Some(old) = old.as_ref().filter(is_same) {
            return self.unchanged(uid, old);
        }
        self.mark(&mut pod, old.as_ref().map(|old| &*old.object));
        self.touch(uid.clone(), old);
        KnownPod { object: pod, name, leaving: false }
    }

    /// A pod that was held back is reported again and counts again.
    fn unchanged(&mut self, uid: &PodUid, old: &KnownPod) -> KnownPod {
        if old.leaving {
            self.touch(uid.clone(), Some(old.clone()));
        }
        KnownPod { leaving: false, ..old.clone() }
    }

    fn touch(&mut self, uid: PodUid, before: Option<KnownPod>) {
        self.touched.push(Touched { source: self.source, uid, before });
    }

    /// Marks a pod with its source and the time when it was first seen. A mirror pod from the API server carries its
    /// static pod's marks; if they were kept, it would count as a static pod itself. The kubelet's pods have the
    /// kubelet's marks.
    fn mark(&self, pod: &mut Arc<Pod>, old: Option<&Pod>) {
        if self.source == Source::Kubelet {
            return;
        }
        self.keep_marks(pod);
        set_annotation(pod, CONFIG_SOURCE_ANNOTATION, self.source.as_str());
        let seen = match old {
            Some(old) => old.annotation(CONFIG_SEEN_ANNOTATION),
            // Manifests are marked when they are read.
            None if self.source != Source::Api && pod.annotation(CONFIG_SEEN_ANNOTATION).is_some() => None,
            None => Some(&*self.now),
        };
        if let Some(seen) = seen {
            set_annotation(pod, CONFIG_SEEN_ANNOTATION, seen);
        }
    }

    /// Keeps the marks that a pod has on the API server under other names.
    fn keep_marks(&self, pod: &mut Arc<Pod>) {
        if self.source != Source::Api {
            return;
        }
        for (mark, kept) in [
            (CONFIG_SOURCE_ANNOTATION, API_CONFIG_SOURCE_ANNOTATION),
            (CONFIG_SEEN_ANNOTATION, API_CONFIG_SEEN_ANNOTATION),
        ] {
            if let Some(value) = pod.annotation(mark).map(str::to_owned) {
                set_annotation(pod, kept, &value);
            }
        }
    }

    fn identify(&mut self, pod: &Arc<Pod>) -> Option<(PodUid, FullName)> {
        identity(pod).map_err(|(field, message)| self.refuse(pod, ProblemKind::Invalid, field, &message)).ok()
    }

    fn refuse(&mut self, pod: &Arc<Pod>, kind: ProblemKind, field: &str, message: &str) {
        let message = format!("the pod {} is passed over: {message}", described(pod));
        self.problems.push(Problem::new(kind, self.source.as_str(), None, Some(field.to_owned()), message));
    }
}

/// The remaining pods, in an order independent of the hasher.
fn in_order(left: HashMap<PodUid, KnownPod>) -> Vec<KnownPod> {
    let mut left: Vec<_> = left.into_values().collect();
    left.sort_unstable_by(|a, b| a.name.cmp(&b.name).then_with(|| a.object.uid().cmp(b.object.uid())));
    left
}
