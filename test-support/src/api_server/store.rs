//! The objects, their versions, and the history for watches.

use std::sync::Arc;

use hyper::body::Bytes;
use im::OrdMap;
use serde_json::{Value, json};

/// The first resource version. Not 1, so that code which confuses it with a count fails.
const FIRST_VERSION: u64 = 1000;

/// The key of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    pub resource: String,
    /// Empty for objects without a namespace.
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One version of an object.
#[derive(Debug)]
pub struct Object {
    pub key: Key,
    pub version: u64,
    pub value: Value,
    /// `value` in its wire format, encoded once for many watches.
    pub json: Bytes,
}

impl Object {
    pub(super) fn new(key: Key, version: u64, mut value: Value) -> Self {
        value["metadata"]["resourceVersion"] = json!(version.to_string());
        let json = serde_json::to_vec(&value).unwrap().into();
        Self { key, version, value, json }
    }

    pub fn uid(&self) -> &str {
        text(&self.value, "/metadata/uid")
    }
}

/// The text at a JSON pointer; empty if missing.
pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A change of an object at a version.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) old: Option<Arc<Object>>,
    /// `None` means removed. `last` is what watches send then.
    pub(super) new: Option<Arc<Object>>,
    pub(super) last: Arc<Object>,
}

pub(super) type Objects = OrdMap<Key, Arc<Object>>;

#[derive(Clone, Default)]
pub struct Store {
    pub(super) version: u64,
    pub(super) objects: Objects,
    /// Every change after `forgotten`, in order.
    pub(super) history: Vec<Change>,
    /// Watches and reads of versions before this one get 410 Gone.
    pub(super) compacted: u64,
    /// Changes up to this version are no longer available, even to open watches.
    pub(super) forgotten: u64,
    /// The sets of paged lists, by version.
    pub(super) pages: Vec<(u64, Objects)>,
    uids: u64,
}

impl Store {
    pub(super) fn new() -> Self {
        Self { version: FIRST_VERSION, compacted: FIRST_VERSION, forgotten: FIRST_VERSION, ..Self::default() }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    pub(super) fn all(&self, resource: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values().filter(move |object| object.key.resource == resource)
    }

    /// The version of the last change of this resource that the history has; 0 without one.
    pub(super) fn changed(&self, resource: &str) -> u64 {
        let last = self.history.iter().rev().find(|change| change.last.key.resource == resource);
        last.map_or(0, |change| change.version)
    }

    pub(super) fn put(&mut self, resource: &str, mut value: Value) -> Arc<Object> {
        let key = Key::new(resource, text(&value, "/metadata/namespace"), text(&value, "/metadata/name"));
        assert!(!key.name.is_empty(), "an object without a name: {value}");
        let old = self.objects.get(&key).cloned();
        self.version += 1;
        if text(&value, "/metadata/uid").is_empty() {
            self.uids += 1;
            let uid = old.as_ref().map_or_else(
                || format!("{:08x}-0000-4000-8000-{:012x}", self.uids, self.version),
                |old| old.uid().to_owned(),
            );
            value["metadata"]["uid"] = json!(uid);
        }
        if text(&value, "/metadata/creationTimestamp").is_empty() {
            value["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let new = self.object(key.clone(), value);
        self.objects.insert(key, Arc::clone(&new));
        self.history.push(Change {
            version: self.version,
            old,
            new: Some(Arc::clone(&new)),
            last: Arc::clone(&new),
        });
        new
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Arc<Object>> {
        let old = self.objects.remove(key)?;
        self.version += 1;
        // A watch reports a deleted object with the version of its deletion.
        let last = self.object(key.clone(), old.value.clone());
        self.history.push(Change {
            version: self.version,
            old: Some(old),
            new: None,
            last: Arc::clone(&last),
        });
        Some(last)
    }

    pub(super) fn jump(&mut self, by: u64) {
        self.version += by;
    }

    /// Open watches still receive earlier changes, from the server's memory. With `remembers`, all of them,
    /// since some watches are slow. Otherwise what an earlier compaction left is dropped.
    pub(super) fn compact(&mut self, remembers: bool) {
        if !remembers {
            let kept = self.history.partition_point(|change| change.version <= self.compacted);
            self.history.drain(..kept);
            self.forgotten = self.forgotten.max(self.compacted);
        }
        self.compacted = self.version;
        self.pages.clear();
    }

    /// The objects at a version. `None` if it was compacted.
    pub(super) fn at(&self, version: u64) -> Option<Objects> {
        if version < self.compacted {
            return None;
        }
        let mut objects = self.objects.clone();
        for change in self.history.iter().rev().take_while(|change| change.version > version) {
            match &change.old {
                Some(old) => objects.insert(change.last.key.clone(), Arc::clone(old)),
                None => objects.remove(&change.last.key),
            };
        }
        Some(objects)
    }

    /// The earlier state of `self`. Only the UID counter is kept: UIDs are random and never repeat.
    pub(super) fn restored(&self, backup: &Self) -> Self {
        Self { uids: self.uids.max(backup.uids), ..backup.clone() }
    }

    fn object(&self, key: Key, value: Value) -> Arc<Object> {
        Arc::new(Object::new(key, self.version, value))
    }
}
