//! Samples of the agent's resources, one per second, and whether they grow.

use std::fmt::Write;
use std::fs;
use std::sync::atomic::Ordering;

use super::churn::Counts;
use crate::support::Agent;

/// A shorter run is warm-up: the history of the pod API and the allocator's free memory still fill.
const LONG_ENOUGH: usize = 600;
/// The allowed growth of memory in the second half of the run: one hundredth, or this many KiB.
const MEMORY: Slack = Slack::OneIn(100, 512);
/// The allowed growth of descriptors or threads. Clients come and go.
const COUNT: Slack = Slack::Count(4);

/// A difference up to this is not growth.
#[derive(Clone, Copy)]
enum Slack {
    OneIn(u64, u64),
    Count(u64),
}

/// The sample of one second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub second: u64,
    /// Resident memory, and its anonymous part.
    pub resident_kib: u64,
    pub anonymous_kib: u64,
    pub descriptors: u64,
    pub threads: u64,
    /// The counts so far.
    pub requests: u64,
    pub changes: u64,
}

impl Sample {
    pub fn take(agent: &Agent, second: u64, counts: &Counts) -> Self {
        let count =
            |name: &str| fs::read_dir(format!("/proc/{}/{name}", agent.pid())).unwrap().count() as u64;
        Self {
            second,
            resident_kib: agent.kib("VmRSS"),
            anonymous_kib: agent.kib("RssAnon"),
            descriptors: count("fd"),
            threads: count("task"),
            requests: counts.requests.load(Ordering::Relaxed),
            changes: counts.changes.load(Ordering::Relaxed),
        }
    }
}

/// A compared value: its name, how to read it, and its allowed growth.
type Measure = (&'static str, fn(&Sample) -> u64, Slack);

const MEASURES: [Measure; 4] = [
    ("KiB resident", |sample| sample.resident_kib, MEMORY),
    ("KiB anonymous", |sample| sample.anonymous_kib, MEMORY),
    ("descriptors", |sample| sample.descriptors, COUNT),
    ("threads", |sample| sample.threads, COUNT),
];

fn median(samples: &[Sample], of: impl Fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<_> = samples.iter().map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// The third and the last quarter. The first half is the warm-up.
fn quarters(samples: &[Sample]) -> (&[Sample], &[Sample]) {
    let half = &samples[samples.len() / 2..];
    half.split_at(half.len() / 2)
}

/// The values that grew, in words. Compares medians, so that a single long list in transit does not count.
pub fn growth(samples: &[Sample]) -> Vec<String> {
    if samples.len() < LONG_ENOUGH {
        println!("{} seconds are too few to judge growth", samples.len());
        return Vec::new();
    }
    let (before, after) = quarters(samples);
    let grown = MEASURES.iter().filter_map(|(name, of, slack)| {
        let (before, after) = (median(before, of), median(after, of));
        let most = before
            + match slack {
                Slack::OneIn(part, least) => (before / part).max(*least),
                Slack::Count(count) => *count,
            };
        (after > most)
            .then(|| format!("{name}: {before} in the third quarter, {after} in the last, {most} at most"))
    });
    grown.collect()
}

/// The figures, formatted for people.
pub fn report(samples: &[Sample]) -> String {
    let (before, after) = quarters(samples);
    let mut text = String::from("                 third quarter   last quarter     most\n");
    for (name, of, _) in MEASURES {
        let most = samples.iter().map(of).max().unwrap_or_default();
        writeln!(text, "{name:<16}{:>14}{:>15}{most:>9}", median(before, of), median(after, of)).unwrap();
    }
    text
}

pub fn csv(samples: &[Sample]) -> String {
    let mut text = "second,resident_kib,anonymous_kib,descriptors,threads,requests,changes\n".to_owned();
    for sample in samples {
        let Sample { second, resident_kib, anonymous_kib, descriptors, threads, requests, changes } = sample;
        writeln!(
            text,
            "{second},{resident_kib},{anonymous_kib},{descriptors},{threads},{requests},{changes}"
        )
        .unwrap();
    }
    text
}

/// Samples with these values of memory and descriptors.
fn made(memory: impl Fn(u64) -> u64, descriptors: impl Fn(u64) -> u64) -> Vec<Sample> {
    let sample = |second| Sample {
        second,
        resident_kib: memory(second),
        anonymous_kib: memory(second),
        descriptors: descriptors(second),
        ..Sample::default()
    };
    (1..=600).map(sample).collect()
}

#[test]
fn a_flat_curve_with_warm_up_and_spikes_is_not_growth() {
    let memory =
        |second: u64| 30_000 + 20 * second.min(290) + if second.is_multiple_of(7) { 50_000 } else { 0 };
    assert_eq!(growth(&made(memory, |second| 20 + second % 3)), [""; 0]);
}

#[test]
fn slow_endless_growth_is_detected() {
    let slow = growth(&made(|second| 30_000 + 4 * second, |_| 20));
    assert_eq!(slow.len(), 2, "600 KiB between the medians of two quarters: {slow:?}");
    let [resident, anonymous] = &growth(&made(|second| 30_000 + 15 * second, |_| 20))[..] else {
        panic!("two")
    };
    assert!(
        resident.starts_with("KiB resident: 35640 in the third quarter, 37890 in the last"),
        "{resident}"
    );
    assert!(anonymous.starts_with("KiB anonymous"), "{anonymous}");
    let [descriptors] = &growth(&made(|_| 30_000, |second| 20 + second / 30))[..] else { panic!("one") };
    assert!(descriptors.starts_with("descriptors: 32 in"), "{descriptors}");
}
