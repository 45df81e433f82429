//! Static pods from files and their mirrors from an API server: where the two UIDs of one pod meet.

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, shipped};
use crate::support::{Agent, Directory, manifest, run, stderr};

pub fn pod(name: &str, node: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "default", "name": name, "annotations": annotations },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    })
}

/// A kubeconfig that names this server.
pub fn kubeconfig(directory: &Directory, server: &ApiServer) -> String {
    let path = directory.0.join(".kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": { "server": server.url() } }],
        "users": [{ "name": "test", "user": {} }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirrors_uid_translates_to_its_static_pods_and_follows_both() {
    let server = ApiServer::start().await;
    server.grant(shipped("pod-index", &["read-only.yaml"]));
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    server.put("pods", &pod("other", "node-1", &json!({})));
    server.put("pods", &pod("elsewhere", "node-2", &json!({})));
    let path = directory.0.to_str().unwrap();
    let kubeconfig = kubeconfig(&directory, &server);
    let args = ["--pod-manifest-path", path, "--hostname-override", "node-1", "--kubeconfig", &kubeconfig];
    let agent = Agent::start(&args);
    agent.until("/readyz", |answer| answer.code == 200);
    let names = |path: &str| {
        let list: List<Pod> = agent.get(path).json();
        let mut names: Vec<_> = list.items.iter().map(|pod| pod.name().to_owned()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names("/pods"), ["other", "web-node-1"], "those of this node");
    assert_eq!(names("/mirrors/pods"), [""; 0]);

    let web: Pod = agent.get("/pods/default/web-node-1").json();
    let mirror = server
        .put("pods", &pod("web-node-1", "node-1", &json!({ "kubernetes.io/config.mirror": web.uid() })));
    let translates_to = |uid: &str| {
        let translation = format!("/translate/{}", mirror.uid());
        agent.until(&translation, |answer| answer.json::<Value>()["podUID"] == uid).json::<Value>()
    };
    let translation = translates_to(web.uid());
    assert_eq!(translation["isMirrorPod"], true);
    assert_eq!(translation["pod"]["name"], "web-node-1");
    assert_eq!((names("/pods").len(), names("/mirrors/pods").len()), (2, 1));
    let answer = agent.get(&format!("/pods/{}", mirror.uid()));
    assert_eq!(answer.code, 404);
    assert!(answer.body.contains(web.uid()), "{}", answer.body);

    // The manifest is edited, and with it the static pod's UID; the mirror is still the old one.
    directory.write("web.yaml", &manifest("web").replace("nginx", "httpd"));
    agent.until("/pods/default/web-node-1", |answer| answer.body.contains("httpd"));
    let edited: Pod = agent.get("/pods/default/web-node-1").json();
    assert_ne!(edited.uid(), web.uid());
    translates_to(edited.uid());

    server.remove("pods", "default", "web-node-1");
    translates_to(mirror.uid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_goes_away_takes_nothing_along() {
    let server = ApiServer::start().await;
    server.grant(shipped("pod-index", &["read-only.yaml"]));
    let directory = Directory::new();
    server.put("pods", &pod("a", "node-1", &json!({})));
    let agent = Agent::start(&["--all-nodes", "--kubeconfig", &kubeconfig(&directory, &server)]);
    agent.until("/pods/default/a", |answer| answer.code == 200);
    server.refuse();
    server.cut_connections();
    agent.until("/sources", |answer| answer.json::<Value>()["sources"][0]["problems"][0].is_object());
    assert_eq!((agent.get("/readyz").code, agent.get("/pods/default/a").code), (200, 200));
    server.put("pods", &pod("b", "node-2", &json!({})));
    server.accept().await;
    agent.until("/pods/default/b", |answer| answer.code == 200);
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_exit_code_2() {
    let output = run(&["--once", "--kubeconfig", "/nonexistent/kubeconfig"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nonexistent/kubeconfig"), "{}", stderr(&output));
}
