//! Removed pods that are kept for a time: random histories compared with a plain list of removals, and the cases by which
//! the documents describe them.

#[path = "support/seeded.rs"]
mod seeded;
mod support;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pod_index::identity::Identity;
use pod_index::{FoundBy, Moment, Operation, Options, PodManager, Reader, Time, Writer};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use seeded::seeded;
use support::history::{Kind, Run, Spec, Step};
use support::keys::COMBINATIONS;
use support::removed::{RemovedAnswers, moment, time};
use support::{TestKeys, TestPod};

fn specs() -> impl Strategy<Value = Spec> {
    let kind = select(vec![Kind::File, Kind::File, Kind::Mirror, Kind::Mirror, Kind::Bare]);
    (0..8usize, 0..2usize, kind, 0..COMBINATIONS).prop_map(|(uid, name, kind, keys)| Spec {
        uid,
        name,
        namespace: 0,
        kind,
        ephemeral: 0,
        keys,
    })
}

fn single_steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => specs().prop_map(Step::Upsert),
        8 => (0..8usize).prop_map(Step::RemoveUid),
        1 => (0..16usize, 0..16usize).prop_map(|(a, b)| Step::SwapNames(a, b)),
        1 => vec(specs(), 0..8).prop_map(Step::Set),
        2 => (any::<u16>(), vec(specs(), 0..3)).prop_map(|(without, more)| Step::SetSome(without, more)),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => single_steps(),
        1 => vec(single_steps(), 0..8).prop_map(Step::Batch),
        3 => (0..4u64).prop_map(Step::Expire),
    ]
}

/// The maximum age and number. Most histories reach both.
fn limits() -> impl Strategy<Value = (u64, usize)> {
    (1..8u64, prop_oneof![3 => 1..6usize, 1 => Just(100)])
}

#[test]
fn what_finds_a_removed_pod_is_what_the_list_of_removals_says() {
    let compared = Cell::new(0);
    let config = seeded(96);
    let cases = config.cases as usize;
    // So long that the floor below is five standard deviations from the mean.
    let histories = (limits(), vec(steps(), 1..90));
    let result = TestRunner::new(config).run(&histories, |((age, most), history)| {
        let mut run = Run::keeping(age, most);
        let mut kept = Vec::new();
        for step in &history {
            run.step(step);
            let snapshot = run.reader.snapshot();
            let answers = run.compare_removed(&snapshot);
            compared.set(compared.get() + answers.all.len());
            kept.push((snapshot, answers));
        }
        run.compare();
        for (snapshot, answers) in &kept {
            assert_eq!(RemovedAnswers::of(snapshot, &run.universe), *answers, "a snapshot stays as it was");
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{} removed pods compared in {cases} cases", compared.get());
    assert!(compared.get() >= 30 * cases || cases < 32, "few removed pods were compared: {}", compared.get());
}

const ID: &str = "3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c";
const U1: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const U2: &str = "1f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";

fn index(max_age: u64, max_pods: usize) -> (Writer<TestPod>, Reader<TestPod>) {
    pod_index::with_options(Options::new().keep_removed(Duration::from_secs(max_age), max_pods))
}

fn web(uid: &str, container_id: &str) -> Arc<TestPod> {
    let containers = vec![("nginx".to_owned(), container_id.to_owned())];
    let keys = TestKeys { containers, ips: vec!["10.0.0.7".to_owned()], ..TestKeys::default() };
    TestPod::plain(uid, "web_shop").with_keys(keys)
}

/// Removes a pod at this tick.
fn remove(writer: &mut Writer<TestPod>, uid: &str, tick: u64) {
    let applied = writer.apply_at(moment(tick), [Operation::Remove(uid.into())]);
    assert!(applied.published, "a known pod");
}

/// What the text leads to: the UID, when it was removed, and how it was found.
fn resolve(reader: &Reader<TestPod>, text: &str) -> Option<(String, bool, FoundBy)> {
    let snapshot = reader.load();
    let found = Identity::parse_lenient(text).expect("an identity").resolve(&snapshot)?;
    Some((found.pod.uid.clone(), found.removed_at.is_some(), found.by))
}

/// A `StatefulSet` replaces its pod by another one of the same name: late events of the first lead to the first.
#[test]
fn late_events_lead_to_the_removed_pod_and_not_to_its_successor() {
    let (mut writer, reader) = index(60, 10);
    writer.upsert_pod(web(U1, ID)).expect("a good pod");
    remove(&mut writer, U1, 0);
    writer.upsert_pod(web(U2, &"f".repeat(64))).expect("a good pod");

    let removed = |by| Some((U1.to_owned(), true, by));
    let living = |by| Some((U2.to_owned(), false, by));
    let cases = [
        (U1.to_owned(), removed(FoundBy::Uid)),
        (ID.to_owned(), removed(FoundBy::ContainerId)),
        (format!("/kubepods.slice/kubepods-pod{}.slice/x", U1.replace('-', "_")), removed(FoundBy::Uid)),
        (format!("0::/kubepods/podffffffff-4b5a-6978-8796-a5b4c3d2e1f0/{ID}"), removed(FoundBy::ContainerId)),
        (format!("/var/log/pods/shop_web_{U1}/nginx/0.log"), removed(FoundBy::Uid)),
        (format!("/var/log/containers/web_shop_nginx-{ID}.log"), removed(FoundBy::ContainerId)),
        // No pod has this ID: the container may be so new that no status names it.
        (format!("/var/log/containers/web_shop_nginx-{}.log", "0".repeat(64)), living(FoundBy::NameOnly)),
        ("10.0.0.7".to_owned(), living(FoundBy::Ip)),
        ("shop/web".to_owned(), living(FoundBy::Name)),
        (U2.to_owned(), living(FoundBy::Uid)),
    ];
    for (text, expected) in &cases {
        assert_eq!(resolve(&reader, text), *expected, "{text}");
    }
    // Without the successor, they lead to the removed one by name and IP too.
    remove(&mut writer, U2, 0);
    assert_eq!(resolve(&reader, "shop/web"), Some((U2.to_owned(), true, FoundBy::Name)));
    assert_eq!(resolve(&reader, "10.0.0.7"), Some((U2.to_owned(), true, FoundBy::Ip)));
    assert_eq!(writer.advance(moment(60)), 2);
    for (text, _) in &cases {
        assert_eq!(resolve(&reader, text), None, "{text}");
    }
}

#[test]
fn a_removed_pod_is_neither_counted_nor_listed_nor_waited_for() {
    let (mut writer, reader) = index(60, 10);
    writer.upsert_pod(web(U1, ID)).expect("a good pod");
    let before = reader.snapshot();
    remove(&mut writer, U1, 0);
    let pods = reader.load();
    assert_eq!((pods.pods().len(), pods.key_counts().container_ids, pods.key_counts().ips), (0, 0, 0));
    assert!(pods.pod_by_container_id(ID).is_none() && pods.pod_by_ip([10, 0, 0, 7].into()).is_none());
    assert_eq!(pods.changes_since(&before).len(), 1);
    assert!(reader.wait_for(U1, std::time::Instant::now()).is_err());
    // A publication that only drops removed pods changes nothing among the living.
    let before = reader.snapshot();
    assert_eq!(writer.advance(moment(60)), 1);
    assert_eq!(reader.load().generation(), before.generation() + 1);
    assert_eq!(reader.load().pods_generation(), before.generation());
    assert!(reader.load().changes_since(&before).is_empty());
    assert_eq!(before.removed().len(), 1, "a held snapshot stays as it was");
}

#[test]
fn nothing_is_kept_if_it_is_off() {
    let limits = |age, most| Options::new().keep_removed(Duration::from_secs(age), most);
    for options in [Options::new(), limits(0, 10), limits(60, 0)] {
        let (mut writer, reader) = pod_index::with_options::<TestPod>(options);
        writer.upsert_pod(web(U1, ID)).expect("a good pod");
        remove(&mut writer, U1, 0);
        assert!(reader.load().removed().is_empty());
        assert_eq!((writer.next_deadline(), writer.advance(moment(60))), (None, 0));
    }
}

#[test]
fn without_a_moment_the_clock_says_when_a_pod_was_removed() {
    let (mut writer, reader) = index(60, 10);
    writer.upsert_pod(web(U1, ID)).expect("a good pod");
    let before = Instant::now();
    writer.remove_pod_by_uid(U1).expect("a known pod");
    let removed_at = reader.load().removed().get(U1).expect("it is kept").removed_at.expect("a time");
    assert!((before..=Instant::now()).contains(&removed_at));
    let deadline = writer.next_deadline().expect("a pod is kept");
    assert_eq!(deadline, removed_at + Duration::from_secs(60));
    assert_eq!(writer.advance(Moment::new(deadline, Time::now())), 1);
}

/// It pushes another removed pod out, so there is something to publish.
#[test]
fn a_pod_that_is_removed_and_returns_in_one_batch_has_not_changed() {
    let (mut writer, reader) = index(60, 1);
    let stays = web(U1, ID);
    let _ = writer.set_pods([Arc::clone(&stays), web(U2, ID)]);
    writer.remove_pod_by_uid(U2).expect("a known pod");
    let before = reader.load().pods_generation();
    let batch = [Operation::Remove(U1.into()), Operation::Upsert(stays)];
    assert!(writer.apply(batch).published);
    let snapshot = reader.load();
    assert_eq!((snapshot.removed().len(), snapshot.pods_generation()), (0, before));
}

/// It is the same object under the same UID, but another removal.
#[test]
fn a_pod_that_returns_and_is_removed_again_in_one_batch_counts_as_removed_then() {
    let (mut writer, reader) = index(60, 10);
    let pod = web(U1, ID);
    writer.upsert_pod(Arc::clone(&pod)).expect("a good pod");
    remove(&mut writer, U1, 0);
    let applied = writer.apply_at(moment(5), [Operation::Upsert(pod), Operation::Remove(U1.into())]);
    assert!(applied.published);
    assert_eq!(reader.load().removed().get(U1).expect("it is kept").removed_at, Some(time(5)));
    assert_eq!((writer.advance(moment(60)), writer.advance(moment(65))), (0, 1));
}

#[test]
fn a_manager_keeps_removed_pods_too() {
    let manager =
        PodManager::<TestPod>::with_options(Options::new().keep_removed(Duration::from_secs(60), 10));
    manager.add_pod(web(U1, ID)).expect("a good pod");
    manager.write(|writer| remove(writer, U1, 5));
    assert_eq!(manager.write(|writer| writer.next_deadline()), Some(time(65)));
    assert_eq!(manager.load().removed().get(U1).expect("kept").removed_at, Some(time(5)));
    assert_eq!(manager.cached().load().removed().len(), 1);
    manager.write(|writer| {
        let forgotten = [64, 65].map(|tick| writer.advance(moment(tick)));
        assert_eq!((forgotten, writer.next_deadline()), ([0, 1], None));
    });
}

/// Whoever follows the documentation calls `advance` only at a deadline, perhaps an hour before the next removal.
#[test]
fn a_pod_that_is_removed_an_hour_after_the_last_call_is_kept_for_its_whole_time() {
    let (mut writer, reader) = index(60, 10);
    for uid in [U1, U2] {
        writer.upsert_pod(web(uid, ID)).expect("a good pod");
    }
    remove(&mut writer, U1, 0);
    assert_eq!(writer.advance(moment(60)), 1);
    remove(&mut writer, U2, 3_660);
    assert_eq!(writer.next_deadline(), Some(time(3_720)));
    assert_eq!([3_661, 3_719, 3_720].map(|tick| writer.advance(moment(tick))), [0, 0, 1]);
    assert!(reader.load().removed().is_empty());
}

#[test]
fn every_write_forgets_the_removed_pods_that_are_too_old() {
    let (mut writer, _reader) = index(60, 10);
    writer.upsert_pod(web(U1, ID)).expect("a good pod");
    remove(&mut writer, U1, 0);
    let early = writer.apply_at(moment(59), []);
    assert_eq!((early.forgotten, early.published), (0, false));
    let applied = writer.apply_at(moment(60), [Operation::Upsert(web(U2, ID))]);
    assert_eq!((applied.forgotten, writer.current().removed().len()), (1, 0));
}

/// Threads take their times before they get hold of the writer.
#[test]
fn a_moment_before_the_last_removal_counts_as_that_removal() {
    let (mut writer, reader) = index(60, 10);
    for uid in [U1, U2] {
        writer.upsert_pod(web(uid, ID)).expect("a good pod");
    }
    remove(&mut writer, U1, 10);
    remove(&mut writer, U2, 5);
    assert_eq!(reader.load().removed().get(U2).expect("kept").removed_at, Some(time(10)));
    assert_eq!([69, 70].map(|tick| writer.advance(moment(tick))), [0, 2]);
}

#[test]
fn if_nothing_is_too_old_nothing_is_published_and_nobody_is_woken() {
    let options = Options::new().keep_removed(Duration::from_secs(60), 10).keep_times(true);
    let (mut writer, reader) = pod_index::with_options::<TestPod>(options);
    let _ = writer.apply_at(moment(0), [Operation::Upsert(web(U1, ID))]);
    // It loses its IP, so the index has something to forget after a minute, which is no pod.
    let _ = writer.apply_at(moment(1), [Operation::Upsert(TestPod::plain(U1, "web_shop"))]);
    let mut changes = reader.changes();
    while changes.try_next().is_ok() {}
    let generation = reader.load().generation();
    assert_eq!((writer.next_deadline(), writer.advance(moment(200))), (None, 0));
    assert_eq!(reader.load().generation(), generation);
    assert!(changes.try_next().is_err());
}
