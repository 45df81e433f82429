//! A change of an object in the API, and its effect on a watch.

use std::sync::Arc;

use hyper::body::Bytes;

use super::object::Object;
use super::selection::{Marks, Selection};
use super::shape::{Form, Kind};

/// A change of the object with this key.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    /// The object after the event.
    pub(super) now: Option<Arc<Object>>,
    /// The object before the event.
    pub(super) was: Option<Arc<Object>>,
    /// The marks of the objects before and after the event.
    pub(super) marks: Marks,
    /// The event as a line, in the forms of the watches that it may affect. They share the bytes.
    lines: Vec<(Form, Bytes)>,
}

impl Event {
    /// Encodes the event in these forms.
    pub(super) fn new(
        version: u64,
        was: Option<Arc<Object>>,
        now: Option<Arc<Object>>,
        forms: impl Fn(Marks) -> Vec<Form>,
    ) -> Self {
        let marks = [&was, &now].into_iter().flatten().map(|object| Marks::of(&object.content())).collect();
        let mut event = Self { version, now, was, marks, lines: Vec::new() };
        let kind = event.kind();
        event.lines = forms(marks).into_iter().map(|form| (form, event.encode(form, kind, false))).collect();
        event
    }

    /// The memory of its lines.
    pub(super) fn bytes(&self) -> usize {
        self.lines.iter().map(|(_, line)| line.len()).sum()
    }

    /// The number of encoded lines.
    pub(super) fn encoded(&self) -> usize {
        self.lines.len()
    }

    /// The kind of the event for a watch that selects the object before and after it.
    fn kind(&self) -> Kind {
        match (&self.was, &self.now) {
            (None, _) => Kind::Added,
            (Some(_), Some(_)) => Kind::Modified,
            (Some(_), None) => Kind::Deleted,
        }
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

    /// The event as a line, if it was encoded in this form.
    pub(super) fn kept_line(&self, form: Form, kind: Kind) -> Option<Bytes> {
        let (_, line) = self.lines.iter().find(|(known, _)| *known == form)?;
        let own = self.kind();
        if kind == own {
            return Some(line.clone());
        }
        // The same object in an event of another kind. A deleted object is another.
        (kind != Kind::Deleted && own != Kind::Deleted).then(|| kind.line(&line[own.head().len()..]))
    }

    /// Encodes the event as a line.
    pub(super) fn encode(&self, form: Form, kind: Kind, with_columns: bool) -> Bytes {
        // A deleted object has the event's version.
        let object = if kind == Kind::Deleted { &self.was } else { &self.now };
        let line = |object: &Arc<Object>| object.line(form, kind, self.version, with_columns);
        object.as_ref().map(line).unwrap_or_default()
    }
}
