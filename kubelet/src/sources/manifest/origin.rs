//! Where a manifest came from.

use std::path::Path;

use crate::sources::Source;

/// Where a manifest came from. It becomes part of its pods' UIDs and of reported problems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin<'a> {
    // A new origin? `defaults.rs` then asks whether its UIDs depend on the node, as those of a file, which many nodes may have alike. It
    // does not ask whether its pods get the toleration of a file's pods.
    /// A file, by its path.
    File(&'a Path),
    /// A URL.
    Url(&'a str),
}

impl Origin<'_> {
    /// The source that reads such origins.
    #[must_use]
    pub fn source(&self) -> Source {
        match self {
            Self::File(_) => Source::File,
            Self::Url(_) => Source::Http,
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Url(url) => (*url).to_owned(),
        }
    }
}
