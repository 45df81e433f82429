//! Separate addresses for clients without a certificate: one serves only liveness and readiness, one only the metrics.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use pod_index_test_support::skipped;
use serde_json::json;

use crate::api::{kubeconfig, pod};
use crate::api_server::{ApiServer, Fault, Verb};
use crate::metrics::with_descriptors;
use crate::support::{Agent, Answer, Directory, PATIENCE, get, shipped};
use crate::tls::Pki;

/// The address for health.
pub fn health_address(agent: &Agent) -> SocketAddr {
    address_of(agent, "serving /livez and /readyz on http")
}

/// The address for metrics.
pub fn metrics_address(agent: &Agent) -> SocketAddr {
    address_of(agent, "serving /metrics on http")
}

/// The address in the line of the log with this text.
fn address_of(agent: &Agent, text: &str) -> SocketAddr {
    let line = agent.wait_for_log(text);
    line.split("://").nth(1).unwrap().split([' ', '"']).next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_a_certificate_only_learn_whether_the_agent_is_ready_and_its_metrics() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("web", "node-1", &json!({})));
    server.fail_always(Verb::List, Fault::Status(500));
    let directory = Directory::new();
    let kubeconfig = kubeconfig(&directory, &server);
    let pki = Pki::new();
    let addresses = "--health-address 127.0.0.1:0 --metrics-address 127.0.0.1:0";
    let ca = pki.at("ca.pem");
    let agent = pki.start_unready(&format!("--client-ca-file {ca} --kubeconfig {kubeconfig} {addresses}"));
    let health = health_address(&agent);
    let answer = get(health, "/livez");
    assert_eq!((answer.code, &*answer.body), (200, "ok\n"));
    // The missing sources and their paths are not shown here.
    let answer = get(health, "/readyz");
    assert_eq!((answer.code, &*answer.body), (503, "not ready\n"));
    for path in ["/", "/pods", "/pods/default/web", "/metrics", "/sources", "/healthz", "/livez/x"] {
        assert_eq!(get(health, path).code, 404, "{path}");
    }
    let metrics = metrics_address(&agent);
    let answer = get(metrics, "/metrics");
    assert_eq!((answer.code, answer.body.lines().last()), (200, Some("# EOF")));
    for path in ["/", "/pods", "/livez", "/readyz", "/sources", "/metrics/x"] {
        assert_eq!(get(metrics, path).code, 404, "{path}");
    }
    assert!(pki.client().code(&agent, "/livez").is_err(), "who has no certificate is not served elsewhere");
    server.heal();
    agent.wait_for_log("ready: the pods");
    let answer = get(health, "/readyz");
    assert_eq!((answer.code, &*answer.body), (200, "ok\n"));
}

/// Threads that stand still. They run again when this is dropped: an agent could not end otherwise.
struct Stopped(Vec<Pid>);

impl Drop for Stopped {
    fn drop(&mut self) {
        for id in &self.0 {
            // A thread that has ended meanwhile needs none.
            let _ = ptrace::detach(*id, None);
        }
    }
}

/// Every other thread of the agent stands still, as if each computed something without an end.
#[test]
fn probes_and_metrics_need_no_thread_of_the_server() {
    let agent =
        Agent::on_with(&shipped(), &["--health-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]);
    let (health, metrics) = (health_address(&agent), metrics_address(&agent));
    let mut stopped = Stopped(Vec::new());
    for thread in fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap() {
        let thread = thread.unwrap().path();
        let name = fs::read_to_string(thread.join("comm")).unwrap();
        if ["health\n", "metrics\n"].contains(&&*name) {
            continue;
        }
        let id = Pid::from_raw(thread.file_name().unwrap().to_str().unwrap().parse().unwrap());
        if let Err(error) = ptrace::seize(id, ptrace::Options::empty()).and_then(|()| ptrace::interrupt(id)) {
            return skipped("threads that stand still", format!("ptrace is not allowed: {error}"));
        }
        waitpid(id, Some(WaitPidFlag::__WALL)).unwrap();
        stopped.0.push(id);
    }
    assert!(stopped.0.len() > 3, "{:?}", stopped.0);
    // The server does not answer now.
    let mut request = agent.connect("GET /livez HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n");
    // On a slow machine, the threads may stand still for so long that the probes say so.
    let answers = |path: &str| {
        let answer = get(health, path);
        assert!(answer.code == 200 || answer.body.contains("no heartbeat"), "{path}: {}", answer.body);
    };
    for _ in 0..3 {
        answers("/livez");
        answers("/readyz");
        assert_eq!(get(metrics, "/metrics").code, 200);
    }
    request.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(request.read(&mut [0; 1]).is_err(), "the threads of the server do not stand still");
    drop(stopped);
    request.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(Answer::read(request).code, 200);
}

/// Watches do not end by themselves, so that no descriptor becomes free.
#[test]
fn at_the_limit_of_open_files_probes_are_answered() {
    const LIMIT: usize = 200;
    let directory = Directory::new();
    let socket = directory.0.join("agent.sock");
    let socket = socket.to_str().unwrap();
    let agent = with_descriptors(LIMIT, &["--health-address", "127.0.0.1:0", "--socket", socket]);
    let health = health_address(&agent);
    agent.has("/readyz");
    let mut watches = Vec::new();
    loop {
        assert!(watches.len() < LIMIT, "not even a descriptor for each watch");
        let mut stream = agent.connect("GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: l\r\n\r\n");
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        if head.ends_with(b"429") {
            break;
        }
        watches.push(stream);
    }
    // More connections than there are descriptors.
    let connections = |_| (TcpStream::connect(agent.address).unwrap(), UnixStream::connect(socket).unwrap());
    let connections: Vec<_> = (0..LIMIT).map(connections).collect();
    for _ in 0..20 {
        assert_eq!(get(health, "/livez").code, 200);
    }
    assert!(!agent.logged().iter().any(|line| line.contains("cannot accept connections")));
    drop((watches, connections));
    agent.has("/livez");
}
