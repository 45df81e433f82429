//! The memory of removed pods, and what still finds those that are not kept whole.

use pod_index::PodMeta;
use serde_json::{Value, json};

use super::outline::{identity, least, outline};
use super::*;

/// The most that the identity of a removed pod takes, and the least of it, in bytes.
const LARGEST_IDENTITY: usize = 18 << 10;
const LARGEST_LEAST: usize = 14 << 10;

const MINUTE: Duration = Duration::from_secs(60);

fn container_id(number: usize) -> String {
    format!("containerd://{number:064x}")
}

/// The status of a container that runs.
fn running(number: usize) -> Value {
    json!({
        "name": format!("c{number}"), "image": "i", "imageID": "", "ready": true, "restartCount": 1,
        "containerID": container_id(2 * number),
        "state": { "running": { "startedAt": "2026-01-01T00:00:05Z" } },
        "lastState": { "terminated": { "exitCode": 1, "containerID": container_id(2 * number + 1) } },
    })
}

/// A pod of a Deployment with two containers, and a key of each kind.
fn pod() -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9", "uid": "o", "controller": true,
    });
    json!({
        "metadata": {
            "uid": "u", "name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "app": "web", "pod-template-hash": "5d4f8c7b9" }, "ownerReferences": [owner],
            "annotations": { "a": "b" },
        },
        "spec": { "nodeName": "n", "containers": [{ "name": "c1", "image": "i", "command": ["x"] }] },
        "status": {
            "phase": "Running", "podIP": "10.0.0.7", "podIPs": [{ "ip": "10.0.0.7" }],
            "containerStatuses": [running(1)], "initContainerStatuses": [running(2)],
            "startTime": "2026-01-01T00:00:01Z",
        },
    })
}

fn decoded(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

/// The pod with this field.
fn with(section: &str, field: &str, value: Value) -> Pod {
    let mut pod = pod();
    pod[section][field] = value;
    decoded(&pod)
}

/// Pods of about half a megabyte, each large in another way.
fn large_pods() -> Vec<(&'static str, Pod)> {
    let x = || "x".repeat(480_000);
    let entries = |many: usize| -> Value {
        (0..many).map(|i| (format!("l{i}"), Value::from("v"))).collect::<serde_json::Map<_, _>>().into()
    };
    let containers =
        |many: usize| (0..many).map(|i| json!({ "name": format!("c{i}"), "image": "x" })).collect();
    let condition = json!({ "type": "T", "status": "True" });
    let owner = json!({ "apiVersion": "v1", "kind": "K", "name": x(), "uid": "o", "controller": true });
    let waits = json!({ "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "message": x() } } });
    vec![
        ("an annotation", with("metadata", "annotations", json!({ "filler": x() }))),
        ("labels", with("metadata", "labels", entries(3_000))),
        ("an owner", with("metadata", "ownerReferences", json!([owner]))),
        ("an image", with("spec", "containers", json!([{ "name": "c", "image": x() }]))),
        ("containers", with("spec", "containers", containers(190))),
        ("initial containers", with("spec", "initContainers", containers(190))),
        ("debuggers", with("spec", "ephemeralContainers", containers(190))),
        ("statuses", with("status", "containerStatuses", (0..400).map(running).collect())),
        ("a message", with("status", "containerStatuses", json!([waits]))),
        ("conditions", with("status", "conditions", vec![condition; 1_500].into())),
        ("addresses", with("status", "podIPs", vec![json!({ "ip": "10.0.0.7" }); 700].into())),
        ("a phase", with("status", "phase", x().into())),
    ]
}

/// A tenant can fill any field of his pods, and remove many of them within a minute.
#[test]
fn removed_pods_take_no_more_memory_than_their_limits_whatever_is_large_in_them() {
    const REMOVED: usize = 100;
    let began = Instant::now();
    for (what, large) in large_pods() {
        let bytes = memory_of(&large);
        assert!((300_000..700_000).contains(&bytes), "{what}: {bytes}");
        let mut kept = KeptRemoved::new(MINUTE, 10_000);
        let mut whole = 0;
        let mut smaller = 0;
        for _ in 0..REMOVED {
            match kept.instead(&large, began) {
                None => whole += bytes,
                Some(pod) => smaller += memory_of(&pod),
            }
        }
        println!("{what}: {whole} bytes of whole pods, {smaller} of smaller ones");
        assert!(whole <= WHOLE, "{what}: {whole} bytes are whole");
        assert!(smaller > 0, "{what}: all are whole");
        assert!(smaller <= OUTLINES + REMOVED * LARGEST_IDENTITY, "{what}: {smaller} bytes are not whole");
    }
}

#[test]
fn the_identity_of_a_pod_is_small_if_every_part_of_it_is_as_long_as_a_stranger_can_make_it() {
    let x = |many: usize| "x".repeat(many);
    let statuses = |many: usize| -> Value {
        let one = json!({
            "name": x(100_000), "image": x(100_000), "imageID": x(100_000), "ready": true, "restartCount": 1,
            "containerID": x(100_000),
            "state": { "terminated": { "exitCode": 1, "reason": x(100_000), "message": x(100_000), "containerID": x(100_000) } },
            "lastState": { "terminated": { "exitCode": 1, "reason": x(100_000), "message": x(100_000), "containerID": x(100_000) } },
        });
        vec![one; many].into()
    };
    let owner = json!({
        "apiVersion": x(100_000), "kind": x(100_000), "name": x(100_000), "uid": x(100_000), "controller": true,
    });
    let annotations = [
        "kubernetes.io/config.hash",
        "kubernetes.io/config.mirror",
        "kubernetes.io/config.seen",
        "kubernetes.io/config.source",
        "pod-index/ended",
        "opentelemetry.io/k8s-processor/ignore",
    ];
    let annotations: Value = annotations
        .map(|name| (name.to_owned(), Value::from(x(100_000))))
        .into_iter()
        .collect::<serde_json::Map<_, _>>()
        .into();
    let hostile = json!({
        // The merge refuses pods with a longer UID.
        "metadata": {
            "uid": x(253), "name": x(100_000), "namespace": x(100_000), "resourceVersion": x(100_000),
            "labels": { "pod-template-hash": x(100_000), "rollouts-pod-template-hash": x(100_000) },
            "ownerReferences": vec![owner; 10], "annotations": annotations,
        },
        "spec": {
            "nodeName": x(100_000), "restartPolicy": x(100_000), "containers": vec![json!({ "name": x(100_000) }); 10],
        },
        "status": {
            "phase": x(100_000), "podIP": x(100_000), "hostIP": x(100_000), "podIPs": vec![json!({ "ip": x(100_000) }); 10],
            "conditions": vec![json!({ "type": "PodReadyToStartContainers", "status": x(100_000), "message": x(100_000) }); 10],
            "containerStatuses": statuses(10), "initContainerStatuses": statuses(10), "ephemeralContainerStatuses": statuses(10),
        },
    });
    let hostile = decoded(&hostile);
    let largest = [identity(&hostile), least(&hostile)].map(|pod| memory_of(&pod));
    let usual = decoded(&pod());
    let of_usual = [identity(&usual), least(&usual)].map(|pod| memory_of(&pod));
    println!("the largest identity, and the least of it: {largest:?} bytes; of a usual pod: {of_usual:?}");
    assert!(largest[0] <= LARGEST_IDENTITY && largest[1] <= LARGEST_LEAST, "{largest:?}");
}

/// The longest names, and more containers than are kept.
#[test]
fn as_many_identities_as_the_index_keeps_have_a_limit_together() {
    const REMOVED: usize = 10_000;
    let mut largest = pod();
    for name in ["name", "namespace", "uid"] {
        largest["metadata"][name] = "x".repeat(253).into();
    }
    largest["status"]["containerStatuses"] = (0..10).map(running).collect();
    let largest = decoded(&largest);
    let each = memory_of(&identity(&largest));
    let began = Instant::now();
    let mut kept = KeptRemoved::new(MINUTE, REMOVED);
    kept.whole = WHOLE;
    kept.outlines = OUTLINES;
    let bytes = (0..REMOVED).filter_map(|_| kept.instead(&largest, began)).map(|pod| memory_of(&pod));
    let identities = bytes.filter(|bytes| *bytes == each).count();
    println!("{identities} of {REMOVED} with {each} bytes each");
    assert!(identities > 0 && identities * each <= REMOVED * IDENTITY, "{identities} of {each} bytes");
}

#[test]
fn beyond_the_limits_a_removed_pod_is_kept_in_outline_or_as_its_identity_until_others_are_forgotten() {
    #[derive(PartialEq, Debug)]
    enum Kept {
        Whole,
        Outline,
        Identity,
    }
    let instead = |kept: &mut KeptRemoved, pod: &Pod, now: Instant| match kept.instead(pod, now) {
        None => Kept::Whole,
        Some(smaller) if smaller.annotation("a").is_some() => Kept::Outline,
        Some(_) => Kept::Identity,
    };
    let mut large = decoded(&pod());
    large.metadata.annotations =
        Some([("a".to_owned(), "b".to_owned()), ("filler".to_owned(), "x".repeat(30_000))].into());
    let began = Instant::now();
    let mut kept = KeptRemoved::new(MINUTE, 10_000);
    let whole = (0..1_000).take_while(|_| instead(&mut kept, &large, began) == Kept::Whole).count();
    assert!((300..600).contains(&whole), "{whole} pods of 30 kB in {WHOLE} bytes");
    let small = decoded(&pod());
    assert_eq!(instead(&mut kept, &small, began), Kept::Whole, "a small one fits");
    let second = began + Duration::from_secs(1);
    let outlines = (0..10_000).take_while(|_| instead(&mut kept, &large, second) == Kept::Outline).count();
    assert!((500..2_000).contains(&outlines), "{outlines} outlines in {OUTLINES} bytes");
    let then = |seconds: u64| began + Duration::from_secs(seconds);
    assert_eq!(instead(&mut kept, &large, then(59)), Kept::Identity);
    // The first ones are forgotten, and a second later the outlines.
    let whole_again = (0..1_000).take_while(|_| instead(&mut kept, &large, then(60)) == Kept::Whole).count();
    assert_eq!(whole_again, whole);
    assert_eq!(instead(&mut kept, &large, then(60)), Kept::Identity);
    let outlines_again =
        (0..10_000).take_while(|_| instead(&mut kept, &large, then(61)) == Kept::Outline).count();
    assert!(outlines_again.abs_diff(outlines) <= 1, "{outlines_again} after {outlines}");

    let mut few = KeptRemoved::new(MINUTE, 3);
    assert!((0..100).all(|_| few.instead(&large, began).is_none()), "the index keeps three of them");
    let mut none = KeptRemoved::new(Duration::ZERO, 3);
    assert!((0..100).all(|_| none.instead(&large, began).is_none()), "the index keeps none");
}

/// The numbers of keys in an index of these pods.
fn keys(pods: &[&Pod]) -> pod_index::KeyCounts {
    let (mut writer, reader) = pod_index::new();
    for pod in pods {
        writer.upsert_pod((*pod).clone()).unwrap();
    }
    reader.load().key_counts()
}

#[test]
fn both_smaller_forms_are_found_by_the_same_keys_at_the_same_times() {
    let mut large = decoded(&pod());
    let annotations = large.metadata.annotations.as_mut().unwrap();
    annotations.insert("filler".to_owned(), "x".repeat(500_000));
    let copy = |pod: &Pod| {
        let mut copy = pod.clone();
        copy.metadata.uid = Some("copy".to_owned());
        copy
    };
    for smaller in [outline(&large), identity(&large)] {
        assert!(memory_of(&smaller) < 16_000, "{}", memory_of(&smaller));
        assert_eq!(smaller.life(), large.life());
        assert_eq!(keys(&[&smaller]), keys(&[&large]));
        // They have the same values, too: beside the large pod, a copy of it and a smaller copy contend for the same keys.
        let of_copies = keys(&[&large, &copy(&large)]);
        assert_eq!(
            keys(&[&large, &copy(&smaller)]),
            of_copies,
            "a key of the smaller form has another value"
        );
        let counts = format!("{of_copies:?}");
        assert!(
            !counts.contains(": 0"),
            "the pod of this test lacks a kind of key, so that none is compared: {counts}"
        );
        assert_eq!(smaller.metadata.owner_references, large.metadata.owner_references);
        assert!(smaller.annotation(pod_index_kubelet::memory::LEFT_OUT).is_some());
        assert_eq!(smaller.annotation("filler"), None);
    }
    assert_eq!(outline(&large).annotation("a"), Some("b"));
    assert_eq!(outline(&large).metadata.labels, large.metadata.labels);
    assert_eq!(identity(&large).annotation("a"), None);
}

#[test]
fn the_least_of_a_pod_is_found_by_its_ip_and_a_container_at_its_times() {
    let pod = decoded(&pod());
    let least = least(&pod);
    assert_eq!((least.uid(), least.namespace(), least.name()), (pod.uid(), pod.namespace(), pod.name()));
    assert_eq!(least.life(), pod.life());
    let whole = keys(&[&pod]);
    let kept = keys(&[&least]);
    assert_eq!((kept.ips, kept.container_ids, kept.custom_keys), (whole.ips, 2, 0), "{kept:?}");
}

/// Otherwise an answer about a time would name a pod that may have lost the IP.
#[test]
fn the_times_of_a_pod_of_many_containers_follow_from_those_that_tell_most() {
    let waits = json!({ "waiting": { "reason": "ContainerCreating" } });
    let runs = json!({ "running": { "startedAt": "2026-01-01T00:00:05Z" } });
    let ended = json!({ "terminated": { "exitCode": 0, "startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:00:09Z" } });
    for (list, of_the_last) in [
        ("containerStatuses", &runs),
        ("containerStatuses", &ended),
        ("initContainerStatuses", &ended),
        ("ephemeralContainerStatuses", &runs),
    ] {
        let status = |number: usize, state: &Value| json!({ "name": format!("c{number}"), "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state });
        let mut many = pod();
        many["spec"]["restartPolicy"] = "Never".into();
        many["status"]["containerStatuses"] = (0..100).map(|number| status(number, &waits)).collect();
        many["status"]["initContainerStatuses"] = json!([]);
        let mut last = many["status"][list].as_array().cloned().unwrap_or_default();
        last.push(status(100, of_the_last));
        many["status"][list] = last.into();
        let many = decoded(&many);
        for smaller in [outline(&many), identity(&many), least(&many)] {
            assert_eq!(smaller.life(), many.life(), "{list}: {of_the_last}");
        }
    }
}

/// The policy of one container decides that the pod may have had several sandboxes.
#[test]
fn a_containers_own_policy_counts_although_the_container_is_left_out() {
    let mut policies = pod();
    policies["spec"]["restartPolicy"] = "Never".into();
    let mut containers = vec![json!({ "name": "c", "image": "i" }); 100];
    containers[99]["restartPolicy"] = "Always".into();
    policies["spec"]["containers"] = containers.into();
    let ended = json!({ "terminated": { "exitCode": 0, "startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:00:09Z" } });
    policies["status"]["containerStatuses"][0]["state"] = ended.clone();
    policies["status"]["initContainerStatuses"][0]["state"] = ended;
    let policies = decoded(&policies);
    assert_eq!(policies.life().ip_by, None);
    for smaller in [outline(&policies), identity(&policies), least(&policies)] {
        assert_eq!(smaller.life(), policies.life());
    }
}

/// Static pods and mirror pods would otherwise be taken for ordinary ones, and ended ones for those that still have their IP.
#[test]
fn the_marks_that_say_what_kind_of_pod_it_is_stay_among_any_number_of_annotations() {
    let mut annotations: serde_json::Map<_, _> = (0..100).map(|i| (format!("a{i:03}"), "b".into())).collect();
    for name in ["config.hash", "config.mirror", "config.seen", "config.source"] {
        annotations.insert(format!("kubernetes.io/{name}"), "file".into());
    }
    annotations.insert(pod_index::ENDED_ANNOTATION.to_owned(), "".into());
    let marked = with("metadata", "annotations", annotations.into());
    for smaller in [outline(&marked), identity(&marked), least(&marked)] {
        assert!(pod_index::is_mirror_pod(&smaller) && pod_index::is_static_pod(&smaller));
        assert_eq!(smaller.life(), marked.life());
    }
}

/// A Deployment's name follows from a label; without it, the pod would be found by another workload.
#[test]
fn the_workload_of_a_pod_with_very_many_labels_stays_the_same() {
    let mut labels: serde_json::Map<_, _> = (0..3_000).map(|i| (format!("l{i}"), "v".into())).collect();
    labels.insert("pod-template-hash".to_owned(), "5d4f8c7b9".into());
    let labelled = with("metadata", "labels", labels.into());
    let of = |pod: &Pod| {
        let none = None::<&k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>;
        pod_index::workload::Workload::of(&pod.metadata, none)
            .map(|found| format!("{}/{}", found.kind, found.name))
    };
    assert_eq!(of(&labelled).as_deref(), Some("Deployment/web"));
    for smaller in [outline(&labelled), identity(&labelled)] {
        assert_eq!(of(&smaller), of(&labelled));
    }
}

/// What is cut must not become another pod's key.
#[test]
fn a_text_that_is_too_long_to_be_a_key_is_none_afterwards() {
    let mut long = pod();
    // Without their ends, both are keys.
    let id = format!("{}://{:064x}", "x".repeat(29), 7);
    let ip = "0000:0000:0000:0000:0000:ffff:192.168.100.228";
    let set = |long: &mut Value, end: &str| {
        long["status"]["containerStatuses"][0]["containerID"] = format!("{id}{end}").into();
        long["status"]["podIPs"] = json!([{ "ip": format!("{ip}{end}") }]);
    };
    set(&mut long, "");
    let of_keys = keys(&[&decoded(&long)]);
    set(&mut long, &"0".repeat(100_000));
    let of_others = keys(&[&decoded(&long)]);
    assert!(of_keys.ips > of_others.ips && of_keys.container_ids > of_others.container_ids);
    let long = decoded(&long);
    for smaller in [outline(&long), identity(&long)] {
        let whole = keys(&[&long]);
        let kept = keys(&[&smaller]);
        assert_eq!((kept.ips, kept.container_ids), (whole.ips, whole.container_ids), "{kept:?}");
        assert!(memory_of(&smaller) < 16_000);
    }
}
