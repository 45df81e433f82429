//! Problems with `/proc` or cgroupfs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::text::kinds;

/// A file or directory that could not be read or followed. Errors name the path and never quote the content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolveError {
    kind: ResolveErrorKind,
    path: PathBuf,
    detail: String,
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
    /// There are more cgroups than [`CgroupOptions::max_cgroups`](super::CgroupOptions::max_cgroups), or more in one
    /// pod than [`CgroupOptions::max_in_pod`](super::CgroupOptions::max_in_pod).
    TooMany = "tooMany",
    /// Another file system is mounted there.
    OtherFileSystem = "otherFileSystem",
    /// The kernel refuses another watch: `fs.inotify.max_user_watches` or `fs.inotify.max_user_instances` is reached.
    NoWatch = "noWatch",
}
}

impl ResolveError {
    pub(super) fn new(kind: ResolveErrorKind, path: &Path, detail: impl Into<String>) -> Self {
        Self { kind, path: path.to_owned(), detail: detail.into() }
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::new(ResolveErrorKind::Unreadable, path, format!("cannot be read: {error}"))
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> ResolveErrorKind {
        self.kind
    }

    /// The file or directory that the error is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.detail)
    }
}

impl std::error::Error for ResolveError {}
