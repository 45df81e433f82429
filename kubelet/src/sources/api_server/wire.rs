//! A pod as the API server sends it, decoded in one step: without unused fields, and with errors that quote
//! none of its content.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, Visitor};

use crate::text::without_found;

/// A pod of the API server, without its `managedFields` unless `MANAGED_FIELDS` is true.
///
/// `managedFields` take four fifths of the memory of a small pod with three managers, and nothing here reads
/// them.
#[derive(Clone)]
pub(super) struct WirePod<const MANAGED_FIELDS: bool>(pub(super) Pod);

impl<const MANAGED_FIELDS: bool> Resource for WirePod<MANAGED_FIELDS> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

/// Prints only the name, since libraries log their values.
impl<const MANAGED_FIELDS: bool> fmt::Debug for WirePod<MANAGED_FIELDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WirePod({})", name(&self.0.metadata))
    }
}

fn name(metadata: &ObjectMeta) -> String {
    let part = |part: &Option<String>| part.as_deref().map(crate::text::shorten).unwrap_or_default();
    format!("{}/{}", part(&metadata.namespace), part(&metadata.name))
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Metadata,
    Spec,
    Status,
    #[serde(other)]
    Other,
}

impl<'de, const MANAGED_FIELDS: bool> Deserialize<'de> for WirePod<MANAGED_FIELDS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole<const MANAGED_FIELDS: bool>;
        impl<'de, const MANAGED_FIELDS: bool> Visitor<'de> for Whole<MANAGED_FIELDS> {
            type Value = Pod;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pod")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pod, A::Error> {
                let mut pod = Pod::default();
                while let Some(key) = map.next_key()? {
                    match key {
                        Key::Metadata => {
                            let metadata = map.next_value_seed(Metadata::<MANAGED_FIELDS>);
                            pod.metadata = metadata.map_err(|error| blamed(&pod, "metadata", error))?;
                        }
                        Key::Spec => {
                            pod.spec = map.next_value().map_err(|error| blamed(&pod, "spec", error))?;
                        }
                        Key::Status => {
                            pod.status = map.next_value().map_err(|error| blamed(&pod, "status", error))?;
                        }
                        Key::Other => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(pod)
            }
        }
        deserializer.deserialize_map(Whole::<MANAGED_FIELDS>).map(Self)
    }
}

/// The error, with the pod and its invalid part, but without the value found there: it may be a password.
fn blamed<E: de::Error>(pod: &Pod, part: &str, error: E) -> E {
    let text = error.to_string();
    // The client recognizes a truncated line by this kind of error, which quotes nothing.
    if text.starts_with("EOF while parsing") {
        return error;
    }
    let name = match name(&pod.metadata) {
        nameless if nameless == "/" => "a pod".to_owned(),
        name => format!("pod {name}"),
    };
    E::custom(format_args!("{name}: its {part} cannot be decoded: {}", without_found(&text)))
}

/// Reads metadata.
struct Metadata<const MANAGED_FIELDS: bool>;

impl<'de, const MANAGED_FIELDS: bool> DeserializeSeed<'de> for Metadata<MANAGED_FIELDS> {
    type Value = ObjectMeta;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ObjectMeta, D::Error> {
        if MANAGED_FIELDS {
            ObjectMeta::deserialize(deserializer)
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'de, const MANAGED_FIELDS: bool> Visitor<'de> for Metadata<MANAGED_FIELDS> {
    type Value = ObjectMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ObjectMeta, A::Error> {
        ObjectMeta::deserialize(MapAccessDeserializer::new(Rest(map)))
    }
}

/// The entries of a map, without `managedFields`.
struct Rest<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<String>()? {
            if key != "managedFields" {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CANARY: &str = "hunter2";

    fn whole() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "ns", "name": "web", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" },
                "managedFields": [{ "manager": "kubelet", "operation": "Update", "fieldsV1": { "f:status": {} } }],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "containers": [{ "name": "c", "env": [{ "name": "E", "value": CANARY }] }] },
            "status": { "phase": "Running" },
        })
    }

    #[test]
    fn a_pod_is_decoded_with_or_without_its_managed_fields() {
        let expected: Pod = serde_json::from_value(whole()).unwrap();
        let with: WirePod<true> = serde_json::from_str(&whole().to_string()).unwrap();
        assert_eq!(with.0, expected);
        assert!(with.0.metadata.managed_fields.is_some());
        let without: WirePod<false> = serde_json::from_str(&whole().to_string()).unwrap();
        let mut expected = expected;
        expected.metadata.managed_fields = None;
        assert_eq!(without.0, expected);
    }

    #[test]
    fn an_error_names_the_pod_and_the_part_and_quotes_nothing() {
        for (part, wrong) in [
            (
                "spec",
                json!({ "containers": [{ "name": "c", "env": [{ "name": "E", "value": { "x": CANARY } }], "stdin": CANARY }] }),
            ),
            ("spec", json!(CANARY)),
            ("status", json!({ "phase": [CANARY] })),
            ("status", json!({ "startTime": CANARY })),
        ] {
            let mut pod = whole();
            pod[part] = wrong;
            let error = serde_json::from_str::<WirePod<false>>(&pod.to_string()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("pod ns/web: its {part} cannot be decoded")), "{error}");
            assert!(!error.contains(CANARY), "{error}");
        }
        let mut pod = whole();
        pod["metadata"]["labels"] = json!({ "a": [CANARY] });
        let error = serde_json::from_str::<WirePod<false>>(&pod.to_string()).unwrap_err().to_string();
        assert!(error.starts_with("a pod: its metadata") && !error.contains(CANARY), "{error}");
    }

    #[test]
    fn a_truncated_pod_is_distinguished_from_an_invalid_one() {
        let text = whole().to_string();
        for end in 1..text.len() {
            assert!(serde_json::from_str::<WirePod<false>>(&text[..end]).unwrap_err().is_eof(), "{end}");
        }
    }

    #[test]
    fn debug_output_shows_only_the_name() {
        let pod: WirePod<true> = serde_json::from_value(whole()).unwrap();
        assert_eq!(format!("{pod:?}"), "WirePod(ns/web)");
    }
}
