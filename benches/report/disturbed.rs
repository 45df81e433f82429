//! Throughputs that cannot be right, because something else took the processors while they were measured.
//!
//! How does one notice that afterwards? Another figure of the same design contradicts it. Beside a writer, a design makes no
//! more lookups than without one; and once there is a thread for each core, more threads make hardly more lookups. A throughput
//! is *disturbed* if it is less than 0.7 of such another one. Smaller differences are noise.

use support::figures::{Figure, value};
use support::markdown::{grouped, short};

use crate::tables::{PACES, PEERS, THREADS};

/// Numbers of pods of the bench `contention`.
const SIZES: [usize; 2] = [1_000, 100_000];

/// The figures of the bench `contention`.
pub(crate) struct Throughputs<'a> {
    figures: &'a [Figure],
    /// Of the machine that made them.
    cores: usize,
}

impl<'a> Throughputs<'a> {
    pub(crate) fn new(figures: &'a [Figure], machine: &str) -> Self {
        let cores = machine.split(", ").find_map(|part| part.strip_suffix(" cores")?.parse().ok());
        Self { figures, cores: cores.unwrap_or(1) }
    }

    /// Million lookups a second, unless they were disturbed.
    pub(crate) fn undisturbed(&self, n: usize, pace: &str, threads: usize, design: &str) -> Option<f64> {
        let figure = self.measured(n, pace, threads, design)?;
        let is_disturbed = pace == PACES[0] && self.contradiction(n, threads, design).is_some();
        (!is_disturbed).then_some(figure)
    }

    /// What is disturbed, and what contradicts it: an item for each throughput.
    pub(crate) fn disturbed(&self) -> Vec<String> {
        let mut found = Vec::new();
        for design in PEERS {
            for n in SIZES {
                for threads in THREADS {
                    if let Some(contradiction) = self.contradiction(n, threads, design) {
                        let pods = grouped(n);
                        found.push(format!(
                            "`{design}` with {pods} pods and {} {contradiction}",
                            counted(threads)
                        ));
                    }
                }
            }
        }
        found
    }

    /// What contradicts the throughput without a writer.
    fn contradiction(&self, n: usize, threads: usize, design: &str) -> Option<String> {
        let figure = self.measured(n, PACES[0], threads, design)?;
        let contradicts = |other: &f64| figure < 0.7 * other;
        if let Some(other) = self.measured(n, PACES[1], threads, design).filter(contradicts) {
            return Some(format!("{}, beside a writer {}", short(figure), short(other)));
        }
        if threads < self.cores {
            return None;
        }
        let twice = 2 * threads;
        let other = self.measured(n, PACES[0], twice, design).filter(contradicts)?;
        Some(format!("{}, with {} {}", short(figure), counted(twice), short(other)))
    }

    fn measured(&self, n: usize, pace: &str, threads: usize, design: &str) -> Option<f64> {
        value(self.figures, n, &format!("{pace}, {threads} threads"), design)
    }
}

fn counted(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}
