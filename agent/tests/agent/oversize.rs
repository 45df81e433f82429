//! Pods that are as large as an API server accepts, in any field. Whoever may create pods must not end the agent by them.

use std::ops::Range;
use std::time::Duration;

use pod_index_kubelet::protobuf::encode_pod;
use serde_json::{Map, Value, json};

use crate::api::{following, pod};
use crate::api_server::ApiServer;
use crate::support::{Agent, Directory, PATIENCE, wait_for};

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
    let bare = |i: usize| json!({ "name": format!("c{i}"), "image": "x" });
    let volumes = |i: usize| json!({ "name": format!("v{i}"), "emptyDir": {} });
    let status = |i: usize| {
        json!({ "name": format!("c{i}"), "image": "i", "imageID": "i", "ready": true, "restartCount": 1,
            "containerID": format!("containerd://{i:064}") })
    };
    vec![
        ("metadata", "labels", entries(3_050)),
        ("metadata", "annotations", json!({ "note": "x".repeat(500_000) })),
        ("spec", "containers", containers.into()),
        ("spec", "containers", (0..190).map(bare).collect()),
        ("spec", "containers", json!([{ "name": "c", "image": "x".repeat(480_000) }])),
        ("spec", "volumes", (0..128).map(volumes).collect()),
        ("status", "message", "x".repeat(500_000).into()),
        ("status", "containerStatuses", (0..400).map(status).collect()),
    ]
}

/// The pod of this number: its field is large. No other pod has its first image.
fn large(number: usize, fields: &[(&str, &str, Value)]) -> Value {
    let (section, field, value) = &fields[number % fields.len()];
    let mut large = pod(&format!("large-{number}"), "node-1", &json!({}));
    large["status"] = json!({ "phase": "Running" });
    large["metadata"]["labels"] = json!({ "app": "web" });
    large[*section][*field] = value.clone();
    if let Some(image) = large["spec"]["containers"][0]["image"].as_str() {
        large["spec"]["containers"][0]["image"] = format!("{image}{number}").into();
    }
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
    /// How many more are created and removed.
    removed: usize,
    /// The large field of each pod.
    fields: &'a [(&'a str, &'a str, Value)],
    /// Whether these are too large to be kept.
    left_out: bool,
    in_protobuf: bool,
}

/// The pods are read, changed, removed and restored.
async fn live(Life { pods, rounds, removed, fields, left_out, in_protobuf }: Life<'_>) -> Most {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    if in_protobuf {
        server.speak_protobuf(|pod| encode_pod(&serde_json::from_value(pod.clone()).unwrap()));
    }
    let checkpoints = directory.0.join("checkpoints");
    for number in 0..pods {
        server.put("pods", &large(number, fields));
    }
    // However slow the machine is, no removed pod is forgotten because of its age.
    let args = format!("--checkpoint-all-pods --checkpoint-dir {} --keep-removed=24h", checkpoints.display());
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
    create_and_remove(&server, &agent, 0..removed, |number| {
        let mut short = large(number, fields);
        short["metadata"]["name"] = format!("short-{number}").into();
        short
    });
    let first = agent.kib("VmHWM") / 1024;
    println!(
        "{pods} pods, {rounds} changes of each, {removed} removed: {first} MiB at most, {} MiB now",
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

/// Creates and removes pods, some at a time. They are kept, and so are the events of the pod API.
fn create_and_remove(server: &ApiServer, agent: &Agent, numbers: Range<usize>, of: impl Fn(usize) -> Value) {
    const AT_A_TIME: usize = 10;
    let end = numbers.end;
    for first in numbers.step_by(AT_A_TIME) {
        let pods: Vec<Value> = (first..end.min(first + AT_A_TIME)).map(&of).collect();
        server.put_all("pods", &pods);
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
        let last = format!("/pods/default/{}", name(pods.last().unwrap()));
        agent.until_within(10 * PATIENCE, &last, |answer| answer.code == 200);
        for pod in &pods {
            server.remove("pods", "default", &name(pod));
        }
        agent.until_within(10 * PATIENCE, &last, |answer| answer.code == 404);
    }
}

/// Each pod is found by its IP. Those of which something was left out are marked, and each is a problem of its source and a line of
/// the log, by its name.
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
        let name = format!("default/large-{number}");
        assert!(names(&problems, &name), "{name}: {problems}");
        // The log is written by a thread of its own.
        let lines =
            || agent.logged().iter().filter(|line| line.contains("WARN") && names(line, &name)).count();
        wait_for(|| format!("one line about {name}, not {}", lines()), || lines() == 1);
    }
}

/// Whether the text has this name, and not only one that begins with it.
fn names(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && !"-/".contains(c)).any(|word| word == name)
}

#[track_caller]
fn is_below(limit: u64, most: &Most) {
    assert!(most.first < limit && most.restarted < limit, "{most:?} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_are_large_in_any_field_are_named_and_found_and_take_little_memory() {
    let fields = fields();
    // More than a few, so that the warning about the last one is not hidden by the others.
    let life = Life { pods: 20, rounds: 2, removed: 26, fields: &fields, left_out: true, in_protobuf: false };
    is_below(128, &live(life).await);
}

/// A tenant creates pods that are as large as pods get, and removes them before the agent forgets the first of them. Their
/// large field is one of which a part stays in the outline of a removed pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_pods_with_large_containers_or_statuses_take_little_memory_together() {
    let mut fields = largest_kept();
    fields.retain(|(_, field, _)| ["containers", "containerStatuses"].contains(field));
    let pods = fields.len();
    let life = Life { pods, rounds: 0, removed: 200, fields: &fields, left_out: false, in_protobuf: false };
    is_below(160, &live(life).await);
}

/// As many removed pods as are kept at most. Of nearly all, only their identity is kept. Each is as large as an API server lets
/// a tenant make it, who may also write statuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/run figures"]
async fn ten_thousand_removed_pods_keep_the_agent_below_its_limit() {
    for (what, of) in
        [("usual", usual as fn(usize) -> Value), ("with the largest identity", of_largest_identity)]
    {
        let server = ApiServer::start().await;
        let directory = Directory::new();
        let agent = following(&server, &directory, "--keep-removed=24h");
        agent.until_within(10 * PATIENCE, "/readyz", |answer| answer.code == 200);
        println!("{what}: {} MiB without a pod", agent.kib("RssAnon") / 1024);
        for thousand in 1..=10 {
            create_and_remove(&server, &agent, 1_000 * (thousand - 1)..1_000 * thousand, of);
            println!("{what}: {} MiB with {thousand},000 removed pods", agent.kib("RssAnon") / 1024);
        }
        // Without the pages of the program itself, which a debug build has many of.
        let most = agent.kib("RssAnon") / 1024;
        assert!(most < 240, "{what}: {most} MiB");
    }
}

/// A pod of this number as a Deployment has them: with two containers.
fn usual(number: usize) -> Value {
    let mut usual = pod(&format!("web-5d4f8c7b9-{number}"), "node-1", &json!({}));
    usual["metadata"]["labels"] = json!({ "app": "web", "pod-template-hash": "5d4f8c7b9" });
    usual["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9", "controller": true,
        "uid": "0d3f0d4e-7a3c-4a41-9d5f-2f3f6f3c1a11",
    }]);
    let names = ["web", "proxy"];
    let image = "registry.example/shop/orders:1.2.3";
    usual["spec"]["containers"] =
        names.map(|name| json!({ "name": name, "image": image })).into_iter().collect();
    let status = |(place, name): (usize, &str)| {
        json!({ "name": name, "image": image, "imageID": "", "ready": true, "restartCount": 0,
            "containerID": format!("containerd://{:064x}", 2 * number + place),
            "state": { "running": { "startedAt": "2026-01-01T00:00:05Z" } } })
    };
    usual["status"] = json!({
        "phase": "Running", "podIP": format!("10.9.{}.{}", number / 250, 1 + number % 250),
        "startTime": "2026-01-01T00:00:01Z",
        "containerStatuses": names.into_iter().enumerate().map(status).collect::<Vec<_>>(),
    });
    usual
}

fn of_largest_identity(number: usize) -> Value {
    let long =
        |what: &str, length: usize| format!("{what}-{number:0>width$}", width = length - what.len() - 1);
    let mut largest = usual(number);
    largest["metadata"]["name"] = long("name", 253).into();
    largest["metadata"]["labels"]["pod-template-hash"] = long("hash", 63).into();
    largest["metadata"]["labels"]["rollouts-pod-template-hash"] = long("hash", 63).into();
    largest["metadata"]["ownerReferences"][0]["name"] = long("owner", 253).into();
    let marks = ["config.hash", "config.source", "config.seen"];
    let annotations = marks.map(|mark| (format!("kubernetes.io/{mark}"), long(mark, 253).into()));
    largest["metadata"]["annotations"] = annotations.into_iter().collect::<Map<_, _>>().into();
    let status = |place: usize| {
        let id = |run: usize| format!("containerd://{:064x}", 10 * number + 2 * place + run);
        json!({ "name": long(&place.to_string(), 63), "image": "i", "imageID": "", "ready": true, "restartCount": 1,
            "containerID": id(0), "state": { "waiting": { "reason": long("reason", 32) } },
            "lastState": { "terminated": { "exitCode": 1, "containerID": id(1), "reason": long("reason", 32) } } })
    };
    largest["status"]["containerStatuses"] = (0..10).map(status).collect();
    let ip = |family: usize| json!({ "ip": format!("fd00::{family:x}:{number:x}") });
    largest["status"]["podIPs"] = (1..=4).map(ip).collect();
    largest
}

/// `cargo test --release --workspace --all-features --test agent -- --ignored --nocapture a_node_full`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/run figures"]
async fn a_node_full_of_the_largest_pods_keeps_the_agent_below_its_limit() {
    let life =
        Life { pods: 110, rounds: 2, removed: 220, fields: &fields(), left_out: true, in_protobuf: false };
    is_below(256, &live(life).await);
}

/// The worst case: pods of which everything is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/run figures"]
async fn a_node_full_of_pods_just_below_the_limit_keeps_the_agent_below_its_own() {
    for in_protobuf in [false, true] {
        let life = Life {
            pods: 110,
            rounds: 2,
            removed: 1_000,
            fields: &largest_kept(),
            left_out: false,
            in_protobuf,
        };
        is_below(256, &live(life).await);
    }
}
