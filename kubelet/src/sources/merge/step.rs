//! What one update changes in the pods of its source.
//!
//! This file knows one source. It must not know that there are others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pod_index::{CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, FullName, PodUid, is_mirror_pod};

use super::edit::Edit;
use super::known::{Known, KnownPod, identity};
use crate::sources::{Difference, Problem, ProblemKind, Source, SourcePod};

/// One update on its way through the merge.
pub(super) struct Step<P> {
    pub(super) source: Source,
    pub(super) now: String,
    /// The pods that are new or have changed, and what was there before.
    pub(super) touched: Vec<Touched<P>>,
    /// The mirror pods of the API server, as it has them.
    pub(super) mirrors: Vec<Arc<P>>,
    pub(super) problems: Vec<Problem>,
}

/// A pod that its source has in another way than before.
pub(super) struct Touched<P> {
    pub(super) source: Source,
    pub(super) uid: PodUid,
    pub(super) before: Option<KnownPod<P>>,
}

/// How the pods that a batch touches were before it, in the order in which they are touched.
struct Before<P> {
    order: Vec<(PodUid, Option<KnownPod<P>>)>,
    seen: HashSet<PodUid>,
}

impl<P> Before<P> {
    fn note(&mut self, uid: PodUid, pod: Option<KnownPod<P>>) {
        // The first time counts.
        if self.seen.insert(uid.clone()) {
            self.order.push((uid, pod));
        }
    }
}

impl<P: SourcePod> Step<P> {
    pub(super) fn set(
        &mut self,
        before: Known<P>,
        pods: Vec<Arc<P>>,
        gone: &mut Vec<KnownPod<P>>,
    ) -> Known<P> {
        match Edit::between(&before, &pods) {
            // The kubelet may list two pods of one name.
            Some(edit) if self.source != Source::Kubelet => self.edit(before, &pods, edit, gone),
            _ => self.replace(before, pods, gone),
        }
    }

    /// A part of the set has changed; see [`Edit`].
    fn edit(
        &mut self,
        mut known: Known<P>,
        pods: &[Arc<P>],
        edit: Edit,
        gone: &mut Vec<KnownPod<P>>,
    ) -> Known<P> {
        let mut said = std::mem::take(&mut known.said);
        let old = said.get(edit.old.clone()).unwrap_or_default().iter();
        let mut before: HashMap<_, _> = old
            .filter_map(|pod| {
                let uid = PodUid::from(pod.uid());
                let pod = known.remove(&uid)?;
                Some((uid, pod))
            })
            .collect();
        let mut now = Vec::with_capacity(edit.new.len());
        for (pod, (uid, name)) in pods.get(edit.new).unwrap_or_default().iter().zip(edit.identities) {
            let pod = self.compare(&uid, before.remove(&uid), Arc::clone(pod), name);
            now.push(Arc::clone(&pod.object));
            known.insert(uid, pod);
        }
        said.splice(edit.old, now);
        known.said = said;
        gone.extend(in_order(before));
        known
    }

    /// Every pod of the set is looked at.
    fn replace(&mut self, mut before: Known<P>, pods: Vec<Arc<P>>, gone: &mut Vec<KnownPod<P>>) -> Known<P> {
        let mut known = Known {
            pods: HashMap::with_capacity(pods.len()),
            names: HashMap::with_capacity(pods.len()),
            said: Vec::with_capacity(pods.len()),
        };
        // In the order in which they were named, for the removals' sake.
        for pod in pods {
            let Some((uid, name)) = self.identify(&pod) else { continue };
            if self.source != Source::Kubelet && known.names.contains_key(&name) {
                self.refuse(
                    &pod,
                    ProblemKind::Duplicate,
                    "metadata.name",
                    "another pod of the set bears this name",
                );
            } else if known.pods.contains_key(&uid) {
                self.refuse(
                    &pod,
                    ProblemKind::Duplicate,
                    "metadata.uid",
                    "another pod of the set has this UID",
                );
            } else {
                let old = before.pods.remove(&uid);
                let pod = self.compare(&uid, old, pod, name);
                known.said.push(Arc::clone(&pod.object));
                known.insert_beside(uid, pod);
            }
        }
        gone.extend(in_order(before.pods));
        known
    }

    /// One pod after the other; what counts in the end is how each was before and how it is after.
    pub(super) fn upsert(&mut self, known: &mut Known<P>, pods: Vec<Arc<P>>, gone: &mut Vec<KnownPod<P>>) {
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

    /// Notes a pod that is new or has changed, and marks it. An unchanged one stays the object that it was.
    fn compare(
        &mut self,
        uid: &PodUid,
        old: Option<KnownPod<P>>,
        mut pod: Arc<P>,
        name: FullName,
    ) -> KnownPod<P> {
        // Not even looked at: an unchanged file keeps its pods.
        if let Some(old) = old.as_ref().filter(|old| Arc::ptr_eq(&old.object, &pod)) {
            return KnownPod { object: pod, name, leaving: self.comes_back(uid, old) };
        }
        if self.source == Source::Api && is_mirror_pod(&*pod) {
            self.mirrors.push(Arc::clone(&pod));
        }
        match &old {
            // Another name under the same UID is not among the kubelet's differences; to the index it is one.
            Some(old) if old.name == name && old.object.difference(&pod) == Difference::None => {
                let object = Arc::clone(&old.object);
                return KnownPod { object, name, leaving: self.comes_back(uid, old) };
            }
            Some(old) => self.mark_again(&mut pod, &old.object),
            None => self.mark(&mut pod),
        }
        self.touch(uid.clone(), old);
        KnownPod { object: pod, name, leaving: false }
    }

    /// A pod is named again that was being held back. It counts again.
    fn comes_back(&mut self, uid: &PodUid, old: &KnownPod<P>) -> bool {
        if old.leaving {
            self.touch(uid.clone(), Some(old.clone()));
        }
        false
    }

    fn touch(&mut self, uid: PodUid, before: Option<KnownPod<P>>) {
        self.touched.push(Touched { source: self.source, uid, before });
    }

    /// Marks a new pod with its source and the time. A mirror pod from the API server carries those of its static
    /// pod; believed, they would make it a static pod itself. The kubelet's pods carry its own marks.
    fn mark(&self, pod: &mut Arc<P>) {
        if self.source == Source::Kubelet {
            return;
        }
        annotate(pod, CONFIG_SOURCE_ANNOTATION, self.source.as_str());
        // Manifests are marked when they are read.
        if self.source == Source::Api || pod.annotation(CONFIG_SEEN_ANNOTATION).is_none() {
            annotate(pod, CONFIG_SEEN_ANNOTATION, &self.now);
        }
    }

    /// Marks a changed pod as its older version was.
    fn mark_again(&self, pod: &mut Arc<P>, old: &P) {
        if self.source == Source::Kubelet {
            return;
        }
        annotate(pod, CONFIG_SOURCE_ANNOTATION, self.source.as_str());
        if let Some(seen) = old.annotation(CONFIG_SEEN_ANNOTATION) {
            annotate(pod, CONFIG_SEEN_ANNOTATION, seen);
        }
    }

    fn identify(&mut self, pod: &Arc<P>) -> Option<(PodUid, FullName)> {
        identity(&**pod)
            .map_err(|(field, message)| self.refuse(pod, ProblemKind::Invalid, field, &message))
            .ok()
    }

    fn refuse(&mut self, pod: &Arc<P>, kind: ProblemKind, field: &str, message: &str) {
        let shorten = crate::text::shorten;
        let message = format!(
            "the pod {}/{} (UID {:?}) is passed over: {message}",
            shorten(pod.namespace()),
            shorten(pod.name()),
            shorten(pod.uid())
        );
        self.problems.push(Problem::new(kind, self.source.as_str(), None, Some(field.to_owned()), message));
    }
}

/// Those that are left over, in an order that does not depend on the hasher.
fn in_order<P: SourcePod>(left: HashMap<PodUid, KnownPod<P>>) -> Vec<KnownPod<P>> {
    let mut left: Vec<_> = left.into_values().collect();
    left.sort_unstable_by(|a, b| a.name.cmp(&b.name).then_with(|| a.object.uid().cmp(b.object.uid())));
    left
}

/// Sets an annotation, and copies a pod that others hold only if it has another value.
fn annotate<P: SourcePod>(pod: &mut Arc<P>, key: &str, value: &str) {
    if pod.annotation(key) != Some(value) {
        Arc::make_mut(pod).set_annotation(key, value);
    }
}
