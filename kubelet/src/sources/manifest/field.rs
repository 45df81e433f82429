//! The paths of fields in a pod, in the notation of Kubernetes' own errors (`spec.containers[0].image`,
//! `metadata.annotations[example.com/key]`), and the values at a path.

use serde_json::Value;

/// A path below another one.
pub(super) fn join(base: &str, tail: &str) -> String {
    let is_part = base.is_empty() || tail.is_empty() || tail.starts_with('[');
    format!("{base}{}{tail}", if is_part { "" } else { "." })
}

/// An entry of a map.
pub(super) fn entry(base: &str, key: &str) -> String {
    format!("{base}[{}]", crate::text::shorten(key))
}

/// Calls `found` with each value at `path` below `value`, and its field. `[]` is each item of a list. A value that is
/// missing from a mapping is null.
pub(super) fn each<'v>(value: &'v Value, path: &str, field: &str, found: &mut dyn FnMut(&'v Value, String)) {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let list = step.strip_suffix("[]");
    let value = &value[list.unwrap_or(step)];
    let field = join(field, list.unwrap_or(step));
    let mut go_on = |value, field: String| match rest {
        "" => found(value, field),
        _ if value == &Value::Null => {}
        rest => each(value, rest, &field, found),
    };
    match list {
        Some(_) => {
            let items = value.as_array().into_iter().flatten().enumerate();
            items.for_each(|(index, item)| go_on(item, format!("{field}[{index}]")));
        }
        None => go_on(value, field),
    }
}
