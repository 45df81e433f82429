//! What an object takes in memory, estimated from its JSON, from above: the types of its fields are not known.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerStatus, EnvFromSource, EnvVar, EphemeralContainer, HostAlias,
    PodAffinityTerm, PodCondition, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};

/// The least that an allocation takes.
const LEAST_ALLOCATION: usize = 32;

/// What an object takes beside its fields.
pub(crate) const OBJECT: usize = 4096;

/// What an entry of a mapping takes beside its texts: two texts' headers, in a node of the tree that is half full.
const ENTRY: usize = 100;

/// The least that a mapping takes: a node with room for eleven entries.
const LEAST_MAPPING: usize = 576;

/// What an object in a list takes beside its content, if nothing else is known of its type.
const ELEMENT: usize = 640;

/// The most that an object in a list takes beside its content: no other type that is in lists is as large.
const LARGEST_ELEMENT: usize = size_of::<Volume>();

/// The memory of what cannot be parsed. It cannot be decoded either.
const UNKNOWN: usize = 1 << 40;

/// The fields whose value is a structure, which takes no more than the object around it has room for anyway. An object of any
/// other name may be a mapping, such as labels.
const STRUCTURES: [&str; 46] = [
    "affinity",
    "capabilities",
    "configMap",
    "configMapKeyRef",
    "configMapRef",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "exec",
    "fieldRef",
    "grpc",
    "hostPath",
    "httpGet",
    "labelSelector",
    "lastState",
    "lifecycle",
    "linux",
    "livenessProbe",
    "nodeAffinity",
    "persistentVolumeClaim",
    "podAffinity",
    "podAffinityTerm",
    "podAntiAffinity",
    "postStart",
    "preStop",
    "preference",
    "projected",
    "readinessProbe",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "resourceFieldRef",
    "resources",
    "running",
    "seLinuxOptions",
    "seccompProfile",
    "secret",
    "secretKeyRef",
    "secretRef",
    "securityContext",
    "serviceAccountToken",
    "startupProbe",
    "state",
    "tcpSocket",
    "terminated",
    "user",
    "valueFrom",
    "waiting",
];

/// More than the object takes, without parsing it. Nearly all objects are small by this measure. It counts each `{` and `,` as
/// if it were no part of a text.
pub(super) fn at_most(json: &[u8]) -> usize {
    let mut objects = 0;
    let mut parts = 0;
    for byte in json {
        objects += usize::from(*byte == b'{');
        parts += usize::from(matches!(byte, b',' | b'{' | b'['));
    }
    let entry = ENTRY + 2 * LEAST_ALLOCATION;
    OBJECT + json.len() + parts * entry + objects * LARGEST_ELEMENT
}

/// About how much memory the object takes, in bytes, estimated from above: usually not a tenth more than it does, and
/// at most twice as much.
///
/// This is what an object takes that a source of this crate reports, and what any clone takes: its lists have no spare room.
/// An object that was just decoded with serde may have lists of which up to half is empty.
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
/// assert!(memory_of(&pod) < 10_000);
/// pod.metadata.labels = Some((0..1_000).map(|i| (format!("label-{i}"), String::new())).collect());
/// assert!(memory_of(&pod) > 100_000);
/// ```
pub fn memory_of(object: &impl serde::Serialize) -> usize {
    to_raw_value(object).map_or(UNKNOWN, |json| OBJECT + weigh("", &json))
}

/// The memory of a decoded value. `name`: the field that it belongs to.
pub(super) fn weigh(name: &str, json: &RawValue) -> usize {
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
        "conditions" => size_of::<PodCondition>(),
        "envFrom" => size_of::<EnvFromSource>(),
        "hostAliases" => size_of::<HostAlias>(),
        "ownerReferences" => size_of::<OwnerReference>(),
        "tolerations" => size_of::<Toleration>(),
        // Of a structure that affinity to nodes has under this name, there is no list.
        "requiredDuringSchedulingIgnoredDuringExecution" => size_of::<PodAffinityTerm>(),
        _ => ELEMENT,
    }
}

/// What a list of this many items takes beside their content. It has no spare room.
pub(crate) fn items(many: usize, size: usize) -> usize {
    allocation(many * size)
}

/// What a mapping of this many entries takes beside its texts.
pub(crate) fn entries(many: usize) -> usize {
    if many == 0 { 0 } else { (many * ENTRY).max(LEAST_MAPPING) }
}

/// What an allocation of this size takes: with its header, in steps of 16 bytes. No text is empty and allocated.
pub(crate) fn allocation(size: usize) -> usize {
    if size == 0 { 0 } else { (size + 8).next_multiple_of(16).max(LEAST_ALLOCATION) }
}

/// The memory of a value.
#[derive(Clone, Copy)]
struct Weight {
    /// In allocations of its own, if it is a mapping or no object. A structure has none, but its texts do.
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
        Ok(Weight::of(allocation(value.len())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Weight, A::Error> {
        let mut many = 0;
        let mut content = 0;
        let mut size = 0;
        while let Some(item) = items.next_element_seed(self)? {
            many += 1;
            size = size.max(if item.is_object { element(self.name) } else { size_of::<String>() });
            // No list of a Kubernetes object has mappings.
            content += item.of_structure;
        }
        Ok(Weight::of(content + self::items(many, size)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Weight, A::Error> {
        let mut many = 0;
        let mut names = 0;
        let mut of_structure = 0;
        while let Some(name) = entries.next_key::<std::borrow::Cow<'de, str>>()? {
            let value = entries.next_value_seed(Weigh { name: &name })?;
            many += 1;
            names += allocation(name.len());
            of_structure += value.apart;
        }
        let is_structure = STRUCTURES.contains(&self.name);
        let apart = of_structure + if is_structure { 0 } else { self::entries(many) + names };
        Ok(Weight { apart, of_structure, is_object: true })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        PreferredSchedulingTerm, ResourceClaim, TopologySpreadConstraint, VolumeProjection,
        WeightedPodAffinityTerm,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

    use super::*;

    #[test]
    fn an_object_in_a_list_takes_no_more_than_is_counted() {
        for (name, size) in [
            ("ManagedFieldsEntry", size_of::<ManagedFieldsEntry>()),
            ("TopologySpreadConstraint", size_of::<TopologySpreadConstraint>()),
            ("VolumeProjection", size_of::<VolumeProjection>()),
            ("ResourceClaim", size_of::<ResourceClaim>()),
            ("PreferredSchedulingTerm", size_of::<PreferredSchedulingTerm>()),
            ("WeightedPodAffinityTerm", size_of::<WeightedPodAffinityTerm>()),
        ] {
            assert!(size <= ELEMENT, "{name}: {size}");
        }
    }

    #[test]
    fn what_is_not_parsed_is_never_estimated_below_what_is() {
        let list = |many: usize, item: &str| format!("[{}]", vec![item; many].join(","));
        for (section, field, value) in [
            ("spec", "volumes", list(150, r#"{"name":"v"}"#)),
            ("spec", "containers", list(150, r#"{"name":"c"}"#)),
            ("spec", "containers", format!(r#"[{{"env":{}}}]"#, list(150, r#"{"name":"e"}"#))),
            ("status", "containerStatuses", list(150, "{}")),
            ("metadata", "finalizers", list(150, r#""f""#)),
            ("metadata", "labels", r#"{"a":"b"}"#.to_owned()),
        ] {
            let json = format!(r#"{{"{section}":{{"{field}":{value}}}}}"#);
            let object: serde_json::Value = serde_json::from_str(&json).unwrap();
            let estimated = memory_of(&object);
            let most = at_most(json.as_bytes());
            assert!(most >= estimated, "{section}.{field}: {most} < {estimated}");
        }
    }
}
