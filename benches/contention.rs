//! Many readers at once: total lookups per second with 1, 2, 4 and 8 threads, without a writer, with 1,000
//! updates per second, and with a writer at full speed.
//!
//! More threads than cores are measured too, because agents run that way; these figures show fairness, not
//! scaling.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use support::background::{Background, Pace, Versions};
use support::designs::{self, Design, Read, Visit};
use support::figures::{self, Figure};
use support::sizes;
use support::throughput::{Run, medians, throughput};
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
        let keys: Arc<[D::Key]> = self.workload.hits(100_000, |pod| D::Key::from(pod)).into();
        for pace in PACES {
            if !D::CONCURRENT && pace != Pace::Idle {
                continue;
            }
            for threads in THREADS {
                let background = Background::writing(writer, pace, &self.versions);
                let readers = (0..threads).map(|thread| looking_up(&keys, thread, threads, reader.clone()));
                let value = throughput(readers.collect(), 0, 256, self.time) / 1e6;
                writer = background.map_or_else(|writer| writer, Background::stop);
                let what = format!("{}, {threads} threads", pace.name());
                self.samples.push(Figure { n: self.workload.pods.len(), what, who: D::NAME.into(), value });
            }
        }
    }
}

/// Each thread starts at another key and goes through all keys.
fn looking_up<K, R>(keys: &Arc<[K]>, thread: usize, threads: usize, mut reader: R) -> Run
where
    K: Send + Sync + 'static,
    R: Read<K> + Send + 'static,
{
    let (keys, mut at) = (Arc::clone(keys), thread * keys.len() / threads);
    Box::new(move |count| {
        for _ in 0..count {
            black_box(reader.find(black_box(&keys[at])));
            at = if at + 1 < keys.len() { at + 1 } else { 0 };
        }
    })
}
