//! The path of a field in a pod, in the notation of Kubernetes' own errors, and the values at a path.

use std::fmt;

use serde_json::Value;

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

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Calls `found` with each value at `path` below `value`, and its field. `[]` is each item of a list. A value that is
/// missing from a mapping is null.
pub(super) fn each<'v>(value: &'v Value, path: &str, field: &Field, found: &mut dyn FnMut(&'v Value, Field)) {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let list = step.strip_suffix("[]");
    let (value, field) = (&value[list.unwrap_or(step)], field.name(list.unwrap_or(step)));
    let mut go_on = |value, field: Field| match rest {
        "" => found(value, field),
        _ if value == &Value::Null => {}
        rest => each(value, rest, &field, found),
    };
    match list {
        Some(_) => {
            let items = value.as_array().into_iter().flatten().enumerate();
            items.for_each(|(index, item)| go_on(item, field.index(index)));
        }
        None => go_on(value, field),
    }
}
