//! The agent as users see it: the real binary, real files, real sockets.

mod access;
mod api;
use pod_index_test_support::api_server;
mod browser;
mod config;
mod cost;
mod credentials;
mod dashboard;
mod deploy;
mod doctor;
mod documented;
mod frozen;
mod greedy;
mod health;
mod hostile;
mod http;
mod instructions;
mod kubelet;
mod kubelet_socket;
mod kubelet_socket_limits;
mod kustomize;
mod languages;
mod life;
mod list;
mod lives;
mod load;
mod log;
mod metrics;
mod mirrors;
mod noise;
mod oversize;
mod own_node;
mod page;
mod patience;
mod pod_api;
mod probes;
mod real_cluster;
mod reload;
mod restart;
mod secrets;
mod served;
mod soak;
mod support;
mod terminal;
mod tls;
mod top;
mod whois;

use std::path::Path;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use pod_index::PodMeta;
use serde_json::Value;

use support::{Agent, Directory, binary, manifest, node_1, run, shipped, stderr, stdout, succeeded};

const SHIPPED: [(&str, &str); 5] = [
    ("default", "static-web-node-1"),
    ("kube-system", "etcd-node-1"),
    ("kube-system", "kube-apiserver-node-1"),
    ("kube-system", "kube-controller-manager-node-1"),
    ("kube-system", "kube-scheduler-node-1"),
];

fn once(path: &Path) -> String {
    format!("--once --hostname-override Node-1 --pod-manifest-path {}", path.display())
}

#[test]
fn once_prints_the_shipped_manifests_as_a_table_and_ends() {
    let output = succeeded(run(&once(&shipped())));
    let lines: Vec<Vec<&str>> =
        stdout(&output).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAMESPACE", "NAME", "UID", "SOURCE", "KIND", "PHASE"]);
    for (line, (namespace, name)) in lines[1..].iter().zip(SHIPPED) {
        assert_eq!(line[..2], [namespace, name]);
        assert_eq!(line[2].len(), 32);
        assert_eq!(line[3..], ["file", "static", "Pending"]);
    }
    assert!(stdout(&output).contains("\n5 pods, 5 of them static"));
}

#[test]
fn once_prints_a_pod_list_for_programs() {
    for (format, parse) in [
        ("json", (|text: &str| serde_json::from_str(text).unwrap()) as fn(&str) -> List<Pod>),
        ("yaml", |text: &str| serde_saphyr::from_str(text).unwrap()),
    ] {
        let output = run(&format!("{} -o {format}", once(&shipped())));
        let list = parse(stdout(&output));
        let names: Vec<_> = list.items.iter().map(|pod| (pod.namespace(), pod.name())).collect();
        assert_eq!(names, SHIPPED);
    }
}

#[test]
fn once_prints_the_valid_manifests_and_fails_because_of_the_invalid_one() {
    let directory = Directory::new();
    directory.write("good.yaml", &manifest("good"));
    directory.write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n");
    directory.write("leftover.yaml~", "ignored");
    let output = run(&once(&directory.0));
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("good-node-1"));
    assert!(stderr(&output).contains("bad.yaml"), "{}", stderr(&output));
    assert!(stderr(&output).contains("spec.containers"), "{}", stderr(&output));
    assert!(stderr(&output).contains("pod-index: 1 problem"), "{}", stderr(&output));
}

#[test]
fn a_pod_is_found_by_uid_by_full_name_and_by_namespace_and_name() {
    let agent = Agent::on(&shipped());
    let etcd: Pod = agent.get("/pods/kube-system/etcd-node-1").json();
    assert_eq!(agent.get("/pods/etcd-node-1_kube-system").json::<Pod>(), etcd);
    assert_eq!(agent.get(&format!("/pods/{}", etcd.uid())).json::<Pod>(), etcd);

    for key in ["kube-system/etcd-node-1", "etcd-node-1_kube-system", etcd.uid()] {
        let output = agent.ask(&["get", key, "-o", "json"]);
        assert_eq!(serde_json::from_slice::<Pod>(&output.stdout).unwrap(), etcd);
        let output = agent.ask(&["get", key, "-o", "yaml"]);
        assert_eq!(serde_saphyr::from_str::<Pod>(stdout(&output)).unwrap(), etcd);
        let output = agent.ask(&["get", key]);
        assert!(stdout(&output).lines().nth(1).unwrap().starts_with("kube-system  etcd-node-1  "));
    }
}

#[test]
fn a_missing_pod_is_a_status_and_exit_code_1() {
    let agent = Agent::on(&shipped());
    for path in ["/pods/nothing", "/pods/default/nothing", "/nowhere", "/pods/%F0%9F%A6%80"] {
        let answer = agent.get(path);
        let status: Value = answer.json();
        assert_eq!((answer.code, &status["reason"]), (404, &"NotFound".into()), "{path}");
    }
    let output = agent.ask(&["get", "default/nothing"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "pod-index: no pod \"nothing\" in namespace \"default\"\n");
}

#[test]
fn sources_report_unusable_manifests_with_their_field() {
    let directory = Directory::new();
    directory.write("good.yaml", &manifest("good"));
    directory.write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n");
    let agent = Agent::on(&directory.0);
    let answer: Value = agent.get("/sources").json();
    assert_eq!(answer["ready"], true);
    let file = &answer["sources"][0];
    assert_eq!((&file["source"], &file["seen"], &file["pods"]), (&"file".into(), &true.into(), &1.into()));
    let problem = &file["problems"][0];
    assert!(problem["origin"].as_str().unwrap().ends_with("bad.yaml"));
    assert_eq!(problem["field"], "spec.containers");

    directory.write("bad.yaml", &manifest("mended"));
    agent.has("/pods/default/mended-node-1");
    let answer: Value = agent.get("/sources").json();
    assert_eq!(answer["sources"][0]["problems"], Value::Array(Vec::new()));
}

#[test]
fn a_missing_directory_delays_nothing() {
    let directory = Directory::new();
    let later = directory.0.join("later");
    let agent = Agent::on(&later);
    assert!(agent.get("/pods").json::<List<Pod>>().items.is_empty());
    std::fs::create_dir(&later).unwrap();
    std::fs::write(later.join("web.yaml"), manifest("web")).unwrap();
    agent.has("/pods/default/web-node-1");
}

/// The public format of `/pods`: every field of the shipped manifests' pods, as served.
#[test]
fn the_shipped_manifests_are_served_as_recorded() {
    // Path and node name are fixed, because UIDs are hashes of both.
    let mut command = binary(&node_1(Path::new("examples/manifests")));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let agent = Agent::spawn(command).ready();
    let mut served: Value = agent.get("/pods").json();
    // Versions begin with the time of the start.
    let without_version = |object: &mut Value| {
        let version = object["metadata"].as_object_mut().unwrap().remove("resourceVersion").unwrap();
        assert!(version.as_str().unwrap().parse::<u64>().is_ok(), "{version}");
    };
    without_version(&mut served);
    for pod in served["items"].as_array_mut().unwrap() {
        without_version(pod);
        // Besides, only the time at which this agent first saw the pod may differ.
        let seen = pod["metadata"]["annotations"]["kubernetes.io/config.seen"].as_str().unwrap();
        assert!(seen.parse::<Timestamp>().is_ok(), "{seen}");
        pod["metadata"]["annotations"]["kubernetes.io/config.seen"] = "SEEN".into();
    }
    let sort_key = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    served["items"].as_array_mut().unwrap().sort_by_key(sort_key);
    let agreed: Value = serde_json::from_str(include_str!("pods.json")).unwrap();
    if served != agreed {
        // To accept the change, copy this to agent/tests/agent/pods.json.
        let now = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pods.json");
        std::fs::write(&now, serde_json::to_string_pretty(&served).unwrap() + "\n").unwrap();
        panic!("agent/tests/agent/pods.json differs from {}", now.display());
    }
}
