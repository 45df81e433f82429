//! Freeing of replaced versions: not before the last reader releases them, all of them in the end, and never
//! by a reader.
//!
//! A pod is freed with the last snapshot that contains it, so the tests observe pods. The cell itself
//! asserts, in all models, that no snapshot is read after it was freed.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::explore::{Floor, explore};
use loom::thread;
use pod_index::{PodMeta, Reader, Writer};

loom::thread_local! {
    /// Whether this thread reads, and so must free nothing.
    static READS: Cell<bool> = Cell::new(false);
}

/// Number of live pods of one model. loom does not see this counter.
#[derive(Clone, Default)]
struct Live(Arc<AtomicUsize>);

struct Tracked {
    uid: String,
    live: Live,
}

impl PodMeta for Tracked {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.uid
    }
    fn namespace(&self) -> &str {
        "default"
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.live.0.fetch_sub(1, Ordering::Relaxed);
        if !std::thread::panicking() {
            READS.with(|reads| assert!(!reads.get(), "a reader freed the pod {}", self.uid));
        }
    }
}

impl Live {
    fn pod(&self, uid: &str) -> Tracked {
        self.0.fetch_add(1, Ordering::Relaxed);
        Tracked { uid: uid.to_owned(), live: self.clone() }
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn index(live: &Live) -> (Writer<Tracked>, Reader<Tracked>) {
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(live.pod("pod")).expect("a good pod");
    (writer, reader)
}

/// Reads in a thread that must free nothing. Its last action drops its handle.
fn reading(reader: &Reader<Tracked>, read: fn(&Reader<Tracked>)) -> thread::JoinHandle<()> {
    let reader = reader.clone();
    thread::spawn(move || {
        READS.with(|reads| reads.set(true));
        read(&reader);
        drop(reader);
        assert_eq!(pod_index::freed_by_this_thread(), 0, "a reader freed a snapshot");
    })
}

/// Replaces the pod `times` times; each replaced pod is only in replaced snapshots.
fn replace(writer: &mut Writer<Tracked>, live: &Live, times: usize) {
    for _ in 0..times {
        writer.upsert_pod(live.pod("pod")).expect("a good pod");
    }
}

/// All readers are gone, so after the writer has checked, only the current pod is left.
fn finish(mut writer: Writer<Tracked>, reader: Reader<Tracked>, live: &Live) {
    assert_eq!(writer.reclaim(), 0, "nothing is left in the retire queue");
    assert_eq!(writer.retired_snapshots(), 0);
    assert_eq!(live.count(), 1, "all but the current pod are freed");
    drop(writer);
    assert_eq!(live.count(), 1, "the current pod is still published");
    drop(reader);
    assert_eq!(live.count(), 0, "all are freed in the end");
}

#[test]
fn no_reader_frees_what_two_of_them_held_by_guards() {
    explore("retire-guards", Floor { two: 1276, three: 15_608, five: 1_316_146, all: None }, || {
        let live = Live::default();
        let (mut writer, reader) = index(&live);
        let read = |reader: &Reader<Tracked>| {
            let held = reader.load();
            assert!(reader.load().pod_by_uid("pod").is_some());
            assert!(held.pod_by_uid("pod").is_some());
        };
        let readers = [reading(&reader, read), reading(&reader, read)];
        replace(&mut writer, &live, 3);
        for reader in readers {
            reader.join().expect("the reader");
        }
        finish(writer, reader, &live);
    });
}

#[test]
fn small_no_reader_frees_what_it_held_by_a_guard() {
    explore("small-retire-guard", Floor { two: 37, three: 105, five: 277, all: Some(358) }, || {
        let live = Live::default();
        let (mut writer, reader) = index(&live);
        let other = reading(&reader, |reader| {
            let held = reader.load();
            assert!(held.pod_by_uid("pod").is_some());
        });
        replace(&mut writer, &live, 2);
        other.join().expect("the reader");
        finish(writer, reader, &live);
    });
}

#[test]
fn no_reader_frees_what_it_kept_or_remembered() {
    explore("retire-kept", Floor { two: 259, three: 5095, five: 131_084, all: None }, || {
        let live = Live::default();
        let (mut writer, reader) = index(&live);
        let other = reading(&reader, |reader| {
            let kept = reader.snapshot();
            let mut cached = reader.cached();
            assert!(cached.load().pod_by_uid("pod").is_some());
            drop(kept.clone());
            assert!(kept.pod_by_uid("pod").is_some());
            cached.refresh();
        });
        replace(&mut writer, &live, 3);
        other.join().expect("the reader");
        finish(writer, reader, &live);
    });
}

#[test]
fn what_a_reader_holds_when_the_writer_goes_is_freed_with_the_last_handle() {
    explore("retire-leftover", Floor { two: 77, three: 560, five: 4546, all: None }, || {
        let live = Live::default();
        let (mut writer, reader) = index(&live);
        let other = reading(&reader, |reader| {
            let held = reader.load();
            let kept = reader.snapshot();
            assert!(held.pod_by_uid("pod").is_some());
            drop(held);
            assert!(kept.pod_by_uid("pod").is_some());
        });
        replace(&mut writer, &live, 2);
        drop(writer);
        other.join().expect("the reader");
        assert!(live.count() >= 1);
        drop(reader);
        assert_eq!(live.count(), 0, "all are freed in the end");
    });
}
