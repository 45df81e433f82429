//! What the log must not contain: contents of pods, the client's own lines, tables. A log that is not read blocks
//! nothing.

use serde_json::{Value, json};

use crate::api::{following, kubeconfig, pod};
use crate::api_server::{ApiServer, shipped};
use crate::metrics::{seconds, value};
use crate::support::{Agent, Answer, Directory, binary, manifest, node_1, started_by};
use crate::terminal::Terminal;

const CANARY: &str = "canary-in-a-coal-mine";

fn with_password(name: &str) -> Value {
    let mut pod = pod(name, "node-1", &json!({}));
    pod["spec"]["containers"][0]["env"] = json!([{ "name": "PASSWORD", "value": CANARY }]);
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undecodable_pod_is_named_the_others_are_served_and_no_list_is_logged() {
    let server = ApiServer::start().await;
    for number in 0..50 {
        server.put("pods", &with_password(&format!("web-{number}")));
    }
    let mut bad = with_password("bad");
    bad["spec"]["containers"][0]["env"][0]["value"] = json!([CANARY]);
    bad["spec"]["containers"][0]["stdin"] = json!(CANARY);
    server.put("pods", &bad);
    let directory = Directory::new();
    let agent = following(&server, &directory, &["--log-level", "debug"]);
    let mut output = vec![agent.wait_for_log("default/bad")];
    agent.has("/readyz");
    let is_named = |sources: &str| sources.contains("\"default/bad\"");
    let sources = agent.until("/sources", |answer| is_named(&answer.body)).body;
    assert!(sources.contains("\"spec.containers[0].env[0].value\""), "{sources}");
    assert_eq!(agent.get("/pods/default/bad").code, 404);
    assert_eq!(agent.get("/pods/default/web-49").code, 200);
    for path in ["/readyz", "/sources", "/metrics"] {
        output.push(agent.get(path).body);
    }
    output.extend(agent.logged());
    let leak = output.iter().find(|text| text.contains(CANARY));
    assert_eq!(leak, None);
    server.remove("pods", "default", "bad");
    agent.until("/sources", |answer| !is_named(&answer.body));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_removes_nothing_and_is_one_log_line_and_its_end_another() {
    let server = ApiServer::start().await;
    server.grant(shipped("pod-index", &["base"]));
    let directory = Directory::new();
    server.put("pods", &pod("a", "node-1", &json!({})));
    server.refuse();
    let mut agent = following(&server, &directory, "");
    let failed =
        |answer: &Answer| value(&answer.body, r#"pod_index_source_failed_checks_total{source="api"}"#);
    let failing =
        |answer: &Answer| seconds(&answer.body, r#"pod_index_source_failing_seconds{source="api"}"#);
    let seconds_failing = |answer: &Answer| answer.json::<Value>()["sources"][0]["secondsFailing"].as_u64();
    for (outage, name) in ["b", "c"].into_iter().enumerate() {
        let before = failed(&agent.get("/metrics"));
        agent.until("/metrics", |answer| failed(answer) >= before + 3);
        if outage > 0 {
            assert_eq!((agent.get("/readyz").code, agent.get("/pods/default/a").code), (200, 200));
            // The alert `PodIndexSourceFails` and `doctor` read these.
            assert!(failing(&agent.get("/metrics")) > 0.0);
            assert!(seconds_failing(&agent.get("/sources")).is_some());
        }
        server.put("pods", &pod(name, "node-1", &json!({})));
        server.accept().await;
        agent.has(&format!("/pods/default/{name}"));
        agent.has("/readyz");
        // It may be logged after the agent is ready.
        agent.wait_for_log("problem solved");
        assert!(failing(&agent.get("/metrics")) <= 0.0);
        assert_eq!(seconds_failing(&agent.get("/sources")), None);
        let warnings = agent.logged().iter().filter(|line| line.contains("WARN")).count();
        // When the server goes away, the watch that is cut is one more.
        assert!((1..=1 + 2 * outage).contains(&warnings), "{:#?}", agent.logged());
        if outage == 0 {
            server.refuse();
        }
    }
    agent.end();
    let logged = agent.whole_log();
    let lines = |text: &str| logged.iter().filter(|line| line.contains(text)).count();
    assert_eq!(lines("kube_"), 0, "{logged:#?}");
    assert_eq!(lines("ERROR"), 0, "{logged:#?}");
    assert_eq!(lines("problem solved"), 2, "{logged:#?}");
}

#[test]
fn the_table_is_printed_only_on_a_terminal_or_on_request() {
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    let args = node_1(&directory.0);
    let printed = directory.0.join(".printed");
    let script = format!(r#"exec "$0" "$@" >{}"#, printed.display());
    let mut agent = Agent::spawn(started_by(&["bash", "-c", &script], &args));
    agent.wait_for_log("ready: the pods");
    agent.end();
    assert_eq!(std::fs::read_to_string(printed).unwrap(), "");

    let mut terminal = Terminal::run(&format!("{args} --port 0"), (120, 30));
    terminal.until(|screen| screen.contains("NAMESPACE") && screen.contains("web-node-1"));
    terminal.signal("TERM");
    assert_eq!(terminal.wait(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_log_delays_no_publication_and_dropped_lines_are_counted() {
    let server = ApiServer::start().await;
    server.put_all("pods", (0..12_000).map(|number| with_password(&format!("web-{number}"))));
    let directory = Directory::new();
    let kubeconfig = kubeconfig(&directory, &server);
    let args = ["--kubeconfig", &kubeconfig, "--hostname-override", "node-1", "--log-level", "debug"];
    let mut agent = Agent::spawn_unread(binary(&args));
    // A line per pod: more than a pipe holds, and more than a full pipe's queue.
    agent.has("/readyz");
    server.put("pods", &pod("late", "node-1", &json!({})));
    agent.has("/pods/default/late");
    agent.until("/metrics", |answer| value(&answer.body, "pod_index_dropped_log_lines_total") > 0);
    // The shutdown does not wait for the log either.
    agent.end();
}

#[test]
fn a_log_that_is_read_is_complete_to_the_last_line() {
    let directory = Directory::new();
    for number in 0..2_000 {
        directory.write(&format!("{number}.yaml"), &manifest(&format!("web-{number}")));
    }
    let mut agent = Agent::on_with(&directory.0, &["--log-level", "debug"]);
    agent.end();
    let log = agent.whole_log();
    assert!(log.iter().any(|line| line.contains("shutting down")));
    let added = log.iter().filter(|line| line.contains("pod added")).count();
    // Fewer lines than the queue holds: none is dropped, and the queue is written at the end.
    assert_eq!(added, 2_000);
}
