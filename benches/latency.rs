//! Single lookups, each timed: percentiles in four situations.
//!
//! - (a) no other thread;
//! - (b) a writer updates one pod after the other;
//! - (c) 1,000 updates per second, and a thread that reads all pods and translations again and again;
//! - (d) a writer replaces all pods again and again.
//!
//! The clock is the processor's time stamp counter; its own cost is included. The control is the same loop
//! with the same background threads but without a lookup: it shows the machine and its scheduler. It
//! alternates with the readers instead of running beside them, because on a small machine it would disturb
//! them.

use std::hint::black_box;
use std::time::Duration;

use hdrhistogram::Histogram;
use quanta::Clock;
use support::background::{Background, Pace, Versions};
use support::designs::{self, Cached, Design, Read, Visit};
use support::figures::{self, Figure};
use support::sizes;
use support::stamp;
use support::workload::Workload;

/// A situation: its letter, the writer's pace, and whether a thread reads whole sets.
const SITUATIONS: [(&str, Pace, bool); 4] = [
    ("a", Pace::Idle, false),
    ("b", Pace::FullSpeed, false),
    ("c", Pace::PerSecond(1_000), true),
    ("d", Pace::Sets, false),
];

/// The data kept for the tables and the curve.
const PERCENTILES: [f64; 13] =
    [10.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999, 100.0];

fn main() -> std::io::Result<()> {
    let (rounds, time) =
        if sizes::smoke() { (1, Duration::from_millis(1)) } else { (3, Duration::from_millis(250)) };
    let mut all = Vec::new();
    for n in sizes::of(&[1_000, 100_000]) {
        let mut workload = Workload::new(n);
        let versions = Versions::new(&mut workload);
        let mut latency = Latency { workload, versions, time, clock: Clock::new(), cells: Vec::new() };
        for _ in 0..rounds {
            designs::each(&mut latency);
        }
        for (situation, who, histogram) in latency.cells {
            let at = |percentile| histogram.value_at_percentile(percentile);
            println!(
                "{n:>7} ({situation}) {who:<36} p50 {:>6} p99 {:>6} p99.9 {:>8} p99.99 {:>9} max {:>10}",
                at(50.0),
                at(99.0),
                at(99.9),
                at(99.99),
                histogram.max()
            );
            all.extend(PERCENTILES.iter().map(|&percentile| {
                #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
                let value = at(percentile) as f64;
                Figure { n, what: format!("{situation} p{percentile}"), who: who.into(), value }
            }));
        }
    }
    sizes::keep(|| figures::save("latency", &all))
}

struct Latency {
    workload: Workload,
    versions: std::sync::Arc<Versions>,
    time: Duration,
    clock: Clock,
    cells: Vec<(&'static str, &'static str, Histogram<u64>)>,
}

impl Visit for Latency {
    fn visit<D: Design>(&mut self) {
        if !D::CONCURRENT {
            return;
        }
        let (mut writer, reader) = D::new(self.workload.all().collect());
        let keys = self.workload.hits(100_000, |pod| D::Key::from(pod));
        for (situation, pace, scan) in SITUATIONS {
            let background = Background::writing(writer, pace, &self.versions);
            let scanner = scan.then(|| Background::scanning(reader.clone()));
            let mut reader = reader.clone();
            let (clock, time) = (self.clock.clone(), self.time);
            let histogram = self.cell(situation, D::NAME);
            measure(&clock, time, &keys, histogram, |key| {
                black_box(reader.find(black_box(key)));
            });
            // The control uses the background of the index itself.
            if D::NAME == Cached::NAME {
                let histogram = self.cell(situation, "control: only the clock");
                measure(&clock, time, &keys, histogram, |key| {
                    black_box(key);
                });
            }
            drop(scanner.map(Background::stop));
            writer = background.map_or_else(|writer| writer, Background::stop);
        }
    }
}

impl Latency {
    fn cell(&mut self, situation: &'static str, who: &'static str) -> &mut Histogram<u64> {
        let at =
            self.cells.iter().position(|cell| cell.0 == situation && cell.1 == who).unwrap_or_else(|| {
                // Up to a minute: a narrower histogram would clip longer waits.
                let histogram =
                    Histogram::new_with_max(60_000_000_000, 3).expect("three digits are possible");
                self.cells.push((situation, who, histogram));
                self.cells.len() - 1
            });
        &mut self.cells[at].2
    }
}

/// Times each lookup for itself.
fn measure<K>(
    clock: &Clock,
    time: Duration,
    keys: &[K],
    histogram: &mut Histogram<u64>,
    mut look_up: impl FnMut(&K),
) {
    let begin = clock.raw();
    let limit = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    for key in keys.iter().cycle() {
        let before = stamp::ordered(clock);
        look_up(key);
        let after = stamp::ordered(clock);
        histogram.saturating_record(clock.delta_as_nanos(before, after));
        if clock.delta_as_nanos(begin, after) > limit {
            break;
        }
    }
}
