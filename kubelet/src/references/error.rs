//! Why an object could not be read, in the kubelet's words. Errors never quote an object's content.

use std::fmt;

/// Why [`Manager::get`](super::Manager::get) returned no object, with the message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GetError {
    /// No registered pod names it.
    NotRegistered(String),
    /// It is followed, but the API server has not answered within the time that a get waits.
    NotSynced(String),
    /// There is no such object.
    NotFound(String),
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotRegistered(message) | Self::NotSynced(message) | Self::NotFound(message)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for GetError {}
