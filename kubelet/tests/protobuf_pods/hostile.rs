//! Pods that would take too much memory: they lack their largest fields, and their decoding takes little as well.

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::memory::LEFT_OUT;
use pod_index_kubelet::protobuf::message::{put, put_number};
use pod_index_kubelet::protobuf::{DecodedPod, decode_pod, encode_pod};
use serde_json::{Value, json};

use super::random;
use crate::peak::memory_of;

/// The most that a decoded pod takes, and the most that its decoding takes for a moment.
const KEPT: usize = 600 << 10;
const PEAK: usize = 4 << 20;

/// A message with one field of bytes.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    put(&mut message, number, bytes);
    message
}

/// A pod with an identity, and with these bytes as a part of the section of this number.
fn pod_with(section: u32, part: &[u8]) -> Vec<u8> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "labels": {"app": "web"},
            "annotations": {"kubernetes.io/config.mirror": "hash", "a": "b"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}],
        },
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        "status": {"podIP": "10.0.0.7", "phase": "Running"},
    }))
    .unwrap();
    [encode_pod(&pod), field(section, part)].concat()
}

fn checked(what: &str, bytes: &[u8]) -> Option<DecodedPod> {
    let (decoded, taken) = memory_of(|| decode_pod(bytes));
    assert!(taken.peak < PEAK, "{what}: {taken:?} for {} bytes", bytes.len());
    assert!(taken.kept < KEPT, "{what}: {taken:?} for {} bytes", bytes.len());
    decoded.ok()
}

const METADATA: u32 = 1;
const SPEC: u32 = 2;
const STATUS: u32 = 3;

/// About what a request to an API server may have at most.
const LARGE: usize = 1_500_000;

fn labels(count: usize, number: u32) -> Vec<u8> {
    let label = |i: usize| field(number, &[field(1, format!("l{i}").as_bytes()), field(2, b"")].concat());
    (0..count).flat_map(label).collect()
}

#[test]
fn a_pod_that_is_too_large_in_any_field_loses_that_field_and_stays_findable() {
    let owner = [field(1, b"K"), field(3, b"n"), field(4, b"u"), field(5, b"v1")].concat();
    let container = field(2, &[field(1, b"c"), field(7, &field(1, b"E")).repeat(1)].concat());
    for (path, section, part) in [
        ("metadata.labels", METADATA, labels(110_000, 11)),
        ("metadata.annotations", METADATA, labels(110_000, 12)),
        ("metadata.ownerReferences", METADATA, field(13, &owner).repeat(40_000)),
        ("metadata.finalizers", METADATA, field(14, b"a/b").repeat(200_000)),
        ("metadata.finalizers", METADATA, field(14, b"").repeat(LARGE / 2)),
        ("spec.containers", SPEC, container.repeat(20_000)),
        ("spec.containers", SPEC, field(2, b"").repeat(LARGE / 2)),
        ("spec.containers", SPEC, field(2, &[field(1, b"c"), field(7, b"").repeat(LARGE / 2)].concat())),
        ("spec.schedulerName", SPEC, field(19, &vec![b'x'; LARGE])),
        ("spec.schedulerName", SPEC, field(19, &vec![0xff; LARGE])),
        ("spec.nodeSelector", SPEC, field(7, b"").repeat(LARGE / 2)),
        ("spec.securityContext", SPEC, field(14, &field(4, &vec![1; LARGE]))),
        ("status.conditions", STATUS, field(2, b"").repeat(LARGE / 2)),
        ("status.message", STATUS, field(3, &vec![b'x'; LARGE])),
    ] {
        let bytes = pod_with(section, &part);
        let decoded = checked(path, &bytes).unwrap_or_else(|| panic!("{path} is decoded"));
        assert!(decoded.is_reduced, "{path}");
        let pod: Value = serde_json::to_value(&decoded.pod).unwrap();
        assert_eq!(pod["metadata"]["annotations"][LEFT_OUT], path);
        assert!(pod.to_string().len() < 1_000, "{path}: {pod}");
        let identity =
            ["name", "namespace", "uid"].map(|name| pod["metadata"][name].as_str().unwrap_or_default());
        assert_eq!(identity, ["web", "shop", "u"], "{path}");
        assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/config.mirror"], "hash", "{path}");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "web", "{path}");
        let others = [
            ("metadata.labels", "/metadata/labels/app"),
            ("spec.containers", "/spec/containers/0/name"),
            ("status.podIP", "/status/podIP"),
        ];
        for (other, at) in others {
            assert_eq!(pod.pointer(at).is_some(), other != path, "{path}: {at} in {pod}");
        }
    }
}

/// Whatever is wrong in a field that is left out anyway, the pod is found. In a field that stays, it is an error.
#[test]
fn an_entry_that_cannot_be_read_costs_a_pod_no_more_than_its_field() {
    const LABELS: u32 = 11;
    const NODE_SELECTOR: u32 = 7;
    const CONTAINERS: u32 = 2;
    let cut_off = b"\x0a\x7fkey";
    let large = vec![b'x'; 600_000];
    let mut number = Vec::new();
    put_number(&mut number, LABELS, 1);
    let limits = field(CONTAINERS, &field(8, &field(1, cut_off)));
    for (path, section, bad, rest) in [
        ("metadata.labels", METADATA, field(LABELS, cut_off), field(LABELS, &field(2, &large))),
        ("metadata.labels", METADATA, number, field(LABELS, &field(2, &large))),
        ("spec.nodeSelector", SPEC, field(NODE_SELECTOR, cut_off), field(NODE_SELECTOR, &field(2, &large))),
        ("spec.containers", SPEC, limits, field(CONTAINERS, &field(1, &large))),
    ] {
        // An error before it was found to be too large would be one of a field that stays.
        let bytes = pod_with(section, &[&rest[..], &bad].concat());
        let decoded = checked(path, &bytes).unwrap_or_else(|| panic!("{path} is decoded"));
        let metadata = decoded.pod.metadata;
        assert_eq!(metadata.annotations.unwrap()[LEFT_OUT], path);
        assert_eq!(metadata.name.as_deref(), Some("web"), "{path}");
        assert!(decode_pod(&pod_with(section, &bad)).is_err(), "{path} stays");
    }
}

#[test]
fn several_large_fields_are_left_out_until_the_rest_is_small_enough() {
    let texts = [(19, 400_000), (16, 300_000), (17, 200_000)];
    let part: Vec<u8> =
        texts.iter().flat_map(|(number, length)| field(*number, &vec![b'x'; *length])).collect();
    let DecodedPod { pod, is_reduced, .. } = checked("spec", &pod_with(SPEC, &part)).unwrap();
    assert!(is_reduced);
    let spec = pod.spec.unwrap();
    assert_eq!((spec.scheduler_name, spec.hostname.map(|name| name.len())), (None, Some(300_000)));
}

/// The length of a long value takes two bytes, and these are no text.
#[test]
fn an_annotation_with_a_long_value_stays_beside_a_larger_field() {
    let annotation = field(12, &[field(1, b"long"), field(2, &vec![b'x'; 100_000])].concat());
    let larger = field(19, &vec![b'x'; 450_000]);
    let bytes = [pod_with(METADATA, &annotation), field(SPEC, &larger)].concat();
    let DecodedPod { pod, .. } = checked("annotation", &bytes).unwrap();
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations[LEFT_OUT], "spec.schedulerName");
    assert_eq!(annotations.get("long").map(String::len), Some(100_000));
}

/// Nobody but a kubelet that is no kubelet can send these.
#[test]
fn bytes_that_no_server_sends_take_no_more_memory() {
    let mut several = Vec::new();
    put_number(&mut several, 7, 1);
    let managed = [&b"[".repeat(100)[..], &br#"{"a":{}},"#.repeat(LARGE / 9)].concat();
    let claim = field(2, &field(29, &field(1, &field(1, &field(17, &field(7, &field(1, &managed)))))));
    for (what, bytes) in [
        ("sections", field(METADATA, b"").repeat(LARGE / 2)),
        ("names", field(METADATA, &field(1, b"a").repeat(LARGE / 3))),
        ("a name", field(METADATA, &field(1, &vec![b'a'; LARGE]))),
        ("bytes as a name", field(METADATA, &field(1, &vec![0xff; LARGE]))),
        ("generations", field(METADATA, &several.repeat(LARGE / 2))),
        ("mirrors", field(METADATA, &field(12, &field(1, b"kubernetes.io/config.mirror")).repeat(40_000))),
        ("managed fields", field(METADATA, &field(17, &field(7, &field(1, &managed))).repeat(1))),
        ("JSON in a claim", field(SPEC, &field(1, &claim))),
        ("unknown fields", field(99, b"").repeat(LARGE / 3)),
    ] {
        checked(what, &bytes);
    }
    // Each list of one hundred random pods, one after the other.
    let pods: Vec<_> = (0..100).flat_map(|seed| encode_pod(&random::random(seed, 60))).collect();
    assert!(checked("random pods", &pods).unwrap().is_reduced);
}

#[test]
fn managed_fields_alone_are_no_problem_and_no_pod_marks_itself() {
    let managed = field(17, &field(7, &field(1, br#"{"f:a":{}}"#))).repeat(20_000);
    let forged = field(12, &[field(1, LEFT_OUT.as_bytes()), field(2, b"spec")].concat());
    let DecodedPod { pod, is_reduced, .. } =
        checked("metadata", &pod_with(METADATA, &[managed, forged].concat())).unwrap();
    assert!(!is_reduced && pod.metadata.managed_fields.is_none());
    assert_eq!(pod.metadata.annotations.unwrap().get(LEFT_OUT), None);
}

#[test]
fn a_pod_of_usual_size_is_decoded_as_it_is() {
    let container = json!({"name": "c", "env": vec![json!({"name": "NAME", "value": "value"}); 20]});
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": vec![container; 30]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let decoded = checked("usual", &encode_pod(&pod)).unwrap();
    assert!(decoded.pod == pod && !decoded.is_reduced);
}
