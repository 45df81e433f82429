//! Problems with a checkpoint or with the checkpoint directory. An error names the file and quotes nothing of
//! the pod but its name.

use std::ffi::OsStr;
use std::fmt;

use crate::text::shorten_to;

/// A problem with a checkpoint or with the checkpoint directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CheckpointError {
    /// The kind of error.
    pub kind: CheckpointErrorKind,
    /// The file or directory that the error is about.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

kinds! {
/// The kinds of [`CheckpointError`]s.
pub enum CheckpointErrorKind {
    /// The directory cannot be created, opened or listed.
    Directory = "directory",
    /// Another process uses the directory.
    Locked = "locked",
    /// It is not a checkpoint that this program can use: it was cut off, its bytes changed, it is something else, holds
    /// another pod, or was written by a newer version.
    Unusable = "unusable",
    /// The file could not be read. It stays until a source reports its pod, and is read again
    /// at the next start.
    Unreadable = "unreadable",
    /// A pod's checkpoint could not be written.
    Write = "write",
    /// An obsolete checkpoint could not be removed.
    Remove = "remove",
    /// A generation of the index is not known to be on disk: the disk is slow, or the thread has ended.
    Late = "late",
}
}

impl CheckpointError {
    pub(super) fn new(kind: CheckpointErrorKind, path: impl AsRef<OsStr>, message: impl AsRef<str>) -> Self {
        let path = path.as_ref().to_string_lossy().into_owned();
        Self { kind, path, message: shorten_to(message.as_ref(), 1_024) }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for CheckpointError {}
