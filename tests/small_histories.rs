//! Histories that are small enough for Miri, which interprets them: `.ci/run miri`.

mod support;

use std::thread;
use std::time::Duration;

use pod_index::{Operation, Options};
use support::{TestKeys, TestPod};

fn keys(digit: &str, ip: &str) -> TestKeys {
    TestKeys { containers: vec![("c".into(), digit.repeat(64))], ips: vec![ip.into()], ..TestKeys::default() }
}

/// Additions, a replacement with other keys, a batch, a set and removals, while every snapshot is held.
#[test]
fn every_snapshot_of_a_small_history_stays_as_it_was() {
    let options = Options::new().keep_removed(Duration::from_secs(60), 2);
    let (mut writer, reader) = pod_index::with_options::<TestPod>(options);
    let mut held = vec![(reader.snapshot(), 0)];
    for number in 0..12 {
        let pod = TestPod::plain(&format!("any other {number}"), &format!("n{number}"));
        writer.upsert_pod(pod.with_keys(keys("a", "10.0.0.7"))).expect("a good pod");
        held.push((reader.snapshot(), number + 1));
    }
    writer
        .upsert_pod(TestPod::plain("any other 3", "n3").with_keys(keys("b", "10.0.0.8")))
        .expect("a good pod");
    held.push((reader.snapshot(), 12));
    let _ = writer.apply([
        Operation::Upsert(TestPod::fixed("s", "web")),
        Operation::Upsert(TestPod::mirror("m", "web", "s")),
        Operation::Remove("any other 5".into()),
    ]);
    held.push((reader.snapshot(), 12));
    writer.remove_pod_by_uid("any other 6").expect("it is there");
    held.push((reader.snapshot(), 11));
    let _ = writer.set_pods([TestPod::fixed("s", "web"), TestPod::plain("p", "p")]);
    held.push((reader.snapshot(), 2));
    for (snapshot, pods) in &held {
        assert_eq!(snapshot.pods().count(), *pods);
        for pod in snapshot.pods() {
            assert!(snapshot.get(&pod.uid).is_some());
        }
    }
    let last = &held[held.len() - 1].0;
    assert_eq!(last.removed().iter().count(), 2);
    held.reverse();
    drop(held);
    assert_eq!(writer.reclaim(), 0);
}

#[test]
fn two_threads_read_while_the_writer_replaces_and_goes() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let reader = reader.clone();
            thread::spawn(move || {
                let mut cached = reader.cached();
                for _ in 0..20 {
                    let held = reader.load();
                    let found = cached.get(("default", "web")).map(|found| found.pod.uid.clone());
                    assert!(found.is_none_or(|uid| uid == "s"));
                    assert!(held.pods().len() <= 1);
                    thread::yield_now();
                }
            })
        })
        .collect();
    for version in 0..20 {
        writer.upsert_pod(TestPod::fixed("s", "web").with_ephemeral(version)).expect("a good pod");
    }
    drop(writer);
    for reader in readers {
        reader.join().expect("no panic");
    }
    assert_eq!(reader.load().pods().len(), 1);
}
