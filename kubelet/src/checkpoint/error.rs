//! Problems with a checkpoint or with the checkpoint directory. An error names the file and quotes nothing of
//! the pod but its name.

use std::fmt;
use std::path::Path;

use crate::text::kinds;

/// A problem with a checkpoint or with the checkpoint directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CheckpointError {
    kind: CheckpointErrorKind,
    path: String,
    message: String,
}

kinds! {
/// The kinds of [`CheckpointError`]s.
pub enum CheckpointErrorKind {
    /// The directory cannot be created, opened or listed.
    Directory = "directory",
    /// Another process uses the directory.
    Locked = "locked",
    /// The file is damaged: it was cut off, or its bytes changed.
    Torn = "torn",
    /// The file is not a checkpoint, or holds another pod. Anything but a regular file is left alone, except
    /// a directory in the place of a checkpoint to be written: it is set aside.
    Foreign = "foreign",
    /// A newer version of this program wrote the file.
    Newer = "newer",
    /// Several attempts to read the file failed. It stays until a source reports its pod, and is read again
    /// at the next start.
    Unreadable = "unreadable",
    /// A pod's checkpoint could not be written.
    Write = "write",
    /// The pod is larger than the largest checkpoint. It gets no checkpoint, and no wait includes it.
    TooLarge = "tooLarge",
    /// An obsolete checkpoint could not be removed.
    Remove = "remove",
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

    /// Whether they differ only in their paths.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.kind, &self.message) == (other.kind, &other.message)
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> CheckpointErrorKind {
        self.kind
    }

    /// The file or directory that the error is about.
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
