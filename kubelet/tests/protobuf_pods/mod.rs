//! Pods in protobuf: equal to another decoder's, equal to JSON, and harmless whatever the bytes.

mod hostile;
mod printed;
mod random;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::protobuf::{decode_pod, encode_pod, without_envelope};
use pod_index_test_support::dice::Dice;
use prost::Message as _;
use serde_json::{Map, Value, json};

fn other_decoder(bytes: &[u8]) -> k8s_pb::api::core::v1::Pod {
    k8s_pb::api::core::v1::Pod::decode(bytes).expect("a pod")
}

fn without_type(pod: &Pod) -> Value {
    let mut json = serde_json::to_value(pod).unwrap();
    json.as_object_mut().unwrap().retain(|key, _| !["apiVersion", "kind"].contains(&&**key));
    json
}

/// The first difference between two values, by its path.
fn difference(path: &str, left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<_> = left.keys().chain(right.keys()).collect();
            let of = |object: &Map<String, Value>, name| object.get(name).cloned().unwrap_or_default();
            names
                .into_iter()
                .find_map(|name| difference(&format!("{path}.{name}"), &of(left, name), &of(right, name)))
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (left, right))| difference(&format!("{path}[{at}]"), left, right))
        }
        _ => (left != right).then(|| format!("{path}: {left} and {right}")),
    }
}

/// Fields of Kubernetes 1.36 and 1.37, which `k8s-pb` 0.9 does not have, each after the field that contains it.
const NEWER: [(&str, &str); 18] = [
    ("clusterTrustBundle", "user"),
    ("configMap", "defaultUser"),
    ("downwardAPI", "defaultUser"),
    ("emptyDir", "mode"),
    ("grpc", "mode"),
    ("httpGet", "protocol"),
    ("items", "user"),
    ("podCertificate", "user"),
    ("projected", "defaultUser"),
    // Of the health of a resource.
    ("resources", "message"),
    ("secret", "defaultUser"),
    ("serviceAccountToken", "user"),
    ("spec", "evictionResponders"),
    ("spec", "schedulingGroup"),
    ("status", "nodeAllocatableResourceClaimStatuses"),
    ("status", "volumeHealth"),
    ("volumeMounts", "bindMountOptions"),
    ("volumeMounts", "volumeStatus"),
];

/// Removes those fields from a value, which is that of the field `parent`, and zeros, which protobuf may lack. Where they count
/// is another test's subject.
fn without_newer(parent: &str, json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let is_zero = [json!([]), json!(""), json!(0), json!(false)].contains(value);
                !is_zero && !NEWER.contains(&(parent, name))
            });
            fields.iter_mut().for_each(|(name, value)| without_newer(name, value));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| without_newer(parent, value)),
        _ => {}
    }
}

/// Every field, by its name, has the value that `k8s-pb` finds in the same bytes.
#[test]
fn random_pods_are_what_an_independent_decoder_finds() {
    for seed in 0..200 {
        let percent = [100, 90, 50, 20][usize::try_from(seed % 4).unwrap()];
        let mut pod: Pod = random::random(seed, percent);
        let bytes = encode_pod(&pod);
        let decoded = decode_pod(&bytes).unwrap();
        assert!(!decoded.is_reduced, "seed {seed}");
        let decoded = without_type(&decoded.pod);
        // It is not decoded.
        pod.metadata.managed_fields = None;
        let bytes = encode_pod(&pod);
        let mut json = without_type(&pod);
        assert_eq!(difference("", &decoded, &json), None, "seed {seed}");
        without_newer("", &mut json);
        let mut found = printed::to_json(&format!("{:?}", other_decoder(&bytes)), &without_type(&pod));
        without_newer("", &mut found);
        assert_eq!(difference("", &found, &json), None, "seed {seed}");
        // Nor does it find anything else in them.
        let known: Pod = serde_json::from_value(json).unwrap();
        let again = other_decoder(&encode_pod(&known)).encode_to_vec();
        assert_eq!(again.len(), encode_pod(&known).len(), "seed {seed}");
    }
}

/// What an API server 1.36.2 has returned of one object in both encodings: `zeros` and `every` were made by hand, the others are
/// of its kubelet.
#[test]
fn recorded_pods_are_equal_in_protobuf_and_in_json() {
    for (name, json, protobuf) in [
        ("zeros", &include_bytes!("recorded/zeros.json")[..], &include_bytes!("recorded/zeros.pb")[..]),
        ("every", include_bytes!("recorded/every.json"), include_bytes!("recorded/every.pb")),
        ("mirror", include_bytes!("recorded/mirror.json"), include_bytes!("recorded/mirror.pb")),
        ("running", include_bytes!("recorded/running.json"), include_bytes!("recorded/running.pb")),
    ] {
        let mut of_json: Pod = serde_json::from_slice(json).unwrap();
        of_json.metadata.managed_fields = None;
        let object = without_envelope(protobuf).expect("an API server's envelope");
        let decoded = decode_pod(object).unwrap();
        assert_eq!(difference(name, &without_type(&decoded.pod), &without_type(&of_json)), None);
        assert!(decoded.pod == of_json && !decoded.is_reduced);
        assert_eq!(decode_pod(&encode_pod(&of_json)).unwrap().pod, of_json, "{name}");
    }
}

#[test]
fn a_zero_counts_where_it_does_in_json() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "a", "deletionGracePeriodSeconds": 0, "ownerReferences": [{"name": "", "controller": false}]},
        "spec": {
            "automountServiceAccountToken": false, "priority": 0, "terminationGracePeriodSeconds": 0,
            "runtimeClassName": "", "securityContext": {"runAsUser": 0, "supplementalGroups": [0, 0]},
            "containers": [{"name": "", "securityContext": {"runAsNonRoot": false}, "resources": {}, "env": [{"name": "A"}],
                "readinessProbe": {"tcpSocket": {"port": 0}}, "args": ["", ""]}],
        },
        "status": {"containerStatuses": [{"name": "c", "ready": false, "restartCount": 0, "started": false,
            "state": {"terminated": {"exitCode": 0, "finishedAt": null}}, "image": "", "imageID": ""}]},
    }))
    .unwrap();
    let decoded = decode_pod(&encode_pod(&pod)).unwrap().pod;
    assert_eq!(difference("", &without_type(&decoded), &without_type(&pod)), None);
    assert_eq!(decoded.spec.unwrap().security_context.unwrap().run_as_user, Some(0));

    // What Go writes although JSON does not have it: metadata.generateName and generation, an empty creationTimestamp;
    // spec.nodeName and hostNetwork.
    let bytes = b"\x0a\x09\x0a\x01a\x12\x00\x38\x00\x42\x00\x12\x04\x52\x00\x58\x00";
    let wanted = json!({"metadata": {"name": "a"}, "spec": {"containers": []}});
    assert_eq!(without_type(&decode_pod(bytes).unwrap().pod), wanted);
}

#[test]
fn any_order_of_fields_and_a_message_in_parts_make_the_same_pod() {
    let part = |json: Value| encode_pod(&serde_json::from_value(json).unwrap());
    let bytes = [
        part(json!({"spec": {"containers": [{"name": "a"}], "nodeName": "n"}})),
        part(json!({"metadata": {"name": "first", "labels": {"a": "1"}}})),
        part(json!({"spec": {"containers": [{"name": "b"}], "hostNetwork": true}})),
        part(json!({"metadata": {"name": "last", "labels": {"b": "2"}}})),
    ]
    .concat();
    let wanted: Pod = serde_json::from_value(json!({
        "metadata": {"name": "last", "labels": {"a": "1", "b": "2"}},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "hostNetwork": true, "nodeName": "n"},
    }))
    .unwrap();
    assert_eq!(decode_pod(&bytes).unwrap().pod, wanted);
    let other = printed::to_json(&format!("{:?}", other_decoder(&bytes)), &without_type(&wanted));
    assert_eq!(difference("", &other, &without_type(&wanted)), None);
}

#[test]
fn an_error_names_the_field_and_quotes_nothing() {
    // spec.containers[0].name holds a number.
    let error = decode_pod(b"\x12\x04\x12\x02\x08\x07").unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.containers[0].name: cannot be decoded: the encoding is not that of its kind"
    );
    assert_eq!(error.field(), "spec.containers[0].name");
    let error = decode_pod(b"\x0a\x07\x0a\x08hunter2").unwrap_err();
    assert!(!error.to_string().contains("hunter"), "{error}");
}

#[test]
fn a_value_that_cannot_be_encoded_is_left_out_alone() {
    let late = k8s_openapi::jiff::Timestamp::from_second(-99_999_999_999).unwrap();
    let mut pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}})).unwrap();
    let wanted = encode_pod(&pod);
    pod.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(late));
    assert_eq!(encode_pod(&pod), wanted);
}

#[test]
fn bytes_that_are_no_text_are_replaced_as_in_json() {
    let pod = decode_pod(b"\x0a\x04\x0a\x02a\xff").unwrap().pod;
    assert_eq!(pod.metadata.name.as_deref(), Some("a\u{fffd}"));
}

/// Cut, changed and shuffled bytes of real pods: no panic, and what is decoded can be encoded.
#[test]
fn changed_bytes_harm_nobody() {
    let mut dice = Dice(7);
    for seed in 0..60 {
        let pod: Pod = random::random(seed, 40);
        let bytes = encode_pod(&pod);
        for _ in 0..200 {
            let mut changed = bytes.clone();
            for _ in 0..=dice.roll(3) {
                let at = dice.index(changed.len());
                match dice.roll(3) {
                    0 => changed[at] = u8::try_from(dice.roll(256)).unwrap(),
                    1 => changed.truncate(at + 1),
                    _ => changed.insert(at, u8::try_from(dice.roll(256)).unwrap()),
                }
            }
            if let Ok(decoded) = decode_pod(&changed) {
                let again = decode_pod(&encode_pod(&decoded.pod)).unwrap();
                assert_eq!(decode_pod(&encode_pod(&again.pod)).unwrap(), again);
            }
        }
    }
}
