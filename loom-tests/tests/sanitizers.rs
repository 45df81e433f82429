//! Checks that the sanitizers work: a sanitizer that is not linked in, or does not cover the index, passes
//! everything and proves nothing.
//!
//! Each test runs this binary again with one bug, and the sanitizer must stop it with the expected message.
//! The bugs are those that the stress test would have if the cell or the retire queue were wrong. A sanitizer
//! finds only its own kind of bug, so each runs its own test: see `.ci/run`.

extern crate modelled_index as pod_index;

#[path = "../../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::mem;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use std::time::Instant;

use crate::support::TestPod;
use pod_index::{Reader, Snapshot, Writer};

/// Runs `bug` and panics unless the sanitizer stops it with the message `because`.
#[track_caller]
fn caught(bug: &str, because: &str) {
    let started = Instant::now();
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", bug, "--ignored", "--nocapture"])
        .output()
        .expect("this test runs");
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(said.contains("running 1 test"), "there is no bug {bug}:\n{said}");
    assert!(!output.status.success(), "{bug} passes: is this built with the sanitizer?\n{said}");
    assert!(said.contains(because), "{bug} fails for another reason:\n{said}");
    println!("caught: {bug}: {because}; {:.2} s in all", started.elapsed().as_secs_f64());
}

#[test]
fn the_thread_sanitizer_sees_a_publication_that_orders_nothing() {
    caught("a_publication_that_orders_nothing", "ThreadSanitizer: data race");
}

#[test]
fn the_address_sanitizer_sees_a_look_at_a_snapshot_that_was_freed() {
    caught("a_look_at_a_snapshot_that_was_freed", "AddressSanitizer: heap-use-after-free");
}

#[test]
fn the_leak_sanitizer_sees_a_snapshot_that_nobody_frees() {
    caught("a_snapshot_that_nobody_frees", "LeakSanitizer: detected memory leaks");
}

fn index() -> (Writer<TestPod>, Reader<TestPod>) {
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(TestPod::fixed("s", "web")).expect("a good pod");
    (writer, reader)
}

/// Replaces the published cell by one whose store has no release and whose load has no acquire ordering.
#[test]
#[ignore = "a bug: must be caught"]
fn a_publication_that_orders_nothing() {
    static PUBLISHED: AtomicPtr<Snapshot<TestPod>> = AtomicPtr::new(ptr::null_mut());
    let reading = thread::spawn(|| {
        loop {
            // SAFETY: the snapshot lives until this thread was joined.
            if let Some(snapshot) = unsafe { PUBLISHED.load(Ordering::Relaxed).as_ref() } {
                return snapshot.pod_by_uid("s").is_some();
            }
            thread::yield_now();
        }
    });
    let (_writer, reader) = index();
    let snapshot = reader.snapshot();
    PUBLISHED.store((&raw const *snapshot).cast_mut(), Ordering::Relaxed);
    assert!(reading.join().expect("the reader"));
}

/// Reads a freed snapshot, as if the writer had freed it while a guard held it.
#[test]
#[ignore = "a bug: must be caught"]
fn a_look_at_a_snapshot_that_was_freed() {
    let (mut writer, reader) = index();
    let guard = reader.load();
    let snapshot: *const Snapshot<TestPod> = &raw const *guard;
    drop(guard);
    writer.upsert_pod(TestPod::fixed("s", "web")).expect("a good pod");
    assert_eq!(writer.reclaim(), 0);
    // SAFETY: none; this is the planted bug.
    black_box(unsafe { &*snapshot }.generation());
}

/// Leaks a snapshot, as if the retire queue had forgotten it.
#[test]
#[ignore = "a bug: must be caught"]
fn a_snapshot_that_nobody_frees() {
    let (writer, reader) = index();
    mem::forget(reader.snapshot());
    drop((writer, reader));
}
