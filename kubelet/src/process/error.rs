//! Problems with `/proc` or cgroupfs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A file or directory that could not be read or followed. Errors name the path and never quote the content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolveError {
    kind: ResolveErrorKind,
    path: PathBuf,
    detail: String,
}

/// The kinds of [`ResolveError`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ResolveErrorKind {
    /// It could not be read. A file that has vanished is not an error, but [`Gone`](super::Placement::Gone).
    Unreadable,
    /// It is longer than 64 KiB, which no valid file is.
    TooLong,
    /// One of its fields is missing or invalid.
    Malformed,
    /// A cgroup is deeper than [`CgroupOptions::max_depth`](super::CgroupOptions::max_depth).
    TooDeep,
    /// There are more cgroups than [`CgroupOptions::max_cgroups`](super::CgroupOptions::max_cgroups), or more in one
    /// pod than [`CgroupOptions::max_in_pod`](super::CgroupOptions::max_in_pod).
    TooMany,
    /// Another file system is mounted there.
    OtherFileSystem,
    /// The kernel refuses another watch: `fs.inotify.max_user_watches` or `fs.inotify.max_user_instances` is reached.
    NoWatch,
}

impl ResolveErrorKind {
    /// A short word for the kind, for metric labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::TooLong => "tooLong",
            Self::Malformed => "malformed",
            Self::TooDeep => "tooDeep",
            Self::TooMany => "tooMany",
            Self::OtherFileSystem => "otherFileSystem",
            Self::NoWatch => "noWatch",
        }
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
