//! The agent's log: a line for each pod event, and each problem, which /sources and /metrics show too.

use std::sync::{Arc, Mutex};

use pod_index::PodMeta;
use serde_json::{Value, json};

use crate::config::serve_manifests;
use crate::support::{Agent, Directory, manifest, node_1};

#[test]
fn each_added_changed_or_removed_pod_is_one_log_line_with_its_fields() {
    let directory = Directory::new();
    let agent = Agent::start(&format!("{} --log-format json --log-level debug", node_1(&directory.0)));
    // A pod with its own UID, which stays when it is edited.
    let text = manifest("web").replace("{name: web}", "{name: web, uid: u-1}");
    let mut generations = Vec::new();
    for (event, change) in
        [("added", Some(text.clone())), ("updated", Some(text.replace("nginx", "httpd"))), ("removed", None)]
    {
        match change {
            Some(text) => directory.write("web.yaml", &text),
            None => std::fs::remove_file(directory.0.join("web.yaml")).unwrap(),
        }
        let line: Value = serde_json::from_str(&agent.wait_for_log("\"event\":")).unwrap();
        assert_eq!(json!([line["event"], line["message"]]), json!([event, format!("pod {event}")]));
        assert_eq!((&line["namespace"], &line["name"]), (&"default".into(), &"web-node-1".into()), "{line}");
        assert_eq!(json!([line["uid"], line["source"], line["level"]]), json!(["u-1", "file", "DEBUG"]));
        generations.push(line["generation"].as_u64().unwrap());
        // Only published changes are logged.
        let code = agent.get("/pods/default/web-node-1").code;
        assert_eq!(code, if event == "removed" { 404 } else { 200 });
    }
    assert!(generations.is_sorted_by(|earlier, later| earlier < later), "{generations:?}");
    // Each is one that was published. There may be others between them: if the machine stands still for a while, the agent
    // publishes that it does not know that time.
    let published: Vec<_> = agent
        .logged()
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["message"] == "published")
        .filter_map(|line| line["generation"].as_u64())
        .collect();
    // The thread that publishes logs a generation before it makes the next one. The last may still be on its way.
    let [before @ .., _] = &generations[..] else { unreachable!() };
    assert!(before.iter().all(|generation| published.contains(generation)), "{generations:?}, {published:?}");
}

#[test]
fn a_manifest_cannot_forge_a_log_line() {
    for format in ["text", "json"] {
        let directory = Directory::new();
        directory.write(
            "bad.yaml",
            "apiVersion: v1\nkind: \"Pod\\nforged \\x1b[1m \\x85 \\u202e\"\nmetadata: {name: a}\n",
        );
        let agent = Agent::start(&format!("{} --log-format {format}", node_1(&directory.0)));
        let line = agent.wait_for_log("forged");
        assert!(line.contains("bad.yaml"), "{line}");
        let is_hidden = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!agent.logged().iter().any(|line| line.contains(is_hidden)), "{line:?}");
    }
}

#[test]
fn a_duplicate_pod_is_reported_in_the_log_sources_and_metrics() {
    let list = |images: [&str; 2]| {
        let pods = images.map(|image| {
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
                    "spec": { "containers": [{ "name": "c", "image": image }] } })
        });
        json!({ "apiVersion": "v1", "kind": "PodList", "items": pods }).to_string()
    };
    let body = Arc::new(Mutex::new(list(["first", "second"])));
    let url = serve_manifests(Arc::clone(&body), Arc::default());
    let agent =
        Agent::start(&format!("--manifest-url {url} --http-check-frequency 20ms --hostname-override node-1"));
    let line = agent.wait_for_log("WARN");
    assert!(line.contains("default/web-node-1") && line.contains("metadata.name"), "{line}");
    agent.has("/readyz");
    let sources: Value = agent.get("/sources").json();
    let problem = &sources["sources"][0]["problems"][0];
    assert_eq!(json!([problem["kind"], problem["field"]]), json!(["duplicate", "metadata.name"]));
    let series = "pod_index_source_problems{source=\"http\",kind=\"duplicate\"} 1";
    assert!(agent.get("/metrics").body.contains(series));

    *body.lock().unwrap() = manifest("web");
    agent.until("/sources", |answer| answer.json::<Value>()["sources"][0]["problems"] == json!([]));
    let pod: k8s_openapi::api::core::v1::Pod = agent.get("/pods/default/web-node-1").json();
    assert_eq!(pod.name(), "web-node-1");
}
