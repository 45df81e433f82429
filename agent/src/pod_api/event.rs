//! A change of a pod in the API, and its effect on a watch.

use std::sync::Arc;

use super::object::Object;
use super::selection::{Marks, Selection};
use super::shape::Kind;

/// A change of the pod with this key.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    /// Namespace, slash, name.
    pub(super) key: Arc<str>,
    /// The object after the event.
    pub(super) now: Option<Arc<Object>>,
    /// The object before the event.
    pub(super) was: Option<Arc<Object>>,
    /// The object before the event, with the event's version: sent to watches that no longer select the pod.
    pub(super) gone: Option<Arc<Object>>,
    /// The marks of the objects before and after the event.
    pub(super) marks: Marks,
}

impl Event {
    pub(super) fn new(
        version: u64,
        key: Arc<str>,
        was: Option<Arc<Object>>,
        now: Option<Arc<Object>>,
    ) -> Self {
        let gone = was.as_ref().map(|was| Object::new(Arc::clone(&was.pod), version));
        let marks = [&was, &now].into_iter().flatten().map(|object| Marks::of_pod(&object.pod)).collect();
        Self { version, key, now, was, gone, marks }
    }

    /// The event as seen by a watch with this selection: an object that enters the selection is added, one that leaves
    /// it deleted.
    pub(super) fn to(&self, selection: &Selection) -> Option<(Kind, &Arc<Object>)> {
        let selected = |object: &&Arc<Object>| selection.matches(&object.pod);
        match (self.was.as_ref().filter(selected), self.now.as_ref().filter(selected)) {
            (None, Some(now)) => Some((Kind::Added, now)),
            (Some(_), Some(now)) => Some((Kind::Modified, now)),
            (Some(_), None) => self.gone.as_ref().map(|gone| (Kind::Deleted, gone)),
            (None, None) => None,
        }
    }
}
