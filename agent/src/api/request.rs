//! What the path and the query of a request to the Kubernetes API name.

/// The first value of a parameter.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let mut all = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    all.find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

/// The group and the resource that a path of the API names, and whether it names one object.
pub(crate) fn resource(path: &str) -> Option<(&str, &str, bool)> {
    let segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let (group, within) = match &*segments {
        ["api", _, within @ ..] => ("", within),
        ["apis", group, _, within @ ..] => (*group, within),
        _ => return None,
    };
    match within {
        ["namespaces", _, resource, rest @ ..] | [resource, rest @ ..] => {
            Some((group, *resource, !rest.is_empty()))
        }
        [] => None,
    }
}

/// Whether a request with this query is a watch.
pub(crate) fn is_watch(query: Option<&str>) -> bool {
    parameter(query, "watch").is_some_and(|text| truth(&text))
}

/// Follows `Convert_Slice_string_To_bool`: everything but `false` and `0` is true.
pub(crate) fn truth(text: &str) -> bool {
    !(text == "0" || text.eq_ignore_ascii_case("false"))
}
