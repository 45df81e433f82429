//! What other clients do to the objects.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::ApiServer;
use super::store::{Key, Object};

impl ApiServer {
    /// Creates or replaces the object. Returns the stored version: with a UID, if it had none, and a new
    /// resource version.
    pub fn put(&self, resource: &str, object: &impl Serialize) -> Arc<Object> {
        let object = serde_json::to_value(object).unwrap();
        let stored = self.shared.lock().store.put(resource, object);
        self.shared.announce();
        stored
    }

    /// Several [`put`](Self::put)s, announced together.
    pub fn put_all(&self, resource: &str, objects: impl IntoIterator<Item = impl Serialize>) {
        let mut state = self.shared.lock();
        for object in objects {
            state.store.put(resource, serde_json::to_value(&object).unwrap());
        }
        drop(state);
        self.shared.announce();
    }

    /// Removes the object immediately, without grace.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let removed = self.shared.lock().store.remove(&Key::new(resource, namespace, name));
        self.shared.announce();
        removed
    }

    /// The stored object.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.shared.lock();
        Some(state.store.get(&Key::new(resource, namespace, name))?.value.clone())
    }

    /// All objects of one kind, sorted by namespace and name, to compare with.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        self.shared.lock().store.all(resource).map(|object| object.value.clone()).collect()
    }
}
