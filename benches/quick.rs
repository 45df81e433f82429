//! The index beside the bare table, in seconds: what to run after every change.
//!
//! `cargo bench -p pod-index-benches --bench quick [-- N...]`, by default for 1,000 and 100,000 pods.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use pod_index::{Operation, PodMeta, PodUid};
use support::bare::{self, Bare};
use support::memory::{Counting, allocated};
use support::rounds::{Figure, Rounds};
use support::workload::{Pod, Workload};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Keys looked up in one run.
const KEYS: usize = 100_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let smoke = arguments.iter().any(|argument| argument == "--test");
    let mut sizes: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = if smoke { vec![100] } else { vec![1_000, 100_000] };
    }
    let time = if smoke { Duration::ZERO } else { Duration::from_millis(1_500) };
    for n in sizes {
        println!("\n{n} pods\n");
        let mut workload = Workload::new(n);
        bytes(&workload);
        reads(&mut workload, time);
        scans(&workload, time);
        writes(&mut workload, time);
    }
}

fn bytes(workload: &Workload) {
    let before = allocated();
    let (mut writer, _reader) = pod_index::new::<Pod>();
    for pod in workload.all() {
        writer.add_pod(pod).expect("a good pod");
    }
    let _ = writer.reclaim();
    let grown = allocated() - before;
    let before = allocated();
    let (mut writer, _reader) = pod_index::new::<Pod>();
    let _ = writer.set_pods(workload.all());
    let _ = writer.reclaim();
    let set = allocated() - before;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let per_pod = |bytes: isize| bytes as f64 / workload.pods.len() as f64;
    println!("index bytes a pod: {:.1} pod by pod, {:.1} by SetPods", per_pod(grown), per_pod(set));
}

/// `keys` repeated until a run is long enough to be timed.
fn repeat<K>(keys: &[K], mut f: impl FnMut(&K)) -> (usize, impl FnMut()) {
    let repeats = KEYS.div_ceil(keys.len());
    (repeats * keys.len(), move || {
        for _ in 0..repeats {
            keys.iter().for_each(&mut f);
        }
    })
}

fn reads(workload: &mut Workload, time: Duration) {
    let table = &Bare::new(workload.pods.iter().cloned());
    let (mut writer, reader) = pod_index::new::<Pod>();
    for pod in workload.all() {
        writer.add_pod(pod).expect("a good pod");
    }
    let uids = workload.hits(KEYS, |pod| Box::<str>::from(pod.uid()));
    let misses = workload.misses(uids.len());
    let parsed: Vec<_> = uids.iter().map(|uid| PodUid::from(&**uid)).collect();
    let words: Vec<_> = uids.iter().map(|uid| bare::parse(uid).expect("a usual UID")).collect();
    let mirrors = workload.mirror_hits(KEYS, |pod| Box::<str>::from(pod.uid()));
    let names = workload.hits(KEYS, |pod| (Box::<str>::from(pod.namespace()), Box::<str>::from(pod.name())));
    let full_names =
        workload.hits(KEYS, |pod| format!("{}_{}", pod.name(), pod.namespace()).into_boxed_str());

    let reader = &reader;
    let mut rounds = Rounds::default();
    macro_rules! case {
        ($name:expr, $keys:expr, |$key:ident| $look_up:expr) => {
            let (operations, run) = repeat($keys, move |key| {
                let $key = black_box(key);
                black_box($look_up);
            });
            rounds.case($name, operations, run);
        };
    }
    macro_rules! cached {
        ($name:expr, $keys:expr, |$reader:ident, $key:ident| $look_up:expr) => {
            let mut $reader = reader.cached();
            case!($name, $keys, |$key| $look_up);
        };
    }
    case!("bare: UID, hit", &uids, |uid| table.get(uid));
    case!("bare: UID, miss", &misses, |uid| table.get(uid));
    case!("bare: parsed UID, hit", &words, |key| table.get_parsed(*key));
    cached!("cached: UID, hit", &uids, |cached, uid| cached.pod_by_uid(&**uid));
    cached!("cached: UID, miss", &misses, |cached, uid| cached.pod_by_uid(&**uid));
    cached!("cached: parsed UID, hit", &parsed, |cached, uid| cached.pod_by_uid(uid));
    case!("load(): UID, hit", &uids, |uid| reader.load().pod_by_uid(&**uid).is_some());
    case!("load(): UID, miss", &misses, |uid| reader.load().pod_by_uid(&**uid).is_some());
    cached!("cached: translate a mirror", &mirrors, |cached, uid| cached.translate_pod_uid(&**uid));
    cached!("cached: translate a pod", &uids, |cached, uid| cached.translate_pod_uid(&**uid));
    cached!("cached: by (namespace, name)", &names, |cached, key| cached.pod_by_name(&key.0, &key.1));
    cached!("cached: by full name", &full_names, |cached, name| cached.pod_by_full_name(name));
    let figures = rounds.measure(time);
    let against = |figure: &Figure| match &*figure.name {
        name if name.contains("miss") => "bare: UID, miss",
        name if name.contains("parsed") => "bare: parsed UID, hit",
        _ => "bare: UID, hit",
    };
    print("ns a look-up", &figures, against);
}

fn scans(workload: &Workload, time: Duration) {
    let table = &Bare::new(workload.pods.iter().cloned());
    let (mut writer, reader) = pod_index::new::<Pod>();
    for pod in workload.all() {
        writer.add_pod(pod).expect("a good pod");
    }
    let n = workload.pods.len();
    let snapshot = reader.snapshot();
    let mut cached = reader.cached();
    let mut rounds = Rounds::default();
    let address = |pod: &std::sync::Arc<Pod>| std::sync::Arc::as_ptr(pod).addr();
    rounds.case("bare: walk", n, || {
        black_box(table.iter().map(address).fold(0, usize::wrapping_add));
    });
    rounds.case("bare: collect into a Vec", n, || {
        black_box(table.iter().cloned().collect::<Vec<_>>());
    });
    rounds.case("pods(): walk", n, || {
        black_box(snapshot.pods().iter().map(address).fold(0, usize::wrapping_add));
    });
    rounds.case("pods(): walk by `for`", n, || {
        let mut sum = 0usize;
        for pod in snapshot.pods() {
            sum = sum.wrapping_add(address(pod));
        }
        black_box(sum);
    });
    let obtain = 1_000;
    rounds.case("pods(): obtain, through cached", obtain, || {
        for _ in 0..obtain {
            black_box(cached.snapshot().pods());
        }
    });
    print("ns a pod (or a view)", &rounds.measure(time / 3), |_| "bare: walk");
}

fn writes(workload: &mut Workload, time: Duration) {
    let table = &RefCell::new(Bare::new(workload.pods.iter().cloned()));
    let (mut writer, _reader) = pod_index::new::<Pod>();
    for pod in workload.all() {
        writer.add_pod(pod).expect("a good pod");
    }
    let writer = &RefCell::new(writer);
    // Two objects for each pod, so that every update brings one that is not there.
    let versions = &[workload.updates(), workload.updates()];
    let strangers = &workload.strangers(1_000);
    let count = 10_000.min(workload.pods.len());
    let updates = || versions.iter().cycle().map(move |pods| &pods[..count]);

    let mut rounds = Rounds::default();
    let mut sets = updates();
    rounds.case("bare: update", count, move || {
        let mut table = table.borrow_mut();
        sets.by_ref().take(1).flatten().for_each(|pod| table.update(pod.clone()));
    });
    rounds.case("bare: add and remove", strangers.len(), || {
        let mut table = table.borrow_mut();
        for pod in strangers {
            table.update(pod.clone());
            table.remove(pod.uid());
        }
    });
    let mut sets = updates();
    rounds.case("index: update", count, move || {
        let mut writer = writer.borrow_mut();
        for pod in sets.by_ref().take(1).flatten() {
            writer.update_pod(pod.clone()).expect("a good pod");
        }
    });
    rounds.case("index: add and remove", strangers.len(), || {
        let mut writer = writer.borrow_mut();
        for pod in strangers {
            writer.add_pod(pod.clone()).expect("a good pod");
            writer.remove_pod(pod);
        }
    });
    for size in [64, 1_000] {
        let mut sets = updates();
        rounds.case(format!("index: update, in a batch of {size}"), count, move || {
            let mut writer = writer.borrow_mut();
            for pods in sets.by_ref().take(1) {
                for batch in pods.chunks(size) {
                    let _ = writer.apply(batch.iter().cloned().map(Operation::Update));
                }
            }
        });
    }
    let (n, workload) = (workload.pods.len(), &*workload);
    let (mut fresh, _reader) = pod_index::new::<Pod>();
    let mut sets = versions.iter().cycle();
    rounds.case("index: SetPods", n, move || {
        for pods in sets.by_ref().take(1) {
            let _ = fresh.set_pods(pods.iter().chain(&workload.mirrors).cloned());
        }
    });
    rounds.case("bare: the same", n, || drop(Bare::new(workload.pods.iter().cloned())));
    let figures = rounds.measure(time);
    print("ns a pod", &figures, |figure| match &*figure.name {
        name if name.contains("remove") => "bare: add and remove",
        name if name.contains("Set") || name.contains("same") => "bare: the same",
        _ => "bare: update",
    });
}

fn print(unit: &str, figures: &[Figure], against: impl Fn(&Figure) -> &'static str) {
    println!("\n{:<36} {unit:>12} {:>8}", "", "x bare");
    for figure in figures {
        let limit = figures.iter().find(|limit| limit.name == against(figure)).map(|limit| limit.median);
        let ratio = figure.median / limit.unwrap_or(f64::NAN);
        println!("{:<36} {:>12.1} {ratio:>8.2}", figure.name, figure.median);
    }
}
