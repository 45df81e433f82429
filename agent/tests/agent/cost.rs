//! What the agent costs: memory by the number of pods, and CPU time at rest and while pods change.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::kubeconfig;
use crate::api_server::ApiServer;
use crate::metrics::value;
use crate::support::{Agent, Directory, PATIENCE, binary};

/// How long the agent's CPU time is measured. With this many changes, the history of the pod API is full.
const MEASURED: Duration = Duration::from_secs(45);
/// The most pods with managed fields: 100,000 of them would take the memory of a large machine.
const MANAGED: u64 = 10_000;
/// Changes of pods per second. They are status updates, the most frequent kind.
const CHANGES: u64 = 100;

/// A pod of a Deployment as on a cluster: a fifth of it was written by its author.
fn as_of_a_deployment(number: u64) -> Value {
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

/// One of this many pods on the API server.
fn stored(number: u64, pods: u64) -> Value {
    let mut pod = as_of_a_deployment(number);
    if pods > MANAGED {
        pod["metadata"].as_object_mut().unwrap().remove("managedFields");
    }
    pod
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn megabytes(agent: &Agent, key: &str) -> f64 {
    agent.kib(key) as f64 * 1024.0 / 1e6
}

/// The CPU time that the agent's threads have used. Threads that ended do not count; at rest, none ends.
fn cpu(agent: &Agent) -> Duration {
    let threads = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
    let nanoseconds = |thread: fs::DirEntry| {
        let times = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        times.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or_default()
    };
    Duration::from_nanos(threads.map(|thread| nanoseconds(thread.unwrap())).sum())
}

/// The share of one core that the agent uses during the work, in percent.
fn load(agent: &Agent, work: impl FnOnce()) -> f64 {
    let (start, before) = (Instant::now(), cpu(agent));
    work();
    cpu(agent).saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0
}

/// The source of the `DaemonSet`'s limits and of the table in `docs/operators.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: .ci/run figures"]
async fn memory_and_cpu_of_up_to_a_hundred_thousand_pods() {
    println!("JSON: {} bytes a pod", as_of_a_deployment(1).to_string().len());
    for pods in [0, 30, 110, 250, 500, 1_000, 10_000, 100_000] {
        let server = ApiServer::start().await;
        server.put_all("pods", (0..pods).map(|number| stored(number, pods)));
        let directory = Directory::new();
        let kubeconfig = kubeconfig(&directory, &server);
        let start = |flags: &str| {
            let mut command =
                binary(&format!("--kubeconfig {kubeconfig} --hostname-override node-1 {flags}"));
            // As in the systemd unit.
            command.env("MALLOC_ARENA_MAX", "2");
            let agent = Agent::spawn(command);
            agent.until_within(10 * PATIENCE, "/readyz", |answer| answer.code == 200);
            assert_eq!(value(&agent.get("/metrics").body, r#"pod_index_source_pods{source="api"}"#), pods);
            agent
        };
        let agent = start("");
        let resident = megabytes(&agent, "VmRSS");
        std::thread::sleep(Duration::from_secs(5));
        let rest = load(&agent, || std::thread::sleep(MEASURED));
        print!("{pods} pods: {resident:.0} MB resident, CPU at rest {rest:.3} %");
        if pods > 0 {
            let changing = load(&agent, || change(&server, pods));
            let (after, most) = (megabytes(&agent, "VmRSS"), megabytes(&agent, "VmHWM"));
            print!(
                ", with {CHANGES} changes a second {changing:.1} %, then {after:.0} MB, at most {most:.0} MB"
            );
        }
        drop(agent);
        println!();
    }
}

/// Changes the status of one pod after another.
fn change(server: &ApiServer, pods: u64) {
    let start = Instant::now();
    let total = CHANGES * MEASURED.as_secs();
    for change in 0..total {
        let mut pod = stored(change * 7919 % pods, pods);
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(change);
        server.put("pods", &pod);
        let due = start + MEASURED * u32::try_from(change + 1).unwrap() / u32::try_from(total).unwrap();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
