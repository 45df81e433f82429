//! The paths of fields in a pod, in the notation of Kubernetes' own errors (`spec.containers[0].image`,
//! `metadata.annotations[example.com/key]`), and the values at a path.

use std::fmt;

use serde_json::Value;

/// The place of a value in a pod, as a chain of steps. Each step borrows the one above it, so that a walk through a pod
/// costs no memory. The path is written ([`Display`](fmt::Display)) only for a problem: nearly all pods are valid.
#[derive(Clone, Copy)]
pub(super) enum Field<'a> {
    /// A path from the top of the pod: `spec`.
    Path(&'a str),
    /// A field of a mapping.
    Name(&'a Field<'a>, &'a str),
    /// An entry of a map, by its key.
    Entry(&'a Field<'a>, &'a str),
    /// An item of a list, counted from 0.
    Item(&'a Field<'a>, usize),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Name(above, name) => write!(f, "{above}.{name}"),
            Self::Entry(above, key) => write!(f, "{above}[{}]", crate::text::shorten(key)),
            Self::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

/// A path below another one.
pub(super) fn join(base: &str, tail: &str) -> String {
    let is_part = base.is_empty() || tail.is_empty() || tail.starts_with('[');
    format!("{base}{}{tail}", if is_part { "" } else { "." })
}

/// Calls `found` with each value at `path` below `value`, and its field. `[]` is each item of a list. A value that is
/// missing from a mapping is null.
pub(super) fn each<'v>(
    value: &'v Value,
    path: &str,
    field: &Field<'_>,
    found: &mut dyn FnMut(&'v Value, &Field<'_>),
) {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let list = step.strip_suffix("[]");
    let name = list.unwrap_or(step);
    let value = &value[name];
    let field = Field::Name(field, name);
    let mut go_on = |value: &'v Value, field: &Field<'_>| match rest {
        "" => found(value, field),
        _ if value.is_null() => {}
        rest => each(value, rest, field, found),
    };
    match list {
        Some(_) => {
            let items = value.as_array().into_iter().flatten().enumerate();
            items.for_each(|(index, item)| go_on(item, &Field::Item(&field, index)));
        }
        None => go_on(value, &field),
    }
}
