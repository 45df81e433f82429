//! Lookups by every key, by one and by two threads, without a writer and beside 1,000 updates per second.
//!
//! `cargo bench -p pod-index-benches --features peers --bench every_key`: 5 minutes.

use std::mem;
use std::time::Duration;

use support::background::Background;
use support::every_key::{self, Subject};
use support::figures::{self, Figure};
use support::sizes;
use support::throughput::{medians, throughput};
use support::workload::Workload;

/// Updates per second.
const UPDATES: u32 = 1_000;

fn main() -> std::io::Result<()> {
    let (rounds, time) =
        if sizes::smoke() { (1, Duration::from_millis(1)) } else { (7, Duration::from_millis(60)) };
    let mut all = Vec::new();
    for n in sizes::of(&every_key::SIZES) {
        let mut subjects = every_key::subjects(&mut Workload::new(n));
        let mut samples = Vec::new();
        for _ in 0..rounds {
            for subject in &mut subjects {
                sample(subject, n, time, &mut samples);
            }
            // The other way round in the next round.
            subjects.reverse();
        }
        let figures = medians(samples);
        println!("\n{n} pods; ns of a lookup for one thread, million lookups per second for two");
        for Figure { what, who, value, .. } in &figures {
            println!("{what:<48} {who:<24} {value:>12.2}");
        }
        all.extend(figures);
    }
    sizes::keep(|| figures::save("every_key", &all))
}

fn sample(subject: &mut Subject, n: usize, time: Duration, samples: &mut Vec<Figure>) {
    for lookups in &subject.lookups {
        for situation in every_key::SITUATIONS {
            let update = situation.updates.then(|| {
                let update = mem::replace(&mut subject.update, Box::new(|_| {}));
                Background::paced(update, UPDATES, |update| update(1))
            });
            let readers = (0..situation.threads).map(|thread| lookups.reader(thread, situation.threads));
            let per_second = throughput(readers.collect(), lookups.warm(), lookups.step, time);
            if let Some(background) = update {
                subject.update = background.stop();
            }
            let value = if situation.threads == 1 { 1e9 / per_second } else { per_second / 1e6 };
            let what = situation.what(lookups.what);
            samples.push(Figure { n, what, who: subject.who.into(), value });
        }
    }
}
