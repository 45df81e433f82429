//! Instructions counted by callgrind: the same on a loaded machine, so CI can check them. Those of lookups are the same
//! in every run; those of updates differ by up to 2 %, because hashes have a random seed.
//!
//! Each bench does its work a thousand times, and fails if that takes 5 % more instructions than the recorded
//! count. If the change is an improvement or worth its cost, update the count here.
//!
//! `cargo bench -p pod-index-benches --features instructions --bench instructions`

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use pod_index::identity::ContainerId;
use pod_index::{CachedReader, Holder, Moment, Operation, Options, PodMeta, PodUid, Reader, Time, Writer};
use support::keys::{Keyed, filled, keyed};
use support::workload::{Pod, Workload};

/// Pods in the index.
const PODS: usize = 10_000;
/// Repetitions in each bench.
const TIMES: usize = 1_000;

/// Fails above 105 % of `counted`, the median of six runs.
fn recorded(counted: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, counted + counted / 20)]);
    let mut config = LibraryBenchmarkConfig::default();
    // The allocator keeps all freed chunks of up to 1 KB for the next requests. Otherwise, it merges them with some seeds of
    // the hashes, which takes up to 20 % more instructions.
    config.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=65535");
    config.tool(callgrind);
    config
}

/// A full index and a thousand keys.
struct Setup<K> {
    writer: Writer<Pod>,
    reader: Reader<Pod>,
    cached: CachedReader<Pod>,
    keys: Vec<K>,
}

fn setup<K>(keys: impl FnOnce(&mut Workload) -> Vec<K>) -> Setup<K> {
    let mut workload = Workload::new(PODS);
    let (mut writer, reader) = pod_index::new();
    let applied = writer.set_pods(workload.all());
    assert!(applied.refused.is_empty(), "good pods");
    let keys = keys(&mut workload);
    assert_eq!(keys.len(), TIMES);
    let mut cached = reader.cached();
    cached.refresh();
    // A thread's first load sets up its slots.
    drop(reader.load());
    Setup { writer, reader, cached, keys }
}

fn uids() -> Setup<Box<str>> {
    setup(|workload| workload.hits(TIMES, |pod| pod.uid().into()))
}

fn parsed_uids() -> Setup<PodUid> {
    setup(|workload| workload.hits(TIMES, |pod| pod.uid().into()))
}

fn unknown_uids() -> Setup<Box<str>> {
    setup(|workload| workload.misses(TIMES))
}

fn mirror_uids() -> Setup<Box<str>> {
    setup(|workload| workload.mirror_hits(TIMES, |pod| pod.uid().into()))
}

fn full_names() -> Setup<Box<str>> {
    setup(|workload| workload.hits(TIMES, |pod| format!("{}_{}", pod.name(), pod.namespace()).into()))
}

fn names() -> Setup<(Box<str>, Box<str>)> {
    setup(|workload| workload.hits(TIMES, |pod| (pod.namespace().into(), pod.name().into())))
}

/// A full index and pods to write. No reader holds a snapshot, so the writer can reuse its nodes.
struct Writes<P> {
    writer: Writer<P>,
    reader: Option<Reader<P>>,
    pods: Vec<Arc<P>>,
}

fn writes(pods: impl FnOnce(&mut Workload) -> Vec<Arc<Pod>>) -> Writes<Pod> {
    let Setup { writer, reader, keys, .. } = setup(pods);
    Writes { writer, reader: Some(reader), pods: keys }
}

fn updates() -> Writes<Pod> {
    writes(|workload| workload.hits(TIMES, Pod::renewed))
}

/// As `updates`, beside a reader that holds the snapshot before them: nothing is freed.
fn updates_beside_a_held_snapshot() -> Setup<Arc<Pod>> {
    setup(|workload| workload.hits(TIMES, Pod::renewed))
}

/// An index of `pods`, and another version of the same pods. A reader holds the snapshot with the old one.
fn whole(pods: usize) -> Setup<Arc<Pod>> {
    let mut workload = Workload::new(pods);
    let (mut writer, reader) = pod_index::new();
    // Twice, because the first set of a writer has no pages to reuse.
    for _ in 0..2 {
        let applied = writer.set_pods(workload.all());
        assert!(applied.refused.is_empty(), "good pods");
    }
    let keys = workload.updates().into_iter().chain(workload.mirrors.iter().cloned()).collect();
    let cached = reader.cached();
    Setup { writer, reader, cached, keys }
}

fn strangers() -> Writes<Pod> {
    writes(|workload| workload.strangers(TIMES))
}

/// Pods that the index has.
fn added() -> Writes<Pod> {
    let mut on = strangers();
    for pod in &on.pods {
        assert!(on.writer.upsert_pod(Arc::clone(pod)).is_ok(), "good pods");
    }
    on
}

/// An index of pods with an IP and a container, and pods that name the same ones.
fn rivals() -> Writes<Keyed> {
    let mut workload = Workload::new(PODS);
    let pods = keyed(&workload, true, 1);
    let (writer, cached) = filled(&pods, Options::new());
    drop(cached);
    let pods =
        workload.strangers(TIMES).into_iter().zip(&pods).map(|(pod, holder)| holder.rival(pod)).collect();
    Writes { writer, reader: None, pods }
}

/// Those pods, after they were added.
fn added_rivals() -> Writes<Keyed> {
    let mut on = rivals();
    for pod in &on.pods {
        assert!(on.writer.upsert_pod(Arc::clone(pod)).is_ok(), "good pods");
    }
    on
}

/// An index of pods with keys, and a thousand keys.
struct KeyedSetup<K> {
    writer: Writer<Keyed>,
    cached: CachedReader<Keyed>,
    keys: Vec<K>,
}

fn with_keys<K>(ip: bool, containers: usize, key: impl FnMut(&Arc<Keyed>) -> K) -> KeyedSetup<K> {
    let mut workload = Workload::new(PODS);
    let pods = keyed(&workload, ip, containers);
    let (writer, mut cached) = filled(&pods, Options::new());
    cached.refresh();
    let keys = workload.shuffled(&pods).iter().take(TIMES).map(key).collect();
    KeyedSetup { writer, cached, keys }
}

fn ips() -> KeyedSetup<IpAddr> {
    with_keys(true, 1, |pod| pod.ip().expect("it has one"))
}

fn container_texts() -> KeyedSetup<Box<str>> {
    with_keys(true, 1, |pod| pod.container().expect("it has one").into())
}

fn container_ids() -> KeyedSetup<ContainerId> {
    with_keys(true, 1, |pod| pod.container().expect("it has one").parse().expect("64 digits"))
}

fn keyed_updates(containers: usize) -> Writes<Keyed> {
    let KeyedSetup { writer, keys, .. } = with_keys(true, containers, |pod| pod.renewed());
    Writes { writer, reader: None, pods: keys }
}

#[library_benchmark(setup = uids, config = recorded(129_250))]
#[bench::cached()]
fn uid_hit(mut on: Setup<Box<str>>) -> Setup<Box<str>> {
    for uid in &on.keys {
        black_box(on.cached.load().pod_by_uid(black_box(&**uid)));
    }
    on
}

#[library_benchmark(setup = uids, config = recorded(184_270))]
#[bench::load()]
fn uid_hit_by_load(on: Setup<Box<str>>) -> Setup<Box<str>> {
    for uid in &on.keys {
        black_box(on.reader.load().pod_by_uid(black_box(&**uid)));
    }
    on
}

#[library_benchmark(setup = parsed_uids, config = recorded(66_510))]
#[bench::cached()]
fn parsed_uid_hit(mut on: Setup<PodUid>) -> Setup<PodUid> {
    for uid in &on.keys {
        black_box(on.cached.load().pod_by_uid(black_box(uid)));
    }
    on
}

#[library_benchmark(setup = unknown_uids, config = recorded(124_620))]
#[bench::cached()]
fn uid_miss(mut on: Setup<Box<str>>) -> Setup<Box<str>> {
    for uid in &on.keys {
        black_box(on.cached.load().pod_by_uid(black_box(&**uid)));
    }
    on
}

#[library_benchmark(setup = mirror_uids, config = recorded(148_340))]
#[bench::cached()]
fn translate_mirror(mut on: Setup<Box<str>>) -> Setup<Box<str>> {
    for uid in &on.keys {
        black_box(on.cached.load().translate_pod_uid(black_box(&**uid)));
    }
    on
}

#[library_benchmark(setup = uids, config = recorded(132_680))]
#[bench::cached()]
fn translate_pod(mut on: Setup<Box<str>>) -> Setup<Box<str>> {
    for uid in &on.keys {
        black_box(on.cached.load().translate_pod_uid(black_box(&**uid)));
    }
    on
}

#[library_benchmark(setup = full_names, config = recorded(263_330))]
#[bench::cached()]
fn full_name_hit(mut on: Setup<Box<str>>) -> Setup<Box<str>> {
    for name in &on.keys {
        black_box(on.cached.load().pod_by_full_name(black_box(name)));
    }
    on
}

#[library_benchmark(setup = names, config = recorded(185_440))]
#[bench::cached()]
fn name_hit(mut on: Setup<(Box<str>, Box<str>)>) -> Setup<(Box<str>, Box<str>)> {
    for (namespace, name) in &on.keys {
        black_box(on.cached.load().pod_by_name(black_box(namespace), black_box(name)));
    }
    on
}

#[library_benchmark(setup = updates, config = recorded(4_957_000))]
#[bench::one_by_one()]
fn update(mut on: Writes<Pod>) -> Writes<Pod> {
    for pod in &on.pods {
        let _ = black_box(on.writer.upsert_pod(Arc::clone(pod)));
    }
    on
}

// As `update`, with a subscriber that is not asleep: it costs the writer nothing.
#[library_benchmark(setup = updates, config = recorded(4_957_000))]
#[bench::one_by_one()]
fn update_followed(mut on: Writes<Pod>) -> Writes<Pod> {
    let changes = on.reader.as_ref().map(Reader::changes);
    for pod in &on.pods {
        let _ = black_box(on.writer.upsert_pod(Arc::clone(pod)));
    }
    drop(changes);
    on
}

#[library_benchmark(setup = updates_beside_a_held_snapshot, config = recorded(2_486_000))]
#[bench::one_batch()]
fn update_in_a_batch(mut on: Setup<Arc<Pod>>) -> Setup<Arc<Pod>> {
    let _ = black_box(on.writer.apply(on.keys.iter().cloned().map(Operation::Upsert)));
    on
}

#[library_benchmark(setup = updates, config = recorded(2_917_000))]
#[bench::batches_of_64()]
fn update_in_batches(mut on: Writes<Pod>) -> Writes<Pod> {
    for batch in on.pods.chunks(64) {
        let _ = black_box(on.writer.apply(batch.iter().cloned().map(Operation::Upsert)));
    }
    on
}

#[library_benchmark(setup = whole, config = recorded(21_100_000))]
#[bench::of_10_000(10_000)]
fn set_pods(mut on: Setup<Arc<Pod>>) -> Setup<Arc<Pod>> {
    let _ = black_box(on.writer.set_pods(on.keys.iter().cloned()));
    on
}

#[library_benchmark(setup = strangers, config = recorded(9_334_000))]
#[bench::one_by_one()]
fn add_and_remove(mut on: Writes<Pod>) -> Writes<Pod> {
    for pod in &on.pods {
        let _ = black_box(on.writer.upsert_pod(Arc::clone(pod)));
        black_box(on.writer.remove_pod(pod));
    }
    on
}

#[library_benchmark(setup = added, config = recorded(4_491_000))]
#[bench::one_by_one()]
fn remove(mut on: Writes<Pod>) -> Writes<Pod> {
    for pod in &on.pods {
        black_box(on.writer.remove_pod(pod));
    }
    on
}

// Each pod claims an IP and a container ID that another pod holds.
#[library_benchmark(setup = rivals, config = recorded(19_680_000))]
#[bench::one_by_one()]
fn add_with_contested_keys(mut on: Writes<Keyed>) -> Writes<Keyed> {
    for pod in &on.pods {
        let _ = black_box(on.writer.upsert_pod(Arc::clone(pod)));
    }
    on
}

#[library_benchmark(setup = added_rivals, config = recorded(20_490_000))]
#[bench::one_by_one()]
fn remove_with_contested_keys(mut on: Writes<Keyed>) -> Writes<Keyed> {
    for pod in &on.pods {
        black_box(on.writer.remove_pod(pod));
    }
    on
}

#[library_benchmark(setup = ips, config = recorded(74_080))]
#[bench::cached()]
fn ip_hit(mut on: KeyedSetup<IpAddr>) -> KeyedSetup<IpAddr> {
    for ip in &on.keys {
        black_box(on.cached.load().pod_by_ip(black_box(*ip)));
    }
    on
}

// As `ip_hit`, by the method for any key.
#[library_benchmark(setup = ips, config = recorded(80_100))]
#[bench::cached()]
fn ip_get(mut on: KeyedSetup<IpAddr>) -> KeyedSetup<IpAddr> {
    for ip in &on.keys {
        black_box(on.cached.load().get(black_box(*ip)));
    }
    on
}

/// The time of the events of [`ip_hit_at_a_time`].
static ASKED: std::sync::OnceLock<Time> = std::sync::OnceLock::new();

/// Of an index that keeps times, and has just heard.
fn ips_of_long_ago() -> KeyedSetup<IpAddr> {
    let mut workload = Workload::new(PODS);
    let pods = keyed(&workload, true, 1);
    let options = Options::new().keep_removed(Duration::from_secs(60), 10_000).keep_times(true);
    let (mut writer, mut cached) = filled(&pods, options);
    let filled_at = std::time::SystemTime::now();
    let later = filled_at + Duration::from_secs(1_000);
    let _ = ASKED.set(Time::from(filled_at + Duration::from_secs(900)));
    writer
        .advance(Moment::new(Instant::now() + Duration::from_secs(1_000), later).covering(filled_at, later));
    cached.refresh();
    let keys = workload.shuffled(&pods).iter().take(TIMES).filter_map(|pod| pod.ip()).collect();
    KeyedSetup { writer, cached, keys }
}

// The current pod had the IP then: at most one and a half times the work of `ip_hit`.
#[library_benchmark(setup = ips_of_long_ago, config = recorded(106_100))]
#[bench::cached()]
fn ip_hit_at_a_time(mut on: KeyedSetup<IpAddr>) -> KeyedSetup<IpAddr> {
    let asked = *ASKED.get().expect("the setup has set it");
    for ip in &on.keys {
        let pods = on.cached.load();
        let Holder::Pod(found) = pods.at(black_box(asked)).get(black_box(*ip)) else {
            panic!("it had the IP then");
        };
        black_box(found.pod);
    }
    on
}

#[library_benchmark(setup = container_ids, config = recorded(91_150))]
#[bench::cached()]
fn container_id_hit(mut on: KeyedSetup<ContainerId>) -> KeyedSetup<ContainerId> {
    for id in &on.keys {
        black_box(on.cached.load().get(*black_box(id)));
    }
    on
}

#[library_benchmark(setup = container_texts, config = recorded(191_160))]
#[bench::cached()]
fn container_text_hit(mut on: KeyedSetup<Box<str>>) -> KeyedSetup<Box<str>> {
    for id in &on.keys {
        black_box(on.cached.load().pod_by_container_id(black_box(&**id)));
    }
    on
}

// As `update`, of pods whose keys stay the same.
#[library_benchmark(setup = keyed_updates)]
#[bench::an_ip(args = (0), config = recorded(7_110_000))]
#[bench::an_ip_and_two_containers(args = (2), config = recorded(12_290_000))]
fn update_with_keys(mut on: Writes<Keyed>) -> Writes<Keyed> {
    for pod in &on.pods {
        let _ = black_box(on.writer.upsert_pod(Arc::clone(pod)));
    }
    on
}

library_benchmark_group!(
    name = hot_paths,
    benchmarks = [
        uid_hit,
        uid_hit_by_load,
        parsed_uid_hit,
        uid_miss,
        translate_mirror,
        translate_pod,
        full_name_hit,
        name_hit,
        update,
        update_followed,
        update_in_a_batch,
        update_in_batches,
        set_pods,
        add_and_remove,
        remove,
        add_with_contested_keys,
        remove_with_contested_keys,
        ip_hit,
        ip_get,
        ip_hit_at_a_time,
        container_id_hit,
        container_text_hit,
        update_with_keys,
    ]
);

main!(library_benchmark_groups = hot_paths);
