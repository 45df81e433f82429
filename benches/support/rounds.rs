//! Interleaved rounds: every case once per round, in alternating order, and the median of all rounds.
//!
//! Disturbances of the machine, such as temperature or neighbours, affect all cases alike, so ratios stay
//! valid.

use std::time::{Duration, Instant};

use crate::figures::Figure;
use crate::sizes;

/// Cases that are measured against each other.
#[derive(Default)]
pub struct Rounds<'a> {
    cases: Vec<Case<'a>>,
}

struct Case<'a> {
    what: String,
    who: String,
    run: Box<dyn FnMut() + 'a>,
    /// Number of operations per run.
    operations: usize,
    samples: Vec<f64>,
}

impl<'a> Rounds<'a> {
    /// Adds a case: one call of `run` is `operations` operations.
    pub fn case(
        &mut self,
        what: impl Into<String>,
        who: impl Into<String>,
        operations: usize,
        run: impl FnMut() + 'a,
    ) {
        let (what, who) = (what.into(), who.into());
        self.cases.push(Case { what, who, run: Box::new(run), operations, samples: Vec::new() });
    }

    /// Measures all cases for about `time` in total, in at least five rounds. Returns nanoseconds per
    /// operation. A smoke test runs each case once.
    #[must_use]
    pub fn measure(mut self, n: usize, time: Duration) -> Vec<Figure> {
        let least = if sizes::smoke() { 1 } else { 5 };
        let start = Instant::now();
        if !sizes::smoke() {
            // The first round warms the caches and is discarded.
            self.cases.iter_mut().for_each(|case| (case.run)());
        }
        for round in 0.. {
            if round >= least && start.elapsed() > time {
                break;
            }
            if round % 2 == 0 {
                self.cases.iter_mut().for_each(Case::sample);
            } else {
                self.cases.iter_mut().rev().for_each(Case::sample);
            }
        }
        self.cases.into_iter().map(|case| case.figure(n)).collect()
    }
}

impl Case<'_> {
    fn sample(&mut self) {
        let start = Instant::now();
        (self.run)();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let sample = start.elapsed().as_nanos() as f64 / self.operations as f64;
        self.samples.push(sample);
    }

    fn figure(mut self, n: usize) -> Figure {
        self.samples.sort_by(f64::total_cmp);
        Figure { n, what: self.what, who: self.who, value: self.samples[self.samples.len() / 2] }
    }
}
