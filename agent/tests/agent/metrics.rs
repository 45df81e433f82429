//! `/metrics`: the names on which dashboards and alerts rely, and correct values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::api::{following, pod};
use crate::api_server::{ApiServer, Fault, Verb};
use crate::support::{
    Agent, Answer, Args, Directory, REFERENCE, code, manifest, node_1, shipped, started_by, table,
};

/// Gauges that exist only with TLS, for which `tls` is set.
pub const OF_TLS: [&str; 2] =
    ["pod_index_tls_certificate_current", "pod_index_tls_certificate_not_after_timestamp_seconds"];

/// The value of a series, given as in the text format. A whole number.
pub fn value(metrics: &str, series: &str) -> u64 {
    written(metrics, series).parse().unwrap()
}

/// As [`value`], of a series in seconds, which may have a fraction.
pub fn seconds(metrics: &str, series: &str) -> f64 {
    written(metrics, series).parse().unwrap()
}

fn written<'a>(metrics: &'a str, series: &str) -> &'a str {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series} in {metrics}"))
}

/// The answered requests to this path.
pub fn asked(metrics: &Answer, path: &str) -> u64 {
    value(&metrics.body, &format!("pod_index_http_requests_total{{path=\"{path}\",outcome=\"ok\"}}"))
}

/// Every family with its type, and every series with its labels, without values and without the bounds of
/// histogram buckets.
fn names(metrics: &str) -> String {
    let lines: BTreeSet<_> = metrics
        .lines()
        .filter(|line| !line.starts_with("# HELP ") && *line != "# EOF")
        .map(|line| {
            let name =
                line.rsplit_once(' ').filter(|_| !line.starts_with('#')).map_or(line, |(name, _)| name);
            // How often it was not ready depends on the machine.
            let name = name.replace(r#"outcome="server_error""#, r#"outcome="ok""#);
            name.split("{le=").next().unwrap_or_default().to_owned() + "\n"
        })
        .collect();
    lines.into_iter().collect::<String>().replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

/// An agent with all sources, a problem in one of them, and the server that it follows.
async fn agent(directory: &Directory, args: &[&str]) -> (Agent, ApiServer) {
    let server = ApiServer::start().await;
    let mut plain = pod("plain", "node-1", &json!({}));
    plain["spec"]["ephemeralContainers"] = json!([{ "name": "debug", "image": "i" }]);
    server.put("pods", &plain);
    for name in ["web-node-1", "orphan"] {
        server.put("pods", &pod(name, "node-1", &json!({ "kubernetes.io/config.mirror": "x" })));
    }
    directory.write("web.yaml", &manifest("web"));
    directory.write("bad.yaml", "kind: Pod");
    let given = ["--pod-manifest-path", directory.0.to_str().unwrap()];
    let agent = following(&server, directory, &[&given, args].concat()).ready();
    (agent, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metric_names_are_the_recorded_ones() {
    let directory = Directory::new();
    let checkpoints = Directory::new();
    let args = ["--checkpoint-dir", checkpoints.0.to_str().unwrap()];
    let (agent, _server) = agent(&directory, &args).await;
    let answer = agent.get("/metrics");
    assert!(answer.body.ends_with("# EOF\n"));
    let names = names(&answer.body);
    let agreed = include_str!("metrics.txt");
    assert!(names == agreed, "agent/tests/agent/metrics.txt differs:\n{names}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_are_those_of_the_index_and_its_sources() {
    let directory = Directory::new();
    let (agent, server) = agent(&directory, &[]).await;
    let metrics = agent.get("/metrics").body;
    for (series, expected) in [
        (r#"desired_pods{static=""}"#, 1),
        (r#"desired_pods{static="true"}"#, 1),
        ("mirror_pods", 2),
        ("managed_ephemeral_containers", 1),
        ("ready", 1),
        ("channel_depth", 0),
        ("refused_pods_total", 0),
        (r#"source_pods{source="api"}"#, 3),
        (r#"source_pods{source="file"}"#, 1),
        (r#"source_relists_total{source="api"}"#, 0),
        (r#"source_problems{source="file",kind="syntax"}"#, 1),
    ] {
        assert_eq!(value(&metrics, &format!("pod_index_{series}")), expected, "{series}");
    }

    let published = value(&metrics, "pod_index_publications_total");
    assert_eq!(value(&metrics, "pod_index_generation"), published);
    server.put("pods", &pod("other", "node-1", &json!({})));
    agent.has("/pods/default/other");
    let metrics = agent.get("/metrics").body;
    assert_eq!(value(&metrics, r#"pod_index_desired_pods{static=""}"#), 2);
    assert_eq!(value(&metrics, "pod_index_publications_total"), published + 1);
    let added = |metrics: &str| value(metrics, r#"pod_index_pod_events_total{event="added"}"#);
    let metrics = agent.until("/metrics", |answer| added(&answer.body) == 5).body;
    assert_eq!(value(&metrics, r#"pod_index_pod_events_total{event="removed"}"#), 0);
    server.remove("pods", "default", "other");
    agent.until("/metrics", |answer| {
        value(&answer.body, r#"pod_index_pod_events_total{event="removed"}"#) == 1
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_counted_by_path_and_outcome() {
    let directory = Directory::new();
    let (agent, server) = agent(&directory, &[]).await;
    for path in
        ["/pods/default/plain", "/pods/default/none", "/pods/default/none", "/made/up/by/a/client", "/x"]
    {
        agent.get(path);
    }
    server.fail_always(Verb::Watch, Fault::Status(403));
    server.close_watches();
    let refused =
        |metrics: &str| value(metrics, r#"pod_index_api_requests_total{verb="watch",outcome="refused"}"#);
    let metrics = agent.until("/metrics", |answer| refused(&answer.body) > 0).body;
    for (series, expected) in [
        (r#"http_requests_total{path="/pods",outcome="ok"}"#, 1),
        (r#"http_requests_total{path="/pods",outcome="refused"}"#, 2),
        (r#"http_requests_total{path="other",outcome="refused"}"#, 2),
        (r#"api_requests_total{verb="list",outcome="ok"}"#, 1),
        (r#"api_requests_total{verb="list",outcome="no_answer"}"#, 0),
    ] {
        assert_eq!(value(&metrics, &format!("pod_index_{series}")), expected, "{series}");
    }
    assert!(value(&metrics, "pod_index_http_request_duration_seconds_count") >= 5);
    assert!(!metrics.contains("made"), "a client makes up no label");
    let started = metrics.lines().find_map(|line| line.strip_prefix("process_start_time_seconds ")).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - started.parse::<f64>().unwrap();
    assert!((-2.0..300.0).contains(&age), "{age} s");
}

/// An agent with this limit of open files.
pub fn with_descriptors(limit: usize, more: &[&str]) -> Agent {
    let script = format!(r#"ulimit -n {limit}; exec "$0" "$@""#);
    Agent::spawn(started_by(&["bash", "-c", &script], &[&node_1(&shipped()).list()[..], more].concat()))
}

#[test]
fn connections_and_the_descriptor_limit_are_metrics() {
    let agent = with_descriptors(700, &[]);
    let open = |connections| {
        agent.until("/metrics", |answer| value(&answer.body, "pod_index_http_connections") == connections)
    };
    // The connection of this request.
    let metrics = open(1).body;
    assert_eq!(value(&metrics, "process_max_fds"), 700);
    let held: Vec<_> = (0..50).map(|_| TcpStream::connect(agent.address).unwrap()).collect();
    let metrics = open(51).body;
    assert!(value(&metrics, "process_open_fds") > 50, "{metrics}");
    drop(held);
    open(1);
}

/// An agent with all metrics except TLS.
pub async fn agent_with_everything(directory: &Directory) -> (Agent, ApiServer) {
    let checkpoints = directory.0.join(".checkpoints").display().to_string();
    let pods_api = directory.0.join(".pods.sock").display().to_string();
    let args = format!(
        "--manage-mirror-pods --checkpoint-all-pods --checkpoint-dir {checkpoints} --pods-api-socket {pods_api}"
    );
    agent(directory, &args.list()).await
}

/// With 2,000 nodes, each sample of an agent is 2,000 series.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_agent_has_at_most_150_samples() {
    let directory = Directory::new();
    let (agent, server) = agent_with_everything(&directory).await;
    let rows = table(REFERENCE, "| path | answer |");
    let paths = rows.iter().flatten().flat_map(|cell| code(cell));
    let of_the_api = ["/api", "/apis", "/version", "/api/v1/pods", "/api/v1/namespaces/default/pods/plain"];
    for path in paths.chain(of_the_api).filter(|path| path.starts_with('/')) {
        let found = path.replace("{namespace}", "default").replace("{name}", "plain");
        for path in
            [found, path.replace(['{', '}'], ""), format!("{path}/x"), format!("{path}?limit=x&q=%00")]
        {
            agent.get(&path);
            agent.send(&format!("PUT {path}"), "", "");
        }
    }
    agent.send("POST /whois", "", "default/plain\n4711\n10.0.0.1\n");
    server.fail_always(Verb::Watch, Fault::Status(403));
    server.close_watches();
    let refused = r#"pod_index_api_requests_total{verb="watch",outcome="refused"}"#;
    let metrics = agent.until("/metrics", |answer| value(&answer.body, refused) > 0).body;
    let samples = metrics.lines().filter(|line| !line.starts_with('#')).count() + OF_TLS.len();
    assert!((100..=150).contains(&samples), "{samples} samples: {metrics}");
}

/// The families in `/metrics`, with their types.
pub fn families(metrics: &str) -> BTreeMap<&str, &str> {
    metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_has_every_metric_with_its_type_and_its_labels() {
    let directory = Directory::new();
    let (agent, _server) = agent_with_everything(&directory).await;
    let metrics = agent.get("/metrics").body;

    let rows = table(REFERENCE, "| metric | type | labels |");
    let documented: BTreeMap<_, _> = rows.iter().map(|row| (row[0].trim_matches('`'), row[1])).collect();
    assert_eq!(documented.len(), rows.len(), "a metric is there twice");
    let mut families = families(&metrics);
    for name in OF_TLS {
        assert_eq!(families.insert(name, "gauge"), None);
    }
    assert_eq!(documented, families, "docs/reference.md, and what /metrics has");

    for row in &rows {
        let name = row[0].trim_matches('`');
        let series =
            metrics.lines().filter_map(|line| line.strip_prefix(name)?.split_once('{')?.1.split_once('}'));
        let labels: BTreeSet<_> = series
            .flat_map(|(labels, _)| labels.split("\",").filter_map(|label| label.split('=').next()))
            .filter(|label| *label != "le")
            .collect();
        assert_eq!(code(row[2]).collect::<BTreeSet<_>>(), labels, "the labels of {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_are_those_of_the_checkpoints() {
    let (directory, checkpoints) = (Directory::new(), Directory::new());
    std::fs::write(checkpoints.0.join("Pod_torn.yaml"), "# pod-index checkpoint 1 00").unwrap();
    // Blocks a checkpoint and cannot be set aside, so the checkpoint cannot be written.
    std::fs::create_dir(checkpoints.0.join("Pod_in-the-way.yaml")).unwrap();
    let numbered = (1..100).map(|number| format!(".{number}"));
    for number in std::iter::once(String::new()).chain(numbered) {
        std::fs::write(checkpoints.0.join(format!("Pod_in-the-way.yaml.unusable{number}")), "").unwrap();
    }
    let path = checkpoints.0.to_str().unwrap();
    let args = ["--checkpoint-dir", path, "--checkpoint-all-pods"];
    let (agent, server) = agent(&directory, &args).await;
    let is = |expected: &[(&str, u64)]| {
        let is = |body: &str| {
            expected.iter().all(|(series, expected)| value(body, &format!("pod_index_{series}")) == *expected)
        };
        agent.until("/metrics", |answer| is(&answer.body)).body
    };
    is(&[
        ("checkpoint_files", 4),
        ("checkpoint_files_set_aside", 1),
        ("checkpoint_files_unread", 0),
        ("checkpoint_writes_total", 4),
        ("checkpoint_problems", 0),
        ("checkpoint_failures_total", 0),
        ("restored_pods", 0),
    ]);
    let mut naming = pod("naming", "node-1", &json!({}));
    naming["metadata"]["uid"] = json!("in-the-way");
    server.put("pods", &naming);
    server.remove("pods", "default", "plain");
    let metrics = is(&[("checkpoint_files", 3), ("checkpoint_problems", 1)]);
    assert!(value(&metrics, "pod_index_checkpoint_failures_total") > 0);
}
