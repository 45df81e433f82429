//! Real threads on the real cell: writers at full speed, readers with all three handles, guards held at
//! random, sets and batches in between. Every snapshot that a reader gets is checked.
//!
//! Two seconds per test; run `POD_INDEX_STRESS_SECONDS=600 cargo test --release --test stress` for longer.
//! Also run under the thread, address and leak sanitizers: see `.ci/run`.

mod support;

use std::cell::Cell;
use std::iter::Sum;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pod_index::{
    CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, Operation, PodManager,
    PodMeta, Reader, Snapshot, Writer,
};
use support::{Random, invariants};

thread_local! {
    /// Whether this thread only reads, and so must free nothing.
    static READS: Cell<bool> = const { Cell::new(false) };
}

/// The fate of the pods of one index.
#[derive(Default)]
struct Ledger {
    live: AtomicUsize,
    freed_by_readers: AtomicUsize,
}

struct Pod {
    uid: String,
    name: String,
    kind: u64,
    ephemeral: usize,
    ledger: Arc<Ledger>,
}

impl PodMeta for Pod {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    #[expect(clippy::unnecessary_literal_bound, reason = "as the trait has it")]
    fn namespace(&self) -> &str {
        "default"
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        match (self.kind, key) {
            (0, CONFIG_MIRROR_ANNOTATION) | (1, CONFIG_HASH_ANNOTATION) => Some("hash"),
            (1, CONFIG_SOURCE_ANNOTATION) => Some("file"),
            _ => None,
        }
    }
    fn ephemeral_container_count(&self) -> usize {
        self.ephemeral
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.ledger.live.fetch_sub(1, Ordering::Relaxed);
        if READS.get() {
            self.ledger.freed_by_readers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Few UIDs and fewer names: UIDs return under other names and kinds all the time.
fn pod(random: &mut Random, ledger: &Arc<Ledger>) -> Arc<Pod> {
    ledger.live.fetch_add(1, Ordering::Relaxed);
    Arc::new(Pod {
        uid: format!("uid-{}", random.below(40)),
        name: format!("name-{}", random.below(12)),
        kind: random.below(3),
        ephemeral: usize::try_from(random.below(3)).unwrap_or_default(),
        ledger: Arc::clone(ledger),
    })
}

fn operation(random: &mut Random, ledger: &Arc<Ledger>) -> Operation<Pod> {
    match random.below(20) {
        0 => Operation::Set((0..random.below(30)).map(|_| pod(random, ledger)).collect()),
        1..=5 => Operation::Remove(format!("uid-{}", random.below(40)).as_str().into()),
        _ => Operation::Upsert(pod(random, ledger)),
    }
}

/// Duration of one test.
fn time() -> Duration {
    let seconds = std::env::var("POD_INDEX_STRESS_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(2))
}

/// Writes one operation or a batch, as single writes or together.
fn write(writer: &mut Writer<Pod>, random: &mut Random, ledger: &Arc<Ledger>) {
    let batch = (0..=random.below(4)).map(|_| operation(random, ledger)).collect::<Vec<_>>();
    if random.below(2) == 0 {
        assert!(writer.apply(batch).refused.is_empty());
        return;
    }
    for operation in batch {
        match operation {
            Operation::Set(pods) => assert!(writer.set_pods(pods).refused.is_empty()),
            Operation::Upsert(pod) => drop(writer.upsert_pod(pod).expect("a good pod")),
            Operation::Remove(uid) => drop(writer.remove_pod_by_uid(&uid)),
        }
    }
}

/// What readers have checked.
#[derive(Clone, Copy, Default, Debug)]
struct Checked {
    snapshots: usize,
    /// Snapshots in which a mirror translates to a pod: the others have little that could be wrong.
    with_a_translation: usize,
}

impl Sum for Checked {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            snapshots: sum.snapshots + one.snapshots,
            with_a_translation: sum.with_a_translation + one.with_a_translation,
        })
    }
}

/// One reader until `stop`. Returns what it has checked.
fn read(reader: &Reader<Pod>, stop: &AtomicBool, seed: u64) -> Checked {
    READS.set(true);
    let mut random = Random(seed);
    let (mut cached, mut guards, mut kept) = (reader.cached(), Vec::new(), Vec::new());
    let (mut last, mut checked) = (0, Checked::default());
    let mut see = |snapshot: &Snapshot<Pod>| {
        assert!(last <= snapshot.generation(), "from {last} back to {}", snapshot.generation());
        last = snapshot.generation();
        invariants::check(snapshot);
        checked.snapshots += 1;
        let translates = snapshot.mirror_to_pod_uids().next().is_some();
        checked.with_a_translation += usize::from(translates);
    };
    while !stop.load(Ordering::Relaxed) {
        match random.below(4) {
            0 => see(cached.load()),
            1 => see(&reader.load()),
            2 => {
                let guard = reader.load();
                see(&guard);
                let generation = guard.generation();
                guards.push((guard, generation));
            }
            _ => {
                let snapshot = reader.snapshot();
                see(&snapshot);
                let generation = snapshot.generation();
                kept.push((snapshot, generation));
            }
        }
        // Sometimes more than arc-swap's eight slots per thread.
        if guards.len() > 20 || random.below(8) == 0 {
            for (guard, generation) in guards.drain(..) {
                assert_eq!(guard.generation(), generation, "what is held stays as it is");
                invariants::check(&guard);
            }
        }
        if kept.len() > 20 || random.below(16) == 0 {
            for (snapshot, generation) in kept.drain(..) {
                assert_eq!(snapshot.generation(), generation, "what is kept stays as it is");
                invariants::check(&snapshot);
            }
        }
    }
    checked
}

/// Starts `count` readers, each with its own seed.
fn readers(reader: &Reader<Pod>, stop: &Arc<AtomicBool>, count: u64) -> Vec<thread::JoinHandle<Checked>> {
    (1..=count)
        .map(|seed| {
            let (reader, stop) = (reader.clone(), Arc::clone(stop));
            thread::spawn(move || read(&reader, &stop, seed))
        })
        .collect()
}

fn join(readers: Vec<thread::JoinHandle<Checked>>, stop: &AtomicBool) -> Checked {
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().map(|reader| reader.join().expect("the reader")).sum()
}

/// Panics unless there was enough to see and readers saw it. One second gives thousands of checks, or
/// hundreds under a sanitizer.
fn enough(checked: Checked, publications: u64) {
    let Checked { snapshots, with_a_translation } = checked;
    println!(
        "{publications} publications, {snapshots} snapshots checked, {with_a_translation} with a translation"
    );
    assert!(publications >= 100, "{publications} publications");
    assert!(snapshots >= 100, "{snapshots} snapshots checked");
    assert!(with_a_translation >= 10, "{with_a_translation} snapshots with a translation checked");
}

#[test]
fn readers_see_complete_snapshots_in_order_and_free_nothing_during_fast_writes() {
    let ledger = Arc::new(Ledger::default());
    let (mut writer, reader) = pod_index::new();
    let stop = Arc::new(AtomicBool::new(false));
    let readers = readers(&reader, &stop, 3);
    let mut random = Random(0x9e37_79b9);
    let end = Instant::now() + time();
    while Instant::now() < end || reader.load().generation() < 100 {
        write(&mut writer, &mut random, &ledger);
    }
    let checked = join(readers, &stop);

    assert_eq!(writer.reclaim(), 0, "no handle holds a snapshot any more");
    let generation = reader.load().generation();
    drop((writer, reader));
    assert_eq!(ledger.freed_by_readers.load(Ordering::Relaxed), 0, "no reader frees");
    assert_eq!(ledger.live.load(Ordering::Relaxed), 0, "all are freed in the end");
    enough(checked, generation);
}

/// Many short-lived indices: readers keep snapshots while the writer is dropped.
#[test]
fn readers_that_outlive_the_writer_free_nothing() {
    let ledger = Arc::new(Ledger::default());
    let mut random = Random(0x51_7cc1);
    let end = Instant::now() + time();
    let (mut lives, mut publications, mut checked) = (0, 0, Vec::new());
    while Instant::now() < end || lives < 2 {
        let (mut writer, reader) = pod_index::new();
        let stop = Arc::new(AtomicBool::new(false));
        let readers = readers(&reader, &stop, 2);
        for _ in 0..200 {
            write(&mut writer, &mut random, &ledger);
        }
        publications += reader.load().generation();
        drop(writer);
        checked.push(join(readers, &stop));
        assert_eq!(ledger.freed_by_readers.load(Ordering::Relaxed), 0, "no reader frees");
        drop(reader);
        assert_eq!(ledger.live.load(Ordering::Relaxed), 0, "all are freed in the end");
        lives += 1;
    }
    println!("{lives} lives");
    enough(checked.into_iter().sum(), publications);
}

#[test]
fn callers_of_one_manager_lose_no_write() {
    let ledger = Arc::new(Ledger::default());
    let manager = PodManager::new();
    let stop = Arc::new(AtomicBool::new(false));
    let readers = readers(&manager, &stop, 2);
    let end = Instant::now() + time();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let (manager, ledger) = (manager.clone(), Arc::clone(&ledger));
            thread::spawn(move || {
                let mut publications = 0;
                while Instant::now() < end {
                    let pod = |name: String| {
                        ledger.live.fetch_add(1, Ordering::Relaxed);
                        let uid = format!("{name}-of-{writer}");
                        Pod { uid, name, kind: 1, ephemeral: 1, ledger: Arc::clone(&ledger) }
                    };
                    let name = format!("name-{}", publications % 7);
                    manager.add_pod(pod(name.clone())).expect("a good pod");
                    let stored = manager.load().pod_by_uid(format!("{name}-of-{writer}").as_str()).is_some();
                    assert!(stored, "what one caller has written, it sees");
                    publications += 1;
                }
                publications
            })
        })
        .collect();
    let publications: u64 = writers.into_iter().map(|writer| writer.join().expect("the writer")).sum();
    let checked = join(readers, &stop);

    assert_eq!(manager.load().generation(), publications, "each write is a publication");
    assert_eq!(manager.load().pods().len(), 14);
    assert_eq!(manager.write(Writer::reclaim), 0, "no handle holds a snapshot any more");
    drop(manager);
    assert_eq!(ledger.freed_by_readers.load(Ordering::Relaxed), 0, "no reader frees");
    assert_eq!(ledger.live.load(Ordering::Relaxed), 0, "all are freed in the end");
    assert!(publications >= 100 && checked.snapshots >= 100, "{publications} publications, {checked:?}");
    println!("{publications} publications, {} snapshots checked", checked.snapshots);
}
