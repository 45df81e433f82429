//! The keys that k8s-openapi's `Pod` names.
#![cfg(feature = "k8s-openapi")]

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Life, PodMeta, Time};
use serde_json::{Value, json};

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn pod(uid: &str, created: &str, spec: &Value, status: &Value) -> Pod {
    let metadata = json!({"uid": uid, "name": uid, "namespace": "shop", "creationTimestamp": created});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a pod")
}

fn container(name: &str, container_id: &str, last: Option<&str>) -> Value {
    let last = last.map(|id| json!({"terminated": {"containerID": id, "exitCode": 1}}));
    json!({
        "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": container_id, "lastState": last,
    })
}

#[test]
fn every_container_and_every_ip_of_a_status_is_found() {
    let (mut writer, reader) = pod_index::new::<Pod>();
    let status = json!({
        "phase": "Running",
        "podIP": "10.0.0.7",
        "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}],
        "containerStatuses": [
            container("nginx", &format!("containerd://{}", id('a')), Some(&format!("containerd://{}", id('b')))),
            container("waiting", "", None),
        ],
        "initContainerStatuses": [container("init", &format!("cri-o://{}", id('c')), None)],
        "ephemeralContainerStatuses": [container("debug", &format!("docker://{}", id('d')), None)],
    });
    let spec = json!({"containers": []});
    writer.upsert_pod(pod("u1", "2026-11-22T10:00:00Z", &spec, &status)).expect("a good pod");
    let snapshot = reader.load();
    for (digit, name) in [('a', "nginx"), ('b', "nginx"), ('c', "init"), ('d', "debug")] {
        assert_eq!(snapshot.pod_by_container_id(id(digit)).expect("by container ID").container, Some(name));
    }
    for ip in ["10.0.0.7", "::ffff:10.0.0.7", "fd00::7"] {
        assert!(snapshot.pod_by_ip(ip.parse().expect("an IP")).is_some(), "{ip}");
    }
    let counts = snapshot.key_counts();
    assert_eq!((counts.container_ids, counts.ips, snapshot.ignored_key_count()), (4, 2, 0));

    // From a server with only one IP.
    drop(snapshot);
    for status in [json!({"podIP": "10.0.0.8"}), json!({"podIP": "10.0.0.8", "podIPs": []})] {
        writer.upsert_pod(pod("u1", "2026-11-22T10:00:00Z", &spec, &status)).expect("a good pod");
        let counts = reader.load().key_counts();
        assert_eq!((counts.container_ids, counts.ips), (0, 1), "{status}");
    }
}

#[test]
fn a_pod_in_its_nodes_network_has_no_ip() {
    let (mut writer, reader) = pod_index::new::<Pod>();
    let spec = json!({"containers": [], "hostNetwork": true});
    let status = json!({"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}]});
    writer.upsert_pod(pod("u1", "2026-11-22T10:00:00Z", &spec, &status)).expect("a good pod");
    assert!(reader.load().pod_by_ip([192, 0, 2, 1].into()).is_none());
}

#[test]
fn an_ip_belongs_to_the_running_pod_and_then_to_the_one_created_later() {
    let (mut writer, reader) = pod_index::new::<Pod>();
    let status = |phase: &str| json!({"phase": phase, "podIPs": [{"ip": "10.0.0.7"}]});
    let spec = json!({"containers": []});
    for (uid, created, phase) in [
        ("running", "2026-11-22T10:00:00Z", "Running"),
        ("succeeded", "2026-11-22T12:00:00Z", "Succeeded"),
        ("failed", "2026-11-22T11:00:00Z", "Failed"),
    ] {
        writer.upsert_pod(pod(uid, created, &spec, &status(phase))).expect("a good pod");
    }
    for expected in ["running", "succeeded", "failed"] {
        let found = reader.pod(IpAddr::from([10, 0, 0, 7])).expect("by IP");
        assert_eq!(found.metadata.uid.as_deref(), Some(expected));
        writer.remove_pod_by_uid(expected).expect("a known pod");
    }
    assert!(reader.load().pod_by_ip([10, 0, 0, 7].into()).is_none());
}

/// The old pod of a `StatefulSet` still shuts down when the new one has its IP already.
#[test]
fn a_pod_that_is_being_deleted_has_a_weaker_claim_than_an_older_one_that_is_not() {
    let (mut writer, reader) = pod_index::new::<Pod>();
    let (spec, status) =
        (json!({"containers": []}), json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}]}));
    let mut old = pod("terminating", "2026-11-22T12:00:00Z", &spec, &status);
    old.metadata.deletion_timestamp = old.metadata.creation_timestamp.clone();
    writer.upsert_pod(old).expect("a good pod");
    writer.upsert_pod(pod("stays", "2026-11-22T10:00:00Z", &spec, &status)).expect("a good pod");
    let found = reader.pod(IpAddr::from([10, 0, 0, 7])).expect("by IP");
    assert_eq!(found.metadata.uid.as_deref(), Some("stays"));
}

/// The life of a pod with these containers, created at 10:00:00 and started a second later.
fn life(phase: &str, policy: &str, deleted: bool, containers: &[Value]) -> Life {
    let containers = containers.iter().map(|state| {
        let mut container = container("app", "", None);
        container["state"] = state.clone();
        container
    });
    let status = json!({
        "phase": phase, "startTime": "2026-11-22T10:00:01Z", "containerStatuses": containers.collect::<Vec<_>>(),
    });
    let spec = json!({"containers": [], "restartPolicy": policy});
    let mut pod = pod("u1", "2026-11-22T10:00:00Z", &spec, &status);
    pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone().filter(|_| deleted);
    PodMeta::life(&pod)
}

#[test]
fn the_life_of_a_pod_is_what_its_containers_prove() {
    let running = |at: u32| json!({"running": {"startedAt": format!("2026-11-22T10:00:{at:02}Z")}});
    let ended = |from: u32, to: u32| {
        let (from, to) = (format!("2026-11-22T10:00:{from:02}Z"), format!("2026-11-22T10:00:{to:02}Z"));
        json!({"terminated": {"exitCode": 0, "startedAt": from, "finishedAt": to}})
    };
    let mut lost = ended(3, 50);
    lost["terminated"]["reason"] = "ContainerStatusUnknown".into();
    let at = |second: i64| Time::from_seconds(1_795_341_600 + second);
    let base = Life { created: Some(at(0)), ip_not_before: Some(at(1)), ..Life::default() };
    let runs = Life { ip_by: Some(at(6)), ..base };
    assert_eq!(life("Running", "Always", false, &[running(8), running(5)]), runs, "a second of rounding");
    // An ended container may have been in an earlier sandbox, unless there is but one.
    let all = [ended(3, 4), running(5)];
    assert_eq!(life("Running", "Always", false, &all), Life { ip_until: Some(at(4)), ..runs });
    let once = Life { ip_by: Some(at(4)), ip_until: Some(at(4)), ..base };
    assert_eq!(life("Running", "Never", false, &all), once);
    let over = Life { may_lack_sandbox: true, ip_until: Some(at(40)), ..base };
    assert_eq!(life("Succeeded", "OnFailure", false, &[ended(3, 40), lost.clone()]), over);
    assert_eq!(life("Running", "Always", true, &[ended(3, 40), lost]), over);
    // Being deleted, it runs on.
    assert_eq!(life("Running", "Always", true, &[running(5)]), runs);
    assert_eq!(life("Pending", "Always", true, &[]), base);
}

/// A pod of which the kubelet says this.
fn told(uid: &str, annotations: &Value, spec: &Value, deleted: bool, status: &Value) -> Pod {
    let mut pod = pod(uid, "2026-11-22T10:00:00Z", spec, status);
    pod.metadata.annotations = serde_json::from_value(annotations.clone()).expect("annotations");
    pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone().filter(|_| deleted);
    pod
}

/// A container that cannot be started has a start in 1970. Since Kubernetes 1.34, a container may restart although the pod
/// does not, and its pod may get another sandbox.
#[test]
fn only_a_credible_start_in_the_only_sandbox_proves_an_ip() {
    let ended = |started: &str| {
        let mut container = container("app", "", None);
        container["state"] = json!({"terminated": {
            "exitCode": 128, "reason": "StartError", "startedAt": started, "finishedAt": "2026-11-22T10:00:09Z",
        }});
        json!({"phase": "Running", "startTime": "2026-11-22T10:00:01Z", "containerStatuses": [container]})
    };
    let by = |containers: Value, started: &str| {
        let spec = json!({"restartPolicy": "Never", "containers": containers});
        PodMeta::life(&told("u1", &json!({}), &spec, false, &ended(started))).ip_by
    };
    let plain = json!([{"name": "app"}]);
    assert!(by(plain.clone(), "2026-11-22T10:00:01Z").is_some());
    assert_eq!(by(plain.clone(), "1970-01-01T00:00:00Z"), None);
    assert_eq!(by(plain, "0001-01-01T00:00:00Z"), None);
    assert_eq!(by(json!([{"name": "app", "restartPolicy": "Always"}]), "2026-11-22T10:00:01Z"), None);
}

/// The kubelet keeps the IP in the status of a pod whose sandbox is gone, until the pod has another one.
#[test]
fn a_pod_without_a_running_container_may_have_lost_its_ip() {
    let waiting = || {
        let mut container = container("waits", "", None);
        container["state"] = json!({"waiting": {"reason": "ContainerCreating"}});
        container
    };
    let mut crashed = waiting();
    crashed["lastState"] = json!({"terminated": {"exitCode": 1}});
    let (mut runs, mut ended) = (waiting(), waiting());
    runs["state"] = json!({"running": {"startedAt": "2026-11-22T10:00:05Z"}});
    ended["state"] = json!({"terminated": {"exitCode": 0}});
    let may_lack_sandbox = |containers: &[&Value], sandbox: Option<&str>, deleted| {
        let conditions: Vec<_> = sandbox
            .iter()
            .map(|status| json!({"type": "PodReadyToStartContainers", "status": status}))
            .collect();
        let status = json!({"phase": "Running", "conditions": conditions, "containerStatuses": containers});
        PodMeta::life(&told("u1", &json!({}), &json!({"containers": []}), deleted, &status)).may_lack_sandbox
    };
    let waits = waiting();
    for (containers, sandbox, deleted, expected) in [
        (&[&waits][..], None, false, false),
        (&[&waits], Some("False"), false, true),
        (&[&waits], None, true, true),
        (&[&crashed], None, false, true),
        (&[&crashed], Some("True"), false, false),
        (&[&crashed], Some("False"), false, true),
        (&[&ended, &waits], None, false, true),
        (&[&ended, &waits], Some("True"), false, false),
        (&[&ended, &waits], Some("True"), true, true),
        (&[&runs, &crashed], Some("False"), true, false),
        (&[], None, true, false),
    ] {
        assert_eq!(
            may_lack_sandbox(containers, sandbox, deleted),
            expected,
            "{containers:?} {sandbox:?} {deleted}"
        );
    }
}

/// A manifest may be a copy of an old pod. The API server does not know a static pod.
#[test]
fn a_static_pods_creation_time_proves_nothing() {
    let created = |source: &str| {
        let annotations = json!({"kubernetes.io/config.source": source});
        PodMeta::life(&told("u1", &annotations, &json!({"containers": []}), false, &json!({}))).created
    };
    assert!(created("api").is_some());
    assert_eq!((created("file"), created("http")), (None, None));
}
