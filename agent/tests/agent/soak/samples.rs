//! Samples of the agent's resources, one per second, and whether they grow.

use std::fs;

use crate::support::Agent;

/// A shorter run is warm-up: the history of the pod API and the allocator's free memory still fill.
const LONG_ENOUGH: usize = 600;
/// What is measured, and the growth that is allowed in the second half of the run, at least: memory may grow by one
/// hundredth, and clients come and go.
const MEASURES: [(&str, u64); 4] =
    [("KiB resident", 512), ("KiB anonymous", 512), ("descriptors", 4), ("threads", 4)];

/// The sample of one second.
pub type Sample = [u64; MEASURES.len()];

pub fn sample(agent: &Agent) -> Sample {
    let count = |name: &str| fs::read_dir(format!("/proc/{}/{name}", agent.pid())).unwrap().count() as u64;
    [agent.kib("VmRSS"), agent.kib("RssAnon"), count("fd"), count("task")]
}

fn median(samples: &[Sample], of: usize) -> u64 {
    let mut values: Vec<_> = samples.iter().map(|sample| sample[of]).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// The values that grew from the third to the last quarter, in words. The first half is the warm-up. Compares medians,
/// so that a single long list in transit does not count.
pub fn growth(samples: &[Sample]) -> Vec<String> {
    if samples.len() < LONG_ENOUGH {
        println!("{} seconds are too few to judge growth", samples.len());
        return Vec::new();
    }
    let half = &samples[samples.len() / 2..];
    let (before, after) = half.split_at(half.len() / 2);
    let grown = MEASURES.iter().enumerate().filter_map(|(of, (name, least))| {
        let (before, after) = (median(before, of), median(after, of));
        let most = before + if name.starts_with("KiB") { (before / 100).max(*least) } else { *least };
        (after > most)
            .then(|| format!("{name}: {before} in the third quarter, {after} in the last, {most} at most"))
    });
    grown.collect()
}

/// Samples with these values of memory and descriptors.
fn made(memory: impl Fn(u64) -> u64, descriptors: impl Fn(u64) -> u64) -> Vec<Sample> {
    (1..=600).map(|second| [memory(second), memory(second), descriptors(second), 0]).collect()
}

#[test]
fn only_endless_growth_is_detected_and_not_warm_up_or_spikes() {
    let memory =
        |second: u64| 30_000 + 20 * second.min(290) + if second.is_multiple_of(7) { 50_000 } else { 0 };
    assert_eq!(growth(&made(memory, |second| 20 + second % 3)), [""; 0]);
    let slow = growth(&made(|second| 30_000 + 4 * second, |_| 20));
    assert_eq!(slow.len(), 2, "600 KiB between the medians of two quarters: {slow:?}");
    let resident = &growth(&made(|second| 30_000 + 15 * second, |_| 20))[0];
    assert!(resident.starts_with("KiB resident: 35640 in the third quarter, 37890 in the last"));
    let descriptors = growth(&made(|_| 30_000, |second| 20 + second / 30));
    assert!(descriptors.len() == 1 && descriptors[0].starts_with("descriptors: 32 in"), "{descriptors:?}");
}
