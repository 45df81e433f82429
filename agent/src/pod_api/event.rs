//! A change of an object in the API, and its effect on a watch.

use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Bytes;

use super::object::Object;
use super::selection::Selection;
use super::shape::{Form, Kind};

/// A change of the object with this key.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    /// The object after the event.
    pub(super) now: Option<Arc<Object>>,
    /// The object before the event.
    pub(super) was: Option<Arc<Object>>,
    /// The event as a line, in the forms and kinds that watches have asked for. They share the bytes.
    lines: Mutex<Vec<Line>>,
}

/// An event as watches of one form and kind get it.
#[derive(Debug)]
struct Line {
    form: Form,
    kind: Kind,
    bytes: Bytes,
}

impl Event {
    pub(super) fn new(version: u64, was: Option<Arc<Object>>, now: Option<Arc<Object>>) -> Self {
        Self { version, now, was, lines: Mutex::default() }
    }

    /// The kind of the event for a watch with this selection: an object that enters the selection is added, one that
    /// leaves it deleted.
    pub(super) fn to(&self, selection: &Selection) -> Option<Kind> {
        let is_selected =
            |object: &Option<Arc<Object>>| object.as_ref().is_some_and(|object| selection.matches(object));
        match (is_selected(&self.was), is_selected(&self.now)) {
            (false, true) => Some(Kind::Added),
            (true, true) => Some(Kind::Modified),
            (true, false) => Some(Kind::Deleted),
            (false, false) => None,
        }
    }

    /// The event as a line, if a watch has encoded it.
    pub(super) fn kept_line(&self, form: Form, kind: Kind) -> Option<Bytes> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.iter().find(|line| line.form == form && line.kind == kind);
        line.map(|line| line.bytes.clone())
    }

    pub(super) fn keep_line(&self, form: Form, kind: Kind, bytes: Bytes) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(Line { form, kind, bytes });
    }

    /// Encodes the event as a line.
    pub(super) fn encode(&self, form: Form, kind: Kind, with_columns: bool) -> Bytes {
        // A deleted object has the event's version.
        let object = if kind == Kind::Deleted { &self.was } else { &self.now };
        let line = |object: &Arc<Object>| object.line(form, kind, self.version, with_columns);
        object.as_ref().map(line).unwrap_or_default()
    }
}
