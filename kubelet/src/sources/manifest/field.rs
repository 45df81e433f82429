//! The path of a field in a pod, in the notation of Kubernetes' own errors.

use std::fmt;

use serde_path_to_error::{Path, Segment};

/// `spec.containers[0].image`, `metadata.annotations[example.com/key]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Field(String);

impl Field {
    /// `path` may have several parts: `"spec.securityContext"`.
    pub(super) fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    pub(super) fn name(&self, path: &str) -> Self {
        self.join(&Self::new(path))
    }

    pub(super) fn key(&self, key: &str) -> Self {
        Self(format!("{}[{}]", self.0, crate::text::shorten(key)))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    pub(super) fn join(&self, tail: &Self) -> Self {
        let is_part = self.0.is_empty() || tail.0.is_empty() || tail.0.starts_with('[');
        Self(format!("{}{}{}", self.0, if is_part { "" } else { "." }, tail.0))
    }

    /// The part of a mapping. A dot or a slash shows that it is an entry of a map, not a field.
    pub(super) fn key_or_name(&self, key: &str) -> Self {
        if key.contains(['.', '/']) { self.key(key) } else { self.name(key) }
    }
}

impl From<&Path> for Field {
    fn from(path: &Path) -> Self {
        path.iter().fold(Self::default(), |field, segment| match segment {
            Segment::Seq { index } => field.index(*index),
            Segment::Map { key } => field.name(key),
            Segment::Enum { .. } | Segment::Unknown => field,
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
