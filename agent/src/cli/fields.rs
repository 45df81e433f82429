//! The names of the fields that differ between two versions of a pod. Keeps hashes, not values.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::Pod;
use pod_index::CONFIG_SEEN_ANNOTATION;
use serde_json::Value;

/// Maximum number of parts in a field's name, such as `status.containerStatuses[web].state`. A change of a deeper field
/// is reported under its parent's name.
const DEPTH: usize = 3;
/// In metadata, fewer parts: names do not include the keys of labels and annotations.
const DEPTH_OF_METADATA: usize = 2;

/// The fields of a pod, each with a hash of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(BTreeMap<String, u64>);

impl Fields {
    pub(super) fn of(pod: &Pod) -> Self {
        let mut fields = BTreeMap::new();
        // Serializing a pod does not fail.
        let pod = serde_json::to_value(pod).unwrap_or_default();
        let mut metadata = pod["metadata"].clone();
        if let Some(metadata) = metadata.as_object_mut() {
            // These fields change with each version or with each run of the agent.
            metadata.retain(|name, _| !["resourceVersion", "managedFields"].contains(&&**name));
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(CONFIG_SEEN_ANNOTATION);
            }
            // An empty value counts as missing.
            metadata.retain(|_, value| !value.as_object().is_some_and(serde_json::Map::is_empty));
        }
        walk("metadata".to_owned(), DEPTH_OF_METADATA - 1, &metadata, &mut fields);
        for part in ["spec", "status"] {
            walk(part.to_owned(), DEPTH - 1, &pod[part], &mut fields);
        }
        Self(fields)
    }

    /// The names of the fields that differ, sorted.
    pub(super) fn changed(&self, after: &Self) -> Vec<String> {
        let (Self(before), Self(after)) = (self, after);
        let gone = before.keys().filter(|name| !after.contains_key(*name));
        let other = after.iter().filter(|(name, hash)| before.get(*name) != Some(hash)).map(|(name, _)| name);
        let mut names: Vec<_> = gone.chain(other).cloned().collect();
        names.sort_unstable();
        names
    }
}

fn walk(path: String, depth: usize, value: &Value, fields: &mut BTreeMap<String, u64>) {
    match value {
        Value::Null => {}
        Value::Object(members) if depth > 0 => {
            for (name, member) in members {
                walk(format!("{path}.{name}"), depth - 1, member, fields);
            }
        }
        Value::Array(items) if depth > 0 && items.iter().all(|item| name(item).is_some()) => {
            for item in items {
                walk(format!("{path}[{}]", name(item).unwrap_or_default()), depth, item, fields);
            }
        }
        value => {
            let mut hasher = DefaultHasher::new();
            value.to_string().hash(&mut hasher);
            fields.insert(path, hasher.finish());
        }
    }
}

/// The identity of an item in a list: containers and volumes have names, conditions have types.
fn name(item: &Value) -> Option<&str> {
    ["name", "type"].into_iter().find_map(|key| item.get(key)?.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Change = fn(&mut Value);

    #[test]
    fn a_change_is_named_by_its_field_and_has_no_value() {
        let before = json!({
            "metadata": { "labels": { "a": "1" }, "resourceVersion": "1",
                "annotations": { CONFIG_SEEN_ANNOTATION: "x" } },
            "spec": { "nodeName": "n", "containers": [
                { "name": "web", "image": "i:1", "env": [{ "name": "PASSWORD", "value": "one" }] },
                { "name": "log", "image": "l:1" },
            ] },
            "status": { "phase": "Pending", "conditions": [{ "type": "Ready", "status": "False" }],
                "containerStatuses": [{ "name": "web", "state": { "waiting": { "reason": "x" } }, "ready": false }] },
        });
        let changed = |change: fn(&mut Value)| {
            let mut after = before.clone();
            change(&mut after);
            let of = |pod: &Value| Fields::of(&serde_json::from_value(pod.clone()).unwrap());
            of(&before).changed(&of(&after))
        };
        for (change, expected) in [
            ((|_| {}) as Change, &[][..]),
            (|pod| pod["metadata"]["resourceVersion"] = json!("2"), &[]),
            (|pod| pod["metadata"]["annotations"][CONFIG_SEEN_ANNOTATION] = json!("y"), &[]),
            (|pod| pod["metadata"]["annotations"] = json!(null), &[]),
            (|pod| pod["metadata"]["managedFields"] = json!([{}]), &[]),
            (|pod| pod["metadata"]["labels"]["b"] = json!("2"), &["metadata.labels"]),
            (|pod| pod["metadata"]["annotations"]["k"] = json!("v"), &["metadata.annotations"]),
            (|pod| pod["status"]["phase"] = json!("Running"), &["status.phase"]),
            (
                |pod| pod["spec"]["containers"][0]["env"][0]["value"] = json!("two"),
                &["spec.containers[web].env"],
            ),
            (|pod| pod["spec"]["containers"][1]["image"] = json!("l:2"), &["spec.containers[log].image"]),
            (
                |pod| pod["status"]["conditions"][0]["status"] = json!("True"),
                &["status.conditions[Ready].status"],
            ),
            (
                |pod| pod["status"]["containerStatuses"][0]["state"] = json!({ "running": {} }),
                &["status.containerStatuses[web].state"],
            ),
            (|pod| drop(pod["spec"].as_object_mut().unwrap().remove("nodeName")), &["spec.nodeName"]),
            (|pod| pod["spec"]["containers"].as_array_mut().unwrap().reverse(), &[]),
        ] {
            assert_eq!(changed(change), expected);
        }
    }
}
