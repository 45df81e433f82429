//! Histories: well-formed or hostile inputs, and how they are applied to an index and the model together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_index::{
    Applied, CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, Change, Moment,
    Operation, Options, Reader, Snapshot, Upserted, Writer,
};

use super::TestPod;
use super::invariants;
use super::keys::{self, KeyAnswers};
use super::model::{Model, Upsert};
use super::observation::{Observation, Universe, id};
use super::removed::{RemovedAnswers, moment, time};

/// UIDs in every representation: short, both usual spellings, long; two that differ only in spelling; empty.
pub const UIDS: [&str; 10] = [
    "a",
    "b",
    "c",
    "d",
    "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
    "longer-than-twenty-two-bytes-1",
    "longer-than-twenty-two-bytes-2",
    "",
];
pub const NAMES: [&str; 5] = ["web", "db", "etcd", "we_b", ""];
pub const NAMESPACES: [&str; 4] = ["default", "kube-system", "", "n_s"];

/// All UIDs and names that histories may use, and some that they never use.
pub fn universe() -> Universe {
    let mut universe = Universe::default();
    universe.uids.extend(UIDS.map(str::to_owned));
    universe.uids.push("never-seen".to_owned());
    for name in NAMES {
        for namespace in NAMESPACES {
            universe.full_names.push(format!("{name}_{namespace}"));
        }
    }
    universe.full_names.extend(["no-separator".to_owned(), "never_seen".to_owned()]);
    universe
}

/// The parts of a pod, as indices into the lists above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec {
    pub uid: usize,
    pub name: usize,
    pub namespace: usize,
    pub kind: Kind,
    pub ephemeral: usize,
    /// See [`keys`].
    pub keys: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No annotations.
    Bare,
    /// From the API server.
    Api,
    File,
    Http,
    Mirror,
    /// A mirror whose hash is empty.
    EmptyMirror,
    /// A manifest annotated as a mirror.
    StaticMirror,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    Upsert(Spec),
    /// The very object that is stored, again; an index into the live pods, modulo their number.
    Again(usize),
    RemoveUid(usize),
    /// Removal by a pod that may differ from the stored one.
    RemovePod(Spec),
    Set(Vec<Spec>),
    /// The stored pods in reverse, without some (`1 << n` in the mask), plus new ones.
    SetSome(u16, Vec<Spec>),
    /// Two live pods swap their names in one batch.
    SwapNames(usize, usize),
    Batch(Vec<Step>),
    /// This many ticks later. Not in a batch.
    Expire(u64),
}

/// An index and the model, with the same history.
pub struct Run {
    pub writer: Writer<TestPod>,
    pub reader: Reader<TestPod>,
    pub model: Model,
    pub universe: Universe,
    generation: u64,
    versions: u64,
}

impl Default for Run {
    fn default() -> Self {
        let (writer, reader) = pod_index::new();
        Self { writer, reader, model: Model::default(), universe: universe(), generation: 0, versions: 0 }
    }
}

impl Run {
    /// Keeps removed pods for so many ticks, and so many of them.
    pub fn keeping(max_age: u64, max_pods: usize) -> Self {
        let options = Options::new().keep_removed(Duration::from_secs(max_age), max_pods);
        let (writer, reader) = pod_index::with_options(options);
        let mut run = Self { writer, reader, ..Self::default() };
        run.model.removals.limits = (max_age > 0 && max_pods > 0).then_some((max_age, max_pods));
        run.expire(0);
        run
    }

    /// One step on both. Panics if their results differ.
    pub fn step(&mut self, step: &Step) {
        if let Step::Batch(steps) = step {
            return self.batch(steps);
        }
        if let Step::Expire(ticks) = step {
            return self.expire(*ticks);
        }
        for operation in self.operations(step) {
            self.single(operation);
        }
    }

    fn expire(&mut self, ticks: u64) {
        let now = self.model.removals.now.unwrap_or_default() + ticks;
        let expected = self.model.removals.expire(now);
        let pods = self.writer.current().pods_generation();
        assert_eq!(self.writer.advance(moment(now)), expected, "how many are dropped");
        self.published(expected > 0);
        assert_eq!(self.writer.current().pods_generation(), pods, "no pod has changed");
        assert_eq!(self.writer.advance(moment(now / 2)), 0, "time never goes back");
    }

    /// The moment of the writes, if the index keeps removed pods.
    fn moment(&self) -> Option<Moment> {
        self.model.removals.now.map(moment)
    }

    fn apply(&mut self, operations: Vec<Operation<TestPod>>) -> Applied {
        match self.moment() {
            Some(moment) => self.writer.apply_at(moment, operations),
            None => self.writer.apply(operations),
        }
    }

    /// One operation, using the writer's own method for it.
    fn single(&mut self, operation: Operation<TestPod>) {
        match operation {
            Operation::Upsert(pod) => {
                let result = self.writer.upsert_pod(Arc::clone(&pod));
                let expected = self.model.upsert(&pod);
                let upsert = match &result {
                    Ok(Upserted::Unchanged) => Upsert::Unchanged,
                    Ok(Upserted::Added) => Upsert::Added,
                    Ok(Upserted::Replaced(old)) => Upsert::Replaced(id(old)),
                    Ok(other) => panic!("an unknown outcome: {other:?}"),
                    Err(error) => Upsert::Refused(error.field),
                };
                assert_eq!(upsert, expected, "the upsert of {pod:?}");
                self.published(matches!(upsert, Upsert::Added | Upsert::Replaced(_)));
            }
            Operation::Remove(uid) => {
                let removed = match self.moment() {
                    None => self.writer.remove_pod_by_uid(&uid),
                    Some(moment) => {
                        let current = self.writer.current();
                        let stored = current.pod_by_uid(&uid).or(current.mirror_pod_by_uid(&uid)).cloned();
                        let applied = self.writer.apply_at(moment, [Operation::Remove(uid.clone())]);
                        stored.filter(|_| applied.published)
                    }
                };
                let expected = self.model.remove(&uid.to_string());
                assert_eq!(removed.as_ref().map(id), expected.as_ref().map(id), "the removal of {uid}");
                self.published(removed.is_some());
            }
            Operation::Set(pods) => {
                let before: Vec<_> = self.model.live().cloned().collect();
                let applied = match self.moment() {
                    None => self.writer.set_pods(pods.clone()),
                    Some(moment) => self.writer.apply_at(moment, [Operation::Set(pods.clone())]),
                };
                let refused = self.model.set(&pods);
                let reported: Vec<_> =
                    applied.refused.iter().map(|refused| (refused.position, refused.error.field)).collect();
                assert_eq!(reported, refused, "who was refused");
                if !applied.published {
                    let after: Vec<_> = self.model.live().cloned().collect();
                    assert_eq!(before.len(), after.len(), "a set that is not published changes nothing");
                    assert!(before.iter().zip(&after).all(|(before, after)| Arc::ptr_eq(before, after)));
                }
                self.applied(&applied);
            }
        }
    }

    /// All steps in one batch; none of it may be visible before all of it is.
    fn batch(&mut self, steps: &[Step]) {
        let mut operations = Vec::new();
        let mut refused = Vec::new();
        for step in steps {
            // The model, which is ahead, knows the live pods.
            for operation in self.operations(step) {
                match &operation {
                    Operation::Upsert(pod) => {
                        if let Upsert::Refused(field) = self.model.upsert(pod) {
                            refused.push((operations.len(), 0, field));
                        }
                    }
                    Operation::Remove(uid) => drop(self.model.remove(&uid.to_string())),
                    Operation::Set(pods) => {
                        let of_set = self.model.set(pods).into_iter();
                        refused.extend(of_set.map(|(position, field)| (operations.len(), position, field)));
                    }
                }
                operations.push(operation);
            }
        }
        let applied = self.apply(operations);
        let reported: Vec<_> = applied
            .refused
            .iter()
            .map(|refused| (refused.operation, refused.position, refused.error.field))
            .collect();
        assert_eq!(reported, refused, "who was refused");
        self.applied(&applied);
    }

    fn applied(&mut self, applied: &Applied) {
        self.published(applied.published);
        assert_eq!(applied.generation, self.generation);
    }

    fn published(&mut self, published: bool) {
        self.generation += u64::from(published);
        assert_eq!(self.writer.current().generation(), self.generation, "one publication or none");
        assert_eq!(self.reader.load().generation(), self.generation, "what is published is seen");
    }

    /// The operations of a step in the current state.
    fn operations(&mut self, step: &Step) -> Vec<Operation<TestPod>> {
        match step {
            Step::Upsert(spec) => vec![Operation::Upsert(self.pod(*spec))],
            Step::Again(which) => {
                self.living(*which).map(|pod| Operation::Upsert(Arc::clone(pod))).into_iter().collect()
            }
            Step::RemoveUid(uid) => vec![Operation::Remove(UIDS[*uid].into())],
            Step::RemovePod(spec) => vec![Operation::Remove(UIDS[spec.uid].into())],
            Step::Set(specs) => vec![Operation::Set(specs.iter().map(|spec| self.pod(*spec)).collect())],
            Step::SetSome(without, specs) => {
                let mut pods: Vec<_> = self.model.live().cloned().collect();
                pods.reverse();
                let mut number = 0;
                pods.retain(|_| {
                    number += 1;
                    without >> (number - 1) & 1 == 0
                });
                pods.extend(specs.iter().map(|spec| self.pod(*spec)));
                vec![Operation::Set(pods)]
            }
            Step::SwapNames(first, second) => {
                let pair = self.living(*first).zip(self.living(*second));
                let Some((first, second)) = pair.map(|(first, second)| (first.clone(), second.clone()))
                else {
                    return Vec::new();
                };
                self.versions += 2;
                let renamed = |pod: &TestPod, name: &TestPod, version| TestPod {
                    name: name.name.clone(),
                    namespace: name.namespace.clone(),
                    version,
                    ..pod.clone()
                };
                vec![
                    Operation::Upsert(Arc::new(renamed(&first, &second, self.versions - 1))),
                    Operation::Upsert(Arc::new(renamed(&second, &first, self.versions))),
                ]
            }
            Step::Expire(_) => Vec::new(),
            Step::Batch(steps) => steps.iter().flat_map(|step| self.operations(step)).collect(),
        }
    }

    fn living(&self, which: usize) -> Option<&Arc<TestPod>> {
        let living = self.model.live().count();
        self.model.live().nth(which.checked_rem(living)?)
    }

    /// A new object with its own version.
    pub fn pod(&mut self, spec: Spec) -> Arc<TestPod> {
        self.versions += 1;
        Arc::new(pod(spec, self.versions))
    }

    /// Panics unless every read of the index equals the model's, and all invariants hold.
    pub fn compare(&self) -> Observation {
        let snapshot = self.reader.load();
        invariants::check(&snapshot);
        let observation = Observation::of(&snapshot, &self.universe);
        assert_eq!(observation, self.model.observe(&self.universe));
        self.compare_keys(&observation);
        self.compare_removed(&snapshot);
        observation
    }

    /// Panics unless the removed pods are the model's.
    pub fn compare_removed(&self, snapshot: &Snapshot<TestPod>) -> RemovedAnswers {
        let removals = &self.model.removals;
        let answers = RemovedAnswers::of(snapshot, &self.universe);
        assert_eq!(answers, RemovedAnswers::expected(removals, &self.universe, snapshot));
        assert_eq!(self.writer.next_deadline(), removals.deadline().map(time));
        answers
    }

    /// Panics unless all keys are those of a fresh index of the same pods, in whatever order they come.
    fn compare_keys(&self, observation: &Observation) {
        let mut pods: Vec<_> = self.model.live().cloned().collect();
        let at = self.versions.checked_rem(pods.len() as u64).unwrap_or_default();
        pods.rotate_left(usize::try_from(at).unwrap_or_default());
        let (mut writer, reader) = pod_index::new::<TestPod>();
        let _ = writer.set_pods(pods);
        assert_eq!(KeyAnswers::of(&reader.load()), observation.by_key, "a fresh index");
    }

    /// Panics unless the reported changes lead from `before` to `after`. Returns their number.
    pub fn compare_changes(before: &Snapshot<TestPod>, after: &Snapshot<TestPod>) -> usize {
        replay(&mut all(before), &after.changes_since(before), after)
    }
}

/// All pods by UID, as a follower knows them.
pub type Replayed = BTreeMap<String, Arc<TestPod>>;

fn all(snapshot: &Snapshot<TestPod>) -> Replayed {
    let pods = snapshot.pods().chain(snapshot.mirror_pods());
    pods.map(|pod| (pod.uid.clone(), Arc::clone(pod))).collect()
}

/// Panics unless each of the changes is one, and they lead from `known` to `after`. Returns their number.
pub fn replay(known: &mut Replayed, changes: &[Change<'_, TestPod>], after: &Snapshot<TestPod>) -> usize {
    let mut upserts = changes.iter().skip_while(|change| change.after().is_none());
    assert!(upserts.all(|change| change.after().is_some()), "removals come first");
    for change in changes {
        let [old, new] = [change.before(), change.after()].map(|pod| pod.map(Arc::as_ptr));
        assert_ne!(old, new, "it has not changed: {change:?}");
        let known = match change.after() {
            Some(pod) => known.insert(change.uid().to_owned(), Arc::clone(pod)),
            None => known.remove(change.uid()),
        };
        assert_eq!(known.as_ref().map(Arc::as_ptr), old, "{change:?}");
    }
    let all = all(after);
    assert_eq!(known.len(), all.len());
    assert!(known.iter().all(|(uid, pod)| all.get(uid).is_some_and(|there| Arc::ptr_eq(there, pod))));
    changes.len()
}

/// The pod that `spec` describes.
pub fn pod(spec: Spec, version: u64) -> TestPod {
    let (uid, hash) = (UIDS[spec.uid], format!("hash-of-{}", UIDS[spec.uid]));
    let annotations: &[(&str, &str)] = match spec.kind {
        Kind::Bare => &[],
        Kind::Api => &[(CONFIG_SOURCE_ANNOTATION, "api")],
        Kind::File => &[(CONFIG_SOURCE_ANNOTATION, "file"), (CONFIG_HASH_ANNOTATION, &hash)],
        Kind::Http => &[(CONFIG_SOURCE_ANNOTATION, "http"), (CONFIG_HASH_ANNOTATION, &hash)],
        Kind::Mirror => &[(CONFIG_SOURCE_ANNOTATION, "api"), (CONFIG_MIRROR_ANNOTATION, "some-hash")],
        Kind::EmptyMirror => &[(CONFIG_MIRROR_ANNOTATION, "")],
        Kind::StaticMirror => &[(CONFIG_SOURCE_ANNOTATION, "file"), (CONFIG_MIRROR_ANNOTATION, "x")],
    };
    TestPod {
        uid: uid.to_owned(),
        name: NAMES[spec.name].to_owned(),
        namespace: NAMESPACES[spec.namespace].to_owned(),
        annotations: annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ephemeral: spec.ephemeral,
        version,
        keys: keys::keys(spec.keys),
    }
}
