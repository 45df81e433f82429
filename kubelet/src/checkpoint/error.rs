//! Problems with a checkpoint or with the checkpoint directory. An error names the file and quotes nothing of
//! the pod but its name.

error_type! {
/// A problem with a checkpoint or with the checkpoint directory.
CheckpointError, CheckpointErrorKind,
/// The file or directory that the error is about.
path, "{}: {}"
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
