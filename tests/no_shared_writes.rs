//! Between two publications, a lookup writes only to its own thread's stack, so readers on many cores do not
//! invalidate each other's caches.
//!
//! This is measured, not inferred from the source. Each lookup runs in a process in which all memory is
//! write-protected except for the calling thread's stack. Any other store, plain or atomic, ends that
//! process.
#![cfg(all(target_os = "linux", not(any(pod_index_loom, pod_index_shuttle))))]

#[path = "support/lookups.rs"]
mod lookups;
mod support;

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, ptr, thread};

use lookups::{Given, LOOKUPS, UNUSUAL, UNUSUAL_MIRROR, UNUSUAL_STATIC, UUID, fill, known};
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use pod_index::{CachedReader, OwnedSnapshot, Reader};
use support::TestPod;

/// What a lookup may need.
struct Asking {
    reader: Reader<TestPod>,
    cached: CachedReader<TestPod>,
    kept: OwnedSnapshot<TestPod>,
    given: Given,
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
    ("a counted reference to a pod", |asking| Arc::strong_count(&asking.given.pod.clone()) > 1),
    ("Reader::snapshot", |asking| asking.reader.snapshot().pod_by_uid(UUID).is_some()),
    ("Reader::load", |asking| asking.reader.load().pod_by_uid(UUID).is_some()),
    ("translate an unusual UID to itself", |asking| asking.kept.translate_pod_uid(UNUSUAL) == UNUSUAL),
    ("translate to an unusual UID", |asking| asking.kept.translate_pod_uid(UNUSUAL_MIRROR) == UNUSUAL_STATIC),
];

/// These must not write.
const READS: &[Work] = &[
    ("nothing", |_| true),
    ("a store to the thread's own stack", |_| {
        let mut own = [0u64; 64];
        black_box(&mut own)[7] = 1;
        own[7] == 1
    }),
    ("cached, by key", |asking| asking.cached.get(UUID).is_some()),
    ("cached, refresh", |asking| {
        asking.cached.refresh();
        true
    }),
];

#[test]
fn a_lookup_between_two_publications_writes_to_no_shared_memory() {
    // On a separate thread, whose stack is one mapping together with its thread-local variables.
    thread::scope(|scope| scope.spawn(each_work_is_seen_to_write_or_not).join()).expect("it ran to its end");
}

fn each_work_is_seen_to_write_or_not() {
    let (mut writer, reader) = pod_index::new();
    let mut more = vec![
        TestPod::fixed(UNUSUAL_STATIC, "odd_kube-system"),
        TestPod::mirror(UNUSUAL_MIRROR, "odd_kube-system", UNUSUAL_STATIC),
    ];
    more.extend((0..60).map(|n| {
        TestPod::plain(&format!("{n:08x}-2f57-4b0c-9a6a-3d1f5f2b7c11"), &format!("web-{n}"))
            .with_keys(known())
    }));
    fill(&mut writer, 0, more);

    let (cached, kept) = (reader.cached(), reader.snapshot());
    // The first load of a thread sets up arc-swap's slots for it.
    drop(reader.load());
    let mut asking = Asking { reader, cached, kept, given: Given::new(), count: Arc::default() };

    for (name, work) in WRITES {
        assert_eq!(write_protected(*work, &mut asking), Ended::ByAWrite, "{name}");
    }
    for (name, work) in READS {
        assert_eq!(write_protected(*work, &mut asking), Ended::Found(true), "{name}");
    }
    for (name, lookup) in LOOKUPS {
        let cached = |asking: &mut Asking| lookup(asking.cached.load(), &asking.given);
        assert_eq!(write_protected(cached, &mut asking), Ended::Found(true), "cached, {name}");
        let kept = |asking: &mut Asking| lookup(&asking.kept, &asking.given);
        assert_eq!(write_protected(kept, &mut asking), Ended::Found(true), "{name}");
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Ended {
    ByAWrite,
    /// Whether it found what was stored.
    Found(bool),
}

/// Does `work` in a forked process, which has only this thread and may write only to its stack.
fn write_protected(work: impl Fn(&mut Asking) -> bool, asking: &mut Asking) -> Ended {
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
