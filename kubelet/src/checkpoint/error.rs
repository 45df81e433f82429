//! What can be wrong with a checkpoint, or with the place for them. It names the file, and tells of the pod in it no more
//! than its name.

use std::fmt;
use std::path::Path;

/// Something that could not be read, written or used.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CheckpointError {
    kind: CheckpointErrorKind,
    path: String,
    message: String,
}

/// The kinds of [`CheckpointError`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CheckpointErrorKind {
    /// The directory cannot be made, opened or listed.
    Directory,
    /// Another process uses the directory.
    Locked,
    /// The file is not what was once written: it was cut off, or its bytes changed.
    Torn,
    /// The file is no checkpoint, or that of another pod. What is no regular file is left alone,
    /// unless it is a directory in the place of a checkpoint that is to be written: that is set aside.
    Foreign,
    /// A newer version of this program wrote the file.
    Newer,
    /// The file could not be read, several times. It stays as it is until something is heard of its pod, and is read again
    /// at the next start.
    Unreadable,
    /// A pod's checkpoint could not be written.
    Write,
    /// A pod is larger than any checkpoint that would be read. It has none, and is not waited for.
    TooLarge,
    /// A checkpoint that is no longer wanted could not be removed.
    Remove,
}

impl CheckpointErrorKind {
    /// A short word for the kind, for labels of metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Locked => "locked",
            Self::Torn => "torn",
            Self::Foreign => "foreign",
            Self::Newer => "newer",
            Self::Unreadable => "unreadable",
            Self::Write => "write",
            Self::TooLarge => "tooLarge",
            Self::Remove => "remove",
        }
    }
}

impl CheckpointError {
    pub(super) fn new(kind: CheckpointErrorKind, path: &Path, message: impl Into<String>) -> Self {
        Self { kind, path: path.display().to_string(), message: message.into() }
    }

    pub(super) fn and(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> CheckpointErrorKind {
        self.kind
    }

    /// The file or the directory it is about.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for CheckpointError {}
