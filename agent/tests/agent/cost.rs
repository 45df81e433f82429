//! What the agent costs: memory by the number of pods and by the component, and CPU time at rest and while pods change.

use std::fs;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::protobuf::encode_pod;
use pod_index_test_support::deployment::pod_of_a_deployment;
use pod_index_test_support::{kubelet, pods_api};
use serde_json::{Value, json};

use crate::access::answer;
use crate::api::kubeconfig;
use crate::api_server::ApiServer;
use crate::metrics::value;
use crate::support::{Agent, Directory, PATIENCE, binary};
use crate::tls::{Authority, Pki};

/// How long the agent's CPU time is measured. With this many changes, the history of the pod API is full.
const MEASURED: Duration = Duration::from_secs(45);
/// The most pods with managed fields: 100,000 of them would take the memory of a large machine.
const MANAGED: u64 = 10_000;
/// Changes of pods per second. They are status updates, the most frequent kind.
const CHANGES: u64 = 100;

/// One of this many pods on the API server.
fn stored(number: u64, pods: u64) -> Value {
    let mut pod = pod_of_a_deployment(number);
    if pods > MANAGED {
        pod["metadata"].as_object_mut().unwrap().remove("managedFields");
    }
    pod
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn megabytes(agent: &Agent, key: &str) -> f64 {
    agent.kib(key) as f64 * 1024.0 / 1e6
}

/// The CPU time that the agent's threads have used. Threads that ended do not count; at rest, none ends.
fn cpu(agent: &Agent) -> Duration {
    let threads = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
    let nanoseconds = |thread: fs::DirEntry| {
        let times = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        times.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or_default()
    };
    Duration::from_nanos(threads.map(|thread| nanoseconds(thread.unwrap())).sum())
}

/// The share of one core that the agent uses during the work, in percent.
fn load(agent: &Agent, work: impl FnOnce()) -> f64 {
    let (start, before) = (Instant::now(), cpu(agent));
    work();
    cpu(agent).saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0
}

/// The source of the `DaemonSet`'s limits and of the table in `docs/operators.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: .ci/run figures"]
async fn memory_and_cpu_of_up_to_a_hundred_thousand_pods() {
    println!("JSON: {} bytes a pod", pod_of_a_deployment(1).to_string().len());
    for pods in [0, 30, 110, 250, 500, 1_000, 10_000, 100_000] {
        let server = ApiServer::start().await;
        server.put_all("pods", (0..pods).map(|number| stored(number, pods)));
        let directory = Directory::new();
        let kubeconfig = kubeconfig(&directory, &server);
        let start = |flags: &str| {
            let mut command =
                binary(&format!("--kubeconfig {kubeconfig} --hostname-override node-1 {flags}"));
            // As in the systemd unit.
            command.env("MALLOC_ARENA_MAX", "2");
            let agent = Agent::spawn(command);
            agent.until_within(10 * PATIENCE, "/readyz", |answer| answer.code == 200);
            assert_eq!(value(&agent.get("/metrics").body, r#"pod_index_source_pods{source="api"}"#), pods);
            agent
        };
        let agent = start("");
        let resident = megabytes(&agent, "VmRSS");
        std::thread::sleep(Duration::from_secs(5));
        let rest = load(&agent, || std::thread::sleep(MEASURED));
        print!("{pods} pods: {resident:.0} MB resident, CPU at rest {rest:.3} %");
        if pods > 0 {
            let changing = load(&agent, || change(&server, pods));
            let (after, most) = (megabytes(&agent, "VmRSS"), megabytes(&agent, "VmHWM"));
            print!(
                ", with {CHANGES} changes a second {changing:.1} %, then {after:.0} MB, at most {most:.0} MB"
            );
        }
        drop(agent);
        println!();
    }
}

/// Changes the status of one pod after another.
fn change(server: &ApiServer, pods: u64) {
    let start = Instant::now();
    let total = CHANGES * MEASURED.as_secs();
    for change in 0..total {
        let mut pod = stored(change * 7919 % pods, pods);
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(change);
        server.put("pods", &pod);
        let due = start + MEASURED * u32::try_from(change + 1).unwrap() / u32::try_from(total).unwrap();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// How often each component is measured. The components take turns.
const ROUNDS: usize = 5;

/// The table of components in `docs/sizing.md`: each beside the settings of the base, with 110 pods, after one client has
/// read all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: .ci/run figures"]
async fn memory_and_cpu_of_each_component_with_110_pods() {
    let pods: Vec<_> = (0..110).map(pod_of_a_deployment).collect();
    let server = ApiServer::start().await;
    server.put_all("pods", &pods);
    server.put_all("namespaces", (0..500).map(namespace));
    server.put(
        "nodes",
        &json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1", "uid": "n1" } }),
    );
    server.know_token("of-logs", "logs", &[]);
    server.allow("logs", "get", "pods");
    let kubelet = kubelet::Kubelet::start(Vec::new(), pods.clone());
    let files = Directory::new();
    let pods_api_socket = files.0.join("pods-api.sock");
    let pods_api = pods_api::Kubelet::start(&pods_api_socket);
    for pod in &pods {
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        pods_api.put(pod.metadata.uid.as_deref().unwrap(), &encode_pod(&pod));
    }
    let (pki, clients) = (Pki::new(), Authority::new());
    pki.directory.write("clients.pem", &clients.pem);
    let api_server = format!("--kubeconfig {}", kubeconfig(&files, &server));
    let tls =
        format!("{} --client-ca-file {} --health-address 127.0.0.1:0", pki.flags(), pki.at("clients.pem"));
    let components = [
        ("base", api_server.clone()),
        ("resources", format!("{api_server} --serve-resources nodes,namespaces,owners")),
        ("tls", format!("{api_server} {tls}")),
        (
            "tls, client-reviews",
            format!("{api_server} {tls} --authentication-token-webhook --authorization-mode Webhook"),
        ),
        ("pod-monitor", format!("{api_server} --metrics-address 127.0.0.1:0")),
        ("socket", format!("{api_server} --socket {}", files.0.join("agent.sock").display())),
        ("kubelet", format!("{api_server} --kubelet {}", kubelet.url())),
        ("kubelet-socket", format!("--kubelet-socket {}", pods_api_socket.display())),
    ];
    let mut measured = vec![Vec::new(); components.len()];
    let mut running = Vec::new();
    for _ in 0..ROUNDS {
        running.clear();
        for ((_, flags), measured) in components.iter().zip(&mut measured) {
            let checkpoints = Directory::new();
            let mut command = binary(&format!(
                "{flags} --hostname-override node-1 --redact-env --checkpoint-all-pods --checkpoint-dir {}",
                checkpoints.0.display()
            ));
            command.env("MALLOC_ARENA_MAX", "2");
            let agent = Agent::spawn(command);
            agent.wait_for_log("ready: the pods");
            let read = if flags.contains("--tls-cert-file") {
                // A certificate is enough for `tls` alone; with reviews, the token is asked about.
                let is = (!flags.contains("webhook")).then(|| clients.sign("logs"));
                tokio::task::block_in_place(|| answer(&pki, &agent, is, Some("of-logs"), "/pods"))
            } else {
                agent.get("/pods")
            };
            assert_eq!(read.code, 200, "{flags}: {}", read.body);
            assert_eq!(read.json::<Value>()["items"].as_array().unwrap().len(), pods.len(), "{flags}");
            std::thread::sleep(Duration::from_secs(2));
            measured.push(megabytes(&agent, "VmRSS"));
            running.push((agent, checkpoints));
        }
    }
    // All at once: they use little of a core.
    let before: Vec<_> = running.iter().map(|(agent, _)| cpu(agent)).collect();
    std::thread::sleep(2 * MEASURED);
    let after = running.iter().map(|(agent, _)| cpu(agent));
    let used =
        after.zip(before).map(|(after, before)| after.saturating_sub(before).div_duration_f64(2 * MEASURED));
    for (((name, _), mut measured), used) in components.iter().zip(measured).zip(used) {
        measured.sort_by(f64::total_cmp);
        let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| measured[at]);
        println!(
            "{name}: {median:.1} MB resident ({least:.1} to {most:.1}), CPU at rest {:.3} %",
            used * 100.0
        );
    }
}

fn namespace(number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": format!("team-{number}"), "uid": format!("n-{number}"), "labels": { "team": format!("team-{number}"), "kubernetes.io/metadata.name": format!("team-{number}") } },
    })
}
