//! Lookups of several threads at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::figures::Figure;

/// Makes this many lookups.
pub type Run = Box<dyn FnMut(usize) + Send>;

/// Lookups per second of all threads together, with one thread for each of `readers`. Each first makes `warm` lookups
/// that do not count, and looks at the clock after every `step`.
///
/// # Panics
/// If a reader has panicked.
#[must_use]
pub fn throughput(readers: Vec<Run>, warm: usize, step: usize, time: Duration) -> f64 {
    let start = Arc::new(Barrier::new(readers.len() + 1));
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = readers
        .into_iter()
        .map(|mut run| {
            let (start, stop) = (Arc::clone(&start), Arc::clone(&stop));
            thread::spawn(move || {
                run(warm);
                start.wait();
                let (begin, mut count) = (Instant::now(), 0);
                while !stop.load(Ordering::Relaxed) {
                    run(step);
                    count += step;
                }
                #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
                let count = count as f64;
                count / begin.elapsed().as_secs_f64()
            })
        })
        .collect();
    start.wait();
    thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().map(|thread| thread.join().expect("the reader is well")).sum()
}

/// One figure per cell: the median of its samples.
#[must_use]
pub fn medians(samples: Vec<Figure>) -> Vec<Figure> {
    let mut cells: Vec<(Figure, Vec<f64>)> = Vec::new();
    for sample in samples {
        match cells.iter_mut().find(|(cell, _)| cell.what == sample.what && cell.who == sample.who) {
            Some((_, values)) => values.push(sample.value),
            None => cells.push((sample.clone(), vec![sample.value])),
        }
    }
    cells
        .into_iter()
        .map(|(cell, mut values)| {
            values.sort_by(f64::total_cmp);
            Figure { value: values[values.len() / 2], ..cell }
        })
        .collect()
}
