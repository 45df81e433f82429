//! The agent follows what its node's pods reference, and reports numbers but no content.

use serde_json::{Value, json};

use crate::api::{kubeconfig, pod};
use crate::api_server::{ApiServer, shipped};
use crate::support::{Agent, Directory, run, stderr};
use pod_index_test_support::canary::{CANARY, IN_BASE64, tells};

const FLAG: &str = "--config-map-and-secret-change-detection-strategy";

fn secret(name: &str, data: &Value) -> Value {
    json!({ "kind": "Secret", "apiVersion": "v1", "metadata": { "namespace": "default", "name": name }, "data": data })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_objects_that_pods_name_are_watched_and_no_endpoint_or_log_line_has_their_content() {
    let server = ApiServer::start().await;
    let granted = shipped("pod-index", &["base", "components/references"]);
    server.grant(granted.clone());
    server.put("secrets", &secret("good", &json!({ "k": IN_BASE64 })));
    server.put("secrets", &secret("unreadable", &json!(CANARY)));
    let mut web = pod("web", "node-1", &json!({}));
    web["spec"]["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": "good" } }, { "secretRef": { "name": "unreadable" } }, { "configMapRef": { "name": "c" } }]);
    server.put("pods", &web);
    let directory = Directory::new();
    let kubeconfig = kubeconfig(&directory, &server);
    let args =
        ["--kubeconfig", &kubeconfig, "--hostname-override", "node-1", FLAG, "Watch", "--log-level", "trace"];
    let agent = Agent::start(&args);
    let counts = agent
        .until("/references", |answer| {
            let counts: Value = answer.json();
            let (secrets, config_maps) = (&counts["secrets"], &counts["configMaps"]);
            secrets["synced"] == 1 && secrets["failing"] == 1 && config_maps["synced"] == 1
        })
        .json::<Value>();
    assert_eq!(
        counts["secrets"],
        json!({ "strategy": "Watch", "pods": 1, "objects": 2, "synced": 1, "failing": 1, "watches": 2 })
    );
    // The unreadable object was requested.
    agent.wait_for_log("cannot be decoded");

    let mut outputs = Vec::new();
    for path in [
        "/references",
        "/pods",
        "/pods/default/web",
        "/mirrors",
        "/sources",
        "/metrics",
        "/readyz",
        "/healthz",
        "/nothing",
    ] {
        outputs.push(agent.get(path).body);
    }
    outputs.extend(agent.logged());
    assert!(
        outputs.iter().any(|line| line.contains("serving on http")),
        "the log is searched from its first line"
    );
    assert!(
        outputs.iter().any(|line| line.contains("cannot be decoded")),
        "and with the line that was waited for"
    );
    let leak = outputs.iter().find(|text| tells(text));
    assert_eq!(leak, None);

    server.remove("pods", "default", "web");
    agent.until("/references", |answer| answer.json::<Value>()["secrets"]["objects"] == 0);
    server.until("no watch but that of the pods", |server| server.open_watches() == 1).await;

    // The server refuses every right that is not granted, and every granted right is used.
    let asked = server.asked();
    let unused: Vec<_> =
        granted.iter().filter(|right| !asked.iter().any(|asked| right.covers(asked))).collect();
    assert!(unused.is_empty(), "granted, and never asked for: {unused:?}");
}

#[test]
fn references_are_refused_without_an_api_server_for_all_nodes_and_with_other_strategies() {
    let directory = Directory::new();
    directory.write("config.yaml", "kubeconfig: x\nconfigMapAndSecretChangeDetectionStrategy: Cache\n");
    let config = directory.0.join("config.yaml").display().to_string();
    for (args, why) in [
        (&["--pod-manifest-path", "x", FLAG, "Watch"][..], "needs an API server"),
        (&["--kubeconfig", "x", "--all-nodes", FLAG, "Watch"], "not of --all-nodes"),
        (&["--kubeconfig", "x", FLAG, "watch"], "must be Watch"),
        (&["--kubeconfig", "x", FLAG, "Get"], "Get: objects would be fetched on request"),
        (&["--config", &config], "Cache: objects would be fetched on request"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains(FLAG) && said.contains(why), "{said}");
    }
}
