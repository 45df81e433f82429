//! The merge: what all sources say, turned into operations in the kubelet's order.
//!
//! This file knows sets and differences. It must not know how any source comes by its pods, nor who applies the
//! operations.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

mod edit;

use self::edit::Edit;
use super::{Difference, Problem, ProblemKind, Source, SourcePod, SourceUpdate, clock};
use pod_index::{CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, FullName, Operation, PodUid};

/// Merges the pods of several sources, each of which is the only authority on its own.
///
/// Feed it with what the sources say; it answers with what is to be done. It knows every pod that each source names,
/// marks it with its source and the time it was first seen, and finds out by itself what was added, what has changed
/// and what is gone.
///
/// Until all configured sources have been seen, nothing is removed: a node that has not yet heard of all its pods must
/// not conclude that one is gone (k/k#112814). What a source stops naming before that is removed in the very step in
/// which the last source is first seen.
///
/// # Complexity
/// O(1) for each pod, expected. In a set, those that are the very objects of the last set cost a comparison of pointers, as
/// long as they stand together at its beginning or its end. Two references and one name are kept for each pod.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use pod_index_kubelet::sources::{Merge, NodeName, Source, SourceUpdate, manifest::{self, Origin}};
///
/// let (mut writer, reader) = pod_index::new();
/// let mut merge = Merge::new([Source::File]);
/// let text = b"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}";
/// let pods = manifest::decode(text, Origin::File("/web.yaml".as_ref()), &NodeName::new("n1")).pods;
///
/// let merged = merge.update(Source::File, SourceUpdate::Set(pods.into_iter().map(Arc::new).collect()));
/// assert!(merge.all_sources_seen());
/// writer.apply(merged.into_operations());
/// assert!(reader.load().pod_by_full_name("web-n1_default").is_some());
///
/// let merged = merge.update(Source::File, SourceUpdate::Set(Vec::new()));
/// assert_eq!(merged.removed.len(), 1);
/// ```
///
/// Kubelet: `PodConfig`, `podStorage` (`pkg/kubelet/config/config.go`).
#[doc(alias = "PodConfig")]
#[derive(Debug)]
pub struct Merge<P> {
    configured: BTreeSet<Source>,
    seen: BTreeSet<Source>,
    /// A latch: never unset.
    all_seen: bool,
    sources: HashMap<Source, Known<P>>,
}

/// What is to be done because of one update, in the order in which it is to be done.
///
/// Each list is in the order of the update; a pod is in one of them at most.
#[derive(Debug)]
#[must_use = "what is to be done has not been done yet"]
#[non_exhaustive]
pub struct Merged<P> {
    /// Gone: the kubelet's `REMOVE`.
    pub removed: Vec<Arc<P>>,
    /// New: the kubelet's `ADD`.
    pub added: Vec<Arc<P>>,
    /// Changed: the kubelet's `UPDATE`.
    pub updated: Vec<Arc<P>>,
    /// Changed, and being deleted: the kubelet's `DELETE`.
    pub deleted: Vec<Arc<P>>,
    /// Changed in their status alone: the kubelet's `RECONCILE`.
    pub reconciled: Vec<Arc<P>>,
    /// Pods that were passed over: no or a bad name, no UID, or another pod of the same set bears the same.
    pub problems: Vec<Problem>,
}

/// The pods of one source.
#[derive(Debug)]
struct Known<P> {
    pods: HashMap<PodUid, KnownPod<P>>,
    /// Who bears a name. A source that tells of changes may tell of a name's next bearer before it tells that the
    /// last one is gone.
    names: HashMap<FullName, PodUid>,
    /// The last set, without the pods that were passed over. Empty once other updates have come.
    said: Vec<Arc<P>>,
}

#[derive(Debug)]
struct KnownPod<P> {
    object: Arc<P>,
    name: FullName,
    /// The source names it no longer, but not all sources have been seen.
    leaving: bool,
}

impl<P: SourcePod> Merge<P> {
    /// A merge of these sources, of which none has been seen. Of no sources at all, all are seen.
    #[must_use]
    pub fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        let configured: BTreeSet<_> = sources.into_iter().collect();
        Self { all_seen: configured.is_empty(), configured, seen: BTreeSet::new(), sources: HashMap::new() }
    }

    /// Whether each configured source has said what its pods are. Once true, it stays true.
    ///
    /// Kubelet: `SeenAllSources`.
    #[doc(alias = "SeenAllSources")]
    #[must_use]
    pub fn all_sources_seen(&self) -> bool {
        self.all_seen
    }

    /// The configured sources that have yet to say what their pods are.
    pub fn unseen_sources(&self) -> impl Iterator<Item = Source> {
        self.configured.difference(&self.seen).copied()
    }

    /// How many pods a source names.
    ///
    /// # Complexity
    /// O(pods of the source).
    #[must_use]
    pub fn pod_count(&self, source: Source) -> usize {
        let known = self.sources.get(&source);
        known.map_or(0, |known| known.pods.values().filter(|pod| !pod.leaving).count())
    }

    /// Takes in what a source says, and answers with what is to be done.
    ///
    /// In a set, the first of several pods of one name or UID counts and the others are reported; in
    /// [`Upsert`](SourceUpdate::Upsert)s, a name's new bearer replaces the old one, as in the API server. What one
    /// source says never removes what another one still names.
    ///
    /// Kubelet: `Merge` (`pkg/kubelet/config/config.go`).
    pub fn update(&mut self, source: Source, update: SourceUpdate<P>) -> Merged<P> {
        let mut step = Step { source, now: clock::now(), merged: Merged::default() };
        let mut known = self.sources.remove(&source).unwrap_or_default();
        if !matches!(update, SourceUpdate::Set(_)) {
            known.said = Vec::new();
        }
        let mut gone = Vec::new();
        match update {
            SourceUpdate::Set(pods) => {
                self.seen.insert(source);
                known = step.set(known, pods, &mut gone);
            }
            SourceUpdate::Upsert(pods) => step.upsert(&mut known, pods, &mut gone),
            SourceUpdate::Remove(uids) => {
                gone.extend(uids.into_iter().filter_map(|uid| known.remove(&uid)));
            }
        }
        self.sources.insert(source, known);
        if !self.all_seen && self.configured.is_subset(&self.seen) {
            self.all_seen = true;
            gone.extend(self.sources.values_mut().flat_map(Known::let_go));
        }
        for pod in gone {
            self.leave(source, pod, &mut step.merged);
        }
        step.merged
    }

    /// A pod that its source names no longer.
    fn leave(&mut self, source: Source, pod: KnownPod<P>, merged: &mut Merged<P>) {
        let uid = PodUid::from(pod.object.uid());
        let holder = self.sources.iter().find_map(|(name, known)| {
            let other = known.pods.get(&uid).filter(|other| !other.leaving)?;
            Some((*name, other))
        });
        match holder {
            // It came back in the same step, and has been filed.
            Some((name, _)) if name == source => {}
            // What another source names is not gone, it is as that source has it.
            Some((_, other)) => merged.updated.push(Arc::clone(&other.object)),
            None if self.all_seen => merged.removed.push(pod.object),
            None => self.sources.entry(source).or_default().hold_back(pod),
        }
    }
}

impl<P> Merged<P> {
    /// Whether nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty()
            && self.added.is_empty()
            && self.updated.is_empty()
            && self.deleted.is_empty()
            && self.reconciled.is_empty()
    }

    /// The pods that are new or have changed, whatever has changed about them: for a last touch before they are stored.
    pub fn pods_mut(&mut self) -> impl Iterator<Item = &mut Arc<P>> {
        [&mut self.added, &mut self.updated, &mut self.deleted, &mut self.reconciled].into_iter().flatten()
    }

    /// What is to be done, for a [`Writer`](pod_index::Writer), in order. A pod that is being deleted is still there, so the
    /// kubelet takes `DELETE` and `RECONCILE` for updates here, and so does this.
    pub fn into_operations(self) -> impl Iterator<Item = Operation<P>>
    where
        P: pod_index::PodMeta,
    {
        let removed = self.removed.into_iter().map(|pod| Operation::Remove(PodUid::from(pod.uid())));
        let added = self.added.into_iter().map(Operation::Add);
        let updated = self.updated.into_iter().chain(self.deleted).chain(self.reconciled);
        removed.chain(added).chain(updated.map(Operation::Update))
    }
}

// By hand, as derives would ask for `P: Default`.
impl<P> Default for Merged<P> {
    fn default() -> Self {
        Self {
            removed: Vec::new(),
            added: Vec::new(),
            updated: Vec::new(),
            deleted: Vec::new(),
            reconciled: Vec::new(),
            problems: Vec::new(),
        }
    }
}

impl<P> Default for Known<P> {
    fn default() -> Self {
        Self { pods: HashMap::new(), names: HashMap::new(), said: Vec::new() }
    }
}

impl<P> Known<P> {
    fn remove(&mut self, uid: &PodUid) -> Option<KnownPod<P>> {
        let pod = self.pods.remove(uid)?;
        if let Entry::Occupied(bearer) = self.names.entry(pod.name.clone())
            && bearer.get() == uid
        {
            bearer.remove();
        }
        Some(pod)
    }

    fn insert(&mut self, uid: PodUid, pod: KnownPod<P>) {
        self.names.insert(pod.name.clone(), uid.clone());
        self.pods.insert(uid, pod);
    }
}

impl<P: SourcePod> Known<P> {
    /// The name stays with its new bearer, if it has one.
    fn hold_back(&mut self, pod: KnownPod<P>) {
        let uid = PodUid::from(pod.object.uid());
        self.names.entry(pod.name.clone()).or_insert_with(|| uid.clone());
        self.pods.insert(uid, KnownPod { leaving: true, ..pod });
    }

    fn let_go(&mut self) -> Vec<KnownPod<P>> {
        let leaving = self.pods.iter().filter(|(_, pod)| pod.leaving).map(|(uid, _)| uid.clone());
        let mut leaving: Vec<_> = leaving.collect();
        // In an order that does not depend on the hasher.
        leaving.sort_unstable();
        leaving.iter().filter_map(|uid| self.remove(uid)).collect()
    }
}

/// How the pods that a batch touches were before it, in the order in which they are touched.
struct Before<P> {
    order: Vec<(PodUid, Option<KnownPod<P>>)>,
    seen: HashSet<PodUid>,
}

impl<P> Before<P> {
    fn note(&mut self, uid: PodUid, pod: Option<KnownPod<P>>) {
        // A second time, it is not as it was before.
        if self.seen.insert(uid.clone()) {
            self.order.push((uid, pod));
        }
    }
}

/// One update on its way through the merge.
struct Step<P> {
    source: Source,
    now: String,
    merged: Merged<P>,
}

impl<P: SourcePod> Step<P> {
    fn set(&mut self, before: Known<P>, pods: Vec<Arc<P>>, gone: &mut Vec<KnownPod<P>>) -> Known<P> {
        match Edit::between(&before, &pods) {
            Some(edit) => self.edit(before, &pods, edit, gone),
            None => self.replace(before, pods, gone),
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
            let pod = self.compare(before.remove(&uid), Arc::clone(pod), name);
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
            if known.names.contains_key(&name) {
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
                let pod = self.compare(old, pod, name);
                known.said.push(Arc::clone(&pod.object));
                known.insert(uid, pod);
            }
        }
        gone.extend(in_order(before.pods));
        known
    }

    /// One pod after the other; what counts in the end is how each was before and how it is after.
    fn upsert(&mut self, known: &mut Known<P>, pods: Vec<Arc<P>>, gone: &mut Vec<KnownPod<P>>) {
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
                    let new = self.compare(old, new.object, new.name);
                    known.insert(uid, new);
                }
                None => gone.extend(old),
            }
        }
    }

    /// Files a pod under what has happened to it.
    fn compare(&mut self, old: Option<KnownPod<P>>, mut pod: Arc<P>, name: FullName) -> KnownPod<P> {
        let Some(old) = old else {
            self.mark(&mut pod);
            self.merged.added.push(Arc::clone(&pod));
            return KnownPod { object: pod, name, leaving: false };
        };
        // Not even looked at: an unchanged file keeps its pods.
        if Arc::ptr_eq(&old.object, &pod) {
            return KnownPod { leaving: false, ..old };
        }
        // Another name under the same UID is not among the kubelet's differences; to the index it is one.
        let difference = if old.name == name { old.object.difference(&pod) } else { Difference::Semantic };
        let list = match difference {
            Difference::None => return KnownPod { leaving: false, ..old },
            Difference::Status => &mut self.merged.reconciled,
            Difference::Semantic if pod.is_terminating() => &mut self.merged.deleted,
            Difference::Semantic => &mut self.merged.updated,
        };
        annotate(&mut pod, CONFIG_SOURCE_ANNOTATION, self.source.as_str());
        if let Some(seen) = old.object.annotation(CONFIG_SEEN_ANNOTATION) {
            annotate(&mut pod, CONFIG_SEEN_ANNOTATION, seen);
        }
        list.push(Arc::clone(&pod));
        KnownPod { object: pod, name, leaving: false }
    }

    /// Marks a new pod with its source and the time. A mirror pod from the API server carries those of its static
    /// pod; believed, they would make it a static pod itself.
    fn mark(&self, pod: &mut Arc<P>) {
        annotate(pod, CONFIG_SOURCE_ANNOTATION, self.source.as_str());
        // Manifests are marked when they are read.
        if self.source == Source::Api || pod.annotation(CONFIG_SEEN_ANNOTATION).is_none() {
            annotate(pod, CONFIG_SEEN_ANNOTATION, &self.now);
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
        self.merged.problems.push(Problem::new(
            kind,
            self.source.as_str(),
            None,
            Some(field.to_owned()),
            message,
        ));
    }
}

/// Who a pod is, or which field keeps it from being anybody, and why.
fn identity<P: SourcePod>(pod: &P) -> Result<(PodUid, FullName), (&'static str, String)> {
    if pod.uid().is_empty() {
        return Err(("metadata.uid", "must not be empty".to_owned()));
    }
    match FullName::new(pod.name(), pod.namespace()) {
        Ok(name) => Ok((PodUid::from(pod.uid()), name)),
        Err(error) => Err(("metadata.name", error.to_string())),
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
