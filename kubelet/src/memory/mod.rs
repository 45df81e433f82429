//! Objects of a server that would take too much memory: what they would take, and what is left of them.
//!
//! Whoever may create a pod decides how large it is. An API server accepts 1.5 MiB of JSON, of which any field may be the
//! largest part: 110,000 labels, 100,000 finalizers or 20,000 owner references, for example. Decoded, such a pod takes up to
//! ten times as much, and a hundred of them more than a node agent may use. So an object may take 512 KiB. Of one that would
//! take more, the largest fields are left out before it is decoded. Its identity stays, so that it is still found.
//!
//! `estimate` says what an object takes; `reduce` leaves fields out. Both know JSON, and no kind of object. For protobuf, the
//! module `protobuf` does the same by the same measures.

mod estimate;
mod reduce;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use crate::text::decode;
use reduce::{Rest, reduce};

pub use estimate::memory_of;
pub(crate) use estimate::{OBJECT, allocation, element, entries, items};
pub(crate) use reduce::{KEPT_ANNOTATIONS, is_identity};

/// The most memory that an object may take, in bytes. Pods of 1,000 variables take less, and so do pods of 30
/// containers with 20 variables, probes, mounts and resources each.
pub(crate) const LIMIT: usize = 512 << 10;

/// The same of an object of the last run. Until its source has reported, it is in memory beside the new one.
pub(crate) const LIMIT_RESTORED: usize = LIMIT / 2;

/// The annotation that names the fields that an object lacks because it was too large, separated by commas. The sources
/// remove it from all other objects.
pub const LEFT_OUT: &str = crate::marks::LEFT_OUT;

/// A decoded object, and what it lacks.
#[derive(Debug)]
pub(crate) struct Bounded<K> {
    pub(crate) object: K,
    /// `None`: nothing.
    pub(crate) reduced: Option<Reduced>,
}

/// What was left out of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reduced {
    /// The field that would have taken most.
    pub(crate) field: String,
    /// Names all fields. Quotes nothing else of the object.
    pub(crate) message: String,
}

impl Reduced {
    /// Of an object of which these fields were left out, the largest first. `None` if there are none.
    pub(crate) fn of(whole: usize, limit: usize, left_out: &[String]) -> Option<Self> {
        let field = left_out.first()?.clone();
        let whole = whole >> 10;
        let limit = limit >> 10;
        let all = left_out.join(", ");
        let message =
            format!("takes {whole} KiB with the whole object, more than {limit} KiB: {all} left out");
        Some(Self { field, message })
    }
}

/// Removes [`LEFT_OUT`] from an object that lacks nothing.
pub(crate) fn unmark(metadata: &mut ObjectMeta, reduced: Option<&Reduced>) {
    if reduced.is_none()
        && let Some(annotations) = &mut metadata.annotations
    {
        annotations.remove(LEFT_OUT);
    }
}

/// Decodes an object, without the fields that would take it beyond this limit. On failure: as [`decode`].
pub(crate) fn decode_within<K: DeserializeOwned + Clone>(
    limit: usize,
    json: &[u8],
) -> Result<Bounded<K>, (String, String)> {
    match reduce(limit, json) {
        Some(Rest { json, reduced }) => Ok(Bounded { object: compact(&decode(text(&json)?)?), reduced }),
        None => Ok(Bounded { object: compact(&decode(text(json)?)?), reduced: None }),
    }
}

fn text(json: &[u8]) -> Result<&str, (String, String)> {
    std::str::from_utf8(json).map_err(|error| {
        (String::new(), format!("cannot be decoded: byte {} is not UTF-8", error.valid_up_to()))
    })
}

/// Decodes a pod as the sources keep it. No generic function: see `reflector::Decoders`.
pub(crate) fn decode_pod(json: &[u8]) -> Result<Bounded<Pod>, (String, String)> {
    decode_within(LIMIT, json)
}

/// The same object without spare room in its lists. How long a list is, the decoder learns at its end, so that it doubles the
/// list's room again and again: up to half of it stays empty, and a list of one item has room for four. A clone has room for
/// its items and no more.
fn compact<K: Clone>(decoded: &K) -> K {
    decoded.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::estimate::at_most;
    use super::*;

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": { "app": "web" },
                "annotations": { "kubernetes.io/config.mirror": "hash", "a": "b" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "o", "controller": true }],
            },
            "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": "i" }] },
            "status": { "podIP": "10.9.8.7", "conditions": [{ "type": "Ready", "status": "True" }] },
        })
    }

    fn decoded(pod: &Value) -> Bounded<Pod> {
        decode_within(LIMIT, &serde_json::to_vec(pod).unwrap()).unwrap()
    }

    #[test]
    fn a_pod_that_is_too_large_in_any_field_keeps_its_identity_and_all_other_fields() {
        let labels =
            |many: usize| (0..many).map(|i| (format!("l{i}"), "v".into())).collect::<serde_json::Map<_, _>>();
        let owner =
            |i: usize| json!({ "apiVersion": "v1", "kind": "K", "name": format!("n{i}"), "uid": "u" });
        let mut owners: Vec<_> = (0..20_000).map(owner).collect();
        owners.push(pod()["metadata"]["ownerReferences"][0].clone());
        let mut annotations = labels(40_000);
        annotations.insert("kubernetes.io/config.mirror".to_owned(), "hash".into());
        for (section, field, large) in [
            ("metadata", "labels", Value::from(labels(110_000))),
            ("metadata", "annotations", annotations.into()),
            ("metadata", "finalizers", vec!["a/b"; 100_000].into()),
            ("metadata", "ownerReferences", owners.into()),
            ("spec", "containers", vec![json!({ "name": "c" }); 5_000].into()),
            ("spec", "schedulerName", "x".repeat(1_000_000).into()),
            ("spec", "overhead", labels(20_000).into()),
            ("status", "conditions", vec![json!({ "type": "T" }); 9_000].into()),
            ("status", "message", "x".repeat(1_000_000).into()),
        ] {
            let mut large_pod = pod();
            large_pod[section][field] = large;
            let path = format!("{section}.{field}");
            let Bounded { object, reduced } = decoded(&large_pod);
            let reduced = reduced.unwrap_or_else(|| panic!("{path} is decoded"));
            assert_eq!(reduced.field, path);
            assert!(
                reduced.message.ends_with(&format!("more than 512 KiB: {path} left out")),
                "{}",
                reduced.message
            );
            let left = serde_json::to_value(&object).unwrap();
            assert!(left.to_string().len() < 1_000, "{path}: {left}");
            assert_eq!(left["metadata"]["annotations"][LEFT_OUT], *path);
            for (section, field) in [
                ("metadata", "name"),
                ("metadata", "uid"),
                ("metadata", "labels"),
                ("metadata", "ownerReferences"),
                ("spec", "nodeName"),
                ("spec", "containers"),
                ("status", "podIP"),
                ("status", "conditions"),
            ] {
                let has_rest = field == "ownerReferences";
                if path != format!("{section}.{field}") || has_rest {
                    assert_eq!(left[section][field], pod()[section][field], "{path}: {section}.{field}");
                }
            }
            assert_eq!(left["metadata"]["annotations"]["kubernetes.io/config.mirror"], "hash", "{path}");
        }
    }

    #[test]
    fn several_large_fields_are_left_out_until_the_rest_is_small_enough() {
        let mut large = pod();
        for (field, length) in [("schedulerName", 400_000), ("hostname", 300_000), ("subdomain", 200_000)] {
            large["spec"][field] = "x".repeat(length).into();
        }
        let Bounded { object, reduced } = decoded(&large);
        assert_eq!(reduced.unwrap().field, "spec.schedulerName");
        let spec = object.spec.unwrap();
        assert_eq!((spec.scheduler_name, spec.hostname.map(|name| name.len())), (None, Some(300_000)));
    }

    #[test]
    fn managed_fields_alone_are_no_problem_and_an_object_of_usual_size_is_decoded_as_it_is() {
        let mut managed = pod();
        let fields = (0..50_000).map(|i| (format!("f:{i}"), json!({}))).collect::<serde_json::Map<_, _>>();
        managed["metadata"]["managedFields"] = json!([{ "manager": "m", "fieldsV1": fields }]);
        let Bounded { object, reduced } = decoded(&managed);
        assert_eq!((object.metadata.managed_fields.clone(), reduced), (None, None));
        assert_eq!(serde_json::to_value(object).unwrap()["status"], pod()["status"]);
        let mut usual = pod();
        let container = json!({ "name": "c", "env": vec![json!({ "name": "NAME", "value": "value" }); 20] });
        usual["spec"]["containers"] = vec![container; 30].into();
        usual["metadata"]["annotations"]["a"] = "{,[".repeat(15_000).into();
        let json = serde_json::to_vec(&usual).unwrap();
        assert!(at_most(&json) > LIMIT, "its text looks like many parts");
        assert_eq!(decoded(&usual).reduced, None);
        assert!(at_most(&serde_json::to_vec(&pod()).unwrap()) < LIMIT / 10);
    }

    #[test]
    fn a_pod_of_thirty_usual_containers_stays_whole_and_its_lists_have_no_spare_room() {
        let container = json!({
            "name": "c", "image": "registry.example/shop/orders:1.2.3",
            "env": vec![json!({ "name": "SERVICE_HOST", "value": "orders.shop.svc.cluster.local" }); 20],
            "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "10m", "memory": "64Mi" } },
            "livenessProbe": { "httpGet": { "path": "/livez", "port": 8080, "scheme": "HTTP" }, "periodSeconds": 10 },
            "readinessProbe": { "httpGet": { "path": "/readyz", "port": 8080, "scheme": "HTTP" } },
            "volumeMounts": vec![json!({ "name": "volume", "mountPath": "/var/lib/volume" }); 3],
        });
        let mut pod = pod();
        pod["spec"]["containers"] = vec![container; 30].into();
        let Bounded { object, reduced } = decoded(&pod);
        assert_eq!(reduced, None);
        let containers = object.spec.unwrap().containers;
        assert_eq!(containers.capacity(), 30);
        for container in containers {
            assert_eq!(container.env.unwrap().capacity(), 20);
            assert_eq!(container.volume_mounts.unwrap().capacity(), 3);
        }
    }

    #[test]
    fn no_object_marks_itself() {
        let mut forged = pod();
        forged["metadata"]["annotations"][LEFT_OUT] = "spec".into();
        let Bounded { mut object, reduced } = decoded(&forged);
        unmark(&mut object.metadata, reduced.as_ref());
        assert_eq!(object.metadata.annotations.unwrap().get(LEFT_OUT), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error_and_quote_nothing() {
        let error = decode_within::<Pod>(LIMIT, b"{\"metadata\":{\"name\":\"hunter\xff\"}}").unwrap_err();
        assert_eq!(error, (String::new(), "cannot be decoded: byte 27 is not UTF-8".to_owned()));
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for json in ["7".repeat(600_000), "[{},".repeat(600), format!("{{\"spec\":{}", "{".repeat(10_000))] {
            decode_within::<Pod>(LIMIT, json.as_bytes()).unwrap_err();
        }
    }
}
