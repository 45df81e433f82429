//! What readers see during writes.

use std::sync::Arc;

use crate::explore::{Floor, explore};
use crate::history::{History, Write, life_of_a_pair};
use crate::support::TestPod;
use loom::thread;
use pod_index::{PodManager, Reader, Upserted};

/// Reads once with `load`; all results belong to one generation.
fn read(reader: &Reader<TestPod>, history: &History) -> usize {
    let snapshot = reader.load();
    history.check(&snapshot)
}

/// One writer, two readers: every read sees all tables of one generation.
#[test]
fn every_read_sees_all_indices_of_one_generation() {
    let history = Arc::new(History::new(life_of_a_pair().into_iter().take(4).collect()));
    explore("one-generation", Floor { two: 1838, three: 21_474, five: 1_867_818, all: None }, move || {
        let (mut writer, reader) = pod_index::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (reader, history) = (reader.clone(), Arc::clone(&history));
                thread::spawn(move || {
                    read(&reader, &history);
                    read(&reader, &history);
                })
            })
            .collect();
        history.write(&mut writer);
        for reader in readers {
            reader.join().expect("the reader");
        }
        assert_eq!(history.check(&reader.load()), history.last());
    });
}

/// Through add, rename, UID change, static removal and re-creation, orphaning, and a set.
#[test]
fn a_mirror_and_its_static_pod_share_a_full_name_in_every_snapshot() {
    let history = Arc::new(History::new(life_of_a_pair()));
    explore("one-full-name", Floor { two: 547, three: 12_045, five: 618_465, all: None }, move || {
        let (mut writer, reader) = pod_index::new();
        let other = {
            let history = Arc::clone(&history);
            let reader = reader.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    History::check_invariants(&reader.load());
                    read(&reader, &history);
                }
            })
        };
        history.write(&mut writer);
        other.join().expect("the reader");
        History::check_invariants(&reader.load());
    });
}

/// The same with a single read. Small enough to be explored without a bound on preemptions.
#[test]
fn small_every_read_sees_all_indices_of_one_generation() {
    let history = Arc::new(History::new(life_of_a_pair().into_iter().take(2).collect()));
    explore("small-one-generation", Floor { two: 37, three: 105, five: 277, all: Some(358) }, move || {
        let (mut writer, reader) = pod_index::new();
        let other = {
            let (reader, history) = (reader.clone(), Arc::clone(&history));
            thread::spawn(move || {
                read(&reader, &history);
            })
        };
        history.write(&mut writer);
        other.join().expect("the reader");
    });
}

/// One thread reads with all three handles in turn.
#[test]
fn generations_never_go_back() {
    let history = Arc::new(History::new(life_of_a_pair().into_iter().take(3).collect()));
    explore("generations", Floor { two: 454, three: 15_410, five: 646_304, all: None }, move || {
        let (mut writer, reader) = pod_index::new();
        let other = {
            let (reader, history) = (reader.clone(), Arc::clone(&history));
            thread::spawn(move || {
                let mut cached = reader.cached();
                let mut last = history.check(cached.load());
                let mut seen = |state| {
                    assert!(last <= state, "from generation {last} back to {state}");
                    last = state;
                };
                let held = reader.load();
                assert_eq!(held.generation(), history.check(&held) as u64, "a state has its generation");
                seen(history.check(&held));
                seen(history.check(cached.load()));
                seen(history.check(&reader.snapshot()));
                seen(history.check(cached.clone().load()));
                seen(read(&reader, &history));
            })
        };
        history.write(&mut writer);
        other.join().expect("the reader");
    });
}

/// A `CachedReader` checks for a new value with a relaxed load, so only the cell orders it after the writer.
#[test]
fn every_publication_is_seen_whole() {
    let history = Arc::new(History::new(life_of_a_pair().into_iter().take(1).collect()));
    explore("publication", Floor { two: 405, three: 3618, five: 102_098, all: None }, move || {
        let (mut writer, reader) = pod_index::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (reader, history) = (reader.clone(), Arc::clone(&history));
                thread::spawn(move || {
                    let mut cached = reader.cached();
                    history.check(cached.load());
                    history.check(cached.load());
                })
            })
            .collect();
        history.write(&mut writer);
        for reader in readers {
            reader.join().expect("the reader");
        }
    });
}

/// Two callers of a [`PodManager`] write and read. No write is lost. If both add the same pod, exactly one of
/// them is the first.
#[test]
fn small_two_callers_of_a_manager_write_and_no_write_is_lost() {
    explore("small-manager", Floor { two: 119, three: 764, five: 10_945, all: Some(192_960) }, || {
        let manager = PodManager::<TestPod>::new();
        let add = |own: &'static str| {
            let manager = manager.clone();
            move || {
                manager.add_pod(TestPod::plain(own, own)).expect("a good pod");
                assert!(manager.load().pod_by_uid(own).is_some(), "a caller sees its own write");
                let added = manager.add_pod(TestPod::plain("shared", "shared")).expect("a good pod");
                matches!(added, Upserted::Added)
            }
        };
        let other = thread::spawn(add("one"));
        let first = add("two")();
        let second = other.join().expect("the other caller");
        assert!(first != second, "one of the two is the first to add the shared pod");
        let snapshot = manager.load();
        assert_eq!(snapshot.generation(), 4, "four writes");
        assert!(["one", "two", "shared"].iter().all(|uid| snapshot.pod_by_uid(*uid).is_some()));
    });
}

/// A reader created during a publication sees at least the generation that its creator saw.
#[test]
fn small_a_reader_made_during_a_publication_does_not_lag_behind() {
    let history = Arc::new(History::new(life_of_a_pair().into_iter().take(2).collect()));
    explore(
        "small-new-reader",
        Floor { two: 145, three: 970, five: 13_959, all: Some(364_876) },
        move || {
            let (mut writer, reader) = pod_index::new();
            let other = {
                let (reader, history) = (reader.clone(), Arc::clone(&history));
                thread::spawn(move || {
                    let seen = read(&reader, &history);
                    let mut cached = reader.clone().cached();
                    let by_load = read(&reader.clone(), &history);
                    let by_cached = history.check(cached.load());
                    assert!(
                        seen <= by_load && by_load <= by_cached,
                        "back from {seen}, {by_load} to {by_cached}"
                    );
                })
            };
            history.write(&mut writer);
            other.join().expect("the reader");
        },
    );
}

/// The writer is dropped while readers read: held snapshots stay, and loads return the last state.
#[test]
fn small_readers_outlive_the_writer() {
    let batches = life_of_a_pair().into_iter().take(2).chain([vec![Write::Remove("s2")]]).collect();
    let history = Arc::new(History::new(batches));
    explore("small-outlive", Floor { two: 115, three: 182, five: 968, all: Some(1846) }, move || {
        let (mut writer, reader) = pod_index::new();
        let other = {
            let history = Arc::clone(&history);
            thread::spawn(move || {
                history.write(&mut writer);
                drop(writer);
            })
        };
        let held = reader.load();
        let generation = history.check(&held);
        let last = read(&reader, &history);
        other.join().expect("the writer");
        assert_eq!(history.check(&held), generation, "what is held stays");
        assert!(generation <= last);
        drop(held);
        assert_eq!(read(&reader, &history), history.last());
    });
}
