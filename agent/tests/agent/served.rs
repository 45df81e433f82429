//! What the agent removes from pods and adds to them.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::api::{kubeconfig, pod};
use crate::api_server::ApiServer;
use crate::config::serve_manifests;
use crate::metrics::value;
use crate::support::{Agent, Directory};

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
    let (path, checkpoints) = (directory.0.to_str().unwrap(), kept.0.join("checkpoints"));
    let sources = ["--pod-manifest-path", path, "--manifest-url", &url, "--kubeconfig", &kubeconfig];
    let others = [
        "--hostname-override",
        "node-1",
        "--checkpoint-dir",
        checkpoints.to_str().unwrap(),
        "--checkpoint-all-pods",
    ];
    for redacts in [false, true] {
        let flag = if redacts { &["--redact-env"][..] } else { &[] };
        let mut agent = Agent::start(&[&sources[..], &others, flag].concat());
        agent.until("/readyz", |answer| answer.code == 200);
        let answer = agent.get("/pods");
        assert_eq!(answer.body.contains(CANARY), !redacts, "{}", answer.body);
        let body: Value = answer.json();
        let pods = body["items"].as_array().unwrap();
        assert_eq!(pods.len(), 3);
        let applied = pods.iter().find(|pod| pod["metadata"]["name"] == "applied").unwrap();
        let value = json!(if redacts { "[redacted]" } else { CANARY });
        assert_eq!(values(applied), [&value, &json!(""), &Value::Null].repeat(3));
        assert_eq!(applied["metadata"]["annotations"]["a"], "b");
        agent.signal("TERM");
        assert_eq!(agent.wait(), Some(0));
        for file in std::fs::read_dir(&checkpoints).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(!redacts || !text.contains(CANARY), "{text}");
        }
        std::fs::remove_dir_all(&checkpoints).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_fields_are_kept_on_request_and_the_agents_annotations_are_added() {
    let server = ApiServer::start().await;
    let mut web = pod("web", "node-1", &json!({}));
    web["metadata"]["managedFields"] = json!([{ "manager": "kubelet", "operation": "Update", "fieldsV1": { "f:status": { "f:phase": {} } } }]);
    server.put("pods", &web);
    let directory = Directory::new();
    let kubeconfig = kubeconfig(&directory, &server);
    let given = ["--kubeconfig", &*kubeconfig, "--hostname-override", "node-1"];
    for (flag, expected) in
        [(&[][..], &Value::Null), (&["--keep-managed-fields"], &web["metadata"]["managedFields"])]
    {
        let agent = Agent::start(&[&given[..], flag].concat());
        agent.until("/readyz", |answer| answer.code == 200);
        let shown: Value = agent.get("/pods/default/web").json();
        assert_eq!(&shown["metadata"]["managedFields"], expected);
        let annotations = &shown["metadata"]["annotations"];
        assert_eq!(annotations["kubernetes.io/config.source"], "api");
        let seen = annotations["kubernetes.io/config.seen"].as_str().unwrap();
        assert!(seen.parse::<k8s_openapi::jiff::Timestamp>().is_ok(), "{seen}");
        assert_eq!(annotations.as_object().unwrap().len(), 2);
    }
}

/// A pod of a Deployment as on a cluster: a fifth of it was written by its author.
fn as_of_a_deployment(number: usize) -> Value {
    let name = format!("web-7d4b9c6f8d-{number:05}");
    let labels = json!({ "app": "web", "pod-template-hash": "7d4b9c6f8d", "team": "shop" });
    let mount = json!({ "name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true });
    let env: Vec<_> = (0..8)
        .map(|i| json!({ "name": format!("SETTING_{i}"), "value": format!("value-of-setting-{i}") }))
        .collect();
    let probe = json!({ "httpGet": { "path": "/healthz", "port": 8080, "scheme": "HTTP" }, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3 });
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:1.4.2"), "imagePullPolicy": "IfNotPresent",
            "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }], "env": env, "volumeMounts": [mount],
            "resources": { "limits": { "memory": "256Mi" }, "requests": { "cpu": "100m", "memory": "128Mi" } },
            "livenessProbe": probe, "readinessProbe": probe,
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        })
    };
    let status = |name: &str| {
        json!({
            "name": name, "ready": true, "started": true, "restartCount": 0, "image": format!("registry.example.com/shop/{name}:1.4.2"),
            "imageID": format!("registry.example.com/shop/{name}@sha256:{number:064x}"), "containerID": format!("containerd://{number:064x}"),
            "state": { "running": { "startedAt": "2026-01-01T00:00:10Z" } }, "lastState": {},
        })
    };
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:10Z" });
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(condition);
    // As the API server serializes this pod.
    let of_env: serde_json::Map<_, _> = std::iter::once((".".to_owned(), json!({})))
        .chain((0..8).map(|i| {
            (format!("k:{{\"name\":\"SETTING_{i}\"}}"), json!({ ".": {}, "f:name": {}, "f:value": {} }))
        }))
        .collect();
    let of_probe = json!({ ".": {}, "f:failureThreshold": {}, "f:httpGet": { ".": {}, "f:path": {}, "f:port": {}, "f:scheme": {} }, "f:periodSeconds": {}, "f:successThreshold": {}, "f:timeoutSeconds": {} });
    let of_container = json!({
        ".": {}, "f:env": of_env, "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": of_probe, "f:name": {},
        "f:ports": { ".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {}, "f:name": {}, "f:protocol": {} } },
        "f:readinessProbe": of_probe, "f:resources": { ".": {}, "f:limits": { ".": {}, "f:memory": {} }, "f:requests": { ".": {}, "f:cpu": {}, "f:memory": {} } },
        "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
    });
    let of_condition =
        json!({ ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {} });
    let managed = json!([
        { "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {
            "f:metadata": { "f:generateName": {}, "f:labels": { ".": {}, "f:app": {}, "f:pod-template-hash": {}, "f:team": {} }, "f:ownerReferences": { ".": {}, "k:{\"uid\":\"6f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\"}": {} } },
            "f:spec": { "f:containers": { "k:{\"name\":\"web\"}": of_container, "k:{\"name\":\"proxy\"}": of_container }, "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:terminationGracePeriodSeconds": {} } } },
        { "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:10Z", "fieldsType": "FieldsV1", "subresource": "status", "fieldsV1": {
            "f:status": { "f:conditions": { "k:{\"type\":\"ContainersReady\"}": of_condition, "k:{\"type\":\"Initialized\"}": of_condition, "k:{\"type\":\"PodReadyToStartContainers\"}": of_condition, "k:{\"type\":\"Ready\"}": of_condition },
                "f:containerStatuses": {}, "f:hostIP": {}, "f:hostIPs": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": { ".": {}, "k:{\"ip\":\"10.1.2.3\"}": { ".": {}, "f:ip": {} } }, "f:startTime": {} } } },
    ]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": name, "generateName": "web-7d4b9c6f8d-", "labels": labels, "managedFields": managed,
            "uid": format!("0f1e2d3c-4b5a-6978-8796-{number:012x}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f8d", "uid": "6f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "controller": true, "blockOwnerDeletion": true }],
        },
        "spec": {
            "nodeName": "node-1", "containers": [container("web"), container("proxy")], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30, "priority": 0, "enableServiceLinks": true,
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            ],
            "volumes": [{ "name": "kube-api-access", "projected": { "defaultMode": 420, "sources": [
                { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
            ] } }],
        },
        "status": {
            "phase": "Running", "qosClass": "Burstable", "hostIP": "10.0.0.7", "hostIPs": [{ "ip": "10.0.0.7" }], "podIP": "10.1.2.3", "podIPs": [{ "ip": "10.1.2.3" }],
            "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [status("web"), status("proxy")],
            "conditions": conditions,
        },
    })
}

/// The source of the `DaemonSet`'s memory limit and of the table in `docs/operators.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: .ci/run figures"]
async fn memory_of_ten_thousand_pods_with_and_without_managed_fields() {
    for pods in [0, 250, 10_000] {
        let server = ApiServer::start().await;
        server.put_all("pods", (0..pods).map(as_of_a_deployment));
        let directory = Directory::new();
        let kubeconfig = kubeconfig(&directory, &server);
        for flag in [&["--keep-managed-fields"][..], &[]] {
            let agent = Agent::start(
                &[&["--kubeconfig", &*kubeconfig, "--hostname-override", "node-1"][..], flag].concat(),
            );
            agent.until("/readyz", |answer| answer.code == 200);
            let metrics = agent.get("/metrics").body;
            assert_eq!(value(&metrics, r#"pod_index_source_pods{source="api"}"#), pods as u64);
            let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
            let of = |key: &str| status.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
            println!("{pods} pods {flag:?}: {} {}", of("VmRSS"), of("VmHWM"));
        }
    }
    println!("JSON: {} bytes a pod", as_of_a_deployment(1).to_string().len());
}
