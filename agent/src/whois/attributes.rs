//! The attributes of an answer: an object that can be merged into an event.

use pod_index::identity::ContainerId;
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

/// The attributes of a pod, and of its container, if that is known. `id`: of the container, if the identity names it.
pub(super) fn of<'a>(record: &'a Record, container: Option<&str>, id: Option<ContainerId>) -> Attributes<'a> {
    // Of the run that the identity names; otherwise of the latest.
    if let Some((container, run)) = id.and_then(|id| record.container_run(id)) {
        return record.attributes_of(Some(container), Some(run));
    }
    let container = match (container, record.containers()) {
        // The path of a log may name one that the pod does not have.
        (Some(name), _) => record.container(name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    // A run that the status does not know is not the latest one.
    let run = container.filter(|_| id.is_none()).and_then(Container::latest);
    record.attributes_of(container, run)
}
