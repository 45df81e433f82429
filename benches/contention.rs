//! Many readers at once: total lookups per second with 1, 2, 4 and 8 threads, without a writer, with 1,000
//! updates per second, and with a writer at full speed.
//!
//! More threads than cores are measured too, because agents run that way; these figures show fairness, not
//! scaling.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use support::background::{Background, Pace, Versions};
use support::designs::{self, Design, Read, Visit};
use support::figures::{self, Figure};
use support::sizes;
use support::workload::Workload;

const PACES: [Pace; 3] = [Pace::Idle, Pace::PerSecond(1_000), Pace::FullSpeed];
const THREADS: [usize; 4] = [1, 2, 4, 8];

fn main() -> std::io::Result<()> {
    let (rounds, time) =
        if sizes::smoke() { (1, Duration::from_millis(1)) } else { (7, Duration::from_millis(80)) };
    let mut all = Vec::new();
    for n in sizes::of(&[1_000, 100_000]) {
        let mut workload = Workload::new(n);
        let versions = Versions::new(&mut workload);
        let mut contention = Contention { workload, versions, time, samples: Vec::new() };
        for _ in 0..rounds {
            designs::each(&mut contention);
        }
        let figures = medians(contention.samples);
        println!("\n{n} pods; million lookups a second");
        for Figure { what, who, value, .. } in &figures {
            println!("{what:<40} {who:<36} {value:>12.1}");
        }
        all.extend(figures);
    }
    sizes::keep(|| figures::save("contention", &all))
}

struct Contention {
    workload: Workload,
    versions: Arc<Versions>,
    time: Duration,
    samples: Vec<Figure>,
}

impl Visit for Contention {
    fn visit<D: Design>(&mut self) {
        let (mut writer, reader) = D::new(self.workload.all().collect());
        let keys: Arc<[D::Key]> = self.workload.hits(100_000, D::key).into();
        for pace in PACES {
            if !D::CONCURRENT && pace != Pace::Idle {
                continue;
            }
            for threads in THREADS {
                let background = Background::writing(writer, pace, &self.versions);
                let value = throughput(threads, self.time, &keys, &reader);
                writer = background.map_or_else(|writer| writer, Background::stop);
                let what = format!("{}, {threads} threads", pace.name());
                self.samples.push(Figure { n: self.workload.pods.len(), what, who: D::NAME.into(), value });
            }
        }
    }
}

/// Million lookups per second of all threads together.
fn throughput<K, R>(threads: usize, time: Duration, keys: &Arc<[K]>, reader: &R) -> f64
where
    K: Send + Sync + 'static,
    R: Read<K> + Clone + Send + 'static,
{
    let start = Arc::new(Barrier::new(threads + 1));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..threads)
        .map(|thread| {
            let (start, stop) = (Arc::clone(&start), Arc::clone(&stop));
            let (keys, mut reader) = (Arc::clone(keys), reader.clone());
            thread::spawn(move || {
                // Each thread starts at another key and goes through all keys.
                let mut keys = keys.iter().cycle().skip(thread * keys.len() / threads);
                start.wait();
                let mut count = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    for key in keys.by_ref().take(256) {
                        black_box(reader.find(black_box(key)));
                    }
                    count += 256;
                }
                f64::from(count)
            })
        })
        .collect();
    start.wait();
    let begin = Instant::now();
    thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    let elapsed = begin.elapsed();
    let count: f64 = readers.into_iter().map(|reader| reader.join().expect("the reader is well")).sum();
    count / elapsed.as_secs_f64() / 1e6
}

/// One figure per cell: the median of its samples.
fn medians(samples: Vec<Figure>) -> Vec<Figure> {
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
