//! Following an index: what a subscriber sees, when it is woken, and that the writer never waits for it.

mod support;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pod_index::{
    Change, Changes, FullName, Key, Moment, Operation, Options, PodManager, PodUid, Reader, Step, Time,
    WaitError, Writer,
};
use support::{TestPod, guarded};

/// Long enough for anything that must happen.
const DEADLINE: Duration = Duration::from_secs(120);

fn in_time() -> Instant {
    Instant::now() + DEADLINE
}

/// The changes of a step, in order.
fn summary(step: &Step<TestPod>) -> Vec<String> {
    let name = |change: &Change<'_, TestPod>| match change {
        Change::Added(pod) => format!("+{}", pod.uid),
        Change::Updated { new, .. } => format!("~{}", new.uid),
        Change::Removed(pod) => format!("-{}", pod.uid),
        other => panic!("an unknown kind of change: {other:?}"),
    };
    step.changes().iter().map(name).collect()
}

fn sorted(mut summary: Vec<String>) -> Vec<String> {
    summary.sort_unstable();
    summary
}

/// Counts wake-ups and records the waking thread.
struct Counter {
    wakes: AtomicUsize,
    by: Mutex<Sender<thread::ThreadId>>,
}

fn counter() -> (Arc<Counter>, Receiver<thread::ThreadId>) {
    let (by, woken) = mpsc::channel();
    (Arc::new(Counter { wakes: AtomicUsize::new(0), by: Mutex::new(by) }), woken)
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        let by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = by.send(thread::current().id());
    }
}

fn poll(changes: &mut Changes<TestPod>, waker: &Arc<Counter>) -> Poll<Option<Step<TestPod>>> {
    changes.poll_next(&mut Context::from_waker(&Waker::from(Arc::clone(waker))))
}

#[test]
fn a_late_subscriber_sees_everything_as_added_and_then_changes() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let _ = writer.set_pods([
        TestPod::fixed("s", "web"),
        TestPod::mirror("m", "web", "s"),
        TestPod::plain("p", "db"),
    ]);
    let mut changes = reader.changes();
    assert!(changes.seen().is_none());
    let step = changes.wait().expect("the writer is there");
    assert!(step.before().is_none());
    assert_eq!(step.after().generation(), 1);
    assert_eq!(sorted(summary(&step)), ["+m", "+p", "+s"]);

    writer.upsert_pod(TestPod::plain("p", "db").with_ephemeral(1)).expect("a good pod");
    let step = changes.wait().expect("the writer is there");
    assert_eq!(step.before().map(pod_index::Snapshot::generation), Some(1));
    assert_eq!(summary(&step), ["~p"]);
    assert_eq!(changes.seen().map(pod_index::Snapshot::generation), Some(2));
    assert_eq!(changes.try_next().map(|step| summary(&step)), Err(WaitError::Empty));
}

#[test]
fn an_index_in_which_nothing_was_published_has_no_first_step() {
    let (writer, reader) = pod_index::new::<TestPod>();
    let mut changes = reader.changes();
    assert_eq!(changes.try_next().map(|step| summary(&step)), Err(WaitError::Empty));
    assert_eq!(changes.wait_until(Instant::now()).map(|step| summary(&step)), Err(WaitError::TimedOut));
    drop(writer);
    assert_eq!(changes.wait_until(in_time()).map(|step| summary(&step)), Err(WaitError::WriterGone));
}

#[test]
fn a_slow_subscriber_gets_one_step_for_all_publications() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let mut changes = reader.changes();
    writer.upsert_pod(TestPod::plain("stays", "stays")).expect("a good pod");
    writer.upsert_pod(TestPod::plain("goes", "goes")).expect("a good pod");
    changes.wait().expect("the writer is there");
    for version in 0..1_000 {
        let pod = TestPod::plain("stays", "stays").with_ephemeral(version);
        writer.upsert_pod(pod).expect("a good pod");
        writer.upsert_pod(TestPod::plain("in between", "in-between")).expect("a good pod");
        writer.remove_pod_by_uid("in between").expect("it is there");
    }
    writer.remove_pod_by_uid("goes").expect("it is there");
    let step = changes.wait().expect("the writer is there");
    assert_eq!(summary(&step), ["-goes", "~stays"]);
    assert!(changes.try_next().is_err(), "nothing has piled up");
    drop(step);
    assert_eq!(writer.reclaim(), 0, "the subscriber holds only the current snapshot");
}

#[test]
fn a_subscriber_sees_the_last_state_and_then_that_the_writer_is_gone() {
    for sleeps in [false, true] {
        let (mut writer, reader) = pod_index::new::<TestPod>();
        assert!(reader.has_writer());
        let mut all: Vec<Changes<TestPod>> = (0..4).map(|_| reader.changes()).collect();
        writer.upsert_pod(TestPod::plain("first", "first")).expect("a good pod");
        for changes in &mut all {
            changes.wait().expect("the writer is there");
        }
        let followers: Vec<_> = all
            .drain(..3)
            .enumerate()
            .map(|(number, mut changes)| {
                let (asleep, is_asleep) = mpsc::channel();
                let follower = thread::spawn(move || {
                    asleep.send(()).expect("the test is there");
                    let mut steps = Vec::new();
                    loop {
                        let step = match number {
                            0 => changes.wait(),
                            1 => changes.wait_until(in_time()).ok(),
                            _ => block_on(changes.next()),
                        };
                        let Some(step) = step else { return (steps, changes.try_next().err()) };
                        steps.extend(summary(&step));
                    }
                });
                is_asleep.recv().expect("the follower is there");
                follower
            })
            .collect();
        if sleeps {
            // Makes it likely that they sleep. The test is correct either way.
            thread::sleep(Duration::from_millis(50));
        }
        writer.upsert_pod(TestPod::plain("last", "last")).expect("a good pod");
        drop(writer);
        for follower in followers {
            assert_eq!(
                follower.join().expect("no panic"),
                (vec!["+last".into()], Some(WaitError::WriterGone))
            );
        }
        let mut late = all.pop().expect("one that has not looked");
        assert_eq!(late.try_next().map(|step| summary(&step)), Ok(vec!["+last".into()]));
        assert_eq!(late.try_next().map(|step| summary(&step)), Err(WaitError::WriterGone));
        assert!(!reader.has_writer());
        let mut later = reader.changes();
        assert_eq!(sorted(summary(&later.wait().expect("the last state"))), ["+first", "+last"]);
        assert!(later.wait().is_none());
    }
}

/// A minimal runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (waker, woken) = counter();
    let (mut future, waker) = (pin!(future), Waker::from(waker));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(ready) => return ready,
            Poll::Pending => drop(woken.recv_timeout(DEADLINE).expect("a wake-up is lost")),
        }
    }
}

#[test]
fn many_threads_sleep_and_each_publication_wakes_all_of_them() {
    const FOLLOWERS: usize = 20;
    const PUBLICATIONS: u64 = 50;
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let (seen, generations) = mpsc::channel();
    for _ in 0..FOLLOWERS {
        let (mut changes, seen) = (reader.changes(), seen.clone());
        thread::spawn(move || {
            while let Some(step) = changes.wait() {
                let _ = seen.send(step.after().generation());
            }
        });
    }
    // Publish only after all threads have seen the previous generation, so that each publication must wake all of them.
    for generation in 1..=PUBLICATIONS {
        writer.upsert_pod(TestPod::plain(&generation.to_string(), "web")).expect("a good pod");
        for _ in 0..FOLLOWERS {
            assert_eq!(generations.recv_timeout(DEADLINE), Ok(generation), "a wake-up is lost");
        }
    }
}

/// No thread of the library stands between the two.
#[test]
fn a_publication_wakes_each_sleeper_once_on_the_writers_thread_before_it_returns() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let mut changes = reader.changes();
    let (waker, woken) = counter();
    assert!(poll(&mut changes, &waker).is_pending());
    writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
    let by = woken.try_recv().expect("a wake-up is lost");
    assert_eq!(by, thread::current().id());
    // No subscriber sleeps now, so none is woken.
    writer.upsert_pod(TestPod::plain("p", "other")).expect("a good pod");
    assert!(matches!(poll(&mut changes, &waker), Poll::Ready(Some(step)) if summary(&step) == ["+p"]));
    writer.remove_pod_by_uid("p").expect("it is there");
    assert!(matches!(poll(&mut changes, &waker), Poll::Ready(Some(step)) if summary(&step) == ["-p"]));
    assert!(poll(&mut changes, &waker).is_pending());
    drop(writer);
    woken.try_recv().expect("a wake-up is lost");
    assert!(matches!(poll(&mut changes, &waker), Poll::Ready(None)));
    assert_eq!(waker.wakes.load(Ordering::SeqCst), 2);
}

/// A UID, and one of the ways to remove the pod with it.
type Removal = (&'static str, fn(&mut Writer<TestPod>));

/// A removal is a publication like any other: it wakes who sleeps, and frees what was replaced before.
#[test]
fn a_removal_alone_wakes_followers_and_frees_what_was_replaced() {
    let options = Options::new().keep_removed(Duration::from_secs(60), 10);
    for options in [Options::new(), options] {
        let (mut writer, reader) = pod_index::with_options::<TestPod>(options);
        for uid in ["p", "q", "r"] {
            writer.upsert_pod(TestPod::plain(uid, uid)).expect("a good pod");
        }
        let mut changes = reader.changes();
        while changes.try_next().is_ok() {}
        let ways: [Removal; 3] = [
            ("p", |writer| drop(writer.remove_pod_by_uid("p").expect("it is there"))),
            ("q", |writer| drop(writer.remove_pod(&TestPod::plain("q", "q")).expect("it is there"))),
            ("r", |writer| drop(writer.apply([Operation::Remove("r".into())]))),
        ];
        for (uid, remove) in ways {
            let (waker, woken) = counter();
            assert!(poll(&mut changes, &waker).is_pending());
            remove(&mut writer);
            woken.try_recv().expect("a wake-up is lost");
            let step = changes.try_next().expect("it was published");
            assert_eq!(summary(&step), [format!("-{uid}")]);
            drop(step);
            // The subscriber holds the snapshot that it saw. Those before it are freed by the removal itself.
            assert!(writer.retired_snapshots() <= 1, "{} are left", writer.retired_snapshots());
        }
    }
}

#[test]
fn the_waker_of_the_last_poll_is_woken_and_that_of_a_dropped_subscriber_is_not_kept() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let mut changes = reader.changes();
    let ((first, first_woken), (last, last_woken), (dropped, _)) = (counter(), counter(), counter());
    assert!(poll(&mut changes, &first).is_pending());
    assert!(poll(&mut changes, &last).is_pending());
    assert_eq!(Arc::strong_count(&first), 1, "the first waker is dropped");
    let mut another = reader.changes();
    assert!(poll(&mut another, &dropped).is_pending());
    drop(another);
    assert_eq!(Arc::strong_count(&dropped), 1, "the waker was dropped");
    writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
    last_woken.recv_timeout(DEADLINE).expect("a wake-up is lost");
    assert!(first_woken.try_recv().is_err());
    assert_eq!(dropped.wakes.load(Ordering::SeqCst), 0);
}

/// A waker that drops and creates subscribers, as an executor may that runs a task when it is woken.
struct Enters(Mutex<Vec<Changes<TestPod>>>, Reader<TestPod>);

impl Wake for Enters {
    fn wake(self: Arc<Self>) {
        let mut changes = self.1.changes();
        while changes.try_next().is_ok() {}
        assert!(changes.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(drop);
    }
}

/// It publishes without a change of the current pods.
#[test]
fn dropping_removed_pods_wakes_subscribers() {
    let options = Options::new().keep_removed(Duration::from_secs(60), 10);
    let (mut writer, reader) = pod_index::with_options::<TestPod>(options);
    writer.upsert_pod(TestPod::plain("u1", "web")).expect("a good pod");
    writer.remove_pod_by_uid("u1").expect("a known pod");
    let mut changes = reader.changes();
    while changes.try_next().is_ok() {}
    let (waker, woken) = counter();
    assert!(poll(&mut changes, &waker).is_pending());
    let deadline = writer.next_deadline().expect("a pod is kept");
    assert_eq!(writer.advance(Moment::new(deadline, Time::now())), 1);
    woken.recv_timeout(DEADLINE).expect("it is woken");
}

/// Otherwise a waker that touches the list of wakers would wait for itself.
#[test]
fn a_waker_runs_without_a_lock_of_the_index() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let (mut changes, mut dropped) = (reader.changes(), reader.changes());
    let (counted, _woken) = counter();
    let _ = poll(&mut dropped, &counted);
    let enters = Arc::new(Enters(Mutex::new(vec![dropped]), reader.clone()));
    assert!(changes.poll_next(&mut Context::from_waker(&Waker::from(Arc::clone(&enters)))).is_pending());
    writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
    assert!(enters.0.lock().expect("no panic").is_empty(), "it ran");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics; expected in this test");
    }
}

#[test]
fn a_waker_that_panics_does_not_affect_others() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let mut subscribers: Vec<Changes<TestPod>> = (0..3).map(|_| reader.changes()).collect();
    let (waker, woken) = counter();
    for round in 0..3 {
        let panics = Waker::from(Arc::new(Panics));
        for (number, changes) in subscribers.iter_mut().enumerate() {
            while changes.try_next().is_ok() {}
            let waker = if number == 1 { Waker::from(Arc::clone(&waker)) } else { panics.clone() };
            assert!(changes.poll_next(&mut Context::from_waker(&waker)).is_pending());
        }
        writer.upsert_pod(TestPod::plain(&round.to_string(), "web")).expect("a good pod");
        woken.try_recv().expect("a wake-up is lost");
        assert_eq!(reader.load().generation(), round + 1, "the write has succeeded");
    }
}

/// Whether it panics when it is dropped.
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0, "a pod that panics when it is freed; expected in this test");
    }
}

#[test]
fn a_publication_by_a_write_that_panics_also_wakes() {
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(guarded("bomb", Bomb(true))).expect("a good pod");
    let (asleep, is_asleep) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let own = fs::read_link("/proc/thread-self").expect("Linux");
        asleep.send(own).expect("the test is there");
        reader.wait_for("after", in_time()).map(|pod| pod.0)
    });
    let stat = Path::new("/proc").join(is_asleep.recv().expect("it is there")).join("stat");
    // The state follows the name, which is in parentheses.
    while !fs::read_to_string(&stat).expect("the thread waits").contains(") S ") {
        thread::yield_now();
    }
    let write = || drop(writer.set_pods([guarded("after", Bomb(false))]));
    assert!(catch_unwind(AssertUnwindSafe(write)).is_err(), "the old pod is freed, and panics");
    assert_eq!(waiting.join().expect("no panic"), Ok("after"));
}

#[test]
fn waiting_for_a_pod_ends_when_it_is_added_with_any_key() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let full_name = FullName::new("default", "web").expect("a full name");
    let uid = PodUid::from("p");
    let keys: [fn(&FullName, &PodUid) -> Key<'static>; 2] =
        [|_, _| "p".into(), |_, _| ("default", "web").into()];
    let waiting: Vec<_> = keys
        .iter()
        .map(|key| {
            let (reader, key) = (reader.clone(), key(&full_name, &uid));
            thread::spawn(move || reader.wait_for(key, in_time()))
        })
        .chain([{
            let (reader, full_name) = (reader.clone(), full_name.clone());
            thread::spawn(move || block_on(reader.wait_for_async(&full_name)).ok_or(WaitError::WriterGone))
        }])
        .collect();
    writer.upsert_pod(TestPod::plain("another", "another")).expect("a good pod");
    // A mirror of that name is not the pod.
    writer.upsert_pod(TestPod::mirror("m", "web", "p")).expect("a good pod");
    assert_eq!(reader.wait_for("m", Instant::now()), Err(WaitError::TimedOut));
    assert_eq!(reader.wait_for(("default", "web"), Instant::now()), Err(WaitError::TimedOut));
    writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
    for waiting in waiting {
        assert_eq!(waiting.join().expect("no panic").map(|pod| pod.uid.clone()), Ok("p".into()));
    }
    // Returns at once if the pod exists, whatever the deadline, with or without a writer.
    drop(writer);
    assert_eq!(reader.wait_for(&uid, Instant::now()).map(|pod| pod.uid.clone()), Ok("p".into()));
    assert_eq!(reader.wait_for("nobody", in_time()), Err(WaitError::WriterGone));
    assert_eq!(block_on(reader.wait_for_async("nobody")), None);
}

#[test]
fn waiting_for_a_pod_ends_at_the_deadline_although_others_are_added() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let deadline = Instant::now() + Duration::from_millis(60);
    let waiting = thread::spawn(move || (reader.wait_for("nobody", deadline), Instant::now()));
    while !waiting.is_finished() {
        writer.upsert_pod(TestPod::plain("p", "web").with_ephemeral(1)).expect("a good pod");
        thread::sleep(Duration::from_millis(1));
    }
    let (waited, ended) = waiting.join().expect("no panic");
    assert_eq!(waited, Err(WaitError::TimedOut));
    assert!(ended >= deadline, "not before the deadline");
}

#[test]
fn a_manager_can_be_followed_and_its_writer_is_gone_with_its_last_clone() {
    let manager = PodManager::<TestPod>::new();
    let mut changes = manager.changes();
    let same = manager.clone();
    let waiting = thread::spawn({
        let reader = Reader::clone(&manager);
        move || reader.wait_for("p", in_time()).map(|pod| pod.uid.clone())
    });
    same.add_pod(TestPod::plain("p", "web")).expect("a good pod");
    assert_eq!(manager.wait_for(("default", "web"), in_time()).map(|pod| pod.uid.clone()), Ok("p".into()));
    assert_eq!(block_on(manager.wait_for_async("p")).map(|pod| pod.uid.clone()), Some("p".into()));
    assert_eq!(waiting.join().expect("no panic"), Ok("p".into()));
    assert_eq!(summary(&changes.wait().expect("the writer is there")), ["+p"]);
    drop(manager);
    assert_eq!(changes.try_next().map(|step| summary(&step)), Err(WaitError::Empty));
    drop(same);
    assert!(changes.wait().is_none());
}
