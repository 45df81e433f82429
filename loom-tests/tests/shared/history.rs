//! A history of writes, and the states it passes through.

use pod_index::{Operation, Snapshot, Writer};
use std::sync::Arc;

use crate::support::TestPod;
use crate::support::invariants;
use crate::support::model::Model;
use crate::support::observation::{Observation, Universe};

/// One write. A batch of several operations must be visible completely or not at all.
pub type Batch = Vec<Write>;

/// Like [`Operation`], with only one way to express each change.
#[derive(Clone, Debug)]
pub enum Write {
    Set(Vec<Arc<TestPod>>),
    Put(Arc<TestPod>),
    Remove(&'static str),
}

/// Batches, and the state after each: `states[generation]`.
pub struct History {
    pub batches: Vec<Batch>,
    states: Vec<Observation>,
    universe: Universe,
}

impl History {
    /// # Panics
    /// If the model refuses a pod: histories contain only valid ones.
    #[must_use]
    pub fn new(batches: Vec<Batch>) -> Self {
        let mut universe = Universe::default();
        let mut know = |pod: &Arc<TestPod>| {
            universe.uids.push(pod.uid.clone());
            universe.full_names.push(format!("{}_{}", pod.name, pod.namespace));
        };
        for write in batches.iter().flatten() {
            match write {
                Write::Set(pods) => pods.iter().for_each(&mut know),
                Write::Put(pod) => know(pod),
                Write::Remove(_) => {}
            }
        }
        for list in [&mut universe.uids, &mut universe.full_names] {
            list.sort_unstable();
            list.dedup();
        }
        let mut model = Model::default();
        let mut states = vec![model.observe(&universe)];
        for batch in &batches {
            for write in batch {
                match write {
                    Write::Set(pods) => assert_eq!(model.set(pods), []),
                    Write::Put(pod) => drop(model.upsert(pod)),
                    Write::Remove(uid) => drop(model.remove(uid)),
                }
            }
            let state = model.observe(&universe);
            assert!(!states.contains(&state), "two states that are indistinguishable");
            states.push(state);
        }
        Self { batches, states, universe }
    }

    /// Writes the whole history.
    pub fn write(&self, writer: &mut Writer<TestPod>) {
        for batch in &self.batches {
            self.write_batch(writer, batch);
        }
    }

    /// # Panics
    /// If the batch is not one publication.
    pub fn write_batch(&self, writer: &mut Writer<TestPod>, batch: &Batch) {
        let operations = batch.iter().cloned().map(|write| match write {
            Write::Set(pods) => Operation::Set(pods),
            Write::Put(pod) => Operation::Upsert(pod),
            Write::Remove(uid) => Operation::Remove(uid.into()),
        });
        assert!(writer.apply(operations).published);
    }

    /// The generation whose state all reads of `snapshot` match.
    ///
    /// # Panics
    /// If they match no single state.
    pub fn check(&self, snapshot: &Snapshot<TestPod>) -> usize {
        let observation = Observation::of(snapshot, &self.universe);
        let state = self.states.iter().position(|state| *state == observation);
        state.unwrap_or_else(|| panic!("these reads do not belong together: {observation:?}"))
    }

    /// The last state.
    #[must_use]
    pub fn last(&self) -> usize {
        self.batches.len()
    }

    /// Checks that a mirror and its static pod share a full name, and all other invariants, in a visible
    /// snapshot.
    pub fn check_invariants(snapshot: &Snapshot<TestPod>) {
        invariants::check(snapshot);
    }
}

/// Add, rename, change of the mirror's UID, removal of the static pod and its return, orphaning: everything
/// that can happen to a pair. The mirror's UID returns under another name in the same batch as the pod that
/// had it. A reader that reads twice, or sees half of a batch, pairs a mirror with the wrong pod.
#[must_use]
pub fn life_of_a_pair() -> Vec<Batch> {
    let (fixed, mirror) = (TestPod::fixed, TestPod::mirror);
    vec![
        vec![Write::Put(fixed("s1", "web")), Write::Put(mirror("m1", "web", "s1"))],
        // m1 returns under another name, together with the static pod that it now mirrors. s1 stays.
        vec![Write::Put(mirror("m1", "db", "s2")), Write::Put(fixed("s2", "db"))],
        // The mirror is replaced by one with another UID.
        vec![Write::Put(mirror("m2", "db", "s2")), Write::Remove("m1"), Write::Remove("s1")],
        // The static pod is removed; the mirror is an orphan.
        vec![Write::Remove("s2")],
        // It is added again with a new UID, and renamed with its mirror.
        vec![Write::Put(fixed("s3", "db")), Write::Put(mirror("m1", "web", "s1"))],
        vec![Write::Put(fixed("s3", "web")), Write::Put(mirror("m2", "web", "s3")), Write::Remove("m1")],
        vec![Write::Set(vec![fixed("s1", "web"), mirror("m3", "web", "s1")])],
    ]
}

/// `lives` such histories in sequence, each with its own objects.
#[must_use]
#[allow(dead_code, reason = "only some of the programs that include this file use it")]
pub fn lives_of_a_pair(lives: u64) -> Vec<Batch> {
    let version = |pod: Arc<TestPod>, version| Arc::new(TestPod { version, ..Arc::unwrap_or_clone(pod) });
    let mut batches = Vec::new();
    for life in 0..lives {
        batches.extend(life_of_a_pair().into_iter().map(|batch| {
            let writes = batch.into_iter().map(|write| match write {
                Write::Set(pods) => Write::Set(pods.into_iter().map(|pod| version(pod, life)).collect()),
                Write::Put(pod) => Write::Put(version(pod, life)),
                Write::Remove(uid) => Write::Remove(uid),
            });
            writes.collect()
        }));
    }
    batches
}
