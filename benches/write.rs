//! Writes under criterion, one bench after the other; see `read` for its purpose.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use support::designs::{self, Design, Load, Parsed, Visit, Write};
use support::profiler::Flamegraph;
use support::sizes;
use support::workload::{Pod, Workload};

fn main() {
    let mut criterion = Criterion::default()
        .with_profiler(Flamegraph::default())
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args();
    let all: &[usize] = if sizes::smoke() { &[110] } else { &[110, 1_000, 10_000, 100_000, 1_000_000] };
    for &n in all {
        let mut workload = Workload::new(n);
        let versions = [workload.updates(), workload.updates()];
        let strangers = workload.strangers(1_000);
        designs::each(&mut Writes { criterion: &mut criterion, workload, versions, strangers });
    }
    criterion.final_summary();
}

struct Writes<'a> {
    criterion: &'a mut Criterion,
    workload: Workload,
    /// Two objects for each pod, so that every update stores a new one.
    versions: [Vec<Arc<Pod>>; 2],
    strangers: Vec<Arc<Pod>>,
}

impl Visit for Writes<'_> {
    fn visit<D: Design>(&mut self) {
        if D::NAME == Load::NAME || D::NAME == Parsed::NAME {
            return; // The same writer once more.
        }
        let (mut writer, _reader) = D::new(self.workload.all().collect());
        let n = self.workload.pods.len();
        let updates: Vec<_> = self.versions.iter().flatten().collect();

        let mut group = self.criterion.benchmark_group(format!("update/{n}"));
        let mut pods = updates.iter().cycle();
        group.bench_function(D::NAME, |bencher| {
            bencher.iter(|| pods.by_ref().take(1).for_each(|pod| writer.update(pod)));
        });
        group.finish();

        let mut group = self.criterion.benchmark_group(format!("add and remove/{n}"));
        let mut pods = self.strangers.iter().cycle();
        group.bench_function(D::NAME, |bencher| {
            bencher.iter(|| {
                for pod in pods.by_ref().take(1) {
                    writer.update(pod);
                    writer.remove(pod);
                }
            });
        });
        group.finish();

        for size in [64, 1_000] {
            let mut group = self.criterion.benchmark_group(format!("update in batches of {size}/{n}"));
            group.throughput(Throughput::Elements(size as u64));
            let mut pods = updates.iter().cycle();
            group.bench_function(D::NAME, |bencher| {
                bencher.iter_batched_ref(
                    || pods.by_ref().take(size).map(|pod| Arc::clone(pod)).collect::<Vec<_>>(),
                    |batch| writer.batch(batch),
                    BatchSize::SmallInput,
                );
            });
            group.finish();
        }

        let mut group = self.criterion.benchmark_group(format!("SetPods/{n}"));
        group.throughput(Throughput::Elements(n as u64));
        let mut turn = 0;
        let mirrors = &self.workload.mirrors;
        group.bench_function(D::NAME, |bencher| {
            bencher.iter_batched(
                || {
                    turn += 1;
                    self.versions[turn % 2].iter().chain(mirrors).cloned().collect::<Vec<_>>()
                },
                |pods| writer.set(pods),
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}
