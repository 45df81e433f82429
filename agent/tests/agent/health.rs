//! A separate address for probes without a certificate: serves only liveness and readiness.

use std::net::SocketAddr;

use serde_json::json;

use crate::api::{kubeconfig, pod};
use crate::api_server::{ApiServer, Fault, Verb};
use crate::support::{Agent, Directory, get, run, stderr};
use crate::tls::Pki;

/// The address for health.
pub fn health_address(agent: &Agent) -> SocketAddr {
    let line = agent.wait_for_log("serving /livez and /readyz on http");
    line.split("://").nth(1).unwrap().split([' ', '"']).next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_a_certificate_only_learn_whether_the_agent_is_ready() {
    let server = ApiServer::start().await;
    server.put("pods", &pod("web", "node-1", &json!({})));
    server.fail_always(Verb::List, Fault::Status(500));
    let directory = Directory::new();
    let kubeconfig = kubeconfig(&directory, &server);
    let pki = Pki::new();
    let args = [
        "--client-ca-file",
        &*pki.at("ca.pem"),
        "--kubeconfig",
        &kubeconfig,
        "--health-address",
        "127.0.0.1:0",
    ];
    let agent = pki.start_unready(&args);
    let health = health_address(&agent);
    let answer = get(health, "/livez");
    assert_eq!((answer.code, &*answer.body), (200, "ok\n"));
    // The missing sources and their paths are not shown here.
    let answer = get(health, "/readyz");
    assert_eq!((answer.code, &*answer.body), (503, "not ready\n"));
    for path in
        ["/", "/pods", "/pods/default/web", "/metrics", "/sources", "/healthz", "/log-level", "/livez/x"]
    {
        assert_eq!(get(health, path).code, 404, "{path}");
    }
    assert!(pki.client().code(&agent, "/livez").is_err(), "who has no certificate is not served elsewhere");
    server.heal();
    agent.wait_for_log("ready: the pods");
    let answer = get(health, "/readyz");
    assert_eq!((answer.code, &*answer.body), (200, "ok\n"));
}

#[test]
fn a_health_address_in_use_is_exit_code_3_and_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["--pod-manifest-path", "x", "--port", "0", "--health-address", &address]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains(&format!("{address} (--health-address)")), "{}", stderr(&output));
}
