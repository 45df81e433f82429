//! Followers are woken: they miss neither a publication nor the writer's end.
//!
//! A lost wake-up appears as a deadlock: the follower sleeps, and the writer waits for it.

use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::explore::{Floor, explore};
use crate::support::TestPod;
use loom::thread;
use pod_index::{Changes, Reader, WaitError, Writer};

/// Follows until it has seen this generation.
fn until(mut changes: Changes<TestPod>, generation: u64) {
    let mut seen = 0;
    while seen < generation {
        let step = changes.wait().expect("the writer is there");
        assert_eq!(step.before().map_or(0, |before| before.generation()), seen, "no gap between two steps");
        assert!(step.after().generation() > seen, "each step leads on");
        seen = step.after().generation();
    }
}

fn wait(reader: &Reader<TestPod>) {
    let never = Instant::now() + Duration::from_secs(3600);
    reader.wait_for("p", never).expect("it comes");
}

fn publish(writer: &mut Writer<TestPod>, times: u64) {
    for version in 0..times {
        let pod = TestPod::plain("pod", "web").with_ephemeral(usize::try_from(version).expect("a few"));
        writer.upsert_pod(pod).expect("a good pod");
    }
}

/// The writer publishes, and waits until the follower has seen it.
#[test]
fn no_publication_is_slept_through() {
    explore("follow", Floor { two: 290, three: 2525, five: 78_987, all: None }, || {
        let (mut writer, reader) = pod_index::new::<TestPod>();
        let changes = reader.changes();
        let follower = thread::spawn(move || until(changes, 2));
        publish(&mut writer, 2);
        follower.join().expect("the follower");
    });
}

/// Another follower sleeps, so the first publication wakes. A follower that falls asleep meanwhile is woken
/// by the second.
#[test]
fn a_follower_that_falls_asleep_while_another_is_woken_is_woken_too() {
    explore("follow-beside", Floor { two: 193, three: 1520, five: 34_659, all: None }, || {
        let (mut writer, reader) = pod_index::new::<TestPod>();
        let mut other = reader.changes();
        assert!(other.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        let waiting = thread::spawn(move || wait(&reader));
        writer.upsert_pod(TestPod::plain("another", "another")).expect("a good pod");
        writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
        waiting.join().expect("who waits");
    });
}

/// The writer publishes once more and is dropped: both are seen, in this order.
#[test]
fn the_last_publication_is_seen_and_then_that_the_writer_is_gone() {
    explore("follow-gone", Floor { two: 124, three: 678, five: 8886, all: None }, || {
        let (mut writer, reader) = pod_index::new::<TestPod>();
        let mut changes = reader.changes();
        let follower = thread::spawn(move || {
            let mut seen = 0;
            while let Some(step) = changes.wait() {
                seen = step.after().generation();
            }
            assert_eq!(seen, 1, "the last state comes before the end");
            assert_eq!(changes.try_next().err(), Some(WaitError::WriterGone));
        });
        publish(&mut writer, 1);
        drop(writer);
        follower.join().expect("the follower");
    });
}

/// Waiting for a pod that comes with the second publication.
#[test]
fn a_follower_waiting_for_a_pod_is_woken_when_it_is_added() {
    explore("wait-for", Floor { two: 161, three: 1135, five: 15_580, all: None }, || {
        let (mut writer, reader) = pod_index::new::<TestPod>();
        let waiting = thread::spawn(move || wait(&reader));
        writer.upsert_pod(TestPod::plain("another", "another")).expect("a good pod");
        writer.upsert_pod(TestPod::plain("p", "web")).expect("a good pod");
        waiting.join().expect("who waits");
    });
}

/// A subscriber that polls sees the last publication before it hears that the writer is gone.
#[test]
fn small_whoever_hears_that_the_writer_is_gone_has_seen_its_last_publication() {
    explore("small-try-next", Floor { two: 1, three: 1, five: 1, all: Some(1) }, || {
        let (mut writer, reader) = pod_index::new::<TestPod>();
        let mut changes = reader.changes();
        let follower = thread::spawn(move || {
            if let Err(WaitError::WriterGone) = changes.try_next() {
                panic!("a publication is lost");
            }
        });
        publish(&mut writer, 1);
        drop(writer);
        follower.join().expect("the follower");
    });
}
