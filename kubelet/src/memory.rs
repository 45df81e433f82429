//! Objects of a server that would take too much memory: what they would take, and what is left of them.
//!
//! Whoever may create a pod decides how large it is. An API server accepts 1.5 MiB of JSON, of which any field may be the
//! largest part: 110,000 labels, 100,000 finalizers or 20,000 owner references, for example. Decoded, such a pod takes up to
//! ten times as much, and a hundred of them more than a node agent may use. So an object may take 512 KiB. Of one that would
//! take more, the largest fields are left out before it is decoded. Its identity stays, so that it is still found.
//!
//! This module knows JSON. It estimates from above, because it does not know the types of the fields. For protobuf, the
//! module `protobuf` does the same by the same measures.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerStatus, EnvVar, EphemeralContainer, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};

use crate::text::{decode, shorten};

/// The most memory that an object may take, in bytes. A pod of 30 containers with 10 variables each takes less.
pub(crate) const LIMIT: usize = 512 << 10;

/// The same of an object of the last run. Until its source has reported, it is in memory beside the new one.
pub(crate) const LIMIT_RESTORED: usize = LIMIT / 2;

/// The annotation that names the fields that an object lacks because it was too large, separated by commas. The sources
/// remove it from all other objects.
pub const LEFT_OUT: &str = "pod-index/left-out";

/// The fields of `metadata` that always stay.
pub(crate) const IDENTITY: [&str; 7] =
    ["name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"];

/// The annotations that always stay: they say what kind of pod it is, and whether it is checkpointed.
pub(crate) const KEPT_ANNOTATIONS: [&str; 5] = [
    "kubernetes.io/config.hash",
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.seen",
    "kubernetes.io/config.source",
    "node.kubernetes.io/bootstrap-checkpoint",
];

/// What an allocation takes beside its bytes, and the least that it takes.
const ALLOCATION: usize = 16;
pub(crate) const LEAST_ALLOCATION: usize = 32;

/// What an entry of a mapping takes beside its texts: two texts' headers, in a node of the tree that is half full.
pub(crate) const ENTRY: usize = 100;

/// What an object in a list takes beside its content, if nothing else is known of its type.
const ELEMENT: usize = 640;

/// The memory of what cannot be parsed. It cannot be decoded either.
const UNKNOWN: usize = 1 << 40;

/// A list grows by doubling, so that half of it may be empty.
pub(crate) const GROWTH: usize = 2;

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
        let (whole, limit, all) = (whole >> 10, limit >> 10, left_out.join(", "));
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
pub(crate) fn decode_within<K: DeserializeOwned>(
    limit: usize,
    json: &[u8],
) -> Result<Bounded<K>, (String, String)> {
    match reduce(limit, json) {
        Some((rest, reduced)) => Ok(Bounded { object: decode(&rest)?, reduced }),
        None => Ok(Bounded { object: decode(json)?, reduced: None }),
    }
}

/// A field of an object, such as `metadata.labels`.
struct Field<'a> {
    /// `metadata`, `spec`, `status`, or another field of the whole object.
    section: &'a str,
    /// `None`: the section is no mapping.
    name: Option<String>,
    json: &'a RawValue,
    memory: usize,
}

impl Field<'_> {
    fn is_identity(&self) -> bool {
        match &self.name {
            None => ["apiVersion", "kind"].contains(&self.section),
            Some(name) => self.section == "metadata" && IDENTITY.contains(&&**name),
        }
    }

    fn path(&self) -> String {
        match &self.name {
            None => shorten(self.section),
            Some(name) => shorten(&format!("{}.{name}", self.section)),
        }
    }

    /// What stays of a field that is left out.
    fn rest(&self) -> Option<Box<RawValue>> {
        match (self.section, self.name.as_deref()) {
            ("metadata", Some("annotations")) => to_raw_value(&kept_annotations(self.json)).ok(),
            ("metadata", Some("ownerReferences")) => to_raw_value(&[controller(self.json)?]).ok(),
            _ => None,
        }
    }
}

/// What is left of an object that takes more than this limit, and what it lacks. `None`: it takes less, or is no object.
fn reduce(limit: usize, json: &[u8]) -> Option<(Vec<u8>, Option<Reduced>)> {
    if at_most(json) <= limit {
        return None;
    }
    let object: BTreeMap<String, &RawValue> = serde_json::from_slice(json).ok()?;
    let mut fields: Vec<_> = object.iter().flat_map(|(section, value)| fields(section, value)).collect();
    // No source keeps it.
    fields.retain(|field| (field.section, field.name.as_deref()) != ("metadata", Some("managedFields")));
    // Those that take most come first.
    fields.sort_by_key(|field| std::cmp::Reverse(field.memory));
    let whole: usize = fields.iter().map(|field| field.memory).sum();
    let (mut left, mut left_out) = (whole, Vec::new());
    let mut rest: BTreeMap<&str, Section> = BTreeMap::new();
    for field in fields {
        let stays = left <= limit || field.is_identity();
        let json = if stays { Some(field.json.to_owned()) } else { field.rest() };
        if !stays {
            left -= field.memory;
            left_out.push(field.path());
        }
        match (field.name, json) {
            (_, None) => {}
            (None, Some(json)) => drop(rest.insert(field.section, Section::Whole(json))),
            (Some(name), Some(json)) => {
                let section = rest.entry(field.section).or_insert_with(|| Section::Fields(BTreeMap::new()));
                if let Section::Fields(fields) = section {
                    fields.insert(name, json);
                }
            }
        }
    }
    let reduced = Reduced::of(whole, limit, &left_out);
    if reduced.is_some()
        && let Some(Section::Fields(metadata)) = rest.get_mut("metadata")
    {
        let annotations = metadata.get("annotations").map_or("{}", |json| json.get());
        let mut annotations: BTreeMap<String, String> = serde_json::from_str(annotations).unwrap_or_default();
        annotations.insert(LEFT_OUT.to_owned(), left_out.join(","));
        metadata.insert("annotations".to_owned(), to_raw_value(&annotations).ok()?);
    }
    Some((serde_json::to_vec(&rest).ok()?, reduced))
}

/// What stays of a field of the whole object.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Section {
    Whole(Box<RawValue>),
    Fields(BTreeMap<String, Box<RawValue>>),
}

/// The fields of a section.
fn fields<'a>(section: &'a str, value: &'a RawValue) -> Vec<Field<'a>> {
    match serde_json::from_str::<BTreeMap<String, &RawValue>>(value.get()) {
        Ok(fields) => fields
            .into_iter()
            .map(|(name, json)| {
                let memory = weigh(&name, json);
                Field { section, name: Some(name), json, memory }
            })
            .collect(),
        Err(_) => vec![Field { section, name: None, json: value, memory: weigh(section, value) }],
    }
}

/// The annotations that say what kind of pod it is.
fn kept_annotations(json: &RawValue) -> BTreeMap<String, String> {
    let all: BTreeMap<String, &RawValue> = serde_json::from_str(json.get()).unwrap_or_default();
    let kept = all.into_iter().filter(|(name, _)| KEPT_ANNOTATIONS.contains(&&**name));
    kept.filter_map(|(name, value)| Some((name, shorten(&serde_json::from_str::<String>(value.get()).ok()?))))
        .collect()
}

/// The owner that controls the object.
fn controller(json: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Owner {
        controller: Option<bool>,
    }
    let owners: Vec<&RawValue> = serde_json::from_str(json.get()).ok()?;
    let controls = |owner: &&RawValue| {
        serde_json::from_str::<Owner>(owner.get()).is_ok_and(|owner| owner.controller == Some(true))
    };
    owners.into_iter().find(controls).filter(|owner| owner.get().len() <= 4096)
}

/// More than the object takes, without parsing it. Nearly all objects are small by this measure. It counts each `{` and `,` as
/// if it were no part of a text.
fn at_most(json: &[u8]) -> usize {
    let (mut objects, mut parts) = (0, 0);
    for byte in json {
        objects += usize::from(*byte == b'{');
        parts += usize::from(matches!(byte, b',' | b'{' | b'['));
    }
    let entry = ENTRY + 2 * LEAST_ALLOCATION;
    json.len() + parts * entry + objects * GROWTH * 2 * ELEMENT
}

/// About how much memory the object takes, in bytes, estimated from above: usually one to three times as much as it does.
///
/// # Complexity
/// Linear in the object's JSON, which it allocates.
///
/// # Examples
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index_kubelet::memory::memory_of;
///
/// let mut pod = Pod::default();
/// assert!(memory_of(&pod) < 1_000);
/// pod.metadata.labels = Some((0..1_000).map(|i| (format!("label-{i}"), String::new())).collect());
/// assert!(memory_of(&pod) > 100_000);
/// ```
pub fn memory_of(object: &impl serde::Serialize) -> usize {
    to_raw_value(object).map_or(UNKNOWN, |json| weigh("", &json))
}

/// The memory of a decoded value. `name`: the field that it belongs to.
fn weigh(name: &str, json: &RawValue) -> usize {
    let mut json = serde_json::Deserializer::from_str(json.get());
    Weigh { name }.deserialize(&mut json).map_or(UNKNOWN, Weight::total)
}

/// What an object in a list of this name takes beside its content.
pub(crate) fn element(name: &str) -> usize {
    match name {
        "containers" | "initContainers" => size_of::<Container>(),
        "ephemeralContainers" => size_of::<EphemeralContainer>(),
        "volumes" => size_of::<Volume>(),
        "env" => size_of::<EnvVar>(),
        "volumeMounts" => size_of::<VolumeMount>(),
        "ports" => size_of::<ContainerPort>(),
        "containerStatuses" | "initContainerStatuses" | "ephemeralContainerStatuses" => {
            size_of::<ContainerStatus>()
        }
        _ => ELEMENT,
    }
}

pub(crate) fn text(length: usize) -> usize {
    (length + ALLOCATION).max(LEAST_ALLOCATION)
}

/// The memory of a value.
#[derive(Clone, Copy)]
struct Weight {
    /// In allocations of its own, if it is a mapping or no object.
    apart: usize,
    /// Of an object that is a structure: the same without the names of its fields.
    of_structure: usize,
    is_object: bool,
}

impl Weight {
    const fn of(apart: usize) -> Self {
        Self { apart, of_structure: apart, is_object: false }
    }

    fn total(self) -> usize {
        self.apart + size_of::<String>()
    }
}

/// Computes the memory of a value of this field.
#[derive(Clone, Copy)]
struct Weigh<'a> {
    name: &'a str,
}

impl<'de> DeserializeSeed<'de> for Weigh<'_> {
    type Value = Weight;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Weight, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A value without allocations.
const PLAIN: Weight = Weight::of(0);

impl<'de> Visitor<'de> for Weigh<'_> {
    type Value = Weight;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Weight, E> {
        Ok(PLAIN)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Weight, E> {
        Ok(PLAIN)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Weight, E> {
        Ok(PLAIN)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Weight, E> {
        Ok(PLAIN)
    }

    fn visit_unit<E>(self) -> Result<Weight, E> {
        Ok(PLAIN)
    }

    fn visit_str<E>(self, value: &str) -> Result<Weight, E> {
        Ok(Weight::of(text(value.len())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Weight, A::Error> {
        let mut apart = ALLOCATION;
        while let Some(item) = items.next_element_seed(self)? {
            let size = if item.is_object { element(self.name) } else { size_of::<String>() };
            // No list of a Kubernetes object has mappings.
            apart += GROWTH * size + item.of_structure;
        }
        Ok(Weight::of(apart))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Weight, A::Error> {
        let (mut apart, mut of_structure) = (0, 0);
        while let Some(name) = entries.next_key::<std::borrow::Cow<'de, str>>()? {
            let value = entries.next_value_seed(Weigh { name: &name })?;
            apart += ENTRY + text(name.len()) + value.apart;
            of_structure += value.apart;
        }
        Ok(Weight { apart, of_structure, is_object: true })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        Pod, PodCondition, ResourceClaim, Toleration, TopologySpreadConstraint, VolumeProjection,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_object_in_a_list_takes_no_more_than_is_counted() {
        for (name, size) in [
            ("OwnerReference", size_of::<OwnerReference>()),
            ("ManagedFieldsEntry", size_of::<ManagedFieldsEntry>()),
            ("PodCondition", size_of::<PodCondition>()),
            ("Toleration", size_of::<Toleration>()),
            ("TopologySpreadConstraint", size_of::<TopologySpreadConstraint>()),
            ("VolumeProjection", size_of::<VolumeProjection>()),
            ("ResourceClaim", size_of::<ResourceClaim>()),
        ] {
            assert!(size <= ELEMENT, "{name}: {size}");
        }
    }

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
        let container = json!({ "name": "c", "env": vec![json!({ "name": "NAME", "value": "value" }); 10] });
        usual["spec"]["containers"] = vec![container; 30].into();
        usual["metadata"]["annotations"]["a"] = "{,[".repeat(40_000).into();
        let json = serde_json::to_vec(&usual).unwrap();
        assert!(at_most(&json) > LIMIT, "its text looks like many parts");
        assert_eq!(decoded(&usual).reduced, None);
        assert!(at_most(&serde_json::to_vec(&pod()).unwrap()) < LIMIT / 10);
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
    fn what_is_no_object_is_an_error() {
        for json in ["7".repeat(600_000), "[{},".repeat(600), format!("{{\"spec\":{}", "{".repeat(10_000))] {
            decode_within::<Pod>(LIMIT, json.as_bytes()).unwrap_err();
        }
    }
}
