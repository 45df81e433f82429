//! An object of the API: decoded while it is current, encoded once it is replaced.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Bytes;

use super::resource::{Item, Resource};
use super::shape::{Form, Kind};
use super::write;
use crate::api::view::View;

/// An object and the version of its last event.
#[derive(Debug)]
pub(super) struct Object {
    of: &'static Resource,
    pub(super) version: u64,
    /// Whether [`View::Kubelet`] has it.
    pub(super) is_in_kubelet_view: bool,
    content: Mutex<Content>,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Shared with the index.
    Live(Arc<dyn Item>),
    /// A decoded object can take 30 times its JSON, and many replaced objects are kept.
    Replaced(Arc<Encoded>),
}

/// An encoded object, and what selectors ask of it.
#[derive(Debug)]
pub(super) struct Encoded {
    json: Box<[u8]>,
    labels: BTreeMap<String, String>,
    fields: Vec<Field>,
}

/// A field that selectors may name.
#[derive(Debug)]
struct Field {
    name: &'static str,
    value: Box<str>,
}

impl Encoded {
    fn new(of: &Resource, object: &dyn Item, version: u64) -> Self {
        let mut json = Vec::new();
        write::whole(of, object, version, View::Kubelet, &mut json);
        Self {
            json: json.into(),
            labels: object.metadata().labels.clone().unwrap_or_default(),
            fields: of.fields.iter().map(|name| Field { name, value: object.field(name).into() }).collect(),
        }
    }

    /// The memory that it takes.
    fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len() + 2 * size_of::<String>());
        let fields = self.fields.iter().map(|field| field.value.len() + size_of::<Field>());
        size_of::<Self>() + self.json.len() + labels.sum::<usize>() + fields.sum::<usize>()
    }
}

impl Content {
    pub(super) fn labels(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Live(object) => object.metadata().labels.as_ref(),
            Self::Replaced(encoded) => Some(&encoded.labels),
        }
    }

    pub(super) fn field(&self, name: &str) -> &str {
        match self {
            Self::Live(object) => object.field(name),
            Self::Replaced(encoded) => {
                let field = encoded.fields.iter().find(|field| field.name == name);
                field.map_or("", |field| &field.value)
            }
        }
    }
}

impl Object {
    pub(super) fn new(
        of: &'static Resource,
        object: Arc<dyn Item>,
        version: u64,
        is_in_kubelet_view: bool,
    ) -> Arc<Self> {
        Arc::new(Self { of, version, is_in_kubelet_view, content: Mutex::new(Content::Live(object)) })
    }

    pub(super) fn content(&self) -> Content {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The decoded object, unless it was replaced.
    pub(super) fn current(&self) -> Option<Arc<dyn Item>> {
        match self.content() {
            Content::Live(object) => Some(object),
            Content::Replaced(_) => None,
        }
    }

    /// Encodes the object and lets go of the decoded one. Returns the memory that it takes from now on.
    pub(super) fn replace(&self) -> usize {
        // Freed after the lock is released.
        let Some(live) = self.current() else { return 0 };
        let encoded = Arc::new(Encoded::new(self.of, &*live, self.version));
        let bytes = encoded.bytes();
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) = Content::Replaced(encoded);
        bytes
    }

    /// An event with this object and version, as a line.
    pub(super) fn line(&self, form: Form, kind: Kind, version: u64, with_columns: bool) -> Bytes {
        let mut line = kind.head().to_vec();
        self.write(form, Some(with_columns), version, &mut line);
        line.extend_from_slice(b"}\n");
        line.into()
    }

    /// Appends the object: see [`Form::write`].
    pub(super) fn write(&self, form: Form, with_columns: Option<bool>, version: u64, out: &mut Vec<u8>) {
        match self.content() {
            Content::Live(object) => form.write(self.of, &*object, version, with_columns, out),
            Content::Replaced(encoded) if form == Form::KubeletObject && version == self.version => {
                out.extend_from_slice(&encoded.json);
            }
            Content::Replaced(encoded) => match (self.of.decode)(&encoded.json) {
                Ok(object) => form.write(self.of, &*object, version, with_columns, out),
                // What was encoded can be decoded.
                Err(_) => out.extend_from_slice(b"null"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::super::pod::PODS;
    use super::*;

    #[test]
    fn a_replaced_object_is_written_as_before_with_any_version() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "shop", "resourceVersion": "17", "uid": "u\"resourceVersion\":\"1000\"",
                "annotations": { "a\"b": "\"resourceVersion\":\"1000\"", "resourceVersion": "1000" }, "labels": { "app": "web" },
            },
            "spec": { "nodeName": "node-1", "containers": [{ "name": "c" }] }, "status": { "phase": "Running" },
        }))
        .unwrap();
        let forms = [Form::Object, Form::KubeletObject, Form::Metadata, Form::FullTable, Form::KubeletTable];
        for version in [1000, 1001] {
            let live = Object::new(&PODS, Arc::new(pod.clone()), 1000, true);
            let replaced = Object::new(&PODS, Arc::new(pod.clone()), 1000, true);
            assert!(replaced.replace() > 400);
            for form in forms {
                let [live, replaced] =
                    [&live, &replaced].map(|object| object.line(form, Kind::Deleted, version, false));
                assert_eq!(live, replaced, "{form:?}");
                let event: Value = serde_json::from_slice(&live).unwrap();
                assert_eq!(event["object"]["metadata"]["resourceVersion"], version.to_string(), "{form:?}");
            }
            for field in PODS.fields {
                assert_eq!(live.content().field(field), replaced.content().field(field));
            }
            assert_eq!(live.content().labels(), replaced.content().labels());
        }
    }
}
