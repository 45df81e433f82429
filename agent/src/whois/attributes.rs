//! The attributes of an answer: an object that can be merged into an event.

use pod_index::identity::Identity;
use pod_index_kubelet::records::{Attributes, Container, Record, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Attributes as a JSON object.
pub(super) struct Object<'a>(pub(super) Attributes<'a>);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let attributes = self.0.clone();
        let mut object = to.serialize_map(Some(attributes.len()))?;
        for attribute in attributes {
            match &attribute.value {
                Value::Texts(texts) => {
                    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
                    object.serialize_entry(&*attribute.name, &texts)?;
                }
                value => object.serialize_entry(&*attribute.name, value.as_text().unwrap_or_default())?,
            }
        }
        object.end()
    }
}

/// The attributes of a pod, and of its container, if that is known.
pub(super) fn of<'a>(record: &'a Record, container: Option<&str>, identity: &Identity<'_>) -> Attributes<'a> {
    let id = match identity {
        Identity::ContainerId(id) => Some(*id),
        Identity::Cgroup(cgroup) => cgroup.container_id,
        _ => None,
    };
    // Of the run that the identity names; otherwise of the latest.
    if let Some((container, run)) = id.and_then(|id| record.container_run(id)) {
        return record.attributes_of(Some(container), Some(run));
    }
    match container {
        None => record.attributes(),
        // The path of a log may name one that the pod does not have.
        Some(name) => {
            let container = record.container(name);
            record.attributes_of(container, container.and_then(Container::latest))
        }
    }
}
