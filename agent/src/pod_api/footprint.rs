//! Estimates the memory of a pod.
//!
//! Visits the pod as serialization does, and adds up what is on the heap: text, the buffers of lists, and the nodes of
//! maps. Serialization does not show how large the items of a list are in memory, so their types are listed here.

use std::fmt::{Display, Error};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde::Serialize;
use serde::ser::{Impossible, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

/// Overhead of an allocation in bytes: the allocator's header, and rounding.
const ALLOCATION: usize = 16;
/// Capacity of a node of a `BTreeMap`, in entries.
const NODE: usize = 11;
/// Entries per node of a map that was filled in order: full nodes are split in half, and only the last one is filled
/// further.
const FILLED: usize = 6;
/// The least size of a struct whose type is not known: absent fields take space too, but are not serialized.
const UNKNOWN: usize = 256;
/// The size of a `String`, a `Vec` and a `BTreeMap`.
const HANDLE: usize = size_of::<String>();

/// The estimated memory of the pod in bytes. Visits the whole pod.
pub(super) fn bytes(pod: &Pod) -> usize {
    size_of::<Pod>() + ALLOCATION + pod.serialize(Counter).map_or(0, |size| size.heap)
}

/// The memory of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// The value itself.
    own: usize,
    /// The memory that it owns on the heap.
    heap: usize,
}

macro_rules! sizes {
    ($name:ident: $($module:ident { $($type:ident)* })*) => {
        match $name {
            $($(stringify!($type) => Some(size_of::<$module::$type>()),)*)*
            _ => None,
        }
    };
}

/// The size of a struct in memory, by the name of its type. Covers the types that the lists of a pod hold.
fn known(name: &str) -> Option<usize> {
    sizes! { name:
        core {
            Container ContainerExtendedResourceRequest ContainerPort ContainerResizePolicy ContainerRestartRule
            ContainerStatus DownwardAPIVolumeFile EnvFromSource EnvVar EphemeralContainer EvictionResponder HTTPHeader
            HostAlias HostIP KeyToPath LocalObjectReference NodeAllocatableMappedResources
            NodeAllocatableOverheadResources NodeAllocatableResourceClaimStatus NodeSelectorRequirement
            NodeSelectorTerm PodAffinityTerm PodCondition PodDNSConfigOption PodIP PodReadinessGate PodResourceClaim
            PodResourceClaimStatus PodSchedulingGate PodVolumeHealth PreferredSchedulingTerm ResourceClaim
            ResourceHealth ResourceStatus Sysctl Toleration TopologySpreadConstraint Volume VolumeDevice
            VolumeHealthCondition VolumeMount VolumeMountStatus VolumeProjection WeightedPodAffinityTerm
        }
        meta { LabelSelectorRequirement ManagedFieldsEntry OwnerReference }
    }
}

/// A serializer that returns the size of the value. Fails only for types that no pod contains: tuples, and enums with
/// data.
struct Counter;

/// The items of a list or a map.
#[derive(Default)]
struct Items {
    len: usize,
    total: Size,
}

impl Items {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let Size { own, heap } = value.serialize(Counter)?;
        self.total.own += own;
        self.total.heap += heap;
        Ok(())
    }

    /// The size of a list or a map with this many buffers, which have space for `spaces` items in all.
    fn within(&self, buffers: usize, spaces: usize) -> Size {
        let item = self.total.own.checked_div(self.len).unwrap_or_default();
        let buffers = if self.len == 0 { 0 } else { buffers * ALLOCATION + spaces * item };
        Size { own: HANDLE, heap: buffers + self.total.heap }
    }
}

impl SerializeSeq for Items {
    type Ok = Size;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.len += 1;
        self.add(value)
    }

    /// A `Vec` to which the items were pushed.
    fn end(self) -> Result<Size, Error> {
        let least = if self.total.own <= 1024 * self.len { 4 } else { 1 };
        Ok(self.within(1, self.len.next_power_of_two().max(least)))
    }
}

impl SerializeMap for Items {
    type Ok = Size;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.len += 1;
        self.add(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.add(value)
    }

    /// A `BTreeMap`.
    fn end(self) -> Result<Size, Error> {
        let nodes = 1 + self.len.saturating_sub(NODE).div_ceil(FILLED);
        Ok(self.within(nodes, nodes * NODE))
    }
}

/// A struct. Its size is the known one or, if there is none, the sum of its present fields, but at least [`UNKNOWN`].
struct Fields {
    known: Option<usize>,
    total: Size,
}

impl SerializeStruct for Fields {
    type Ok = Size;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), Error> {
        let Size { own, heap } = value.serialize(Counter)?;
        self.total.own += own;
        self.total.heap += heap;
        Ok(())
    }

    fn end(self) -> Result<Size, Error> {
        let own = self.known.unwrap_or_else(|| self.total.own.max(UNKNOWN));
        Ok(Size { own, heap: self.total.heap })
    }
}

/// Values that own nothing on the heap.
macro_rules! flat {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, _: $type) -> Result<Size, Error> {
            Ok(Size { own: size_of::<$type>(), heap: 0 })
        })*
    };
}

impl Serializer for Counter {
    type Ok = Size;
    type Error = Error;
    type SerializeSeq = Items;
    type SerializeMap = Items;
    type SerializeStruct = Fields;
    type SerializeTuple = Impossible<Size, Error>;
    type SerializeTupleStruct = Impossible<Size, Error>;
    type SerializeTupleVariant = Impossible<Size, Error>;
    type SerializeStructVariant = Impossible<Size, Error>;

    flat! {
        serialize_bool: bool, serialize_char: char, serialize_f32: f32, serialize_f64: f64,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_unit_struct: &'static str
    }

    fn serialize_str(self, text: &str) -> Result<Size, Error> {
        Ok(Size { own: HANDLE, heap: if text.is_empty() { 0 } else { ALLOCATION + text.len() } })
    }

    /// A value that is formatted to be serialized, such as a time.
    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<Size, Error> {
        Ok(Size { own: size_of_val(value), heap: 0 })
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Size, Error> {
        Ok(Size { own: HANDLE, heap: ALLOCATION + bytes.len() })
    }

    fn serialize_none(self) -> Result<Size, Error> {
        Ok(Size::default())
    }

    fn serialize_unit(self) -> Result<Size, Error> {
        Ok(Size::default())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<Size, Error> {
        Ok(Size::default())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Size, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Size, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<Size, Error> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items, Error> {
        Ok(Items::default())
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Items, Error> {
        Ok(Items::default())
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields, Error> {
        Ok(Fields { known: known(name), total: Size::default() })
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Error> {
        Err(Error)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Error> {
        Err(Error)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        Err(Error)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        Err(Error)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn heap(value: impl Serialize) -> usize {
        value.serialize(Counter).unwrap().heap
    }

    #[test]
    fn text_lists_and_maps_count_with_their_buffers() {
        assert_eq!(heap(7), 0);
        assert_eq!(heap(Some("abcd")), ALLOCATION + 4);
        assert_eq!(heap(vec![0_u64; 5]), ALLOCATION + 8 * 8);
        assert_eq!(heap(Vec::<u64>::new()), 0);
        assert_eq!(heap(vec!["ab".to_owned()]), (ALLOCATION + 4 * HANDLE) + (ALLOCATION + 2));
        let map = |len: u64| (0..len).map(|key| (key, key)).collect::<std::collections::BTreeMap<_, _>>();
        assert_eq!(heap(map(0)), 0);
        assert_eq!(heap(map(1)), ALLOCATION + NODE * 16);
        assert_eq!(heap(map(12)), 2 * (ALLOCATION + NODE * 16));
        let variable = core::EnvVar { name: "ab".to_owned(), ..core::EnvVar::default() };
        assert_eq!(heap(vec![variable]), (ALLOCATION + 4 * size_of::<core::EnvVar>()) + (ALLOCATION + 2));
    }

    /// Most fields of these are absent.
    #[test]
    fn long_lists_of_small_structs_count_with_their_absent_fields() {
        fn check<T>(spec: &Value, item: &Value) {
            const LEN: usize = 1000;
            let pod = |len| -> Pod {
                let list = Value::Array(vec![item.clone(); len]).to_string();
                let spec = spec.to_string().replace("\"LIST\"", &list);
                serde_json::from_str(&format!("{{\"metadata\": {{}}, \"spec\": {spec}}}")).unwrap()
            };
            let (measured, least) = (bytes(&pod(LEN)) - bytes(&pod(0)), LEN * size_of::<T>());
            assert!(
                (least..=2 * least).contains(&measured),
                "{measured} instead of {least} bytes with {item}"
            );
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let with = |field: &str| json!({ "containers": [], field: "LIST" });
        let affinity = |kind: &str, list: Value| json!({ "containers": [], "affinity": { kind: list } });
        check::<core::WeightedPodAffinityTerm>(
            &affinity("podAffinity", json!({ preferred: "LIST" })),
            &json!({ "weight": 1, "podAffinityTerm": { "topologyKey": "" } }),
        );
        check::<core::PodAffinityTerm>(
            &affinity("podAntiAffinity", json!({ required: "LIST" })),
            &json!({ "topologyKey": "" }),
        );
        check::<core::NodeSelectorTerm>(
            &affinity("nodeAffinity", json!({ required: { "nodeSelectorTerms": "LIST" } })),
            &json!({}),
        );
        check::<core::NodeSelectorRequirement>(
            &affinity(
                "nodeAffinity",
                json!({ required: { "nodeSelectorTerms": [{ "matchFields": "LIST" }] } }),
            ),
            &json!({ "key": "", "operator": "" }),
        );
        check::<core::HostAlias>(&with("hostAliases"), &json!({ "ip": "" }));
        check::<core::Toleration>(&with("tolerations"), &json!({}));
        check::<core::TopologySpreadConstraint>(
            &with("topologySpreadConstraints"),
            &json!({ "maxSkew": 1, "topologyKey": "", "whenUnsatisfiable": "" }),
        );
    }

    /// Such as a type of a later version of Kubernetes.
    #[test]
    fn structs_of_a_type_that_is_not_listed_count_with_a_least_size() {
        assert_eq!(heap(vec![core::ObjectReference::default(); 4]), ALLOCATION + 4 * UNKNOWN);
    }

    #[test]
    fn every_kind_of_value_in_a_pod_counts() {
        let pod = |extra: Value| -> Pod {
            let mut pod = json!({
                "metadata": { "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "containers": [{ "name": "c" }] },
            });
            let object = pod.as_object_mut().unwrap();
            for (key, value) in extra.as_object().unwrap() {
                object[key].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            }
            serde_json::from_value(pod).unwrap()
        };
        let plain = bytes(&pod(json!({})));
        assert!(plain > size_of::<Pod>(), "{plain}");
        let text = "x".repeat(10_000);
        for extra in [
            json!({ "metadata": { "annotations": { "a": text } } }),
            json!({ "metadata": { "managedFields": [{ "fieldsV1": { "f:a": { "f:b": [text] } } }] } }),
            json!({ "spec": { "containers": [{ "name": "c", "args": ["a", text] }] } }),
            json!({ "spec": { "containers": [{ "name": "c", "resources": { "limits": { "m": text } } }] } }),
            json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "containerPort": 1, "name": text }] }] } }),
            json!({ "spec": { "containers": [{ "name": "c", "livenessProbe": { "httpGet": { "port": text } } }] } }),
        ] {
            let with = bytes(&pod(extra.clone()));
            assert!((10_000..15_000).contains(&(with - plain)), "{plain} and {with} with {extra:.100}");
        }
    }
}
