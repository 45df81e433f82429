//! The path of a field in a pod, in the notation of Kubernetes' own errors.

use std::fmt;

use serde_path_to_error::{Path, Segment};

/// `spec.containers[0].image`, `metadata.annotations[example.com/key]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Field(Vec<Step>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// A field, by its JSON name.
    Name(String),
    /// An entry of a map.
    Key(String),
    /// An item of a list.
    Index(usize),
}

impl Field {
    /// For `"spec.securityContext"`: the names, split at dots.
    pub(super) fn new(path: &str) -> Self {
        Self::default().name(path)
    }

    pub(super) fn name(&self, path: &str) -> Self {
        self.with(path.split('.').filter(|name| !name.is_empty()).map(|name| Step::Name(name.to_owned())))
    }

    pub(super) fn key(&self, key: &str) -> Self {
        self.with([Step::Key(key.to_owned())])
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.with([Step::Index(index)])
    }

    pub(super) fn join(&self, tail: &Self) -> Self {
        self.with(tail.0.iter().cloned())
    }

    /// The part of a mapping. A dot or a slash shows that it is an entry of a map, not a field.
    pub(super) fn key_or_name(&self, key: &str) -> Self {
        if key.contains(['.', '/']) { self.key(key) } else { self.with([Step::Name(key.to_owned())]) }
    }

    fn with(&self, steps: impl IntoIterator<Item = Step>) -> Self {
        Self(self.0.iter().cloned().chain(steps).collect())
    }
}

impl From<&Path> for Field {
    fn from(path: &Path) -> Self {
        let steps = path.iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Name(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        Self(steps.collect())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Name(name) if position == 0 => f.write_str(name)?,
                Step::Name(name) => write!(f, ".{name}")?,
                Step::Key(key) => write!(f, "[{}]", crate::text::shorten(key))?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
