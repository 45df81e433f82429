//! Capacity of the API server source: a list of 100,000 pods, and a flood of events. Ignored by default,
//! because it measures:
//!
//! ```text
//! cargo test --release -p pod-index-kubelet --test api_server_load -- --ignored --nocapture --test-threads 1
//! ```
//!
//! The server runs in this process, on the same cores. Its cost is included in the times, and since it holds
//! every pod, in the memory before the list.
#![cfg(feature = "api-server")]

use pod_index_test_support::api_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use api_server::ApiServer;
use futures_util::StreamExt;
use pod_index::{Operation, PodMeta, Reader, Writer};
use pod_index_kubelet::sources::SourceUpdate;
use pod_index_kubelet::sources::api_server::{ApiServer as Source, ApiServerSource};
use serde_json::{Value, json};

/// What a minimal agent keeps of a pod.
struct Slim {
    uid: Box<str>,
    name: Box<str>,
    namespace: Box<str>,
    ip: Box<str>,
}

impl PodMeta for Slim {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn annotation(&self, _key: &str) -> Option<&str> {
        None
    }
}

/// About 1.4 kB of JSON, like a small pod with its status and managed fields.
fn pod(number: usize, version: usize) -> Value {
    let fields: Vec<_> = (0..24).map(|field| format!("f:field-number-{field}")).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": format!("namespace-{}", number % 100), "name": format!("deployment-{}-{number:x}", number % 1000),
            "labels": { "app": format!("app-{}", number % 1000), "pod-template-hash": "6d4b75cb6d", "tier": "backend" },
            "managedFields": [{ "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsV1": { "f:status": fields } }],
        },
        "spec": {
            "nodeName": format!("node-{}", number % 1000), "serviceAccountName": "default", "restartPolicy": "Always",
            "containers": [{
                "name": "app", "image": "registry.example.com/team/app:1.2.3",
                "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": version.to_string() }],
                "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
                "volumeMounts": [{ "name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }],
            }],
            "volumes": [{ "name": "token", "projected": { "sources": [{ "serviceAccountToken": { "path": "token" } }] } }],
        },
        "status": {
            "phase": "Running", "podIP": format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255),
            "conditions": [
                { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "True" },
                { "type": "ContainersReady", "status": "True" }, { "type": "PodScheduled", "status": "True" },
            ],
        },
    })
}

fn slim(pod: k8s_openapi::api::core::v1::Pod) -> Slim {
    let boxed = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
    Slim {
        uid: boxed(pod.metadata.uid),
        name: boxed(pod.metadata.name),
        namespace: boxed(pod.metadata.namespace),
        ip: boxed(pod.status.and_then(|status| status.pod_ip)),
    }
}

/// A line of `/proc/self/status`, in MiB.
fn memory(line: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    found.split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
}

fn apply(writer: &mut Writer<Slim>, update: SourceUpdate<Slim>) -> usize {
    let (pods, applied) = match update {
        SourceUpdate::Set(pods) => (pods.len(), writer.set_pods(pods)),
        SourceUpdate::Upsert(pods) => (pods.len(), writer.apply(pods.into_iter().map(Operation::Update))),
        SourceUpdate::Remove(uids) => (uids.len(), writer.apply(uids.into_iter().map(Operation::Remove))),
    };
    assert_eq!(applied.refused, []);
    pods
}

/// Reads without a pause and reports the slowest read. Uses one of two cores.
fn reading(reader: &Reader<Slim>, stop: &AtomicBool) -> (u64, Duration) {
    let mut cached = reader.cached();
    let (mut reads, mut slowest) = (0, Duration::ZERO);
    while !stop.load(Relaxed) {
        let start = Instant::now();
        for _ in 0..1000 {
            std::hint::black_box(cached.load().pod_by_uid("00000001-0000-4000-8000-0000000003e9"));
        }
        slowest = slowest.max(start.elapsed());
        reads += 1000;
        std::thread::sleep(Duration::from_micros(100));
    }
    (reads, slowest)
}

const PODS: usize = 100_000;
const EVENTS: usize = 50_000;

/// Lists and applies all pods.
async fn list(server: &ApiServer, writer: &mut Writer<Slim>) -> ApiServerSource<Slim> {
    let bytes = pod(0, 0).to_string().len();
    let before = memory("VmRSS:");
    // The peak so far includes creating the pods; reset it to measure the list.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let start = Instant::now();
    let mut source = Source::new(server.client()).pods_with(slim);
    let update = source.next().await.unwrap();
    let listed = start.elapsed();
    let start = Instant::now();
    assert_eq!(apply(writer, update), PODS);
    let applied = start.elapsed();
    println!("{PODS} pods of {bytes} bytes: listed in {listed:.2?}, applied in {applied:.2?}");
    let (now, peak) = (memory("VmRSS:"), memory("VmHWM:"));
    println!("memory: {before} MiB before, {now} MiB after, {peak} MiB at most");
    source
}

/// Changes a pod `count` times, as fast as possible, and follows.
async fn flood(server: &ApiServer, source: &mut ApiServerSource<Slim>, writer: &mut Writer<Slim>) {
    let changes: Vec<_> = (0..EVENTS).map(|number| pod(number, 1)).collect();
    // The watch must be open first.
    let open = async {
        server.watched_by(1).await;
        server.put("pods", &pod(PODS - 1, 1));
    };
    let (first, ()) = tokio::join!(source.next(), open);
    apply(writer, first.unwrap());
    server.hold();
    server.put_all("pods", changes);
    let start = Instant::now();
    server.release();
    let (mut followed, mut publications) = (0, 0);
    while followed < EVENTS {
        followed += apply(writer, source.next().await.unwrap());
        publications += 1;
    }
    println!("{EVENTS} events in {:.2?}, {publications} publications", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: .ci/run figures"]
async fn a_hundred_thousand_pods_are_listed_and_applied_and_a_flood_of_events_followed() {
    let server = ApiServer::start().await;
    server.put_all("pods", (0..PODS).map(|number| pod(number, 0)));
    server.compact();
    let (mut writer, reader) = pod_index::new();
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, read) = (Arc::clone(&stop), reader.clone());
    let reads = std::thread::spawn(move || reading(&read, &stopped));
    let mut source = list(&server, &mut writer).await;
    flood(&server, &mut source, &mut writer).await;
    stop.store(true, Relaxed);
    let (reads, slowest) = reads.join().unwrap();
    println!("meanwhile {reads} reads; the slowest thousand took {slowest:.2?}");
    assert!(reader.load().pods().all(|pod| !pod.ip.is_empty()));
}
