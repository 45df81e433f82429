//! Why a pod was refused: the field and the reason.

use std::fmt;

use crate::pod::PodMeta;
use crate::text::shorten;

/// A pod that the index refused. The index is unchanged.
///
/// # Examples
/// ```
/// use pod_index::{ErrorKind, SimplePod};
///
/// let (mut writer, _reader) = pod_index::new();
/// let error = writer.upsert_pod(SimplePod::new("", "default", "web")).unwrap_err();
/// assert_eq!(error.kind, ErrorKind::Empty);
/// assert_eq!(error.field, "metadata.uid");
/// assert_eq!(error.to_string(), r#"pod "web_default" (UID ""): metadata.uid: must not be empty"#);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Error {
    /// The invalid field in Kubernetes' notation, such as `metadata.uid`.
    pub field: &'static str,
    /// The reason.
    pub kind: ErrorKind,
    /// The refused pod's UID, cut if it is very long (it then ends in `…`).
    pub uid: String,
    /// The refused pod's `name_namespace`. Very long parts are cut and end in `…`.
    pub full_name: String,
}

/// The reason for a refusal.
///
/// # Examples
/// See [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The field is empty.
    Empty,
    /// The field contains `_`, which would make the pod's full name ambiguous.
    Separator,
}

impl Error {
    pub(crate) fn new<P: PodMeta + ?Sized>(field: &'static str, kind: ErrorKind, pod: &P) -> Self {
        Self {
            field,
            kind,
            uid: shorten(pod.uid()),
            full_name: format!("{}_{}", shorten(pod.name()), shorten(pod.namespace())),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.kind {
            ErrorKind::Empty => "must not be empty",
            ErrorKind::Separator => "must not contain `_`, which separates name and namespace in a full name",
        };
        write!(f, "pod {:?} (UID {:?}): {}: {problem}", self.full_name, self.uid, self.field)
    }
}

impl std::error::Error for Error {}
