//! Forms of objects and kinds of events.

/// The form of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The whole pod, with the annotations of the API server's.
    Object,
    /// The same in [`View::Kubelet`](crate::api::view::View): with the annotations that the kubelet and the agent add.
    KubeletObject,
    /// `PartialObjectMetadata`.
    Metadata,
    /// A row with the columns of `kubectl get pods`, and the object's metadata.
    Table,
    /// The same with the whole object.
    FullTable,
    /// A row in [`View::Kubelet`](crate::api::view::View), with the agent's own columns.
    KubeletTable,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

impl Kind {
    /// The start of an event, up to its object.
    pub(super) fn head(self) -> &'static [u8] {
        match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }
}
