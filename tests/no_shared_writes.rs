//! Between two publications, a lookup writes only to its own thread's stack, so readers on many cores do not
//! invalidate each other's caches.
//!
//! This is measured, not inferred from the source. Each lookup runs in a process in which all memory is
//! write-protected except for the calling thread's stack. Any other store, plain or atomic, ends that
//! process.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

mod support;

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, ptr, thread};

use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use pod_index::{CachedReader, KeyKind, MirrorPodUid, OwnedSnapshot, PodUid, Reader};
use support::{TestKeys, TestPod};

const UUID: &str = "00000007-2f57-4b0c-9a6a-3d1f5f2b7c11";
const STATIC: &str = "0123456789abcdef0123456789abcdef";
const MIRROR: &str = "6f1c0d4e-2f57-4b0c-9a6a-3d1f5f2b7c11";
/// The mirror of a removed static pod, and that pod.
const LEFT: &str = "7a1c0d4e-2f57-4b0c-9a6a-3d1f5f2b7c11";
const GONE: &str = "fedcba9876543210fedcba9876543210";
const UNUSUAL: &str = "unusual-1";
const UNUSUAL_MIRROR: &str = "unusual-2";
const CONTAINER: &str = "3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c";

/// What a lookup may need.
struct Asking {
    reader: Reader<TestPod>,
    cached: CachedReader<TestPod>,
    kept: OwnedSnapshot<TestPod>,
    pod: Arc<TestPod>,
    mirror: Arc<TestPod>,
    parsed: (PodUid, MirrorPodUid),
    count: Arc<AtomicU64>,
}

/// A name, and work that returns whether it found the expected result.
type Work = (&'static str, fn(&mut Asking) -> bool);

static COUNT: AtomicU64 = AtomicU64::new(0);

/// These must be seen to write; otherwise the lookups below prove nothing. The last four are the reads that
/// the guarantee excludes.
const WRITES: &[Work] = &[
    ("a plain store to the heap", |asking| {
        asking.count.store(1, Ordering::Relaxed);
        true
    }),
    ("a plain store to a static", |_| {
        COUNT.store(1, Ordering::Relaxed);
        true
    }),
    ("a locked addition", |asking| asking.count.fetch_add(1, Ordering::Relaxed) == 0),
    ("a counted reference to a pod", |asking| Arc::strong_count(&asking.pod.clone()) > 1),
    ("Reader::snapshot", |asking| asking.reader.snapshot().pod_by_uid(UUID).is_some()),
    ("Reader::load", |asking| asking.reader.load().pod_by_uid(UUID).is_some()),
    ("translate an unusual UID to itself", |asking| asking.kept.translate_pod_uid(UNUSUAL) == UNUSUAL),
    ("translate to an unusual UID", |asking| asking.kept.translate_pod_uid(UNUSUAL_MIRROR) == UNUSUAL),
];

/// These must not write.
const READS: &[Work] = &[
    ("nothing", |_| true),
    ("a store to the thread's own stack", |_| {
        let mut own = [0u64; 64];
        black_box(&mut own)[7] = 1;
        own[7] == 1
    }),
    ("cached, by UUID", |asking| asking.cached.load().pod_by_uid(UUID).is_some()),
    ("cached, by 32 hex digits", |asking| asking.cached.load().pod_by_uid(STATIC).is_some()),
    ("cached, by an unusual UID", |asking| asking.cached.load().pod_by_uid(UNUSUAL).is_some()),
    ("cached, by a parsed UID", |asking| asking.cached.load().pod_by_uid(&asking.parsed.0).is_some()),
    ("cached, by unknown UIDs", |asking| {
        let nobodys =
            ["", "nobodys", "ffffffff-2f57-4b0c-9a6a-3d1f5f2b7c11", "ffffffffffffffffffffffffffffffff"];
        nobodys.iter().all(|uid| asking.cached.load().pod_by_uid(*uid).is_none())
    }),
    ("cached, by full name", |asking| {
        asking.cached.load().pod_by_full_name("web_default").is_some()
            && asking.cached.load().pod_by_full_name("x").is_none()
    }),
    ("cached, by name", |asking| {
        asking.cached.load().pod_by_name("default", "web").is_some()
            && asking.cached.load().pod_by_name("x", "y").is_none()
    }),
    ("cached, by container ID", |asking| {
        let found = asking.cached.load().pod_by_container_id(CONTAINER);
        found.is_some_and(|found| found.container == Some("app"))
            && asking.cached.load().pod_by_container_id(&CONTAINER[1..]).is_none()
    }),
    ("cached, by IP", |asking| {
        asking.cached.load().pod_by_ip([10, 0, 0, 7].into()).is_some()
            && asking.cached.load().pod_by_ip([10, 0, 0, 8].into()).is_none()
    }),
    ("cached, by a key of 60 pods", |asking| asking.cached.load().get((KeyKind(1), &b"all"[..])).is_some()),
    ("cached, mirrors", |asking| {
        asking.cached.load().mirror_pod_by_uid(MIRROR).is_some()
            && asking.cached.load().mirror_pod_by_full_name("web_default").is_some()
            && asking.cached.load().pod_by_mirror_pod(&asking.mirror).is_some()
            && asking.cached.load().mirror_pod_by_pod(&asking.pod).is_some()
    }),
    ("cached, translate a mirror", |asking| asking.cached.load().translate_pod_uid(MIRROR) == STATIC),
    ("cached, translate a pod", |asking| asking.cached.load().translate_pod_uid(UUID) == UUID),
    ("cached, a snapshot", |asking| asking.cached.load().pods().len() > 60),
    ("cached, refresh", |asking| {
        asking.cached.refresh();
        true
    }),
    ("by UID", |asking| {
        [UUID, STATIC, UNUSUAL].iter().all(|uid| asking.kept.pod_by_uid(*uid).is_some())
            && [MIRROR, GONE, "nobodys", ""].iter().all(|uid| asking.kept.pod_by_uid(*uid).is_none())
    }),
    ("mirrors by UID", |asking| {
        [MIRROR, LEFT, UNUSUAL_MIRROR].iter().all(|uid| asking.kept.mirror_pod_by_uid(*uid).is_some())
            && asking.kept.mirror_pod_by_uid(&asking.parsed.1).is_some()
            && [UUID, "nobodys", ""].iter().all(|uid| asking.kept.mirror_pod_by_uid(*uid).is_none())
    }),
    ("by full name", |asking| {
        asking.kept.pod_by_full_name("web_default").is_some()
            && asking.kept.mirror_pod_by_full_name("web_default").is_some()
            && asking.kept.pod_by_name("default", "web").is_some()
            && asking.kept.mirror_pod_by_full_name("not-a-full-name").is_none()
    }),
    ("mirror by pod, pod by mirror, both", |asking| {
        let both = asking.kept.pod_and_mirror_pod(&asking.mirror);
        asking.kept.pod_by_mirror_pod(&asking.mirror).is_some()
            && asking.kept.mirror_pod_by_pod(&asking.pod).is_some()
            && both.0.is_some_and(|pod| pod.uid == STATIC)
    }),
    ("translate", |asking| {
        asking.kept.translate_pod_uid(MIRROR) == STATIC
            && asking.kept.translate_pod_uid(LEFT) == GONE
            && asking.kept.translate_pod_uid(UUID) == UUID
            && asking.kept.translate_pod_uid(&asking.parsed.1) == STATIC
    }),
    ("one translation", |asking| {
        asking.kept.pod_uid_of_mirror(MIRROR).is_some_and(|uid| uid == STATIC)
            && asking.kept.mirror_uid_of_pod(STATIC).is_some_and(|uid| uid == MIRROR)
            && asking.kept.mirror_uid_of_pod(GONE).is_some_and(|uid| uid == LEFT)
    }),
    ("walk over pods", |asking| asking.kept.pods().count() == asking.kept.pods().len()),
    ("walk over static pods", |asking| asking.kept.static_pods().count() == 2),
    ("walk over mirror pods", |asking| asking.kept.mirror_pods().count() == 3),
    ("walk over static pods and their mirrors", |asking| {
        asking.kept.static_pods_with_mirrors().filter(|(_, mirror)| mirror.is_some()).count() == 2
    }),
    ("counts", |asking| asking.kept.generation() > 0 && asking.kept.ephemeral_container_count() == 0),
];

#[test]
fn a_lookup_between_two_publications_writes_to_no_shared_memory() {
    // On a separate thread, whose stack is one mapping together with its thread-local variables.
    thread::scope(|scope| scope.spawn(each_work_is_seen_to_write_or_not).join()).expect("it ran to its end");
}

fn each_work_is_seen_to_write_or_not() {
    let (mut writer, reader) = pod_index::new();
    let pod = TestPod::fixed(STATIC, "web_default");
    let mirror = TestPod::mirror(MIRROR, "web_default", STATIC);
    let mut pods = vec![
        Arc::clone(&pod),
        Arc::clone(&mirror),
        TestPod::fixed(GONE, "gone_default"),
        TestPod::mirror(LEFT, "gone_default", GONE),
        TestPod::fixed(UNUSUAL, "odd_default"),
        TestPod::mirror(UNUSUAL_MIRROR, "odd_default", UNUSUAL),
    ];
    pods.extend((0..60).map(|n| {
        let keys = TestKeys {
            containers: vec![("app".to_owned(), CONTAINER.to_owned())],
            ips: vec!["10.0.0.7".to_owned()],
            own: vec![(1, b"all".to_vec())],
            ..TestKeys::default()
        };
        let uid = format!("{n:08x}-2f57-4b0c-9a6a-3d1f5f2b7c11");
        TestPod::plain(&uid, &format!("web-{n}_default")).with_keys(keys)
    }));
    assert!(writer.set_pods(pods).refused.is_empty());
    assert!(writer.remove_pod_by_uid(GONE).is_some());

    let (cached, kept) = (reader.cached(), reader.snapshot());
    // The first load of a thread sets up arc-swap's slots for it.
    drop(reader.load());
    let parsed = (STATIC.into(), MIRROR.into());
    let mut asking = Asking { reader, cached, kept, pod, mirror, parsed, count: Arc::default() };

    for (name, work) in WRITES {
        assert_eq!(write_protected(*work, &mut asking), Ended::ByAWrite, "{name}");
    }
    for (name, work) in READS {
        assert_eq!(write_protected(*work, &mut asking), Ended::Found(true), "{name}");
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Ended {
    ByAWrite,
    /// Whether it found what was stored.
    Found(bool),
}

/// Does `work` in a forked process, which has only this thread and may write only to its stack.
fn write_protected(work: fn(&mut Asking) -> bool, asking: &mut Asking) -> Ended {
    let memory = writable_memory();
    // SAFETY: the child allocates nothing, takes no lock, and ends here.
    match unsafe { fork() }.expect("a process may be copied") {
        ForkResult::Child => {
            let protected = memory.iter().all(write_protect);
            let found = protected && black_box(work)(black_box(asking));
            // SAFETY: it ends this process at once.
            unsafe { libc::_exit(i32::from(!found)) }
        }
        ForkResult::Parent { child } => match waitpid(child, None) {
            Ok(WaitStatus::Signaled(_, Signal::SIGSEGV, _)) => Ended::ByAWrite,
            Ok(WaitStatus::Exited(_, code)) => Ended::Found(code == 0),
            other => panic!("neither a write nor an answer: {other:?}"),
        },
    }
}

/// All writable memory of this process, except for this thread's stack.
fn writable_memory() -> Vec<Range<usize>> {
    let stack = own_stack();
    let maps = fs::read_to_string("/proc/self/maps").expect("a process may read its own map");
    let mut memory = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (range, may) = (words.next().expect("a range"), words.next().expect("permissions"));
        let (start, end) = range.split_once('-').expect("two ends");
        let [start, end] = [start, end].map(|end| usize::from_str_radix(end, 16).expect("an address"));
        if may.starts_with("rw") {
            // The kernel merges adjacent mappings, so the stack may be a part of one.
            memory.extend([start..end.min(stack.start), start.max(stack.end)..end]);
        }
    }
    memory.retain(|range| !range.is_empty());
    memory
}

/// The stack of this thread. It is one mapping together with the thread-local variables.
fn own_stack() -> Range<usize> {
    // SAFETY: the attributes are those of this thread, are read after they were written, and are freed once.
    let (result, start, size) = unsafe {
        let (mut attributes, mut start, mut size) = (std::mem::zeroed(), ptr::null_mut(), 0);
        let result = libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes);
        libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        (result, start.addr(), size)
    };
    let stack = start..start + size;
    assert!(result == 0 && stack.contains(&(&raw const stack).addr()), "not this thread's stack: {stack:?}");
    stack
}

fn write_protect(range: &Range<usize>) -> bool {
    let start = ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: the range is mapped, and stays readable. A write to it ends the process.
    unsafe { libc::mprotect(start, range.len(), libc::PROT_READ) == 0 }
}
