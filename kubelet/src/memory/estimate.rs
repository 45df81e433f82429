//! What an object takes in memory, estimated from its JSON, from above: the types of its fields are not known.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerStatus, EnvVar, EphemeralContainer, Volume, VolumeMount,
};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};

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
        let mut apart = 0;
        let mut of_structure = 0;
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
        PodCondition, ResourceClaim, Toleration, TopologySpreadConstraint, VolumeProjection,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};

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
}
