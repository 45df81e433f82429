//! What the agent removes from pods and adds to them.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::api::{following, kubeconfig, pod};
use crate::api_server::ApiServer;
use crate::config::serve_manifests;
use crate::restart::of_files;
use crate::support::{Agent, Directory, serve};

const CANARY: &str = "hunter2-canary";

/// A pod with passwords in every place where the environment can have one, and managed fields.
fn pod_with_passwords(name: &str) -> Value {
    let env = json!([
        { "name": "PASSWORD", "value": CANARY },
        { "name": "EMPTY", "value": "" },
        { "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
    ]);
    let mut pod = pod(name, "node-1", &json!({ "a": "b" }));
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        pod["spec"][containers] = json!([{ "name": containers.to_lowercase(), "image": "i", "env": env }]);
    }
    pod
}

/// The values of the environment of all containers.
fn values(pod: &Value) -> Vec<&Value> {
    let containers =
        ["containers", "initContainers", "ephemeralContainers"].map(|key| &pod["spec"][key][0]["env"]);
    containers
        .iter()
        .flat_map(|env| env.as_array().unwrap().iter().map(|variable| &variable["value"]))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redacted_environment_values_are_never_served_and_everything_else_is() {
    let server = ApiServer::start().await;
    let mut applied = pod_with_passwords("applied");
    let last = pod_with_passwords("applied").to_string();
    applied["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(last);
    server.put("pods", &applied);
    let directory = Directory::new();
    let kept = Directory::new();
    let manifest = |name: &str| {
        let mut pod = pod_with_passwords(name);
        // Fields that a static pod must not have.
        pod["spec"]["ephemeralContainers"] = Value::Null;
        pod.to_string()
    };
    directory.write("of-file.json", &manifest("of-file"));
    let url = serve_manifests(Arc::new(Mutex::new(manifest("of-url"))), Arc::default());
    let kubeconfig = kubeconfig(&kept, &server);
    let mut of_kubelet = pod_with_passwords("of-kubelet");
    of_kubelet["metadata"]["uid"] = json!("uid-of-kubelet");
    let pods_of_kubelet =
        json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [of_kubelet] }).to_string();
    let kubelet = format!("http://{}", serve(move |_| ("200 OK", pods_of_kubelet.clone())));
    let checkpoints = kept.0.join("checkpoints");
    let args = of_files(&directory.0, &checkpoints);
    for redacts in [false, true] {
        let flag = if redacts { "--redact-env" } else { "" };
        let mut agent =
            Agent::start(&format!("{args} --manifest-url {url} --kubeconfig {kubeconfig} {flag}")).ready();
        let answer = agent.get("/pods");
        assert_eq!(answer.body.contains(CANARY), !redacts, "{}", answer.body);
        let body: Value = answer.json();
        let pods = body["items"].as_array().unwrap();
        assert_eq!(pods.len(), 3);
        let beside_a_kubelet = Agent::start(&format!("--kubelet {kubelet} --node-name node-1 {flag}"));
        let answer = beside_a_kubelet.until("/pods", |answer| answer.body.contains("of-kubelet"));
        assert_eq!(answer.body.contains(CANARY), !redacts, "{}", answer.body);
        let applied = pods.iter().find(|pod| pod["metadata"]["name"] == "applied").unwrap();
        let value = json!(if redacts { "[redacted]" } else { CANARY });
        assert_eq!(values(applied), [&value, &json!(""), &Value::Null].repeat(3));
        assert_eq!(applied["metadata"]["annotations"]["a"], "b");
        agent.end();
        for file in std::fs::read_dir(&checkpoints).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(!redacts || !text.contains(CANARY), "{text}");
        }
        std::fs::remove_dir_all(&checkpoints).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_fields_are_removed_and_the_agents_annotations_are_added() {
    let server = ApiServer::start().await;
    let mut web = pod("web", "node-1", &json!({}));
    web["metadata"]["managedFields"] = json!([{ "manager": "kubelet", "operation": "Update", "fieldsV1": { "f:status": { "f:phase": {} } } }]);
    server.put("pods", &web);
    let directory = Directory::new();
    let agent = following(&server, &directory, "").ready();
    let shown: Value = agent.get("/pods/default/web").json();
    assert_eq!(shown["metadata"]["managedFields"], Value::Null);
    let annotations = &shown["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "api");
    let seen = annotations["kubernetes.io/config.seen"].as_str().unwrap();
    assert!(seen.parse::<k8s_openapi::jiff::Timestamp>().is_ok(), "{seen}");
    assert_eq!(annotations.as_object().unwrap().len(), 2);
}
