//! Why an object could not be read, in the kubelet's words. Errors never quote an object's content.

use std::fmt;

use crate::text::shorten;

/// Why [`Manager::get`](super::Manager::get) returned no object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GetError {
    kind: GetErrorKind,
    message: String,
}

kinds! {
/// The kinds of [`GetError`]s.
pub enum GetErrorKind {
    /// No registered pod names it.
    NotRegistered = "notRegistered",
    /// It is followed, but the API server has not answered within the time that a get waits.
    NotSynced = "notSynced",
    /// There is no such object.
    NotFound = "notFound",
}
}

impl GetError {
    pub(super) fn new(kind: GetErrorKind, message: String) -> Self {
        Self { kind, message }
    }

    pub(super) fn not_registered(namespace: &str, name: &str) -> Self {
        let message = format!("object {:?}/{:?} not registered", shorten(namespace), shorten(name));
        Self::new(GetErrorKind::NotRegistered, message)
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> GetErrorKind {
        self.kind
    }
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for GetError {}
