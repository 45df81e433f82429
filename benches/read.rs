//! Lookups under criterion, one bench after the other: for comparisons over time and for profiles.
//!
//! The report's ratios come from `ratios`, which interleaves what it compares; here, minutes pass between two
//! benches.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use pod_index::PodMeta;
use support::designs::{self, Cached, Design, Load, Read, Visit};
use support::every_key;
use support::profiler::Flamegraph;
use support::sizes;
use support::workload::{Pod, Workload};

/// Lookups per iteration.
const KEYS: usize = 1_000;

fn main() {
    let mut criterion = Criterion::default()
        .with_profiler(Flamegraph::default())
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args();
    // A criterion filter must not be parsed as a size.
    let all: &[usize] = if sizes::smoke() { &[110] } else { &[110, 1_000, 10_000, 100_000, 1_000_000] };
    for &n in all {
        let mut reads = Reads { criterion: &mut criterion, workload: Workload::new(n) };
        designs::each(&mut reads);
        reads.index();
        reads.every_key();
    }
    criterion.final_summary();
}

struct Reads<'a> {
    criterion: &'a mut Criterion,
    workload: Workload,
}

impl Visit for Reads<'_> {
    fn visit<D: Design>(&mut self) {
        let (_writer, mut reader) = D::new(self.workload.all().collect());
        let hits = self.workload.hits(100_000, |pod| D::Key::from(pod));
        let misses: Vec<_> =
            self.workload.strangers(hits.len()).iter().map(|pod| D::Key::from(pod)).collect();
        self.bench("UID hit", D::NAME, &hits, |key| reader.find(key));
        self.bench("UID miss", D::NAME, &misses, |key| reader.find(key));
    }
}

impl Reads<'_> {
    /// Each call of the routine looks up the next thousand keys.
    fn bench<K, R>(&mut self, what: &str, who: &str, keys: &[K], mut look_up: impl FnMut(&K) -> R) {
        let mut group = self.criterion.benchmark_group(format!("{what}/{}", self.workload.pods.len()));
        group.throughput(Throughput::Elements(KEYS as u64));
        let mut keys = keys.iter().cycle();
        group.bench_function(who, |bencher| {
            bencher.iter(|| {
                for key in keys.by_ref().take(KEYS) {
                    black_box(look_up(black_box(key)));
                }
            });
        });
    }

    /// The lookups of the bench `every_key`, by one thread without a writer.
    fn every_key(&mut self) {
        for subject in every_key::subjects(&mut self.workload) {
            for lookups in &subject.lookups {
                let mut group = self.criterion.benchmark_group(format!(
                    "every key, {}/{}",
                    lookups.what,
                    self.workload.pods.len()
                ));
                group.throughput(Throughput::Elements(lookups.step as u64));
                let mut run = lookups.reader(0, 1);
                group.bench_function(subject.who, |bencher| bencher.iter(|| run(lookups.step)));
            }
        }
    }

    /// Queries that only the index supports.
    fn index(&mut self) {
        const LIMIT: usize = 100_000;
        let (_writer, reader) = Load::new(self.workload.all().collect());
        let uids = self.workload.hits(LIMIT, |pod| Box::<str>::from(pod.uid()));
        let mirror_uids = self.workload.mirror_hits(LIMIT, |pod| Box::<str>::from(pod.uid()));
        let pair = |pod: &Pod| (Box::<str>::from(pod.namespace()), Box::<str>::from(pod.name()));
        let names = self.workload.hits(LIMIT, pair);
        let missing_names: Vec<_> =
            self.workload.strangers(names.len()).iter().map(|pod| pair(pod)).collect();
        let full_name = |pod: &Pod| format!("{}_{}", pod.name(), pod.namespace()).into_boxed_str();
        let full_names = self.workload.hits(LIMIT, full_name);
        let missing_full_names: Vec<_> =
            self.workload.strangers(names.len()).iter().map(|pod| full_name(pod)).collect();
        let pods = self.workload.hits(LIMIT, Pod::renewed);
        let mirrors = self.workload.mirror_hits(LIMIT, Pod::renewed);

        macro_rules! by_each_handle {
            ($what:literal, $keys:expr, |$snapshot:ident, $key:ident| $look_up:expr) => {
                let mut cached = reader.cached();
                self.bench($what, Cached::NAME, $keys, |$key| {
                    let $snapshot = cached.load();
                    $look_up
                });
                self.bench($what, Load::NAME, $keys, |$key| {
                    let $snapshot = reader.load();
                    $look_up
                });
                let kept = reader.snapshot();
                self.bench($what, "pod-index, a snapshot kept", $keys, |$key| {
                    let $snapshot = &kept;
                    $look_up
                });
            };
        }
        by_each_handle!("mirror by UID hit", &mirror_uids, |at, uid| at.mirror_pod_by_uid(&**uid).is_some());
        by_each_handle!("mirror by UID miss", &uids, |at, uid| at.mirror_pod_by_uid(&**uid).is_some());
        by_each_handle!("translate mirror", &mirror_uids, |at, uid| at.translate_pod_uid(&**uid));
        by_each_handle!("translate pod", &uids, |at, uid| at.translate_pod_uid(&**uid));
        by_each_handle!("by name hit", &names, |at, key| at.pod_by_name(&key.0, &key.1).is_some());
        by_each_handle!("by name miss", &missing_names, |at, key| at.pod_by_name(&key.0, &key.1).is_some());
        by_each_handle!("by full name hit", &full_names, |at, name| at.pod_by_full_name(name).is_some());
        by_each_handle!("by full name miss", &missing_full_names, |at, name| {
            at.pod_by_full_name(name).is_some()
        });
        by_each_handle!("pod by its mirror", &mirrors, |at, pod| at.pod_by_mirror_pod(pod).is_some());
        by_each_handle!("mirror by its pod", &pods, |at, pod| at.mirror_pod_by_pod(pod).is_some());
        by_each_handle!("pod and mirror", &pods, |at, pod| at.pod_and_mirror_pod(pod).pod.is_some());
    }
}
