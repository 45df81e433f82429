//! One change of the pods that the API shows, and what it is to a watch.

use std::sync::Arc;

use super::object::Object;
use super::selection::{Marks, Selection};
use super::shape::Kind;

/// A change under one name.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    /// Namespace, slash, name.
    pub(super) key: Arc<str>,
    /// The object that the event made.
    pub(super) now: Option<Arc<Object>>,
    /// The object before it.
    pub(super) was: Option<Arc<Object>>,
    /// The object before it, with the version of the event: what those are told for whom it is gone.
    pub(super) gone: Option<Arc<Object>>,
    /// Those of the object before and after.
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

    /// What it is to a watch of this selection: an object that comes into it is added, one that leaves it deleted.
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
