//! The names of what goes over the wire: forms of pods, kinds of events.

use hyper::body::Bytes;

/// What each row of a `Table` carries besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// How a pod is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// All of it.
    Object,
    /// `PartialObjectMetadata`.
    Metadata,
    /// A row of the columns that `kubectl get pods` shows.
    Table(Include),
    /// A row of the agent's own columns.
    Rows,
}

/// What a watch is told of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

impl Kind {
    /// An event up to its object.
    pub(super) fn head(self) -> &'static [u8] {
        match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }

    /// An event of this kind, with what follows the head.
    pub(super) fn line(self, rest: &[u8]) -> Bytes {
        [self.head(), rest].concat().into()
    }
}
