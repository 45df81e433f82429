//! A set gives the same index as if all pods were stored in an empty one, whatever was there before.
//!
//! The sets here are large, and most of their pods stay, as in a list that is read again. More cases: `PROPTEST_CASES=100000 cargo test --release --test index set_pods::`. A failing test prints how to
//! repeat its cases.

#[path = "support/seeded.rs"]
mod seeded;
mod support;

use std::sync::Arc;

use pod_index::Operation;
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

/// The pod that usually has this UID: three of five are plain, one is static, one is its mirror.
fn usual(uid: usize) -> Arc<TestPod> {
    let (kind, name) = [(0, uid), (1, uid), (2, uid.saturating_sub(1))][(uid % 5).saturating_sub(2)];
    pod(uid, name, kind, uid % COMBINATIONS)
}

fn pod(uid: usize, name: usize, kind: usize, of: usize) -> Arc<TestPod> {
    let (uid, name) = (format!("{:032x}", uid + 7), format!("pod-{name}"));
    let pod = match kind {
        0 => TestPod::plain(&uid, &name),
        1 => TestPod::fixed(&uid, &name),
        _ => TestPod::mirror(&uid, &name, "hash"),
    };
    pod.with_keys(keys(of)).with_ephemeral(of % 3)
}

/// Half of them have their usual name, which others take.
fn pods() -> impl Strategy<Value = Arc<TestPod>> {
    prop_oneof![
        (0..UIDS).prop_map(usual),
        (0..UIDS, 0..UIDS, 0..3usize, 0..COMBINATIONS)
            .prop_map(|(uid, name, kind, of)| pod(uid, name, kind, of)),
    ]
}

/// A pod takes this place of the list before the next set, or joins it, or the one at the place leaves.
fn edits() -> impl Strategy<Value = (usize, Option<Arc<TestPod>>)> {
    (0..UIDS, prop::option::weighted(0.7, pods()))
}

/// Writes before a set, half of them in the same batch: updates and removals.
fn writes() -> impl Strategy<Value = Vec<(Arc<TestPod>, bool)>> {
    vec((pods(), any::<bool>()), 0..3)
}

#[test]
fn a_set_gives_the_index_that_a_fresh_one_would_be() {
    let universe = Universe {
        uids: (0..UIDS).map(|uid| format!("{:032x}", uid + 7)).collect(),
        full_names: (0..UIDS).map(|name| format!("pod-{name}_default")).collect(),
    };
    let result = TestRunner::new(seeded(64)).run(&vec((vec(edits(), 0..8), writes()), 1..12), |sets| {
        let (mut writer, reader) = pod_index::new::<TestPod>();
        let mut pods: Vec<_> = (0..FIRST).map(usual).collect();
        let _ = writer.set_pods(pods.clone());
        // What is not edited stays the same object.
        for (version, (edits, writes)) in (1..).zip(sets) {
            for (at, pod) in edits {
                let pod = pod.map(|pod| Arc::new(TestPod { version, ..Arc::unwrap_or_clone(pod) }));
                match pod {
                    Some(pod) if at < pods.len() => pods[at] = pod,
                    Some(pod) => pods.push(pod),
                    None if at < pods.len() => drop(pods.swap_remove(at)),
                    None => {}
                }
            }
            let mut batch: Vec<_> =
                writes
                    .into_iter()
                    .map(|(pod, leaves)| {
                        if leaves {
                            Operation::Remove(pod.uid.as_str().into())
                        } else {
                            Operation::Upsert(pod)
                        }
                    })
                    .collect();
            if version % 2 == 0 {
                let _ = writer.apply(batch.drain(..));
            }
            batch.push(Operation::Set(pods.clone()));
            assert!(writer.apply(batch).refused.is_empty());
            let (mut fresh, other) = pod_index::new::<TestPod>();
            let _ = fresh.set_pods(pods.iter().cloned());
            invariants::check(&reader.load());
            assert_eq!(Observation::of(&reader.load(), &universe), Observation::of(&other.load(), &universe));
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}
