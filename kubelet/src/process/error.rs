//! Problems with `/proc` or cgroupfs.

use std::io;
use std::path::Path;

error_type! {
/// A file or directory that could not be read or followed. Errors name the path and never quote the content.
ResolveError, ResolveErrorKind,
/// The file or directory that the error is about.
path, "{} {}"
}

kinds! {
/// The kinds of [`ResolveError`]s.
pub enum ResolveErrorKind {
    /// It could not be read. A file that has vanished is not an error, but [`Gone`](super::Placement::Gone).
    Unreadable = "unreadable",
    /// It is longer than 64 KiB, which no valid file is.
    TooLong = "tooLong",
    /// One of its fields is missing or invalid.
    Malformed = "malformed",
    /// A cgroup is deeper than 16 cgroups below the root.
    TooDeep = "tooDeep",
    /// There are more cgroups than [`CgroupOptions::max_cgroups`](super::CgroupOptions#structfield.max_cgroups), or more in one
    /// pod than [`CgroupOptions::max_in_pod`](super::CgroupOptions#structfield.max_in_pod).
    TooMany = "tooMany",
    /// Another file system is mounted there.
    OtherFileSystem = "otherFileSystem",
    /// The kernel refuses another watch: `fs.inotify.max_user_watches` or `fs.inotify.max_user_instances` is reached.
    NoWatch = "noWatch",
}
}

impl ResolveError {
    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::new(ResolveErrorKind::Unreadable, path, format!("cannot be read: {error}"))
    }
}
