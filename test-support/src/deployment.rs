//! A pod as a Deployment makes it on a cluster, for measurements.

use serde_json::{Value, json};

/// A pod of a Deployment as on a cluster: a fifth of it was written by its author.
#[must_use]
pub fn pod_of_a_deployment(number: u64) -> Value {
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
