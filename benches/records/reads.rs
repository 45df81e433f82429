//! From an event to its attributes: one thread, two threads, and one beside a writer.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use support::memory::allocations;
use support::sizes;
use support::throughput::{Run, throughput};

use super::designs::{Designs, found, made, reader, walk};
use super::pods::{self, Event};
use super::table;

/// A batch of telemetry: one load for so many events.
const BATCH: usize = 256;
const ROUNDS: usize = 5;
const CHANGES_A_SECOND: u32 = 100;

/// What is compared. Each takes a batch of events after the other.
const WAYS: [&str; 5] = [
    "the lookup alone",
    "records: attributes at hand",
    "records: each attribute looked at",
    "without records: made for the event",
    "one map, replaced whole: each attribute looked at",
];

/// Who else is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nobody,
    Reader,
    Writer,
}

pub fn print(designs: &mut Designs) {
    let n = designs.pods.len();
    println!("\nNanoseconds an event, each thread; in brackets the allocations of an event.");
    table::head(&["from an event's …", "one thread", "two threads", "beside a writer"]);
    for (kind, event) in Event::KINDS {
        let events = pods::events(n, event);
        for way in WAYS {
            let allocations = allocations_of(run(designs, way, &events), n);
            let cells: Vec<_> = [Beside::Nobody, Beside::Reader, Beside::Writer]
                .map(|beside| table::shown(measured(designs, way, &events, beside)))
                .into();
            let [alone, rest @ ..] = &cells[..] else { continue };
            let first = format!("{alone} ({allocations})");
            table::row(&format!("{kind}: {way}"), [first].into_iter().chain(rest.iter().cloned()));
        }
    }
}

/// How often an event allocates.
fn allocations_of(mut run: Run, n: usize) -> usize {
    run(n);
    let before = allocations();
    run(BATCH);
    (allocations() - before) / BATCH
}

/// The median of the nanoseconds of an event.
fn measured(designs: &mut Designs, way: &str, events: &Arc<[Event]>, beside: Beside) -> f64 {
    let (rounds, time) = if sizes::smoke() { (1, 1) } else { (ROUNDS, 150) };
    let threads = if beside == Beside::Reader { 2 } else { 1 };
    let mut all: Vec<_> = (0..rounds)
        .map(|_| {
            let runs = (0..threads).map(|_| run(designs, way, events)).collect();
            let measure = || throughput(runs, events.len(), BATCH, Duration::from_millis(time));
            let events_a_second =
                if beside == Beside::Writer { writing(designs, way, measure) } else { measure() };
            f64::from(threads) * 1e9 / events_a_second
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all[rounds / 2]
}

/// Measures beside a writer of the same design.
fn writing(designs: &mut Designs, way: &str, measure: impl FnOnce() -> f64) -> f64 {
    let Designs { pods, records, plain, map } = designs;
    let all: Vec<_> = records.reader.load().pods().cloned().collect();
    let mut version = 0;
    let mut change = || {
        version += 1;
        let next = |version: usize| pods::next(&pods[version % pods.len()], version);
        match way {
            _ if way == WAYS[3] => plain.update(next(version)),
            _ if way == WAYS[4] => map.update(&all[version % all.len()]),
            _ => records.update(next(version)),
        }
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                change();
                thread::sleep(Duration::from_secs(1) / CHANGES_A_SECOND);
            }
        });
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("the writer is well");
        measured
    })
}

/// Takes this many events, in batches, the next time those after them.
fn run(designs: &Designs, way: &str, events: &Arc<[Event]>) -> Run {
    let events = Arc::clone(events);
    let mut at = 0;
    let mut next = move |count: usize| {
        let from = at;
        at += count;
        (from, Arc::clone(&events))
    };
    let mut records = reader(&designs.records.reader);
    let mut plain = reader(&designs.plain.reader);
    let map = designs.map.clone();
    match way {
        _ if way == WAYS[0] => Box::new(move |count| {
            let (from, events) = next(count);
            let snapshot = records.load();
            for event in cycle(&events, from, count) {
                black_box(found(snapshot, event).expect("it is there"));
            }
        }),
        _ if way == WAYS[1] => Box::new(move |count| {
            let (from, events) = next(count);
            let snapshot = records.load();
            for event in cycle(&events, from, count) {
                black_box(found(snapshot, event).expect("it is there").attributes());
            }
        }),
        _ if way == WAYS[2] => Box::new(move |count| {
            let (from, events) = next(count);
            let snapshot = records.load();
            cycle(&events, from, count).for_each(|event| walk(found(snapshot, event).expect("it is there")));
        }),
        _ if way == WAYS[3] => Box::new(move |count| {
            let (from, events) = next(count);
            let snapshot = plain.load();
            for event in cycle(&events, from, count) {
                black_box(made(found(snapshot, event).expect("it is there")));
            }
        }),
        _ => Box::new(move |count| {
            let (from, events) = next(count);
            map.each(cycle(&events, from, count), walk);
        }),
    }
}

fn cycle(events: &[Event], from: usize, count: usize) -> impl Iterator<Item = &Event> {
    events.iter().cycle().skip(from % events.len()).take(count)
}
