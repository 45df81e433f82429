//! Beside a kubelet that is restarted while its API server is away.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use k8s_openapi::jiff::Timestamp;
use pod_index_test_support::files::names;
use pod_index_test_support::kubelet::{Kubelet, Stage, pod};
use serde_json::{Value, json};

use crate::support::{Agent, Directory, PATIENCE, wait_for};

/// A kubelet with a static pod and five pods of the API server.
fn kubelet() -> Kubelet {
    let static_pod = pod("uid-static", "static", "file", "10.0.0.1");
    let api_pods = (2..7).map(|number| {
        pod(&format!("uid-{number}"), &format!("web-{number}"), "api", &format!("10.0.0.{number}"))
    });
    Kubelet::start(vec![static_pod], api_pods.collect())
}

fn args(kubelet: &Kubelet) -> String {
    format!("--kubelet {} --node-name node-1 --kubelet-check-frequency 50ms", kubelet.url())
}

fn has_problem(sources: &Value, kind: &str) -> bool {
    sources["sources"][0]["problems"].as_array().unwrap().iter().any(|problem| problem["kind"] == kind)
}

fn wait_until_complete(agent: &Agent) {
    agent.until("/sources", |answer| {
        let sources: Value = answer.json();
        sources["ready"] == true && !has_problem(&sources, "incomplete") && !has_problem(&sources, "request")
    });
}

/// The number of marked pods. There must be six in all.
fn unconfirmed(agent: &Agent) -> usize {
    let list: Value = agent.get("/pods").json();
    let pods = list["items"].as_array().unwrap();
    assert_eq!(pods.len(), 6, "{list}");
    pods.iter().filter(|pod| pod["metadata"]["annotations"]["pod-index/unconfirmed"].is_string()).count()
}

/// The agent's answer about an IP that no pod has, now.
fn nobody(agent: &Agent) -> impl Fn() -> String {
    let path = format!("/whois?q=10.0.0.99&at={}", Timestamp::now());
    let address = agent.address;
    move || crate::support::get(address, &path).json::<Value>()["error"].as_str().unwrap().to_owned()
}

/// Waits until the agent says of a time that no pod had an IP then.
fn wait_until_it_claims(agent: &Agent) {
    loop {
        let answer = nobody(agent);
        wait_for(&answer, || !answer().contains("is not known yet"));
        if answer().contains("no pod is known") {
            return;
        }
        // Soon after the start, or after a gap.
        assert!(answer().contains("before what the agent knows"), "{}", answer());
    }
}

#[test]
fn pods_stay_while_a_restarted_kubelet_has_no_api_server_and_nothing_is_claimed_of_that_time() {
    let kubelet = kubelet();
    let agent = Agent::start(&args(&kubelet)).ready();
    wait_until_complete(&agent);
    assert_eq!(unconfirmed(&agent), 0);
    wait_until_it_claims(&agent);

    kubelet.restart(Stage::Nothing);
    wait_for(|| "all are unconfirmed".to_owned(), || unconfirmed(&agent) == 6);
    kubelet.reach(Stage::Manifests);
    wait_for(|| "the static pod is confirmed".to_owned(), || unconfirmed(&agent) == 5);
    let during = nobody(&agent);
    let requests = kubelet.requests();
    wait_for(|| "three more lists".to_owned(), || kubelet.requests() > requests + 2);
    assert!(during().contains("is not known yet"), "{}", during());
    assert_eq!(unconfirmed(&agent), 5);
    let readyz = agent.get("/readyz");
    assert_eq!(readyz.code, 200, "the pods are served as last seen");
    assert!(readyz.body.starts_with("ok\nincomplete: kubelet ("), "{}", readyz.body);
    let found: Value = agent.get("/whois?q=10.0.0.4").json();
    assert_eq!(found["podUID"], "uid-4", "{found}");

    kubelet.reach(Stage::All);
    wait_until_complete(&agent);
    assert_eq!(unconfirmed(&agent), 0);
    assert_eq!(agent.get("/readyz").body, "ok");
    // Pods may have come and gone.
    wait_for(&during, || during().contains("before what the agent knows"));
    wait_until_it_claims(&agent);
}

#[test]
fn an_agent_that_starts_while_the_kubelet_lists_static_pods_alone_deletes_no_checkpoint() {
    let kubelet = kubelet();
    let checkpoints = Directory::new();
    let args =
        format!("{} --checkpoint-all-pods --checkpoint-dir {}", args(&kubelet), checkpoints.0.display());
    let files = || names(&checkpoints.0).into_iter().filter(|name| name != ".writing").count();
    let agent = Agent::start(&args).ready();
    wait_until_complete(&agent);
    wait_for(|| format!("{} files", files()), || files() == 6);
    drop(agent);

    kubelet.restart(Stage::Manifests);
    let agent = Agent::start(&args).ready();
    let requests = kubelet.requests();
    wait_for(|| "five more lists".to_owned(), || kubelet.requests() > requests + 4);
    assert_eq!((unconfirmed(&agent), files()), (0, 6));
    assert!(agent.get("/metrics").body.contains("\npod_index_restored_pods 5\n"));
    // The next one, too.
    drop(agent);
    let agent = Agent::start(&args).ready();
    assert_eq!(files(), 6);

    let (kept, gone) = (pod("uid-2", "web-2", "api", "10.0.0.2"), 4);
    kubelet.set_api_pods(vec![kept]);
    kubelet.reach(Stage::All);
    wait_for(|| format!("{} files", files()), || files() == 6 - gone);
    assert!(agent.get("/metrics").body.contains("\npod_index_restored_pods 0\n"));
}

#[test]
fn a_watcher_sees_no_pod_deleted_or_added_when_the_kubelet_is_restarted() {
    let kubelet = kubelet();
    let agent = Agent::start(&args(&kubelet)).ready();
    wait_until_complete(&agent);
    let list: Value = agent.get("/api/v1/pods").json();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut stream = TcpStream::connect(agent.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = format!("/api/v1/pods?watch=1&resourceVersion={version}");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();

    // As measured: unreachable, then nothing, then the static pods, then all.
    kubelet.stop();
    agent.until("/sources", |answer| has_problem(&answer.json(), "request"));
    for stage in [Stage::Nothing, Stage::Manifests, Stage::All] {
        kubelet.reach(stage);
        let requests = kubelet.requests();
        wait_for(|| format!("two lists at {stage:?}"), || kubelet.requests() > requests + 1);
    }
    wait_until_complete(&agent);
    // The last event: a new pod.
    let mut pods: Vec<Value> = (2..7)
        .map(|number| {
            pod(&format!("uid-{number}"), &format!("web-{number}"), "api", &format!("10.0.0.{number}"))
        })
        .collect();
    pods.push(pod("uid-new", "new", "api", "10.0.0.9"));
    kubelet.set_api_pods(pods);
    let mut events = Vec::new();
    for line in BufReader::new(stream).lines().map(Result::unwrap).skip_while(|line| !line.starts_with('{')) {
        let event: Value = serde_json::from_str(&line).unwrap();
        let name = event["object"]["metadata"]["name"].clone();
        if name == json!("new") {
            assert_eq!(event["type"], "ADDED");
            break;
        }
        events.push((event["type"].as_str().unwrap().to_owned(), name));
    }
    assert!(!events.is_empty() && events.iter().all(|(kind, _)| kind == "MODIFIED"), "{events:#?}");
}
