//! Readers never wait for a writer that is stopped in the middle of a write, and the writer never waits for
//! readers that hold snapshots.
//!
//! A call that did wait would wait for ever, so the deadlines may be generous.

mod support;

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use pod_index::{Operation, PodManager, PodMeta, Reader};
use support::{TestPod, guarded};

const DEADLINE: Duration = Duration::from_secs(120);

/// Blocks a thread: reports that it is blocked, and continues when told to.
struct Halt {
    reached: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

/// The controlling end of a [`Halt`]. Dropping it continues the thread, so that a failing test ends.
struct Halted {
    reached: Receiver<()>,
    _go_on: Sender<()>,
}

fn halt() -> (Halt, Halted) {
    let (reached, is_reached) = mpsc::channel();
    let (go_on, told) = mpsc::channel();
    (Halt { reached, go_on: Mutex::new(told) }, Halted { reached: is_reached, _go_on: go_on })
}

impl Halt {
    fn stand_still(&self) {
        let _ = self.reached.send(());
        let _ = self.go_on.lock().expect("nobody panicked").recv();
    }
}

/// Does `work` on a separate thread. Returns whether it finished in time.
fn is_done(work: impl FnOnce() + Send + 'static) -> bool {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    is_done.recv_timeout(DEADLINE).is_ok()
}

/// Every kind of read, by every handle, old and new.
fn read<P: PodMeta>(manager: &PodManager<P>) {
    let ask = |reader: &Reader<P>| {
        black_box(reader.load().pod_by_uid("p"));
        black_box(reader.load().pod_by_full_name("web_default"));
        black_box(reader.load().translate_pod_uid("p"));
        black_box(reader.load().pods().count());
        black_box(reader.snapshot().pod_to_mirror_uids().count());
        let mut cached = reader.cached();
        black_box(cached.load().pod_by_name("default", "web"));
        cached.refresh();
        black_box(cached.clone().load().generation());
    };
    ask(manager);
    ask(&Reader::clone(manager));
    ask(&manager.clone());
    black_box(manager.pod_by_uid("p"));
    black_box(manager.pod_by_full_name("web_default"));
    black_box(manager.pod_by_name("default", "web"));
    black_box(manager.translate_pod_uid("p"));
    black_box(manager.load().pods().len());
    if let Some(pod) = manager.pod_by_uid("p") {
        black_box(manager.pod_by_mirror_pod(&pod));
        black_box(manager.mirror_pod_by_pod(&pod));
    }
}

#[test]
fn reads_do_not_wait_for_a_writer_in_the_middle_of_a_write() {
    for batch in [false, true] {
        let manager = PodManager::new();
        manager.add_pod(TestPod::plain("p", "web")).expect("a good pod");
        let (halt, halted) = halt();
        let writing = manager.clone();
        let writer = thread::spawn(move || {
            // The second pod blocks.
            let pods = ["u", "v"].map(|uid| TestPod::plain(uid, uid)).into_iter().enumerate();
            let pods = pods.map(|(at, pod)| {
                if at == 1 {
                    halt.stand_still();
                }
                pod
            });
            if batch {
                writing.write(|writer| writer.apply(pods.map(Operation::Upsert)))
            } else {
                writing.set_pods(pods)
            }
        });
        halted.reached.recv_timeout(DEADLINE).expect("the writer gets there");
        let reading = manager.clone();
        let read = is_done(move || {
            read(&reading);
            assert_eq!(reading.load().generation(), 1, "of what is being written nothing is seen");
        });
        drop(halted);
        assert!(read, "the readers wait for the writer");
        assert_eq!(writer.join().expect("the writer").generation, 2);
    }
}

/// Blocks when it is dropped.
struct Slow(Option<Halt>);

impl Drop for Slow {
    fn drop(&mut self) {
        if let Some(halt) = &self.0 {
            halt.stand_still();
        }
    }
}

#[test]
fn reads_do_not_wait_for_a_writer_that_frees_what_it_replaced() {
    let (halt, halted) = halt();
    let manager = PodManager::new();
    manager.add_pod(guarded("p", Slow(Some(halt)))).expect("a good pod");
    let writing = manager.clone();
    // Not by an update, which would return the old pod to its caller.
    let writer = thread::spawn(move || writing.set_pods([guarded("p", Slow(None))]).generation);
    halted.reached.recv_timeout(DEADLINE).expect("the writer frees the old pod");
    let reading = manager.clone();
    let read = is_done(move || {
        read(&reading);
        assert_eq!(reading.load().generation(), 2, "what replaces it was published before");
    });
    drop(halted);
    assert!(read, "the readers wait for the writer");
    assert_eq!(writer.join().expect("the writer"), 2);
}

#[test]
fn a_writer_does_not_wait_for_readers_that_hold_on() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
    let (halt, halted) = halt();
    let holding = reader.clone();
    let holder = thread::spawn(move || {
        // More guards than arc-swap has slots per thread.
        let guards: Vec<_> = (0..20).map(|_| holding.load()).collect();
        let (kept, mut cached) = (holding.snapshot(), holding.cached());
        let borrowed = cached.load();
        halt.stand_still();
        (guards.iter().map(|guard| guard.generation()).max(), kept.generation(), borrowed.generation())
    });
    halted.reached.recv_timeout(DEADLINE).expect("the reader holds on");
    let written = is_done(move || {
        for _ in 0..100 {
            writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
        }
        assert_eq!(writer.reclaim(), 1, "what is held, and no more");
        assert!(writer.set_pods([TestPod::plain("q", "web")]).published);
    });
    drop(halted);
    assert!(written, "the writer waits for the readers");
    assert_eq!(holder.join().expect("the reader"), (Some(1), 1, 1), "what is held stays");
    assert_eq!(reader.load().generation(), 102);
}

/// Threads that count references to one snapshot would contend for its counter's cache line.
#[test]
fn guards_and_cached_lookups_leave_the_shared_reference_count_alone() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
    let (snapshot, mut cached) = (reader.snapshot(), reader.cached());
    let before = snapshot.reference_count();
    let guards: Vec<_> = (0..8).map(|_| reader.load()).collect();
    assert!(guards.iter().all(|guard| guard.pod_by_uid("p").is_some()));
    assert!(cached.load().pod_by_uid("p").is_some());
    assert_eq!(snapshot.reference_count(), before, "eight guards are free");
    let ninth = reader.load();
    assert_eq!(snapshot.reference_count(), before + 1, "the ninth is not, as the documentation says");
    drop((guards, ninth));
    assert_eq!(snapshot.reference_count(), before);
}
