//! Pods in Kubernetes' protobuf, as the kubelet's Pods API sends them, in the types of `k8s_openapi`.
//!
//! Kubernetes publishes its protobuf as `generated.proto`. Usual decoders make their own structs from it, which then would
//! have to be copied field by field into `k8s_openapi`'s types. Here, a table of the fields (number, name in JSON, kind)
//! presents the bytes to serde as a mapping, so that each type is filled by the same code as from JSON. Another version of
//! Kubernetes is another table, which a program writes; see the head of `pod_table.rs`.
//!
//! # Equal to JSON
//! A pod decoded from protobuf equals the pod decoded from the JSON that Go's types make of the same object. Two facts that
//! protobuf does not have are in the table: where a zero counts as a value (`runAsUser: 0`) and where JSON omits it
//! (`hostNetwork: false`); and which messages are inlined. Fields that the table or the type does not know are skipped.
//!
//! # Hostile bytes
//! Nothing panics. The depth is that of the table, which has no circles, and 128 within JSON (the `managedFields` of the claim
//! of an ephemeral volume). Whatever the bytes are, a decoded pod takes at most 512 KiB, and its decoding 4 MiB for a moment:
//! of a pod that would take more, the largest fields are left out, as they are from JSON; see [`crate::memory`].

mod decode;
mod encode;
mod found;
#[doc(hidden)]
pub mod message;
mod pod_table;
mod schema;
mod weigh;
pub(crate) mod wire;

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use self::decode::{Decoding, Error};
use self::pod_table::POD;
use self::schema::{Field, Kind};
use crate::memory::{self, Bounded, LEFT_OUT, Reduced};
use crate::text::shorten;

/// A pod that was decoded from protobuf.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct DecodedPod {
    /// The pod, without `metadata.managedFields`. Protobuf has no `apiVersion` and no `kind`.
    pub pod: Pod,
    /// Whether the pod would have taken too much memory, so that it lacks the fields that its annotation
    /// [`crate::memory::LEFT_OUT`] names.
    pub is_reduced: bool,
}

/// Why a pod cannot be decoded. It quotes no value of the pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError {
    field: String,
    error: Error,
}

impl DecodeError {
    /// The field in Kubernetes' notation, such as `spec.containers[0].image`. Empty if the bytes are no message at all.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong with the field, as a text.
    pub(crate) fn reason(&self) -> String {
        self.error.to_string()
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for DecodeError {}

/// Decodes a pod from the output of Go's `v1.Pod.Marshal()`.
///
/// The API server puts an envelope around such bytes; see [`without_envelope`].
///
/// # Complexity
/// Linear in the bytes, except for the order of fields: a message of *n* fields that are not in ascending order takes
/// O(*n* log *n*).
///
/// # Errors
/// If the bytes are not a pod, or a value does not fit its field.
///
/// # Examples
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index_kubelet::protobuf::{decode_pod, encode_pod};
///
/// let mut pod = Pod::default();
/// pod.metadata.name = Some("web-0".to_owned());
/// let bytes = encode_pod(&pod);
/// assert_eq!(bytes, b"\x0a\x07\x0a\x05web-0");
/// assert_eq!(decode_pod(&bytes)?.pod, pod);
/// # Ok::<(), pod_index_kubelet::protobuf::DecodeError>(())
/// ```
///
/// Kubelet: `v1.Pod.Unmarshal`.
pub fn decode_pod(bytes: &[u8]) -> Result<DecodedPod, DecodeError> {
    let Bounded { object: pod, reduced } = decode_pod_within(memory::LIMIT, bytes)?;
    Ok(DecodedPod { pod, is_reduced: reduced.is_some() })
}

/// Decodes a pod, without the fields that would take it beyond this limit.
pub(crate) fn decode_pod_within(limit: usize, bytes: &[u8]) -> Result<Bounded<Pod>, DecodeError> {
    match decode(limit, managed_fields(), bytes) {
        Ok(mut pod) => {
            memory::unmark(&mut pod.metadata, None);
            Ok(Bounded { object: pod, reduced: None })
        }
        Err(DecodeError { error: Error::TooLarge, .. }) => decode_reduced(limit, bytes),
        Err(error) => Err(error),
    }
}

fn decode(limit: usize, left_out: Vec<&'static Field>, bytes: &[u8]) -> Result<Pod, DecodeError> {
    let decoding = Decoding::new(limit, left_out);
    Pod::deserialize(decoding.object(&POD, bytes)).map_err(|error| match error {
        // It is that of the whole pod.
        Error::TooLarge => DecodeError { field: String::new(), error },
        error => DecodeError { field: shorten(&decoding.field()), error },
    })
}

/// `metadata.managedFields`, which no source keeps: it may be half of a pod.
fn managed_fields() -> Vec<&'static Field> {
    let metadata = POD.0.iter().find(|field| field.name == "metadata");
    let Some(Kind::Message(metadata)) = metadata.map(|field| field.kind) else { return Vec::new() };
    metadata.0.iter().filter(|field| field.name == "managedFields").collect()
}

/// What is left of an object that would take more than this limit.
fn decode_reduced(limit: usize, bytes: &[u8]) -> Result<Bounded<Pod>, DecodeError> {
    let fields = weigh::fields(&POD, bytes);
    let mut fields = fields.map_err(|error| DecodeError { field: String::new(), error: error.into() })?;
    let mut left_out = managed_fields();
    fields.retain(|field| !field.is_managed_fields());
    // Those that take most come first.
    fields.sort_by_key(|field| std::cmp::Reverse(field.memory()));
    let whole = weigh::memory_of_object(&fields);
    let mut left = whole;
    let mut paths = Vec::new();
    for field in fields.iter().filter(|field| !field.is_identity()) {
        if left <= limit {
            break;
        }
        left -= field.memory();
        left_out.push(field.field);
        paths.push(field.path());
    }
    // Of some fields, a part stays.
    let mut pod = decode(limit + limit / 8, left_out, bytes)?;
    let reduced = Reduced::of(whole, limit, &paths);
    memory::unmark(&mut pod.metadata, None);
    if reduced.is_some() {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(LEFT_OUT.to_owned(), paths.join(","));
    }
    Ok(Bounded { object: pod, reduced })
}

/// Encodes a pod as Go's `v1.Pod.Unmarshal()` reads it, with fields in ascending order.
///
/// Zero values that Go writes although JSON omits them are left out: every decoder takes their absence for zero.
///
/// # Complexity
/// Linear in the size of the pod. Each message is copied once for each message around it.
#[must_use]
pub fn encode_pod(pod: &Pod) -> Vec<u8> {
    encode::encode(&POD, pod)
}

/// The object within the envelope that an API server puts around protobuf: the letters `k8s`, a zero byte, and a
/// `runtime.Unknown` whose second field is the object. `None` if there is no such envelope.
#[must_use]
pub fn without_envelope(bytes: &[u8]) -> Option<&[u8]> {
    let unknown = bytes.strip_prefix(b"k8s\0")?;
    let mut object = None;
    for field in wire::Fields(unknown) {
        if let (2, value) = field.ok()? {
            object = Some(value.bytes().ok()?);
        }
    }
    object
}

/// The identity of an object, read without decoding it. What cannot be read of it is empty.
#[derive(Default, Debug)]
pub(crate) struct Identity {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// A kubelet's has no meaning.
    pub(crate) resource_version: String,
}

/// The identity in these bytes of any object of Kubernetes: all have the same metadata.
pub(crate) fn identity(object: &[u8]) -> Identity {
    let mut identity = Identity::default();
    for (number, value) in wire::Fields(object).map_while(Result::ok) {
        let (1, Ok(metadata)) = (number, value.bytes()) else { continue };
        for (number, value) in wire::Fields(metadata).map_while(Result::ok) {
            let Ok(text) = value.bytes().map(String::from_utf8_lossy) else { continue };
            match number {
                1 => identity.name = text.into_owned(),
                3 => identity.namespace = text.into_owned(),
                5 => identity.uid = text.into_owned(),
                6 => identity.resource_version = text.into_owned(),
                _ => {}
            }
        }
    }
    identity
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Compares the field of the error, if these bytes are no pod, with that of a decoder that follows the path.
    fn compare(bytes: &[u8]) -> Option<String> {
        let decoding = Decoding::new(memory::LIMIT, managed_fields());
        let expected: Result<Pod, _> = serde_path_to_error::deserialize(decoding.object(&POD, bytes));
        // A key that cannot be read is a question mark, and here nothing.
        let expected = expected.err()?.path().to_string().replace(".?", "");
        let found = decode(memory::LIMIT, managed_fields(), bytes).unwrap_err();
        assert_eq!(
            found.field(),
            if expected == "." { String::new() } else { shorten(&expected) },
            "{found}"
        );
        Some(expected)
    }

    #[test]
    fn the_field_of_an_error_is_that_of_a_decoder_that_follows_the_path() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "web", "labels": { "a": "b", "c/d": "e" }, "creationTimestamp": "2026-11-27T04:09:00Z" },
            "spec": {
                "containers": [{ "name": "a" }, {
                    "name": "b", "ports": [{ "containerPort": 80 }, { "containerPort": 81 }],
                    "livenessProbe": { "httpGet": { "port": "http" } },
                    "resources": { "limits": { "cpu": "1", "memory": "5" } },
                }],
                "securityContext": { "supplementalGroups": [1, 2, 300], "runAsUser": 0 },
            },
            "status": { "podIPs": [{ "ip": "10.9.8.7" }] },
        }))
        .unwrap();
        let whole = encode_pod(&pod);
        let mut fields = std::collections::BTreeSet::new();
        for at in 0..whole.len() {
            for other in (0..8).map(|bit| whole[at] ^ (1 << bit)).chain([0, 1, 7, 0x7f, 0x80, 0xff]) {
                let mut bytes = whole.clone();
                bytes[at] = other;
                fields.extend(compare(&bytes));
            }
            fields.extend(compare(&whole[..at]));
        }
        for field in ["spec.containers[1].ports[1].name", "spec.containers[1].resources.limits.cpu"] {
            assert!(fields.contains(field), "{field} in {fields:?}");
        }
        // The value of a label is a number.
        assert_eq!(compare(b"\x0a\x09\x5a\x07\x0a\x03c/d\x10\x07").as_deref(), Some("metadata.labels.c/d"));
    }

    /// In both encodings, although the other field is smaller.
    #[test]
    fn what_says_which_object_it_is_stays_however_large_it_is() {
        for identity in ["name", "generateName", "namespace", "uid", "resourceVersion"] {
            let mut large = json!({ "metadata": { "labels": { "app": "x".repeat(290_000) } } });
            let value = "i".repeat(300_000);
            large["metadata"][identity] = value.as_str().into();
            let pod: Pod = serde_json::from_value(large.clone()).unwrap();
            let of_json = memory::decode_within(memory::LIMIT, &serde_json::to_vec(&large).unwrap()).unwrap();
            let of_protobuf = decode_pod_within(memory::LIMIT, &encode_pod(&pod)).unwrap();
            for Bounded { object, reduced } in [of_json, of_protobuf] {
                assert_eq!(reduced.unwrap().field, "metadata.labels", "{identity}");
                let left = serde_json::to_value::<Pod>(object).unwrap();
                assert_eq!(left["metadata"][identity], value, "{identity}");
            }
        }
    }
}
