//! Long lists: their memory. And, ignored by default because it measures, `/pods` with a hundred thousand pods: duration,
//! memory, and the latency of lookups meanwhile:
//!
//! ```text
//! cargo test --release -p pod-index-agent --test agent load -- --ignored --nocapture
//! ```
//!
//! The API server runs in the test's process, on the same cores.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::kubeconfig;
use crate::api_server::ApiServer;
use crate::life::fill;
use crate::support::{Agent, Directory, PATIENCE};

const PODS: usize = 100_000;

/// About 1 kB of JSON.
fn pod(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": format!("namespace-{}", number % 100), "name": format!("deployment-{}-{number:x}", number % 1000),
            "uid": format!("00000000-0000-4000-8000-{number:012x}"),
            "labels": { "app": format!("app-{}", number % 1000), "pod-template-hash": "6d4b75cb6d", "tier": "backend" },
        },
        "spec": {
            "nodeName": format!("node-{}", number % 1000), "serviceAccountName": "default", "restartPolicy": "Always",
            "containers": [{
                "name": "app", "image": "registry.example.com/team/app:1.2.3",
                "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": number.to_string() }],
                "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
                "volumeMounts": [{ "name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }],
            }],
            "volumes": [{ "name": "token", "projected": { "sources": [{ "serviceAccountToken": { "path": "token" } }] } }],
        },
        "status": { "phase": "Running", "podIP": format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255) },
    })
}

/// `VmRSS` or `VmHWM` of the agent, in MiB.
fn memory(agent: &Agent, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

/// Requests and reads to the end, ignoring the content. Returns the number of bytes.
fn download(agent: SocketAddr, headers: &str) -> usize {
    let mut stream = TcpStream::connect(agent).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /pods HTTP/1.1\r\nHost: l\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let (mut buffer, mut bytes) = (vec![0; 1 << 18], 0);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return bytes,
            read => bytes += read,
        }
    }
}

/// Looks up one UID after another on one connection until stopped. Returns the sorted latencies.
fn look_up(agent: SocketAddr, stop: &AtomicBool) -> Vec<Duration> {
    let mut stream = TcpStream::connect(agent).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut latencies = Vec::new();
    let mut buffer = [0; 4096];
    for number in (0..PODS).step_by(7919).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        write!(stream, "GET /translate/00000000-0000-4000-8000-{number:012x} HTTP/1.1\r\nHost: l\r\n\r\n")
            .unwrap();
        // A response of this size arrives in one piece.
        let read = stream.read(&mut buffer).unwrap();
        latencies.push(start.elapsed());
        assert!(buffer[..read].ends_with(b"}"));
        std::thread::sleep(Duration::from_micros(200));
    }
    latencies.sort_unstable();
    latencies
}

fn report(what: &str, latencies: &[Duration]) {
    let at = |thousandths: usize| latencies[(latencies.len() - 1) * thousandths / 1000];
    println!(
        "{what}: {} lookups by HTTP, median {:.0?}, p99 {:.0?}, slowest {:.1?}",
        latencies.len(),
        at(500),
        at(990),
        at(1000)
    );
}

/// A list that is written before it is sent takes its size in memory, for each client.
#[test]
fn a_long_list_is_sent_in_parts_and_never_whole_in_memory() {
    let directory = Directory::new();
    fill(&directory);
    let agent = Agent::on(&directory.0);
    let bytes = download(agent.address, "");
    std::fs::write(format!("/proc/{}/clear_refs", agent.pid()), "5").unwrap();
    let before = memory(&agent, "VmRSS:");
    std::thread::scope(|scope| {
        let downloads: Vec<_> = (0..4).map(|_| scope.spawn(|| download(agent.address, ""))).collect();
        assert!(downloads.into_iter().all(|download| download.join().unwrap() == bytes));
    });
    let grown = memory(&agent, "VmHWM:") - before;
    let whole = (bytes >> 20) as u64;
    assert!(whole >= 16 && grown < whole / 2, "{grown} MiB for four lists of {whole} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: .ci/run figures"]
async fn a_hundred_thousand_pods_delay_no_lookup_while_they_are_sent() {
    let directory = Directory::new();
    let server = ApiServer::start().await;
    server.put_all("pods", (0..PODS).map(pod));
    server.compact();
    let start = Instant::now();
    let agent = Agent::start(&["--all-nodes", "--kubeconfig", &kubeconfig(&directory, &server)]);
    agent.until("/readyz", |answer| answer.code == 200);
    println!(
        "{PODS} pods: ready after {:.2?}, {} MiB, {} MiB at most",
        start.elapsed(),
        memory(&agent, "VmRSS:"),
        memory(&agent, "VmHWM:")
    );

    let measure = |headers: &'static str| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| look_up(agent.address, &stop));
            std::fs::write(format!("/proc/{}/clear_refs", agent.pid()), "5").unwrap();
            let before = memory(&agent, "VmRSS:");
            for _ in 0..3 {
                let start = Instant::now();
                let bytes = download(agent.address, headers);
                println!("  {} MB in {:.2?}", bytes / 1_000_000, start.elapsed());
            }
            println!("  {before} MiB before, {} MiB at most", memory(&agent, "VmHWM:"));
            stop.store(true, Ordering::Relaxed);
            looking.join().unwrap()
        })
    };
    let stop = AtomicBool::new(false);
    let alone = std::thread::scope(|scope| {
        let looking = scope.spawn(|| look_up(agent.address, &stop));
        std::thread::sleep(Duration::from_secs(3));
        stop.store(true, Ordering::Relaxed);
        looking.join().unwrap()
    });
    report("alone", &alone);
    println!("/pods, plain:");
    report("meanwhile", &measure(""));
    println!("/pods, gzip:");
    report("meanwhile", &measure("Accept-Encoding: gzip\r\n"));
}
