//! Why an object could not be read, in the kubelet's words where it has them. Errors never quote an object's
//! content.

use std::fmt;

use super::key::ObjectKey;
use crate::text::{kinds, shorten};

/// Why [`Manager::get`](super::Manager::get) returned no object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GetError {
    kind: GetErrorKind,
    namespace: String,
    name: String,
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
    /// The API server refused, could not be reached, or sent an unreadable answer.
    Request = "request",
}
}

impl GetError {
    pub(super) fn not_registered(namespace: &str, name: &str) -> Self {
        let (namespace, name) = (shorten(namespace), shorten(name));
        let message = format!("object {namespace:?}/{name:?} not registered");
        Self { kind: GetErrorKind::NotRegistered, namespace, name, message }
    }

    pub(super) fn not_synced(word: &str, key: &ObjectKey, problem: Option<&str>) -> Self {
        let mut message = format!("failed to sync {word} cache: timed out waiting for the condition");
        if let Some(problem) = problem {
            message.push_str(": ");
            message.push_str(problem);
        }
        Self::about(GetErrorKind::NotSynced, key, message)
    }

    pub(super) fn not_found(word: &str, key: &ObjectKey) -> Self {
        Self::about(GetErrorKind::NotFound, key, format!("{word} {:?} not found", &*key.name))
    }

    pub(super) fn request(word: &str, key: &ObjectKey, problem: &str) -> Self {
        let message = format!("{word} {:?} of namespace {:?}: {problem}", &*key.name, &*key.namespace);
        Self::about(GetErrorKind::Request, key, message)
    }

    fn about(kind: GetErrorKind, key: &ObjectKey, message: String) -> Self {
        Self { kind, namespace: key.namespace.to_string(), name: key.name.to_string(), message }
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> GetErrorKind {
        self.kind
    }

    /// The requested namespace, cut if it is very long (it then ends in `…`).
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The requested name, cut if it is very long (it then ends in `…`).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for GetError {}
