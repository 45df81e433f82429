//! What it costs to attach attributes to an event: with records, made for each event, and as otel-arrow plans it.
//!
//! `cargo bench -p pod-index-benches --features records --bench records [-- N...]`, by default for 110, 10,000 and 100,000
//! pods. Each pod has 40 labels, and 50 pods share them, as replicas do.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::{Pod, PodIP, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::Operation;
use pod_index_kubelet::records::{Change, Join, Record, Rules};
use pod_index_kubelet::sources::SourceUpdate;
use support::memory::{Counting, allocated};
use support::sizes;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Six fields and ten labels, as the trial that began this had.
const RULES: &str = "
extract:
  metadata: [k8s.pod.name, k8s.pod.uid, k8s.namespace.name, k8s.node.name, k8s.pod.ip, k8s.pod.start_time]
  labels: [{ key_regex: label-0.* }, { key: team, from: namespace, tag_name: team }]
";
const LABELS: usize = 40;
const REPLICAS: usize = 50;

fn ip(number: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).expect("few pods")).into()
}

fn pod(number: usize) -> Arc<Pod> {
    let workload = number / REPLICAS;
    let labels = (0..LABELS).map(|label| (format!("label-{label:02}"), format!("value-{workload}-{label}")));
    let ip = ip(number).to_string();
    Arc::new(Pod {
        metadata: ObjectMeta {
            name: Some(format!("pod-{number}")),
            namespace: Some("shop".to_owned()),
            uid: Some(format!("{number:08x}-0000-4000-8000-000000000000")),
            labels: Some(labels.collect()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { node_name: Some("node-1".to_owned()), ..PodSpec::default() }),
        status: Some(PodStatus {
            pod_ip: Some(ip.clone()),
            pod_ips: Some(vec![PodIP { ip }]),
            ..PodStatus::default()
        }),
    })
}

fn namespace(team: &str) -> Change {
    let metadata = ObjectMeta {
        name: Some("shop".to_owned()),
        uid: Some("n".to_owned()),
        labels: Some([("team".to_owned(), team.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Change::Namespaces(SourceUpdate::Upsert(vec![metadata.into()]))
}

/// What users write today: the attributes of an event, made for it.
fn made(pod: &Pod) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    all.insert("k8s.pod.name".to_owned(), text(&pod.metadata.name));
    all.insert("k8s.pod.uid".to_owned(), text(&pod.metadata.uid));
    all.insert("k8s.namespace.name".to_owned(), text(&pod.metadata.namespace));
    all.insert(
        "k8s.node.name".to_owned(),
        pod.spec.as_ref().map(|spec| text(&spec.node_name)).unwrap_or_default(),
    );
    all.insert(
        "k8s.pod.ip".to_owned(),
        pod.status.as_ref().map(|status| text(&status.pod_ip)).unwrap_or_default(),
    );
    let labels = pod.metadata.labels.iter().flatten().filter(|(key, _)| key.starts_with("label-0"));
    all.extend(labels.map(|(key, value)| (format!("k8s.pod.labels.{key}"), value.clone())));
    all
}

/// Bytes a pod.
fn per_pod(bytes: isize, n: usize) -> usize {
    bytes.unsigned_abs() / n
}

/// The median of the nanoseconds of one of `count` steps.
fn median(count: usize, rounds: usize, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<_> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            run();
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "printed")]
    let nanos = times[rounds / 2].as_nanos() as f64 / count as f64;
    nanos
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = if sizes::smoke() { 1 } else { 21 };
    let rules = Rules::parse(RULES)?;
    for n in sizes::of(&[110, 10_000, 100_000]) {
        let pods: Vec<_> = (0..n).map(pod).collect();
        let (mut writer, reader) = pod_index::new::<Record>();
        let mut join = Join::new(rules.extract.clone());
        let before = allocated();
        let _ = join.write(&mut writer, [namespace("a"), Change::Pod(Operation::Set(pods.clone()))]);
        let shared = per_pod(allocated() - before, n);
        let ips: Vec<_> = (0..n).map(|number| ip(number * 7919 % n)).collect();
        let repeats = 10_000_usize.div_ceil(n);
        let count = repeats * n;
        let mut cached = reader.cached();
        let lookup = median(count, rounds, || {
            for ip in (0..repeats).flat_map(|_| &ips) {
                black_box(cached.load().pod_by_ip(black_box(*ip)));
            }
        });
        let obtained = median(count, rounds, || {
            for ip in (0..repeats).flat_map(|_| &ips) {
                black_box(cached.load().pod_by_ip(black_box(*ip)).map(|record| record.attributes()));
            }
        });
        let walked = median(count, rounds, || {
            for ip in (0..repeats).flat_map(|_| &ips) {
                let record = cached.load().pod_by_ip(black_box(*ip)).expect("it is there");
                record.attributes().for_each(|attribute| {
                    black_box(attribute);
                });
            }
        });
        let (mut plain, pods_reader) = pod_index::new::<Pod>();
        let _ = plain.set_pods(pods.iter().cloned());
        let mut plain_cached = pods_reader.cached();
        let today = median(count, rounds, || {
            for ip in (0..repeats).flat_map(|_| &ips) {
                black_box(made(plain_cached.load().pod_by_ip(black_box(*ip)).expect("it is there")));
            }
        });
        // As otel-arrow plans it: one map, made again at each change.
        let flat = |record: &Arc<Record>| -> Arc<HashMap<String, String>> {
            Arc::new(record.attributes().map(|one| (one.name.to_string(), one.value.to_string())).collect())
        };
        let snapshot = reader.load();
        let before = allocated();
        let map: HashMap<IpAddr, _> =
            (0..n).filter_map(|number| Some((ip(number), flat(snapshot.pod_by_ip(ip(number))?)))).collect();
        let unshared = per_pod(allocated() - before, n);
        drop(snapshot);
        let swapped = ArcSwap::from_pointee(map);
        let planned = median(count, rounds, || {
            let map = swapped.load();
            for ip in (0..repeats).flat_map(|_| &ips) {
                map.get(black_box(ip)).expect("it is there").iter().for_each(|attribute| {
                    black_box(attribute);
                });
            }
        });
        let rebuilt = median(1, rounds, || {
            let mut map = HashMap::clone(&swapped.load());
            map.insert(ip(0), Arc::default());
            swapped.store(Arc::new(map));
        });
        let mut number = 0;
        let updated = median(1, rounds, || {
            number += 1;
            let mut pod = Pod::clone(&pods[0]);
            pod.metadata.resource_version = Some(number.to_string());
            let _ = join.write(&mut writer, [Change::Pod(Operation::Update(pod.into()))]);
        });
        let relabelled = median(1, rounds, || {
            number += 1;
            let _ = join.write(&mut writer, [namespace(&number.to_string())]);
        });
        // One event, without the bench's own allocations.
        let before = support::memory::allocations();
        for ip in &ips {
            let record = cached.load().pod_by_ip(*ip).expect("it is there");
            record.attributes().for_each(|attribute| {
                black_box(attribute);
            });
        }
        let allocations = support::memory::allocations() - before;
        println!("{n} pods, 16 attributes; ns of an event, unless said:");
        println!("  lookup by IP alone {lookup:.1}, attributes obtained {obtained:.1}, walked {walked:.1}");
        println!("  made for the event {today:.0}; in one map, swapped whole {planned:.1}");
        println!("  allocations of {n} events: {allocations}");
        println!("  a changed pod: {updated:.0} ns with records, {rebuilt:.0} ns with the map made again");
        println!("  the Namespace relabelled, all {n} pods: {:?}", Duration::from_secs_f64(relabelled / 1e9));
        println!(
            "  bytes a record: {shared} with its place in the index and the join; a map of its own: {unshared}"
        );
    }
    Ok(())
}
