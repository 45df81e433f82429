//! The index at sizes at which its structures split, grow, shrink and become empty, compared with two
//! independent maps: std's, and imbl's for kept snapshots, since its clones are immutable too.

mod support;

use std::collections::HashMap;
use std::sync::Arc;

use pod_index::{Operation, Snapshot};
use support::{Random, TestPod};

type Pods = im::OrdMap<String, Arc<TestPod>>;

/// A UID in one of four spellings, and a pod with its own name. Every tenth is static, every eleventh a
/// mirror.
fn pod(number: usize, version: u64) -> Arc<TestPod> {
    let uid = match number % 4 {
        0 => format!("{number:08x}-0000-4000-8000-{:012x}", number * 7),
        1 => format!("{:032x}", number * 0x9e37_79b9),
        2 => format!("short-{number}"),
        _ => format!("a-uid-that-is-long-enough-to-be-allocated-{number}"),
    };
    let name = format!("pod-{number}_namespace-{}", number % 17);
    let pod = match number % 110 {
        0 | 10 | 20 | 30 => TestPod::fixed(&uid, &name),
        11 | 22 | 33 => TestPod::mirror(&uid, &name, "hash"),
        _ => TestPod::plain(&uid, &name),
    };
    Arc::new(TestPod { version, ..Arc::unwrap_or_clone(pod) })
}

fn found<'a>(snapshot: &'a Snapshot<TestPod>, pod: &TestPod) -> [Option<&'a Arc<TestPod>>; 2] {
    let full_name = format!("{}_{}", pod.name, pod.namespace);
    if pod_index::is_mirror_pod(pod) {
        assert!(snapshot.pod_by_uid(&pod.uid).is_none());
        [snapshot.mirror_pod_by_uid(&pod.uid), snapshot.mirror_pod_by_full_name(&full_name)]
    } else {
        assert!(snapshot.mirror_pod_by_uid(&pod.uid).is_none());
        [snapshot.pod_by_uid(&pod.uid), snapshot.pod_by_full_name(&full_name)]
    }
}

/// The index finds exactly the map's pods, under both keys, and the views list them.
fn compare(snapshot: &Snapshot<TestPod>, pods: &Pods) {
    for pod in pods.values() {
        for found in found(snapshot, pod) {
            assert!(found.is_some_and(|found| Arc::ptr_eq(found, pod)), "{} is found", pod.uid);
        }
    }
    let mut seen = 0;
    for pod in snapshot.pods().chain(snapshot.mirror_pods()) {
        assert!(
            pods.get(&pod.uid).is_some_and(|known| Arc::ptr_eq(known, pod)),
            "{} is in the index",
            pod.uid
        );
        seen += 1;
    }
    assert_eq!(seen, pods.len());
    assert_eq!(snapshot.pods().len() + snapshot.mirror_pods().len(), pods.len());
}

/// Grows to `sizes[0]` pods, shrinks to `sizes[1]`, and so on, by random adds, updates and removals, in batches of `batch`.
fn up_and_down(sizes: &[usize], batch: usize) {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let mut random = Random(0x2545_f491);
    let mut live: Vec<usize> = Vec::new();
    let mut places: HashMap<usize, usize> = HashMap::new();
    let mut pods = Pods::new();
    let (mut next, mut version) = (0, 0);
    let mut kept = Vec::new();
    for &size in sizes {
        while live.len() != size {
            let mut operations = Vec::new();
            for _ in 0..batch {
                version += 1;
                let grows = live.len() < size;
                let chance = random.below(8);
                if live.len() == size {
                    break;
                } else if chance == 0 && !live.is_empty() {
                    let pod = pod(live[random.index(live.len())], version);
                    pods.insert(pod.uid.clone(), Arc::clone(&pod));
                    operations.push(Operation::Upsert(pod));
                } else if grows == (chance != 1) || live.is_empty() {
                    let pod = pod(next, version);
                    places.insert(next, live.len());
                    live.push(next);
                    next += 1;
                    pods.insert(pod.uid.clone(), Arc::clone(&pod));
                    operations.push(Operation::Upsert(pod));
                } else {
                    let place = random.index(live.len());
                    let gone = live.swap_remove(place);
                    places.remove(&gone);
                    if let Some(moved) = live.get(place) {
                        places.insert(*moved, place);
                    }
                    let gone = pod(gone, 0);
                    assert!(pods.remove(&gone.uid).is_some());
                    operations.push(Operation::Remove(gone.uid.as_str().into()));
                }
            }
            assert!(writer.apply(operations).refused.is_empty());
            // A few of each kind after each batch; occasionally all of them.
            let snapshot = reader.load();
            for _ in 0..4 {
                let number = random.index(next + 10);
                let pod = pod(number, 0);
                let expected = places.contains_key(&number).then(|| &pods[&pod.uid]);
                assert_eq!(found(&snapshot, &pod), [expected; 2], "{}", pod.uid);
            }
        }
        compare(&reader.load(), &pods);
        kept.push((reader.snapshot(), pods.clone()));
    }
    for (snapshot, pods) in &kept {
        compare(snapshot, pods);
    }
}

#[test]
fn added_pods_are_found_and_removed_pods_are_not_at_every_size() {
    up_and_down(&[300, 0, 40, 3, 2_000, 100, 1_000, 0, 1, 0], 1);
}

#[test]
fn twenty_thousand_pods_are_added_in_batches_removed_and_added_again() {
    up_and_down(&[20_000, 0, 5_000, 1_000, 9_000, 0], 64);
}
