//! A set gives the same index as if all pods were stored in an empty one, whatever was there before.
//!
//! The sets here are large, and most of their pods stay, as in a list that is read again. More cases: `PROPTEST_CASES=100000 cargo test --release --test set_pods`. A failing test prints how to
//! repeat its cases.

#[path = "support/seeded.rs"]
mod seeded;
mod support;

use std::sync::Arc;

use pod_index::{Operation, Options};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use seeded::seeded;
use support::TestPod;
use support::invariants;
use support::keys::{COMBINATIONS, keys};
use support::observation::{Observation, Universe};

/// UIDs that a history may use. As many full names, of which pods and mirrors share half.
const UIDS: usize = 60;
/// Number of pods in the first set.
const FIRST: usize = 40;

/// A pod, by numbers.
#[derive(Clone, Copy, Debug)]
struct Spec {
    uid: usize,
    name: usize,
    kind: usize,
    keys: usize,
}

/// A change of the list of pods before the next set, or a write between two sets. The numbers select a pod.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Renew(usize, usize),
    Leave(usize),
    Join(usize),
    /// A new pod, first in the list, with the name of another.
    Intrude(usize, usize),
    Recreate(usize, usize),
    Rename(usize, usize),
    TakeName(usize, usize),
    TakeUid(usize, usize),
    ChangeKind(usize),
    Swap(usize, usize),
    Repeat(usize, usize),
    Write(usize),
    Remove(usize),
}

impl Spec {
    /// The pod that usually has this UID: three of five are plain, one is static, one is its mirror.
    fn usual(uid: usize) -> Self {
        let (kind, name) = match uid % 5 {
            3 => (1, uid),
            4 => (2, uid - 1),
            _ => (0, uid),
        };
        Self { uid, name, kind, keys: uid % COMBINATIONS }
    }

    fn pod(self, version: u64) -> Arc<TestPod> {
        let (uid, name) = (format!("{:032x}", self.uid + 7), format!("pod-{}", self.name));
        let pod = match self.kind {
            0 => TestPod::plain(&uid, &name),
            1 => TestPod::fixed(&uid, &name),
            _ => TestPod::mirror(&uid, &name, "hash"),
        };
        let mut pod = pod.with_keys(keys(self.keys)).with_ephemeral(self.keys % 3);
        Arc::make_mut(&mut pod).version = version;
        pod
    }
}

fn edits() -> impl Strategy<Value = Edit> {
    let one = || 0..UIDS;
    prop_oneof![
        6 => (one(), 0..COMBINATIONS).prop_map(|(pod, keys)| Edit::Renew(pod, keys)),
        4 => one().prop_map(Edit::Leave),
        4 => one().prop_map(Edit::Join),
        2 => (one(), one()).prop_map(|(uid, other)| Edit::Intrude(uid, other)),
        2 => (one(), one()).prop_map(|(pod, uid)| Edit::Recreate(pod, uid)),
        1 => (one(), one()).prop_map(|(pod, name)| Edit::Rename(pod, name)),
        1 => (one(), one()).prop_map(|(pod, other)| Edit::TakeName(pod, other)),
        1 => (one(), one()).prop_map(|(pod, other)| Edit::TakeUid(pod, other)),
        1 => one().prop_map(Edit::ChangeKind),
        1 => (one(), one()).prop_map(|(pod, other)| Edit::Swap(pod, other)),
        1 => (one(), one()).prop_map(|(pod, other)| Edit::Repeat(pod, other)),
        3 => one().prop_map(Edit::Write),
        3 => one().prop_map(Edit::Remove),
    ]
}

#[test]
fn a_set_gives_the_index_that_a_fresh_one_would_be() {
    let universe = Universe {
        uids: (0..UIDS).map(|uid| format!("{:032x}", uid + 7)).collect(),
        full_names: (0..UIDS).map(|name| format!("pod-{name}_default")).collect(),
    };
    let result = TestRunner::new(seeded(64)).run(&vec(vec(edits(), 0..4), 1..12), |sets| {
        let (mut writer, reader) = pod_index::with_options::<TestPod>(Options::new());
        let mut specs: Vec<_> = (0..FIRST).map(Spec::usual).collect();
        let _ = writer.set_pods(specs.iter().map(|spec| spec.pod(0)));
        for (version, edits) in (1..).zip(&sets) {
            let mut batch = Vec::new();
            for edit in edits {
                let len = specs.len();
                let at = |pod: usize| pod % len;
                match *edit {
                    _ if len == 0 => {}
                    Edit::Renew(pod, keys) => specs[at(pod)].keys = keys,
                    Edit::Leave(pod) => _ = specs.swap_remove(at(pod)),
                    Edit::Join(uid) if specs.iter().any(|spec| spec.uid == uid) => {}
                    Edit::Join(uid) => specs.push(Spec::usual(uid)),
                    Edit::Intrude(uid, _) if specs.iter().any(|spec| spec.uid == uid) => {}
                    Edit::Intrude(uid, other) => specs.insert(0, Spec { uid, ..specs[at(other)] }),
                    // Another UID under the same name.
                    Edit::Recreate(pod, uid) => specs[at(pod)].uid = uid,
                    Edit::Rename(pod, name) => specs[at(pod)].name = name,
                    Edit::TakeName(pod, other) => specs[at(pod)].name = specs[at(other)].name,
                    Edit::TakeUid(pod, other) => specs[at(pod)].uid = specs[at(other)].uid,
                    Edit::ChangeKind(pod) => specs[at(pod)].kind = (specs[at(pod)].kind + 1) % 3,
                    Edit::Swap(pod, other) => specs.swap(at(pod), at(other)),
                    Edit::Repeat(pod, other) => specs[at(pod)] = specs[at(other)],
                    // In the same batch, or before.
                    Edit::Write(uid) if uid % 2 == 0 => {
                        batch.push(Operation::Update(Spec::usual(uid).pod(1_000 + version)));
                    }
                    Edit::Write(uid) => _ = writer.update_pod(Spec::usual(uid).pod(1_000 + version)),
                    Edit::Remove(uid) if uid % 2 == 0 => {
                        batch.push(Operation::Remove(format!("{:032x}", uid + 7).as_str().into()));
                    }
                    Edit::Remove(uid) => _ = writer.remove_pod(&*Spec::usual(uid).pod(0)),
                }
            }
            // Every other pod is the object of the set before.
            let pods: Vec<_> = specs
                .iter()
                .map(|spec| {
                    let old = reader.load().pod_by_uid(format!("{:032x}", spec.uid + 7).as_str()).cloned();
                    old.filter(|pod| spec.uid % 2 == 0 && **pod == *spec.pod(pod.version))
                        .unwrap_or_else(|| spec.pod(version))
                })
                .collect();
            batch.push(Operation::Set(pods.clone()));
            assert!(writer.apply(batch).refused.is_empty());
            let (mut fresh, other) = pod_index::with_options::<TestPod>(Options::new());
            let _ = fresh.set_pods(pods);
            invariants::check(&reader.load());
            assert_eq!(Observation::of(&reader.load(), &universe), Observation::of(&other.load(), &universe));
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_refused_pod_of_a_set_that_changes_few_pods_is_reported_and_nothing_else_is_lost() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let mut pods: Vec<_> = (0..FIRST).map(|uid| Spec::usual(uid).pod(0)).collect();
    let _ = writer.set_pods(pods.clone());
    pods[11] = TestPod::plain("", "nameless");
    let applied = writer.set_pods(pods.clone());
    assert!(applied.published);
    let refused: Vec<_> = applied.refused.iter().map(|refused| refused.position).collect();
    assert_eq!(refused, [11]);
    let snapshot = reader.load();
    assert_eq!(snapshot.pods().len() + snapshot.mirror_pods().len(), FIRST - 1);
    assert!(snapshot.pod_by_name("default", "pod-11").is_none(), "its old object is gone");
}

#[test]
fn of_two_new_pods_with_one_uid_a_set_that_changes_few_pods_keeps_the_last() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let mut pods: Vec<_> = (0..FIRST).map(|uid| Spec::usual(uid).pod(0)).collect();
    let _ = writer.set_pods(pods.clone());
    pods.extend(["one", "other"].map(|name| TestPod::plain("new", name)));
    let _ = writer.set_pods(pods);
    let snapshot = reader.load();
    assert_eq!(snapshot.pods().len() + snapshot.mirror_pods().len(), FIRST + 1);
    assert_eq!(snapshot.pod_by_uid("new").map(|pod| pod.name.as_str()), Some("other"));
    assert!(snapshot.pod_by_name("default", "one").is_none());
}

#[test]
fn a_set_removes_a_pod_that_the_same_batch_stored_before() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let pods: Vec<_> = (0..FIRST).map(|uid| Spec::usual(uid).pod(0)).collect();
    let _ = writer.set_pods(pods.clone());
    let _ = writer.apply([Operation::Add(Spec::usual(FIRST).pod(0)), Operation::Set(pods.clone())]);
    assert_eq!(reader.load().pods().len() + reader.load().mirror_pods().len(), FIRST);
    let _ = writer.apply([Operation::Update(Spec::usual(0).pod(1)), Operation::Set(pods[1..].to_vec())]);
    assert_eq!(reader.load().pods().len() + reader.load().mirror_pods().len(), FIRST - 1);
}
