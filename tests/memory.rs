//! Memory of an index. The writer keeps freed pages for reuse, and frees them when it is dropped.
//!
//! One test, because the counting allocator is shared by the whole process.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use pod_index::{Moment, Operation, Options, Time};
use support::{TestKeys, TestPod};

struct Counting;

/// Allocated bytes, with the alignment of branches and pages.
static NODES: AtomicUsize = AtomicUsize::new(0);
/// All allocated bytes.
static BYTES: AtomicUsize = AtomicUsize::new(0);
const ALIGNMENT: usize = 64;

// SAFETY: every call is forwarded to the system's allocator; the counter neither allocates nor drops.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        if layout.align() == ALIGNMENT {
            NODES.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        if layout.align() == ALIGNMENT {
            NODES.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `dealloc`, and `alloc` above used the same allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An index is created, written to, and dropped.
fn life() {
    let (mut writer, _reader) = pod_index::new::<TestPod>();
    for pod in some(600) {
        writer.upsert_pod(pod).expect("a good pod");
    }
    let bytes = NODES.load(Ordering::Relaxed);
    assert!((50_000..300_000).contains(&bytes), "{bytes} bytes, with those that are kept");
}

fn some(count: usize) -> impl Iterator<Item = Arc<TestPod>> {
    (0..count).map(|n| TestPod::plain(&format!("{n:08x}-0000-4000-8000-000000000000"), &format!("pod-{n}")))
}

/// Two containers and an IP.
fn containers(n: u32) -> TestKeys {
    let container = |digit: char| ("app".to_owned(), digit.to_string().repeat(56) + &format!("{n:08x}"));
    let ips = vec![std::net::Ipv4Addr::from(n).to_string()];
    TestKeys { containers: vec![container('a'), container('b')], ips, ..TestKeys::default() }
}

/// Removed pods that are kept, besides their objects; and that this comes back although nothing is written.
fn removed(times: bool, [pages, other]: [std::ops::Range<usize>; 2]) {
    // So many that the writer's pool, of at most 2 MiB, has a small share.
    let pods: Vec<_> = some(20_000).zip(0..).map(|(pod, n)| pod.with_keys(containers(n))).collect();
    let count = pods.len();
    let options = Options::new().keep_removed(Duration::from_secs(60), count).keep_times(times);
    let (mut writer, _reader) = pod_index::with_options::<TestPod>(options);
    // The pages, which are reused, are counted apart.
    let nodes = || NODES.load(Ordering::Relaxed);
    let others = || BYTES.load(Ordering::Relaxed) - nodes();
    let before = (nodes(), others());
    assert!(writer.set_pods(pods.iter().cloned()).refused.is_empty());
    assert!(writer.set_pods([TestPod::plain("one", "one")]).refused.is_empty());
    writer.reclaim();
    let each = [(nodes() - before.0) / count, (others() - before.1) / count];
    println!(
        "a removed pod with two containers and an IP, with times: {times}: {each:?} bytes, in pages that are reused and \
         otherwise"
    );
    assert!(pages.contains(&each[0]) && other.contains(&each[1]), "{each:?}");
    let deadline = writer.next_deadline().expect("pods are kept");
    assert_eq!(writer.advance(Moment::new(deadline, Time::now())), count);
    writer.reclaim();
    assert!(others() < before.1 + 500_000, "{} bytes are left", others() - before.1);
}

/// Replaces everything ten times while one snapshot is held. It costs its own size, regardless of later
/// changes.
fn held() {
    let before = BYTES.load(Ordering::Relaxed);
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let replace = |writer: &mut pod_index::Writer<TestPod>| {
        assert!(writer.set_pods(some(5000)).published);
        writer.reclaim();
        BYTES.load(Ordering::Relaxed) - before
    };
    let alone = replace(&mut writer);
    let held = reader.snapshot();
    let twice = replace(&mut writer);
    let last = (0..9).map(|_| replace(&mut writer)).last().unwrap_or_default();
    println!("{alone} bytes; {twice} beside a held snapshot; {last} after ten replacements");
    // Plus the writer's pool of freed nodes.
    assert!(last <= 2 * alone + (5 << 19), "{alone} bytes, and {last} beside a held snapshot");
    drop(held);
}

/// A set of other objects of the same pods replaces all, once with a pod that comes twice. The lists of what was replaced are
/// long. They are not kept for reuse: they would be 1.6 MB.
fn lists() {
    let others = || BYTES.load(Ordering::Relaxed) - NODES.load(Ordering::Relaxed);
    let set = || -> Vec<_> { some(20_000).zip(0..).map(|(pod, n)| pod.with_keys(containers(n))).collect() };
    let (mut writer, _reader) = pod_index::new::<TestPod>();
    assert!(writer.set_pods(set()).refused.is_empty());
    let before = others();
    for twice in [false, true] {
        let set = set();
        let first = set[0].clone();
        assert!(writer.set_pods(set.into_iter().chain(twice.then_some(first))).published);
        writer.reclaim();
        assert!(others() < before + 400_000, "{} bytes more, twice: {twice}", others() - before);
    }
}

/// An entry in every table, with UIDs in every spelling, and with names and custom keys that fit into an entry or do not. Pods
/// are replaced and removed while a snapshot is held, and a batch that cancels out is not published. Then everything is
/// dropped.
fn every_table() {
    let pod = |n: usize| {
        // A static pod and its mirror have one name.
        let number = n - n % 4 / 3;
        let long = if number % 8 < 4 { "-of-many-letters" } else { "" }.repeat(3);
        let name = format!("pod-{number}{long}");
        let uid = if n.is_multiple_of(3) { format!("{n:032x}") } else { format!("an unusual UID {n}") };
        let pod = match n % 4 {
            2 => TestPod::fixed(&uid, &name),
            3 => TestPod::mirror(&uid, &name, "hash"),
            _ => TestPod::plain(&uid, &name),
        };
        pod.with_keys(TestKeys {
            containers: vec![(format!("app-{}", n % 8), format!("{n:064x}"))],
            ips: vec![format!("fd00::{n:x}")],
            custom: vec![(1, format!("{}{long}", n / 2).into_bytes())],
            ..TestKeys::default()
        })
    };
    let keeping = Options::new().keep_removed(Duration::from_secs(60), 20);
    for (options, keeps) in [(Options::new(), false), (keeping, true)] {
        let (mut writer, reader) = pod_index::with_options::<TestPod>(options);
        assert!(writer.set_pods((0..79).map(pod)).refused.is_empty());
        let held = reader.snapshot();
        // The first one is the mirror of a known pod.
        let add = (79..120).map(|n| Operation::Upsert(pod(n)));
        let remove = (79..120).map(|n| Operation::Remove(pod(n).uid.as_str().into()));
        // With removed pods to keep, it is a change.
        assert_eq!(writer.apply(add.chain(remove)).published, keeps);
        assert!(writer.set_pods((40..120).map(pod)).published);
        for n in 40..80 {
            assert!(writer.remove_pod(&pod(n)).is_some());
        }
        drop((writer, held));
    }
}

#[test]
fn a_thread_that_wrote_leaves_no_pages_behind_when_it_ends() {
    let and_ends = || thread::spawn(life).join().expect("a life without a panic");
    // Things that are set up once for all threads.
    and_ends();
    let before = NODES.load(Ordering::Relaxed);
    and_ends();
    assert_eq!(NODES.load(Ordering::Relaxed), before);
    held();
    assert_eq!(NODES.load(Ordering::Relaxed), before);
    // A sixth above and below what was measured. It differs by 2 % between runs, because hashing is seeded.
    removed(false, [458..642, 134..188]);
    removed(true, [458..642, 1166..1632]);
    assert_eq!(NODES.load(Ordering::Relaxed), before);
    lists();
    every_table();
    let before = BYTES.load(Ordering::Relaxed);
    every_table();
    assert_eq!(BYTES.load(Ordering::Relaxed), before, "everything is freed");
}
