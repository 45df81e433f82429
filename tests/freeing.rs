//! When pods are freed: each pod object is dropped exactly when no held snapshot contains it any more.
//!
//! Also run under the thread, address and leak sanitizers: see `.ci/run`.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pod_index::identity::ContainerId;
use pod_index::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, CustomKeyKind, Guard, Moment, Operation, Options,
    OwnedSnapshot, PodKeys, PodMeta, Reader, Snapshot, Time, Writer,
};

/// How often each pod object was dropped.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<u32>>>);

impl Ledger {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<u32>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn pod(&self, uid: u64, name: u64, kind: Kind) -> Arc<Pod> {
        let number = self.with(|drops| {
            drops.push(0);
            drops.len() - 1
        });
        let uid = format!("{uid:08x}-0000-4000-8000-000000000000");
        Arc::new(Pod {
            number,
            uid,
            name: format!("p{name}"),
            kind,
            explodes: AtomicBool::new(false),
            ledger: self.clone(),
        })
    }

    /// The numbers of pods that were not dropped.
    fn live(&self) -> BTreeSet<usize> {
        self.with(|drops| {
            assert!(drops.iter().all(|&drops| drops <= 1), "a pod is dropped once");
            drops.iter().enumerate().filter(|&(_, &drops)| drops == 0).map(|(number, _)| number).collect()
        })
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Static,
    Mirror,
}

struct Pod {
    number: usize,
    uid: String,
    name: String,
    kind: Kind,
    explodes: AtomicBool,
    ledger: Ledger,
}

impl PodMeta for Pod {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &'static str {
        "default"
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        match (self.kind, key) {
            (Kind::Static, CONFIG_SOURCE_ANNOTATION) => Some("file"),
            (Kind::Mirror, CONFIG_MIRROR_ANNOTATION) => Some(""),
            _ => None,
        }
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        // Its own ID, and keys that other pods have too. Each object has another claim.
        let digits = self.uid.replace('-', "");
        keys.container_id(&self.name, &format!("containerd://{digits}{digits}"));
        keys.ip([10, 0, 0, self.name.bytes().last().unwrap_or_default() % 8].into());
        keys.custom_key(CustomKeyKind(1), &self.name);
        keys.finished(self.number.is_multiple_of(3));
        keys.created(i64::try_from(self.number % 5).unwrap_or_default());
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.ledger.with(|drops| drops[self.number] += 1);
        assert!(!self.explodes.load(Ordering::Relaxed), "a pod that panics when it is dropped");
    }
}

/// The pod objects of a snapshot, living and removed.
fn numbers(snapshot: &Snapshot<Pod>) -> BTreeSet<usize> {
    let removed = snapshot.removed().iter().map(|removed| removed.pod.number);
    living(snapshot).chain(removed).collect()
}

fn living(snapshot: &Snapshot<Pod>) -> impl Iterator<Item = usize> {
    snapshot.pods().chain(snapshot.mirror_pods()).map(|pod| pod.number)
}

/// Each listed pod is found by its UID, and the holder of its name is a pod of the same snapshot.
fn check_whole(snapshot: &Snapshot<Pod>) {
    let all: BTreeSet<_> = living(snapshot).collect();
    for pod in snapshot.pods() {
        assert!(snapshot.pod_by_uid(pod.uid()).is_some_and(|found| Arc::ptr_eq(found, pod)));
        let holder = snapshot.pod_by_name("default", &pod.name).expect("the name is held");
        assert!(all.contains(&holder.number));
    }
    for mirror in snapshot.mirror_pods() {
        assert!(snapshot.mirror_pod_by_uid(mirror.uid()).is_some_and(|found| Arc::ptr_eq(found, mirror)));
    }
    for pod in snapshot.static_pods() {
        assert!(all.contains(&pod.number));
    }
    for pod in snapshot.pods() {
        assert!(
            snapshot
                .pods_by_custom_key(CustomKeyKind(1), pod.name.as_bytes())
                .any(|found| Arc::ptr_eq(found, pod))
        );
        let digits = pod.uid.replace('-', "").repeat(2);
        let found = snapshot.pod_by_container_id(&digits).expect("by container ID");
        assert!(Arc::ptr_eq(found.pod, pod) && found.container == Some(&pod.name));
    }
    for last in 0..8 {
        let found = snapshot.pod_by_ip([10, 0, 0, last].into());
        assert!(found.is_none_or(|pod| all.contains(&pod.number)));
    }
    for gone in snapshot.removed().iter() {
        assert!(!all.contains(&gone.pod.number), "a pod is living or removed");
        let found = snapshot.removed().get(gone.pod.uid());
        assert!(found.is_some_and(|found| Arc::ptr_eq(found.pod, gone.pod)));
        let digits = gone.pod.uid.replace('-', "").repeat(2);
        if let Some(found) = snapshot.removed().get(digits.parse::<ContainerId>().expect("64 digits")) {
            assert!(Arc::ptr_eq(found.pod, gone.pod) && found.container == Some(&found.pod.name));
        }
    }
}

/// Repeatable random numbers, and the time in seconds.
struct Dice(u64, u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pod(&mut self, ledger: &Ledger) -> Arc<Pod> {
        let kind =
            [Kind::Plain, Kind::Plain, Kind::Static, Kind::Mirror][usize::try_from(self.roll(4)).unwrap()];
        ledger.pod(self.roll(60), self.roll(40), kind)
    }

    fn pods(&mut self, ledger: &Ledger, most: u64) -> Vec<Arc<Pod>> {
        (0..self.roll(most)).map(|_| self.pod(ledger)).collect()
    }

    fn operation(&mut self, ledger: &Ledger) -> Operation<Pod> {
        match self.roll(10) {
            0 => Operation::Set(self.pods(ledger, 40)),
            1..4 => Operation::Remove(
                format!("{:08x}-0000-4000-8000-000000000000", self.roll(60)).as_str().into(),
            ),
            _ => Operation::Upsert(self.pod(ledger)),
        }
    }

    fn write(&mut self, writer: &mut Writer<Pod>, ledger: &Ledger, start: Instant) {
        if self.roll(3) == 0 {
            self.1 += self.roll(4);
            writer.advance(Moment::new(start + Duration::from_secs(self.1), Time::now()));
        }
        match self.roll(12) {
            0 => _ = writer.set_pods(self.pods(ledger, 80)),
            1 | 2 => {
                let count = self.roll(20);
                let batch: Vec<_> = (0..count).map(|_| self.operation(ledger)).collect();
                let _ = writer.apply(batch);
            }
            3 => {
                // Pods that are already stored, one by one and as a set: the drafts are abandoned.
                let all: Vec<_> =
                    writer.current().pods().chain(writer.current().mirror_pods()).cloned().collect();
                if let Some(pod) = all.first() {
                    let _ = writer.upsert_pod(Arc::clone(pod)).expect("a good pod");
                }
                let _ = writer.set_pods(all);
            }
            4 => assert!(writer.upsert_pod(nobody(ledger)).is_err()),
            5..8 => {
                _ = writer
                    .remove_pod_by_uid(format!("{:08x}-0000-4000-8000-000000000000", self.roll(60)).as_str());
            }
            _ => _ = writer.upsert_pod(self.pod(ledger)).expect("a good pod"),
        }
    }
}

/// A pod that is refused.
fn nobody(ledger: &Ledger) -> Arc<Pod> {
    let mut pod = ledger.pod(0, 0, Kind::Plain);
    Arc::get_mut(&mut pod).expect("it is new").uid.clear();
    pod
}

/// A snapshot held by one kind of handle, and its pods at the time.
struct Held {
    by: Handle,
    had: BTreeSet<usize>,
}

enum Handle {
    Snapshot(OwnedSnapshot<Pod>),
    Guard(Guard<Pod>),
}

impl Held {
    fn new(reader: &Reader<Pod>, way: u64) -> Self {
        let had = numbers(&reader.load());
        let by = match way {
            0 => Handle::Guard(reader.load()),
            _ => Handle::Snapshot(reader.snapshot()),
        };
        Self { by, had }
    }

    fn check(&self, live: &BTreeSet<usize>) {
        let check = |snapshot: &Snapshot<Pod>| {
            assert!(self.had.is_subset(live), "what a held snapshot has is there");
            assert_eq!(numbers(snapshot), self.had);
            check_whole(snapshot);
        };
        match &self.by {
            Handle::Snapshot(snapshot) => check(snapshot),
            Handle::Guard(snapshot) => check(snapshot),
        }
    }
}

/// Every second one keeps removed pods.
fn index(seed: u64) -> (Writer<Pod>, Reader<Pod>, Instant) {
    let options = if seed.is_multiple_of(2) {
        Options::new()
    } else {
        Options::new().keep_removed(Duration::from_secs(6), 12)
    };
    let (writer, reader) = pod_index::with_options(options);
    (writer, reader, Instant::now())
}

#[test]
fn a_pod_is_freed_exactly_when_no_snapshot_has_it() {
    // Without the pool, it is built for a sanitizer, and runs a tenth as fast.
    let seeds = if cfg!(pod_index_no_pool) { 4 } else { 30 };
    for seed in 0..seeds {
        let (mut dice, ledger) = (Dice(seed, 0), Ledger::default());
        let (mut writer, reader, start) = index(seed);
        let mut held: Vec<Held> = Vec::new();
        for step in 0..150 {
            dice.write(&mut writer, &ledger, start);
            if dice.roll(4) == 0 {
                held.push(Held::new(&reader, dice.roll(4)));
            }
            if dice.roll(5) == 0 && !held.is_empty() {
                let which = dice.roll(held.len() as u64);
                held.swap_remove(usize::try_from(which).unwrap());
            }
            writer.reclaim();
            let live = ledger.live();
            let mut needed = numbers(writer.current());
            for held in &held {
                needed.extend(&held.had);
            }
            assert_eq!(live, needed, "seed {seed}, step {step}");
            if step % 10 == 0 {
                for held in &held {
                    held.check(&live);
                }
            }
        }
        // Writer, reader and snapshots are dropped in any order.
        let (mut writer, mut reader) = (Some(writer), Some(reader));
        while writer.is_some() || reader.is_some() || !held.is_empty() {
            match dice.roll(6) {
                0 => drop(writer.take()),
                1 => drop(reader.take()),
                _ if held.is_empty() => {}
                which => _ = held.swap_remove(usize::try_from(which).unwrap() % held.len()),
            }
            let live = ledger.live();
            for held in &held {
                held.check(&live);
            }
        }
        assert!(ledger.live().is_empty(), "seed {seed}: everything is freed in the end");
    }
}

#[test]
fn a_snapshot_outlives_the_writer_and_the_reader_and_is_dropped_on_another_thread() {
    let ledger = Ledger::default();
    let mut dice = Dice(7, 0);
    let (mut writer, reader, start) = index(1);
    let mut held = Vec::new();
    for _ in 0..100 {
        dice.write(&mut writer, &ledger, start);
        held.push((reader.snapshot(), numbers(writer.current())));
    }
    drop(writer);
    drop(reader);
    let threads = held.into_iter().map(|(snapshot, had)| {
        thread::spawn(move || {
            assert_eq!(numbers(&snapshot), had);
            check_whole(&snapshot);
        })
    });
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        thread.join().expect("a snapshot stays as it was");
    }
    assert!(ledger.live().is_empty());
}

/// Although nothing is written. With a pod whose `Drop` panics.
#[test]
fn removed_pods_are_freed_when_their_time_is_over() {
    for explodes in [false, true] {
        let ledger = Ledger::default();
        let (mut writer, reader, _) = index(1);
        let _ = writer.set_pods((0..5).map(|n| ledger.pod(n, n, Kind::Plain)));
        let bomb = Arc::clone(writer.current().pods().next().expect("a pod"));
        bomb.explodes.store(explodes, Ordering::Relaxed);
        drop(bomb);
        let _ = writer.set_pods([ledger.pod(10, 10, Kind::Mirror)]);
        writer.reclaim();
        assert_eq!(ledger.live().len(), 6);

        let deadline = writer.next_deadline().expect("pods are kept");
        let held = reader.snapshot();
        assert_eq!(writer.advance(Moment::new(deadline, Time::now())), 5);
        writer.reclaim();
        assert_eq!(ledger.live().len(), 6, "a snapshot has them");
        drop(held);
        let freeing = catch_unwind(AssertUnwindSafe(|| writer.reclaim()));
        assert_eq!(freeing.is_err(), explodes, "a panic continues");
        assert_eq!((ledger.live().len(), writer.retired_snapshots()), (1, 0));
        assert_eq!(writer.next_deadline(), None);
    }
}

/// Of a batch and of a set. Several of the refused pods panic: a second panic during the first would abort.
#[test]
fn refused_pods_that_panic_when_they_are_dropped_leave_the_rest_published() {
    let bomb = |ledger: &Ledger, uid| {
        let pod = ledger.pod(uid, uid, Kind::Plain);
        let mut pod = Arc::try_unwrap(pod).unwrap_or_else(|_| unreachable!("it is new"));
        pod.name = String::new();
        pod.explodes.store(true, Ordering::Relaxed);
        Arc::new(pod)
    };
    for (is_set, few) in [(false, false), (true, false), (true, true)] {
        let ledger = Ledger::default();
        let (mut writer, reader) = pod_index::new();
        let _ = writer.set_pods((10..90).filter(|_| few).map(|n| ledger.pod(n, n, Kind::Plain)));
        let good = ledger.pod(1, 1, Kind::Static);
        let others = (10..90).filter(|_| few).map(|n| ledger.pod(n, n, Kind::Plain));
        let pods: Vec<_> = [bomb(&ledger, 2), bomb(&ledger, 3), good].into_iter().chain(others).collect();
        let write = || {
            if is_set {
                drop(writer.set_pods(pods));
            } else {
                drop(writer.apply(pods.into_iter().map(Operation::Upsert)));
            }
        };
        assert!(catch_unwind(AssertUnwindSafe(write)).is_err(), "a panic continues");
        check_whole(&reader.load());
        assert_eq!(reader.load().pods().len(), 1 + if few { 80 } else { 0 });
        writer.reclaim();
        assert_eq!(ledger.live(), numbers(writer.current()), "no pod is kept that is in no snapshot");
    }
}

/// A batch drops a pod whose `Drop` panics: the batch is still published, and nothing leaks.
#[test]
fn a_pod_that_panics_when_a_batch_drops_it_leaks_nothing_else() {
    let ledger = Ledger::default();
    let (mut writer, reader) = pod_index::new();
    let bomb = ledger.pod(1, 1, Kind::Static);
    bomb.explodes.store(true, Ordering::Relaxed);
    let batch = vec![
        Operation::Upsert(bomb),
        Operation::Upsert(ledger.pod(1, 1, Kind::Static)),
        Operation::Upsert(ledger.pod(2, 2, Kind::Plain)),
        Operation::Upsert(ledger.pod(2, 2, Kind::Plain)),
    ];
    assert!(catch_unwind(AssertUnwindSafe(|| writer.apply(batch))).is_err());
    check_whole(&reader.load());
    assert_eq!(reader.load().pods().len(), 2, "the batch is published");
    writer.upsert_pod(ledger.pod(3, 3, Kind::Plain)).expect("a good pod");
    writer.reclaim();
    assert_eq!(ledger.live(), numbers(writer.current()), "no pod is kept that is in no snapshot");
    drop((writer, reader));
    assert!(ledger.live().is_empty());
}

/// No publication follows that would free them.
#[test]
fn pods_of_a_batch_that_is_not_published_are_freed_with_it() {
    let ledger = Ledger::default();
    let (mut writer, _reader) = pod_index::new();
    let pod = ledger.pod(1, 1, Kind::Static);
    let remove = Operation::Remove(pod.uid.as_str().into());
    assert!(!writer.apply([Operation::Upsert(pod), remove]).published);
    assert!(ledger.live().is_empty());
}

/// Pods whose `Drop` panics while a replaced version is freed, by the writer or the last handle: only they
/// are lost.
#[test]
fn pods_that_panic_when_a_version_is_freed_leak_nothing_else() {
    for by_the_last_handle in [false, true] {
        let ledger = Ledger::default();
        let (mut writer, reader) = pod_index::new();
        let pods: Vec<_> = (0..300).map(|n| ledger.pod(n, n, Kind::Static)).collect();
        for bomb in [7, 8, 200] {
            pods[bomb].explodes.store(true, Ordering::Relaxed);
        }
        let _ = writer.set_pods(pods);
        let held = reader.snapshot();
        let _ = writer.set_pods([ledger.pod(1000, 1000, Kind::Plain)]);
        let freeing = if by_the_last_handle {
            drop((writer, reader));
            catch_unwind(AssertUnwindSafe(|| drop(held)))
        } else {
            drop(held);
            let freeing = catch_unwind(AssertUnwindSafe(|| _ = writer.reclaim()));
            assert_eq!(writer.retired_snapshots(), 0);
            assert_eq!(ledger.live(), numbers(writer.current()));
            drop((writer, reader));
            freeing
        };
        assert!(freeing.is_err(), "the first panic continues");
        assert!(ledger.live().is_empty(), "every pod was dropped");
    }
}

/// A publication checks only a few retired snapshots, those first that were not checked for longest. Held
/// ones must not hide the others.
#[test]
fn while_some_snapshots_are_held_the_others_are_freed_promptly() {
    let ledger = Ledger::default();
    let (mut writer, reader) = pod_index::new::<Pod>();
    let mut held = Vec::new();
    for round in 0..200 {
        writer.upsert_pod(ledger.pod(1, 1, Kind::Plain)).expect("a good pod");
        if round < 5 {
            held.push(reader.snapshot());
        }
        assert!(writer.retired_snapshots() <= 13, "{} in round {round}", writer.retired_snapshots());
        assert_eq!(ledger.live().len(), 1 + writer.retired_snapshots(), "each has its version of the pod");
    }
    drop(held);
    for _ in 0..20 {
        writer.upsert_pod(ledger.pod(1, 1, Kind::Plain)).expect("a good pod");
    }
    assert!(writer.retired_snapshots() <= 2, "{} are left", writer.retired_snapshots());
}

/// A removal publishes, so it frees what the publication before it replaced.
#[test]
fn removals_alone_free_what_they_replace() {
    let ledger = Ledger::default();
    let (mut writer, _reader) = pod_index::new::<Pod>();
    let pods: Vec<_> = (0..20).map(|uid| ledger.pod(uid, uid, Kind::Plain)).collect();
    let uids: Vec<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
    let _ = writer.set_pods(pods);
    for (removed, uid) in uids.iter().enumerate() {
        assert!(writer.remove_pod_by_uid(uid).is_some());
        assert_eq!((writer.retired_snapshots(), ledger.live().len()), (0, 19 - removed));
    }
}

/// Of nine replaced versions, the next publication frees four neighbours.
#[test]
fn a_publication_skips_no_version_after_one_that_it_frees() {
    let ledger = Ledger::default();
    let (mut writer, reader) = pod_index::new::<Pod>();
    let mut held = vec![reader.snapshot()];
    for _ in 0..8 {
        writer.upsert_pod(ledger.pod(1, 1, Kind::Plain)).expect("a good pod");
        held.push(reader.snapshot());
    }
    drop(held);
    assert_eq!((writer.retired_snapshots(), ledger.live().len()), (8, 8));
    writer.upsert_pod(ledger.pod(1, 1, Kind::Plain)).expect("a good pod");
    assert_eq!(writer.retired_snapshots(), 5);
    let live = ledger.live();
    // The first of the nine, before all pods, may be freed or not.
    let freed: Vec<bool> = (0..8).map(|number| !live.contains(&number)).collect();
    let borders = freed.windows(2).filter(|two| two[0] != two[1]).count();
    assert!(borders <= 2, "{freed:?}");
}

/// In the number of retired snapshots, one that is held for long looks like those that are replaced meanwhile.
#[test]
fn the_oldest_retired_snapshot_stands_still_while_a_reader_holds_it() {
    let ledger = Ledger::default();
    let (mut writer, reader) = pod_index::new();
    let publish =
        |writer: &mut Writer<Pod>| writer.upsert_pod(ledger.pod(1, 1, Kind::Plain)).expect("a good pod");
    let mut cached = reader.cached();
    let mut before = None;
    for _ in 0..10 {
        publish(&mut writer);
        // What a cached reader had until its next lookup.
        assert!(writer.oldest_retired() > before, "{:?} after {before:?}", writer.oldest_retired());
        before = writer.oldest_retired();
        cached.refresh();
    }
    let held = reader.snapshot();
    for _ in 0..50 {
        publish(&mut writer);
        cached.refresh();
        publish(&mut writer);
        assert_eq!(writer.oldest_retired(), Some(held.generation()));
        assert!(writer.retired_snapshots() <= 3, "{}", writer.retired_snapshots());
    }
    drop(held);
    cached.refresh();
    writer.reclaim();
    assert_eq!(writer.oldest_retired(), None);
}
