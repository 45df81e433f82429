//! Two indices in one process, each of which gets the memory of the other's old snapshots.
//!
//! arc-swap keeps one list of debts for all cells of a process. Up to 1.9.4 it could confuse two cells if one of them got the
//! address of a freed value of the other (its issue 210): a reader of one index was handed a snapshot of the other one, with
//! safe code alone. Here a load is stopped before each of its instructions, and the writers act meanwhile.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(any(pod_index_loom, pod_index_shuttle))))]

#[path = "support/steps.rs"]
mod steps;

use std::sync::Arc;

use pod_index::{Guard, PodMeta, Reader, SimplePod, Snapshot, Writer};
use steps::{Stops, each_pair_of_stops, with_stops};

/// Places at which a load is stopped, if it has more instructions than that. Unoptimised, a load has some 1,900 instructions,
/// and with arc-swap 1.9.3 a wrong result if it is stopped within 140 of them and again within the next 100.
const PLACES: usize = 24;
/// arc-swap's slots of a thread. A load that finds them all taken is another algorithm.
const SLOTS: usize = 8;

/// An index whose only pod says by its namespace which index it is.
struct Index {
    writer: Writer<SimplePod>,
    reader: Reader<SimplePod>,
    pods: [Arc<SimplePod>; 2],
    writes: usize,
}

impl Index {
    fn new(name: &'static str) -> Self {
        let (mut writer, reader) = pod_index::new();
        let pods = ["one", "other"].map(|pod| Arc::new(SimplePod::new("uid", name, pod)));
        writer.upsert_pod(Arc::clone(&pods[0])).expect("a good pod");
        Self { writer, reader, pods, writes: 0 }
    }

    /// Publishes a snapshot, and frees the one before if no reader has it.
    fn write(&mut self) {
        self.writes += 1;
        self.writer.upsert_pod(Arc::clone(&self.pods[self.writes % 2])).expect("a good pod");
    }
}

fn address(snapshot: &Snapshot<SimplePod>) -> usize {
    (&raw const *snapshot).addr()
}

/// What the loads of a test were handed.
#[derive(Default, Debug)]
struct Seen {
    pairs: usize,
    /// The other index got the address of a snapshot of this one during the load.
    reused: usize,
    foreign: Vec<Stops>,
    backward: Vec<Stops>,
}

/// A load of one index is stopped twice. At the first stop, that index is written, which frees its snapshot, and the other one
/// is, which gets the memory; at the second, the other one is written again, which settles the debts for that address.
fn stop_loads_everywhere(guards: usize) -> Seen {
    let mut seen = Seen::default();
    let [mut own, mut other, third] = ["own", "other", "third"].map(Index::new);
    let reader = own.reader.clone();
    // Of a third index: guards of this one would keep the memory that is to be reused.
    let _held: Vec<Guard<_>> = (0..guards).map(|_| third.reader.load()).collect();
    let mut try_out = |stops: Stops| {
        let before = address(&reader.load());
        let generation = reader.load().generation();
        let mut after = 0;
        let write = |part| {
            if part == 0 {
                own.write();
            }
            other.write();
            if part == 0 {
                after = address(&other.reader.load());
            }
        };
        let (guard, instructions) = with_stops(stops, || reader.load(), write);
        seen.pairs += 1;
        seen.reused += usize::from(after == before);
        if guard.pods().any(|pod| pod.namespace() != "own") {
            seen.foreign.push(stops);
        } else if guard.generation() < generation {
            seen.backward.push(stops);
        }
        instructions
    };
    let never = [usize::MAX; 2];
    // The first load of a thread takes slots for it.
    try_out(never);
    let instructions = try_out(never);
    each_pair_of_stops(instructions, PLACES, |stops| {
        try_out(stops);
    });
    println!(
        "{instructions} instructions; {} pairs of stops, {} with the same address",
        seen.pairs, seen.reused
    );
    seen
}

#[track_caller]
fn check(seen: &Seen) {
    assert_eq!(seen.foreign, [[0; 2]; 0], "snapshots of the other index");
    assert_eq!(seen.backward, [[0; 2]; 0], "snapshots older than one that was read before");
    assert!(seen.pairs > 100 && seen.reused > seen.pairs / 10, "it tries what it should: {seen:?}");
}

#[test]
fn a_load_that_is_stopped_anywhere_never_returns_a_snapshot_of_another_index() {
    check(&stop_loads_everywhere(0));
}

#[test]
fn neither_does_a_load_of_a_thread_that_holds_as_many_guards_as_it_has_slots() {
    check(&stop_loads_everywhere(SLOTS));
}
