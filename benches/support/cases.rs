//! Single-threaded measurements: lookups, whole-set reads, writes, bytes.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use pod_index::PodMeta;

use crate::bare::{self, Bare};
use crate::designs::{self, Cached, Design, Load, Parsed, Read, Visit, Write};
use crate::figures::Figure;
use crate::memory::allocated;
use crate::rounds::Rounds;
use crate::workload::{Pod, Workload};

/// Keys looked up, and pods written, per run.
const RUN: usize = 100_000;
/// Pods updated, or added and removed, per run.
const WRITES: usize = 10_000;

/// Calls `f` for each of `keys`, repeated until a run is long enough to be timed. Returns the number of
/// calls.
fn repeat<K>(keys: Vec<K>, mut f: impl FnMut(&K)) -> (usize, impl FnMut()) {
    let repeats = RUN.div_ceil(keys.len());
    (repeats * keys.len(), move || {
        for _ in 0..repeats {
            keys.iter().for_each(&mut f);
        }
    })
}

/// Lookups: by UID in every design, all others only in the index.
#[must_use]
pub fn reads(workload: &mut Workload, time: Duration) -> Vec<Figure> {
    let n = workload.pods.len();
    let mut reads = Reads { rounds: Rounds::default(), workload };
    designs::each(&mut reads);
    reads.parsed_bare();
    reads.contiguous();
    let Reads { mut rounds, workload } = reads;
    index_reads(&mut rounds, workload);
    rounds.measure(n, time)
}

struct Reads<'a> {
    rounds: Rounds<'static>,
    workload: &'a mut Workload,
}

impl Visit for Reads<'_> {
    fn visit<D: Design>(&mut self) {
        let (writer, reader) = D::new(self.workload.all().collect());
        let writer = Rc::new(writer);
        let hits = self.workload.hits(RUN, |pod| D::Key::from(pod));
        let misses = self.workload.strangers(hits.len()).iter().map(|pod| D::Key::from(pod)).collect();
        for (what, keys) in [("UID, hit", hits), ("UID, miss", misses)] {
            // The writer lives as long as its readers are used.
            let (mut reader, writer) = (reader.clone(), Rc::clone(&writer));
            let (operations, run) = repeat(keys, move |key| {
                let _ = &writer;
                black_box(reader.find(black_box(key)));
            });
            self.rounds.case(what, D::NAME, operations, run);
        }
    }
}

impl Reads<'_> {
    fn parsed_bare(&mut self) {
        let table = Bare::of(self.workload.pods.iter().cloned());
        let keys = self.workload.hits(RUN, |pod| bare::parse(pod.uid()).expect("a usual UID"));
        let (operations, run) = repeat(keys, move |key| {
            black_box(table.get_parsed(*black_box(key)));
        });
        self.rounds.case("UID, hit", "bare table, parsed UID", operations, run);
    }
}

/// The lookup by UID, of texts that lie one after the other in memory.
const CONTIGUOUS: &str = "UID, hit, contiguous texts";

impl Reads<'_> {
    fn contiguous(&mut self) {
        let table = Bare::of(self.workload.pods.iter().cloned());
        let (text, places) = self.workload.contiguous_hits(RUN, |pod| pod.uid());
        let (writer, mut reader) = Cached::new(self.workload.all().collect());
        let (in_table, in_index) = (text.clone(), text);
        let (operations, run) = repeat(places.clone(), move |place| {
            black_box(table.get(black_box(&in_table[place.clone()])));
        });
        self.rounds.case(CONTIGUOUS, Bare::NAME, operations, run);
        let (operations, run) = repeat(places, move |place| {
            let _ = &writer;
            black_box(reader.load().pod_by_uid(black_box(&in_index[place.clone()])));
        });
        self.rounds.case(CONTIGUOUS, Cached::NAME, operations, run);
    }
}

/// Queries that only the index supports.
fn index_reads(rounds: &mut Rounds<'static>, workload: &mut Workload) {
    let (writer, reader) = Load::new(workload.all().collect());
    let writer = Rc::new(writer);
    let uids = workload.hits(RUN, |pod| Box::<str>::from(pod.uid()));
    let mirror_uids = workload.mirror_hits(RUN, |pod| Box::<str>::from(pod.uid()));
    let pair = |pod: &Pod| (Box::<str>::from(pod.namespace()), Box::<str>::from(pod.name()));
    let names = workload.hits(RUN, pair);
    let strangers = workload.strangers(names.len());
    let missing_names: Vec<_> = strangers.iter().map(|pod| pair(pod)).collect();
    let full_name = |pod: &Pod| format!("{}_{}", pod.name(), pod.namespace()).into_boxed_str();
    let full_names = workload.hits(RUN, full_name);
    let mirrors = workload.mirror_hits(RUN, Pod::renewed);
    let pods = workload.hits(RUN, Pod::renewed);

    macro_rules! case {
        ($what:literal, $keys:expr, |$index:ident, $key:ident| $look_up:expr) => {{
            let (keep, mut $index) = (Rc::clone(&writer), reader.cached());
            let (operations, run) = repeat($keys.clone(), move |key| {
                let ($key, _, $index) = (black_box(key), &keep, $index.load());
                black_box($look_up);
            });
            rounds.case($what, Cached::NAME, operations, run);
            let (keep, $index) = (Rc::clone(&writer), reader.clone());
            let (operations, run) = repeat($keys.clone(), move |key| {
                let ($key, _, $index) = (black_box(key), &keep, $index.load());
                black_box($look_up);
            });
            rounds.case($what, Load::NAME, operations, run);
        }};
    }
    case!("translate a mirror's UID", mirror_uids, |index, uid| index.translate_pod_uid(&**uid));
    case!("translate a pod's UID", uids, |index, uid| index.translate_pod_uid(&**uid));
    case!("by (namespace, name), hit", names, |index, key| index.pod_by_name(&key.0, &key.1).is_some());
    case!("by (namespace, name), miss", missing_names, |index, key| {
        index.pod_by_name(&key.0, &key.1).is_some()
    });
    case!("by full name, hit", full_names, |index, name| index.pod_by_full_name(name).is_some());
    macro_rules! snapshot_case {
        ($what:literal, $keys:expr, |$index:ident, $key:ident| $look_up:expr) => {{
            let (keep, mut cached) = (Rc::clone(&writer), reader.cached());
            let (operations, run) = repeat($keys, move |key| {
                let ($key, _, $index) = (black_box(key), &keep, cached.load());
                black_box($look_up);
            });
            rounds.case($what, Cached::NAME, operations, run);
        }};
    }
    snapshot_case!("mirror by UID", mirror_uids, |index, uid| index.mirror_pod_by_uid(&**uid).is_some());
    snapshot_case!("pod by its mirror", mirrors.clone(), |index, pod| index.pod_by_mirror_pod(pod).is_some());
    snapshot_case!("mirror by its pod", pods.clone(), |index, pod| index.mirror_pod_by_pod(pod).is_some());
    snapshot_case!("pod and mirror", pods, |index, pod| index.pod_and_mirror_pod(pod).pod.is_some());

    // The minimum work of a lookup by name.
    let hashing = RandomState::with_seeds(1, 2, 3, 4);
    let (operations, run) = repeat(names, move |key| {
        black_box(hash_pair(&hashing, &black_box(key).0, &key.1));
    });
    rounds.case("by (namespace, name), hit", "the hash alone", operations, run);
}

fn hash_pair(hashing: &RandomState, first: &str, second: &str) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = hashing.build_hasher();
    hasher.write(first.as_bytes());
    hasher.write(second.as_bytes());
    hasher.finish()
}

/// Whole-set reads: nanoseconds per pod, or per view.
#[must_use]
pub fn scans(workload: &Workload, time: Duration) -> Vec<Figure> {
    struct Scans<'a>(Rounds<'a>, &'a Workload);
    impl Visit for Scans<'_> {
        fn visit<D: Design>(&mut self) {
            let (writer, mut reader) = D::new(self.1.all().collect());
            self.0.case("pods and translations, a pod", D::NAME, self.1.pods.len(), move || {
                let _ = &writer;
                black_box(reader.scan());
            });
        }
    }
    let n = workload.pods.len();
    let mut scans = Scans(Rounds::default(), workload);
    designs::each(&mut scans);
    let mut rounds = scans.0;

    let address = |pod: &Arc<Pod>| Arc::as_ptr(pod).addr();
    let (writer, mut cached) = Cached::new(workload.all().collect());
    let table = Bare::of(workload.pods.iter().cloned());
    rounds.case("walk over all pods, a pod", Bare::NAME, n, move || {
        black_box(table.iter().map(address).fold(0, usize::wrapping_add));
    });
    let snapshots = [cached.clone(), cached.clone()];
    let [mut folded, mut looped] = snapshots;
    rounds.case("walk over all pods, a pod", Cached::NAME, n, move || {
        let mut sum = 0usize;
        for pod in looped.load().pods() {
            sum = sum.wrapping_add(address(pod));
        }
        black_box(sum);
    });
    rounds.case("fold over all pods, a pod", Cached::NAME, n, move || {
        black_box(folded.load().pods().map(address).fold(0, usize::wrapping_add));
    });
    let obtain = 1_000;
    rounds.case("obtain pods()", Cached::NAME, obtain, move || {
        let _ = &writer;
        for _ in 0..obtain {
            let _ = black_box(cached.load().pods());
        }
    });
    #[cfg(feature = "peers")]
    {
        let (writer, mut store) = designs::KubeStore::new(workload.pods.clone());
        rounds.case("walk over all pods, a pod", "kube-runtime Store, state()", n, move || {
            let _ = &writer;
            black_box(store.scan());
        });
    }
    rounds.measure(n, time)
}

/// Writes: nanoseconds per pod.
#[must_use]
pub fn writes(workload: &mut Workload, time: Duration) -> Vec<Figure> {
    let n = workload.pods.len();
    // Two objects for each pod, so that every update stores a new one.
    let versions = Rc::new([workload.updates(), workload.updates()]);
    let strangers: Rc<[_]> = workload.strangers(1_000).into();
    let mut writes = Writes { rounds: Rounds::default(), workload, versions, strangers };
    designs::each(&mut writes);
    writes.rounds.measure(n, time)
}

struct Writes<'a> {
    rounds: Rounds<'static>,
    workload: &'a Workload,
    versions: Rc<[Vec<Arc<Pod>>; 2]>,
    strangers: Rc<[Arc<Pod>]>,
}

impl Visit for Writes<'_> {
    fn visit<D: Design>(&mut self) {
        if D::NAME == Load::NAME || D::NAME == Parsed::NAME {
            return; // The same writer once more.
        }
        let (writer, reader) = D::new(self.workload.all().collect());
        let writer = Rc::new(RefCell::new(writer));
        let count = WRITES.min(self.workload.pods.len());
        // All cases of one writer go through all pods, first in one version, then in the other. Each continues where the
        // last one stopped, because storing the object that is already stored is no update.
        let place = Rc::new(Cell::new(0));
        let turns = |count: usize, place: Rc<Cell<usize>>| {
            let versions = Rc::clone(&self.versions);
            move |write: &mut dyn FnMut(&[Arc<Pod>])| {
                let at = place.get();
                let version = &versions[at / versions[0].len() % 2];
                let start = at % version.len();
                let end = (start + count).min(version.len());
                write(&version[start..end]);
                place.set(at + end - start);
            }
        };

        let (turn, shared) = (turns(count, Rc::clone(&place)), Rc::clone(&writer));
        self.rounds.case("update", D::NAME, count, move || {
            let _ = &reader;
            turn(&mut |pods| pods.iter().for_each(|pod| shared.borrow_mut().update(pod)));
        });
        let (strangers, shared) = (Rc::clone(&self.strangers), Rc::clone(&writer));
        self.rounds.case("add and remove", D::NAME, strangers.len(), move || {
            let mut writer = shared.borrow_mut();
            for pod in &*strangers {
                writer.update(pod);
                writer.remove(pod);
            }
        });
        for size in [64, 1_000] {
            let (turn, shared) = (turns(count, Rc::clone(&place)), Rc::clone(&writer));
            self.rounds.case(format!("update, in a batch of {size}"), D::NAME, count, move || {
                turn(&mut |pods| pods.chunks(size).for_each(|batch| shared.borrow_mut().batch(batch)));
            });
        }
        let n = self.workload.pods.len();
        let (turn, mirrors) = (turns(n, Rc::default()), self.workload.mirrors.clone());
        let (mut fresh, reader) = D::new(Vec::new());
        self.rounds.case("SetPods, a pod", D::NAME, n, move || {
            let _ = &reader;
            turn(&mut |pods| fresh.set(pods.iter().chain(&mirrors).cloned().collect()));
        });
    }
}

/// Bytes per pod allocated by each design, without pods. The calling program must use
/// [`crate::memory::Counting`].
#[must_use]
pub fn bytes(workload: &Workload) -> Vec<Figure> {
    struct Bytes<'a>(&'a Workload, Vec<Figure>);
    impl Visit for Bytes<'_> {
        fn visit<D: Design>(&mut self) {
            if D::NAME == Load::NAME || D::NAME == Parsed::NAME {
                return;
            }
            let before = allocated();
            let (writer, reader) = D::new(self.0.all().collect());
            // A bare table cannot be shared: its writer and its reader are two tables.
            let tables = if D::CONCURRENT { 1 } else { 2 };
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let per_pod = |bytes: isize| bytes as f64 / self.0.pods.len() as f64;
            let n = self.0.pods.len();
            let value = per_pod((allocated() - before) / tables);
            self.1.push(Figure { n, what: "bytes a pod".into(), who: D::NAME.into(), value });
            drop((writer, reader));
        }
    }
    let mut bytes = Bytes(workload, Vec::new());
    designs::each(&mut bytes);
    bytes.1
}
