//! Problems with `/proc` or cgroupfs.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// A file or directory that could not be read or followed. Errors name the path and never quote the content. A file that
/// has vanished is not an error, but [`Gone`](super::Placement::Gone).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ResolveError {
    /// The file or directory that the error is about.
    pub path: PathBuf,
    /// What is wrong with it.
    pub message: String,
}

impl ResolveError {
    pub(super) fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into() }
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::new(path, format!("cannot be read: {error}"))
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.message)
    }
}

impl std::error::Error for ResolveError {}
