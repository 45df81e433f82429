//! shuttle: random schedules of the same code, with more threads and longer histories than loom can explore.
//! It does not model weak memory: every step is visible to all threads at once.

/// Without the cfg, this makes the run report that it proved nothing.
#[cfg(not(pod_index_shuttle))]
#[test]
#[ignore = "needs RUSTFLAGS=\"--cfg pod_index_shuttle\""]
fn the_schedules_were_run() {}

#[cfg(pod_index_shuttle)]
extern crate modelled_index as pod_index;

#[cfg(pod_index_shuttle)]
#[path = "../shared/explore.rs"]
mod explore;
#[cfg(pod_index_shuttle)]
#[path = "../shared/history.rs"]
mod history;
#[cfg(pod_index_shuttle)]
#[path = "../../../tests/support/mod.rs"]
mod support;

#[cfg(pod_index_shuttle)]
mod schedules {
    use std::sync::Arc;

    use crate::explore::schedules;
    use crate::history::{History, lives_of_a_pair};
    use crate::support::TestPod;
    use crate::support::invariants;
    use pod_index::{PodManager, Reader, Writer};
    use shuttle::thread;

    /// Number of schedules of each model.
    const SCHEDULES: usize = 10_000;

    /// Reads with all three handles, and holds each result during later reads.
    fn read(reader: &Reader<TestPod>, history: &History) {
        let mut cached = reader.cached();
        let mut last = history.check(cached.load());
        let mut held = Vec::new();
        for turn in 0..6 {
            let state = match turn % 3 {
                0 => {
                    held.push(reader.load());
                    history.check(&held[held.len() - 1])
                }
                1 => history.check(&reader.snapshot()),
                _ => history.check(cached.load()),
            };
            assert!(last <= state, "from state {last} back to {state}");
            last = state;
        }
        for guard in held {
            assert_eq!(history.check(&guard) as u64, guard.generation(), "what is held stays");
        }
    }

    #[test]
    fn five_readers_see_whole_states_in_order_through_three_lives_of_a_pair() {
        let history = Arc::new(History::new(lives_of_a_pair(3)));
        schedules("five-readers", SCHEDULES, move || {
            let (mut writer, reader) = pod_index::new();
            let readers: Vec<_> = (0..5)
                .map(|_| {
                    let (reader, history) = (reader.clone(), Arc::clone(&history));
                    thread::spawn(move || read(&reader, &history))
                })
                .collect();
            history.write(&mut writer);
            drop(writer);
            for reader in readers {
                reader.join().expect("the reader");
            }
            assert_eq!(history.check(&reader.load()), history.last());
        });
    }

    /// Each publication waits until all have seen the previous one, so each must wake all sleepers.
    #[test]
    fn five_followers_sleep_through_no_publication() {
        const PUBLICATIONS: u64 = 6;
        schedules("five-followers", SCHEDULES, || {
            let (mut writer, reader) = pod_index::new::<TestPod>();
            let (seen, sees) = shuttle::sync::mpsc::channel();
            let followers: Vec<_> = (0..5)
                .map(|_| {
                    let (mut changes, seen) = (reader.changes(), seen.clone());
                    thread::spawn(move || {
                        while let Some(step) = changes.wait() {
                            seen.send(step.after().generation()).expect("the writer is there");
                        }
                    })
                })
                .collect();
            for generation in 1..=PUBLICATIONS {
                writer.upsert_pod(TestPod::plain(&generation.to_string(), "web")).expect("a good pod");
                for _ in &followers {
                    assert_eq!(sees.recv(), Ok(generation));
                }
            }
            drop(writer);
            for follower in followers {
                follower.join().expect("the follower");
            }
        });
    }

    #[test]
    fn four_callers_of_a_manager_lose_no_write() {
        const UIDS: [&str; 4] = ["p1", "p2", "p3", "p4"];
        schedules("four-callers", SCHEDULES, || {
            let manager = PodManager::<TestPod>::new();
            let callers: Vec<_> = UIDS
                .into_iter()
                .map(|uid| {
                    let manager = manager.clone();
                    thread::spawn(move || {
                        // All four use the same full name, and each has a mirror of it.
                        manager.add_pod(TestPod::fixed(uid, "web")).expect("a good pod");
                        let mirror = format!("mirror-of-{uid}");
                        manager.add_pod(TestPod::mirror(&mirror, "web", uid)).expect("a good pod");
                        invariants::check(&manager.load());
                        manager.write(|writer| writer.remove_pod_by_uid(&mirror)).expect("it is there");
                        invariants::check(&manager.load());
                    })
                })
                .collect();
            for caller in callers {
                caller.join().expect("the caller");
            }
            let snapshot = manager.load();
            assert_eq!(snapshot.generation(), 3 * UIDS.len() as u64, "no write is lost");
            assert!(UIDS.iter().all(|uid| snapshot.pod_by_uid(*uid).is_some()));
            assert!(snapshot.mirror_pods().len() == 0);
            drop(snapshot);
            assert_eq!(manager.write(Writer::reclaim), 0, "nothing is left in the retire queue");
        });
    }
}
