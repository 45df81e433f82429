//! What pods really take in memory, beside the estimate by which the sources decide whether a pod is too large. The estimate must
//! not be below: then a node full of pods would take more than is said. And not far above: then usual pods would lose fields.

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::memory::memory_of;
use pod_index_kubelet::protobuf::{decode_pod, encode_pod};
use serde_json::{Map, Value, json};

use crate::peak;

/// The pod's size in memory, as a source keeps it: decoded from JSON, without spare room in its lists.
fn taken(pod: &Value) -> (usize, Pod) {
    let decoded: Pod = serde_json::from_value(pod.clone()).unwrap();
    let (pod, taken) = peak::memory_of(|| decoded.clone());
    (taken.kept + size_of::<Pod>(), pod)
}

fn with(section: &str, field: &str, value: Value) -> Value {
    let mut pod = json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "5f3ad0d4-3ab4-4d2c-9a42-aa4a46f9ebb7" },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": "i" }] },
        "status": { "podIP": "10.9.8.7" },
    });
    pod[section][field] = value;
    pod
}

fn entries(many: usize) -> Value {
    (0..many).map(|i| (format!("shop.example/label-{i}"), Value::from("value"))).collect::<Map<_, _>>().into()
}

fn list(many: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..many).map(item).collect()
}

/// Containers with this many variables each, half of them with a value, half from elsewhere.
fn containers(many: usize, variables: usize) -> Value {
    let env = |i: usize| match i % 4 {
        0 | 1 => json!({ "name": format!("SERVICE_{i}_HOST"), "value": "orders.shop.svc.cluster.local" }),
        2 => {
            json!({ "name": format!("PASSWORD_{i}"), "valueFrom": { "secretKeyRef": { "name": "secret", "key": "password" } } })
        }
        _ => {
            json!({ "name": format!("IP_{i}"), "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } })
        }
    };
    list(many, |i| {
        json!({
            "name": format!("container-{i}"), "image": "registry.example/shop/orders:1.2.3", "env": list(variables, env),
            "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "10m", "memory": "64Mi" } },
            "livenessProbe": { "httpGet": { "path": "/livez", "port": 8080, "scheme": "HTTP" }, "periodSeconds": 10 },
            "securityContext": { "runAsUser": 1000, "capabilities": { "drop": ["ALL"] }, "allowPrivilegeEscalation": false },
            "volumeMounts": list(3, |i| json!({ "name": format!("v{i}"), "mountPath": format!("/var/lib/v{i}") })),
        })
    })
}

/// Pods of one large field each.
fn forms() -> Vec<(&'static str, Value)> {
    let owner =
        |i: usize| json!({ "apiVersion": "apps/v1", "kind": "K", "name": format!("n{i}"), "uid": "u" });
    let condition = |i: usize| json!({ "type": format!("shop.example/c{i}"), "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z" });
    let status = |i: usize| {
        json!({
            "name": format!("container-{i}"), "image": "registry.example/shop/orders:1.2.3", "imageID": "sha256:0123456789",
            "containerID": format!("containerd://{i:064}"), "ready": true, "restartCount": 3,
            "state": { "running": { "startedAt": "2026-01-02T03:04:05Z" } },
            "lastState": { "terminated": { "exitCode": 1, "reason": "Error", "containerID": format!("containerd://{i:064}") } },
        })
    };
    let term = json!({ "labelSelector": { "matchLabels": { "app": "web" } }, "topologyKey": "kubernetes.io/hostname" });
    let affinity =
        json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": vec![term; 500] } });
    vec![
        ("450 variables", with("spec", "containers", containers(1, 450))),
        ("1,000 variables", with("spec", "containers", containers(1, 1_000))),
        ("30 containers of 20 variables", with("spec", "containers", containers(30, 20))),
        ("100 containers", with("spec", "containers", containers(100, 0))),
        ("2,000 labels", with("metadata", "labels", entries(2_000))),
        ("2,000 annotations", with("metadata", "annotations", entries(2_000))),
        ("5,000 finalizers", with("metadata", "finalizers", list(5_000, |i| format!("a/f{i}").into()))),
        ("2,000 owners", with("metadata", "ownerReferences", list(2_000, owner))),
        ("500 terms of affinity", with("spec", "affinity", affinity)),
        (
            "2,000 tolerations",
            with("spec", "tolerations", list(2_000, |_| json!({ "key": "k", "operator": "Exists" }))),
        ),
        (
            "300 volumes",
            with("spec", "volumes", list(300, |i| json!({ "name": format!("v{i}"), "emptyDir": {} }))),
        ),
        ("1,000 conditions", with("status", "conditions", list(1_000, condition))),
        ("100 statuses", with("status", "containerStatuses", list(100, status))),
        ("a long text", with("status", "message", "x".repeat(300_000).into())),
    ]
}

#[test]
fn the_estimate_of_a_pod_is_at_least_what_it_takes_and_at_most_a_fifth_more() {
    let mut wrong = Vec::new();
    for (form, pod) in forms() {
        let (taken, pod) = taken(&pod);
        let estimated = memory_of(&pod);
        let line = format!("{form}: takes {} KiB, estimated {} KiB", taken >> 10, estimated >> 10);
        println!("{line}");
        if !(taken..=taken * 6 / 5 + 4096).contains(&estimated) {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether fields are left out of a pod in protobuf is decided without decoding it.
#[test]
fn a_pod_in_protobuf_is_kept_whole_up_to_the_limit_and_not_beyond() {
    const LIMIT: usize = 512 << 10;
    let mut wrong = Vec::new();
    for (form, pod) in forms() {
        let (taken_from_json, pod) = taken(&pod);
        let bytes = encode_pod(&pod);
        let (decoded, taken) = peak::memory_of(|| decode_pod(&bytes).unwrap());
        let taken = if decoded.is_reduced { taken_from_json } else { taken.kept + size_of::<Pod>() };
        let line = format!("{form}: takes {} KiB, reduced: {}", taken >> 10, decoded.is_reduced);
        println!("{line}");
        let is_right = if decoded.is_reduced { taken > LIMIT * 9 / 10 } else { taken <= LIMIT };
        if !is_right {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
