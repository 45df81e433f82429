//! The objects, their versions, and the history that watches are served from.

use std::sync::Arc;

use hyper::body::Bytes;
use im::OrdMap;
use serde_json::{Value, json};

/// The first resource version. Not 1, so that nothing passes that mixes it up with a count.
const FIRST_VERSION: u64 = 1000;

/// Where an object is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    pub resource: String,
    /// Empty for what has no namespace.
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
    /// `value` as it goes over the wire: made once, sent to many.
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

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What happened to an object at a version.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) old: Option<Arc<Object>>,
    /// Absent: it is gone. `last` is what a watch is told of it.
    pub(super) new: Option<Arc<Object>>,
    pub(super) last: Arc<Object>,
}

pub(super) type Objects = OrdMap<Key, Arc<Object>>;

#[derive(Clone)]
pub struct Store {
    pub(super) version: u64,
    pub(super) objects: Objects,
    /// Every change after `forgotten`, in order.
    pub(super) history: Vec<Change>,
    /// Versions before this one are Gone for whoever begins to watch, or asks for them.
    pub(super) compacted: u64,
    /// What was changed up to this version cannot be told any more, not even to an open watch.
    pub(super) forgotten: u64,
    /// The sets that paged lists are served from, by their version.
    pub(super) pages: Vec<(u64, Objects)>,
    uids: u64,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            version: FIRST_VERSION,
            objects: Objects::new(),
            history: Vec::new(),
            compacted: FIRST_VERSION,
            forgotten: FIRST_VERSION,
            pages: Vec::new(),
            uids: 0,
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    pub(super) fn all(&self, resource: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values().filter(move |object| object.key.resource == resource)
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
        // What a watch is told of a deleted object bears the version of its deletion.
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

    /// Open watches are told what came before: it is in the server's memory. `remembers`: all of it, for some of them are
    /// slow. Else what an earlier compaction left is forgotten.
    pub(super) fn compact(&mut self, remembers: bool) {
        if !remembers {
            let kept = self.history.partition_point(|change| change.version <= self.compacted);
            self.history.drain(..kept);
            self.forgotten = self.forgotten.max(self.compacted);
        }
        self.compacted = self.version;
        self.pages.clear();
    }

    /// The objects as they were at a version. `None` if that is compacted.
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

    /// What `self` was once, with one difference: UIDs are random, and do not come again.
    pub(super) fn restored(&self, backup: &Self) -> Self {
        Self { uids: self.uids.max(backup.uids), ..backup.clone() }
    }

    fn object(&self, key: Key, value: Value) -> Arc<Object> {
        Arc::new(Object::new(key, self.version, value))
    }
}
