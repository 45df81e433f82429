//! Pods that are as large as an API server accepts, in any field. Whoever may create pods must not end the agent by them.

use std::time::Duration;

use pod_index_kubelet::protobuf::encode_pod;
use serde_json::{Map, Value, json};

use crate::api::{following, pod};
use crate::api_server::ApiServer;
use crate::support::{Agent, Directory, PATIENCE};

/// As many entries of a mapping.
fn entries(many: usize) -> Value {
    (0..many).map(|i| (format!("l{i}"), Value::from("v"))).collect::<Map<_, _>>().into()
}

/// The fields, and 1.2 to 1.8 MB of JSON for each: as much as a real API server has accepted.
fn fields() -> Vec<(&'static str, &'static str, Value)> {
    let owner =
        |i: usize| json!({ "apiVersion": "apps/v1", "kind": "K", "name": format!("n{i}"), "uid": "u" });
    let managed = (0..60_000).map(|i| (format!("f:{i}"), json!({}))).collect::<Map<_, _>>();
    let term = json!({ "labelSelector": {}, "topologyKey": "a" });
    let affinity =
        json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": vec![term; 25_000] } });
    let variables: Vec<_> = (0..50_000).map(|i| json!({ "name": format!("N{i}"), "value": "v" })).collect();
    vec![
        ("metadata", "labels", entries(110_000)),
        ("metadata", "annotations", entries(20_000)),
        ("metadata", "finalizers", (0..100_000).map(|i| format!("a/f{i}")).collect::<Vec<_>>().into()),
        ("metadata", "ownerReferences", (0..20_000).map(owner).collect::<Vec<_>>().into()),
        (
            "metadata",
            "managedFields",
            json!([{ "manager": "m", "operation": "Update", "fieldsV1": managed }]),
        ),
        ("spec", "containers", json!([{ "name": "c", "image": "i", "env": variables }])),
        ("spec", "containers", json!([{ "name": "c", "image": "i", "command": ["x".repeat(1_400_000)] }])),
        ("spec", "affinity", affinity),
        ("spec", "tolerations", vec![json!({ "key": "k", "operator": "Exists" }); 30_000].into()),
        ("spec", "nodeSelector", entries(80_000)),
        (
            "spec",
            "volumes",
            (0..15_000).map(|i| json!({ "name": format!("v{i}"), "emptyDir": {} })).collect(),
        ),
        ("status", "conditions", vec![json!({ "type": "T", "status": "True" }); 30_000].into()),
        ("status", "message", "x".repeat(1_400_000).into()),
    ]
}

/// Fields that take 300 to 512 KiB of memory, so that nothing is left out: as large as pods get.
fn largest_kept() -> Vec<(&'static str, &'static str, Value)> {
    let variable =
        |i: usize| json!({ "name": format!("SERVICE_{i}"), "value": "orders.shop.svc.cluster.local" });
    let containers: Vec<_> = (0..28)
        .map(|i| json!({ "name": format!("c{i}"), "image": "i", "env": (0..28).map(variable).collect::<Vec<_>>() }))
        .collect();
    let volumes = |i: usize| json!({ "name": format!("v{i}"), "emptyDir": {} });
    let status = |i: usize| {
        json!({ "name": format!("c{i}"), "image": "i", "imageID": "i", "ready": true, "restartCount": 1,
            "containerID": format!("containerd://{i:064}") })
    };
    vec![
        ("metadata", "labels", entries(3_050)),
        ("metadata", "annotations", json!({ "note": "x".repeat(500_000) })),
        ("spec", "containers", containers.into()),
        ("spec", "volumes", (0..128).map(volumes).collect()),
        ("status", "message", "x".repeat(500_000).into()),
        ("status", "containerStatuses", (0..400).map(status).collect()),
    ]
}

/// The pod of this number: its field is large.
fn large(number: usize, fields: &[(&str, &str, Value)]) -> Value {
    let (section, field, value) = &fields[number % fields.len()];
    let mut large = pod(&format!("large-{number}"), "node-1", &json!({}));
    large["status"] = json!({ "phase": "Running" });
    large["metadata"]["labels"] = json!({ "app": "web" });
    large[*section][*field] = value.clone();
    large["status"]["podIP"] = format!("10.9.{}.{}", number / 250, 1 + number % 250).into();
    large
}

/// The most memory of an agent, and of one that was started again with the checkpoints of the first, in MiB.
#[derive(Debug)]
struct Most {
    first: u64,
    restarted: u64,
}

/// What an agent lives through.
struct Life<'a> {
    pods: usize,
    /// How often each pod is changed.
    rounds: usize,
    /// The large field of each pod.
    fields: &'a [(&'a str, &'a str, Value)],
    /// Whether these are too large to be kept.
    left_out: bool,
    in_protobuf: bool,
}

/// The pods are read, changed, removed and restored.
async fn live(Life { pods, rounds, fields, left_out, in_protobuf }: Life<'_>) -> Most {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    if in_protobuf {
        server.speak_protobuf(|pod| encode_pod(&serde_json::from_value(pod.clone()).unwrap()));
    }
    let checkpoints = directory.0.join("checkpoints");
    for number in 0..pods {
        server.put("pods", &large(number, fields));
    }
    let args = format!("--checkpoint-all-pods --checkpoint-dir {}", checkpoints.display());
    let start = || {
        let agent = following(&server, &directory, &args);
        agent.until_within(10 * PATIENCE, "/readyz", |answer| answer.code == 200);
        agent
    };
    let agent = start();
    is_told_and_found(&agent, pods, fields, left_out);
    for round in 0..rounds {
        for number in 0..pods {
            let mut changed = large(number, fields);
            changed["metadata"]["annotations"]["round"] = round.to_string().into();
            changed["status"]["reason"] = format!("round-{round}").into();
            server.put("pods", &changed);
        }
        let last = format!("/pods/default/large-{}", pods - 1);
        agent.until_within(10 * PATIENCE, &last, |answer| answer.body.contains(&format!("round-{round}")));
    }
    // Removed pods are kept, and so are the events of the pod API.
    for number in 0..2 * pods {
        let mut short = large(number, fields);
        short["metadata"]["name"] = "short".into();
        short["metadata"]["uid"] = format!("short-{number}").into();
        server.put("pods", &short);
        let has_it = format!("\"uid\":\"short-{number}\"");
        agent.until_within(10 * PATIENCE, "/pods/default/short", |answer| answer.body.contains(&has_it));
        server.remove("pods", "default", "short");
        agent.lacks("/pods/default/short");
    }
    let first = agent.kib("VmHWM") / 1024;
    println!(
        "{pods} pods, {rounds} changes of each: {first} MiB at most, {} MiB now",
        agent.kib("RssAnon") / 1024
    );
    drop(agent);
    let agent = start();
    is_told_and_found(&agent, pods, fields, left_out);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let restarted = agent.kib("VmHWM") / 1024;
    println!("restarted with checkpoints: {restarted} MiB at most, {} MiB now", agent.kib("RssAnon") / 1024);
    Most { first, restarted }
}

/// Each pod is found by its IP and marked, and the first hundred are problems of their source, by name.
fn is_told_and_found(agent: &Agent, pods: usize, fields: &[(&str, &str, Value)], left_out: bool) {
    let sources: Value = agent.get("/sources").json();
    let problems = sources["sources"][0]["problems"].to_string();
    for number in 0..pods {
        let (section, field, _) = &fields[number % fields.len()];
        let ip = format!("10.9.{}.{}", number / 250, 1 + number % 250);
        let answer = agent.get(&format!("/whois?q={ip}"));
        assert!(answer.body.contains(&format!("large-{number}\"")), "{ip}: {}", answer.body);
        if *field == "managedFields" {
            continue;
        }
        if !left_out {
            let whole = agent.get(&format!("/pods/default/large-{number}")).body;
            assert!(!whole.contains("pod-index/left-out"), "large-{number}: {section}.{field}");
            continue;
        }
        let path = format!("{section}.{field}");
        let whole: Value = agent.get(&format!("/pods/default/large-{number}")).json();
        assert_eq!(whole["metadata"]["annotations"]["pod-index/left-out"], *path, "large-{number}");
        let is_told = problems.contains(&format!("default/large-{number}"));
        assert!(is_told || pods > 100, "large-{number}: {problems}");
    }
}

#[track_caller]
fn is_below(limit: u64, most: &Most) {
    assert!(most.first < limit && most.restarted < limit, "{most:?} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_are_large_in_any_field_are_named_and_found_and_take_little_memory() {
    let fields = fields();
    let life = Life { pods: fields.len(), rounds: 2, fields: &fields, left_out: true, in_protobuf: false };
    is_below(128, &live(life).await);
}

/// `cargo test --release --workspace --all-features --test agent -- --ignored --nocapture a_node_full`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/run figures"]
async fn a_node_full_of_the_largest_pods_keeps_the_agent_below_its_limit() {
    let life = Life { pods: 110, rounds: 2, fields: &fields(), left_out: true, in_protobuf: false };
    is_below(256, &live(life).await);
}

/// The worst case: pods of which everything is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/run figures"]
async fn a_node_full_of_pods_just_below_the_limit_keeps_the_agent_below_its_own() {
    for in_protobuf in [false, true] {
        let life = Life { pods: 110, rounds: 2, fields: &largest_kept(), left_out: false, in_protobuf };
        is_below(256, &live(life).await);
    }
}
