//! A benchmark: the time from publication to the socket with many watches, on all cores.
//!
//! ```text
//! cargo test --release -p pod-index-agent --all-features --lib http::tests -- --ignored --nocapture
//! ```
//! Server and clients share one process and its cores. Each change is a separate publication.

#![allow(clippy::cast_precision_loss, reason = "what is printed is rounded")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use pod_index::{Reader, Writer};
use pod_index_kubelet::sources::NodeName;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch as channel;

use super::serve::{App, Requests, serve};
use crate::config::values::{Bounds, Management, PodApiSettings, StaticPods};
use crate::metrics::Metrics;
use crate::pipeline::events::Events;
use crate::pipeline::mirrors::MirrorKeeper;
use crate::pipeline::readiness::Readiness;
use crate::pod_api::PodApi;
use crate::whois::{Lookups, Processes, Whois};

const PODS: usize = 10_000;
/// Each watch selects one of this many groups: 1 of 100 pods.
const GROUPS: usize = 100;
const SECONDS: u64 = 10;
/// The text before a change's number in an event.
const MARK: &[u8] = br#""change":""#;

/// About 4 kB of JSON.
fn pod(number: usize, change: u64) -> Pod {
    let env: Vec<_> = (0..30)
        .map(|n| json!({ "name": format!("VARIABLE_{n}"), "value": format!("value {n} of {number}") }))
        .collect();
    serde_json::from_value(json!({
        "metadata": {
            "namespace": format!("namespace-{}", number % 50), "name": format!("web-{number}"),
            "uid": format!("00000000-0000-4000-8000-{number:012x}"), "resourceVersion": change.to_string(),
            "labels": { "group": format!("g{}", number % GROUPS), "app": format!("app-{}", number % 1000), "tier": "backend" },
            "annotations": { "change": change.to_string() },
        },
        "spec": {
            "nodeName": "node-1", "serviceAccountName": "default",
            "containers": [{ "name": "app", "image": "registry.example.com/team/app:1.2.3", "env": env }],
        },
        "status": { "phase": "Running", "podIP": "10.0.0.1" },
    }))
    .unwrap()
}

struct World {
    address: SocketAddr,
    api: PodApi,
    reader: Reader<Pod>,
    /// The publication time of each change, in microseconds from `start`.
    published: Vec<AtomicU64>,
    start: Instant,
    /// The time from publication to client for each event, in microseconds.
    latencies: Mutex<Vec<u64>>,
    received: AtomicU64,
    is_measuring: AtomicBool,
}

impl World {
    fn micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap()
    }

    /// Publishes changes at this rate. Returns the next free change number.
    fn change(&self, writer: &mut Writer<Pod>, from: u64, per_second: u64) -> u64 {
        let begun = Instant::now();
        let changes = SECONDS * per_second;
        for n in 0..changes {
            let due = Duration::from_micros(n * 1_000_000 / per_second);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            let number = usize::try_from((from + n) * 7919).unwrap() % PODS;
            let pod = pod(number, from + n);
            self.published[usize::try_from(from + n).unwrap()].store(self.micros(), Ordering::Release);
            writer.update_pod(pod).unwrap();
        }
        let took = begun.elapsed();
        println!("  {changes} publications in {took:.2?}");
        from + changes
    }

    /// Reads a watch to its end.
    async fn read(self: Arc<Self>, selector: String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET /api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&labelSelector={selector} HTTP/1.1\r\nHost: l\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut kept = Vec::new();
        let mut buffer = Vec::with_capacity(64 * 1024);
        loop {
            // Allocate the buffer only for data: the memory of idle clients would count as the agent's.
            stream.readable().await.unwrap();
            buffer.clear();
            match stream.read_buf(&mut buffer).await {
                Ok(read) if read > 0 => {}
                _ => return,
            }
            let now = self.micros();
            kept.extend_from_slice(&buffer);
            let mut done = 0;
            // An event is complete at the end of its line.
            while let Some(end) = kept[done..].iter().position(|byte| *byte == b'\n') {
                let line = &kept[done..=done + end];
                done += end + 1;
                let Some(at) = line.windows(MARK.len()).position(|bytes| bytes == MARK) else { continue };
                let digits: Vec<u8> = line[at + MARK.len()..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit())
                    .copied()
                    .collect();
                let change: usize = std::str::from_utf8(&digits).unwrap().parse().unwrap();
                self.received.fetch_add(1, Ordering::Relaxed);
                if self.is_measuring.load(Ordering::Relaxed) {
                    let took = now.saturating_sub(self.published[change].load(Ordering::Acquire));
                    self.latencies.lock().unwrap().push(took);
                }
            }
            kept.drain(..done);
        }
    }

    /// Looks up pods, at most 20,000 times per second. Returns the p99.9 in nanoseconds.
    fn look_up(&self, stop: &AtomicBool) -> (usize, u128, u128) {
        let uids: Vec<String> = (0..PODS).map(|n| format!("00000000-0000-4000-8000-{n:012x}")).collect();
        let mut reader = self.reader.cached();
        let mut latencies = Vec::new();
        for n in (0..).map(|n: usize| n * 7919 % PODS) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let start = Instant::now();
            let found = std::hint::black_box(reader.load().pod_by_uid(&*uids[n]).is_some());
            latencies.push(start.elapsed().as_nanos());
            assert!(found);
            std::thread::sleep(Duration::from_micros(50));
        }
        latencies.sort_unstable();
        (latencies.len(), latencies[latencies.len() / 2], latencies[latencies.len() * 999 / 1000])
    }

    /// Changes pods while lookups run, and prints the results.
    fn measure(&self, what: &str, writer: &mut Writer<Pod>, from: u64, per_second: u64) -> u64 {
        println!("{what}:");
        self.latencies.lock().unwrap().clear();
        self.received.store(0, Ordering::Relaxed);
        self.is_measuring.store(true, Ordering::Relaxed);
        let before = (cpu(), self.api.figures());
        let stop = AtomicBool::new(false);
        let (next, looked) = std::thread::scope(|scope| {
            let looking = scope.spawn(|| self.look_up(&stop));
            let next = self.change(writer, from, per_second);
            stop.store(true, Ordering::Relaxed);
            (next, looking.join().unwrap())
        });
        std::thread::sleep(Duration::from_secs(1));
        self.is_measuring.store(false, Ordering::Relaxed);
        let after = (cpu(), self.api.figures());
        let (count, median, p999) = looked;
        println!("  {count} lookups: median {median} ns, p99.9 {p999} ns");
        println!("  CPU of server, writer and clients: {:.2} cores", (after.0 - before.0) / SECONDS as f64);
        let mut latencies = std::mem::take(&mut *self.latencies.lock().unwrap());
        latencies.sort_unstable();
        if !latencies.is_empty() {
            let at =
                |thousandths: usize| latencies[(latencies.len() - 1) * thousandths / 1000] as f64 / 1000.0;
            println!(
                "  {} events at clients: median {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, slowest {:.2} ms",
                latencies.len(),
                at(500),
                at(990),
                at(999),
                at(1000)
            );
        }
        println!(
            "  {} events sent, {} encoded, {} publications coalesced, {} watches fell out of the history",
            after.1.sent - before.1.sent,
            after.1.encoded - before.1.encoded,
            after.1.coalesced - before.1.coalesced,
            after.1.too_old - before.1.too_old
        );
        next
    }
}

fn cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "a measurement of a minute: see the command at the top of this file"]
fn a_thousand_watches_of_ten_thousand_pods() {
    let _ = setrlimit(Resource::RLIMIT_NOFILE, 8192, 8192);
    let server = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let clients = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (mut writer, reader) = pod_index::new();
    let _ = writer.set_pods((0..PODS).map(|number| pod(number, 0)));
    let readiness = Arc::new(Readiness::new());
    readiness.all_indexed();
    let settings = PodApiSettings {
        static_pods: StaticPods::Node,
        watches: 4096,
        watches_per_client: 4096,
        extra: std::collections::BTreeSet::new(),
    };
    let (api, follow) =
        PodApi::new(&reader, &readiness, &settings, Events::register(&mut Registry::default()));
    std::thread::spawn(follow);
    let metrics = Metrics::new(&reader);
    let app = App {
        reader: reader.clone(),
        whois: Whois::new(
            &reader,
            &readiness,
            Processes::new(Path::new("/proc"), None).unwrap(),
            Lookups::register(&mut Registry::default()),
            api.owners(),
            Bounds::default(),
        ),
        readiness,
        mirrors: Arc::new(MirrorKeeper::new(NodeName::new("node-1"), Management::Off)),
        connections: Gauge::default(),
        metrics: Arc::new(metrics),
        pods: api.clone(),
        requests: Requests::register(&mut Registry::default()),
        access: None,
    };
    let listener = server.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = channel::channel(false);
    server.spawn(serve(listener, None, None, app, stopped));
    let world = Arc::new(World {
        address,
        api,
        reader,
        published: (0..100_000).map(|_| AtomicU64::new(0)).collect(),
        start: Instant::now(),
        latencies: Mutex::default(),
        received: AtomicU64::new(0),
        is_measuring: AtomicBool::new(false),
    });
    let open = |watches: usize, selector: &dyn Fn(usize) -> String| {
        let already = world.api.figures().watches;
        for n in 0..watches {
            // The server closes the oldest of too many connections that are not watches yet.
            while n >= world.api.figures().watches - already + 100 {
                std::thread::sleep(Duration::from_millis(1));
            }
            clients.spawn(Arc::clone(&world).read(selector(n)));
        }
        while world.api.figures().watches < already + watches {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    std::thread::sleep(Duration::from_secs(1));
    let next = world.measure("no watches, 1,000 changes a second", &mut writer, 1, 1000);
    let before = resident();
    open(1000, &|n| format!("group%3Dg{}", n % GROUPS));
    std::thread::sleep(Duration::from_secs(1));
    println!(
        "1,000 idle watches: {:.1} KiB each, their clients included",
        (resident() - before) as f64 / 1000.0
    );
    let next = world.measure("1,000 watches of 1 % each, 1,000 changes a second", &mut writer, next, 1000);
    open(20, &|_| String::new());
    let next =
        world.measure("these and 20 watches of everything, 100 changes a second", &mut writer, next, 100);
    world.measure("these, 1,000 changes a second", &mut writer, next, 1000);
    println!("{} KiB resident in all", resident());
    server.shutdown_background();
    clients.shutdown_background();
}
