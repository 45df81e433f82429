//! The form of the response, from the `Accept` header, by the API server's rules.
//!
//! Clauses are tried by quality, then by how specific they are, then in order. Clauses that cannot be served are
//! skipped: clients send `application/vnd.kubernetes.protobuf,application/json` and get JSON.

use axum::http::{HeaderMap, header};

use super::status::Refusal;
use crate::api::headers::{Element, elements};

/// What the client requests, which determines the available forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    List,
    Watch,
}

/// The form of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Whole pods.
    Object,
    /// Metadata only: `PartialObjectMetadata`.
    Metadata,
    /// A row per pod: `Table`.
    Table,
}

/// The first available form that the client accepts.
pub(super) fn negotiate(headers: &HeaderMap, verb: Verb) -> Result<Asked, Refusal> {
    let ranges = || elements(headers, header::ACCEPT);
    if ranges().all(|range| range.value.is_empty()) {
        return Ok(Asked::Object);
    }
    let mut clauses: Vec<_> = ranges()
        .filter_map(|range| {
            let specificity = match &*range.value.to_ascii_lowercase() {
                "application/json" => 2,
                "application/*" => 1,
                "*/*" => 0,
                _ => return None,
            };
            Some((range.quality()?, specificity, range))
        })
        .collect();
    // A stable sort keeps the order of the header.
    clauses.sort_by(|(a, less, _), (b, more, _)| b.total_cmp(a).then(more.cmp(less)));
    clauses.iter().find_map(|(_, _, range)| form(range, verb)).ok_or_else(Refusal::not_acceptable)
}

fn form(range: &Element<'_>, verb: Verb) -> Option<Asked> {
    if range.parameter("stream").is_some_and(|stream| stream != "watch" || verb != Verb::Watch) {
        return None;
    }
    let Some(kind) = range.parameter("as") else { return Some(Asked::Object) };
    if (range.parameter("v"), range.parameter("g")) != (Some("v1"), Some("meta.k8s.io")) {
        return None;
    }
    match (kind, verb) {
        ("Table", _) => Some(Asked::Table),
        ("PartialObjectMetadata", Verb::Get | Verb::Watch) | ("PartialObjectMetadataList", Verb::List) => {
            Some(Asked::Metadata)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

    fn asked(accept: &str, verb: Verb) -> Option<Asked> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        negotiate(&headers, verb).ok()
    }

    #[test]
    fn clauses_count_by_quality_then_specificity_then_order() {
        for (accept, form) in [
            ("", Some(Asked::Object)),
            ("application/json", Some(Asked::Object)),
            ("*/*", Some(Asked::Object)),
            ("application/*;q=0.1", Some(Asked::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Asked::Object)),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html, application/yaml", None),
            ("application/json;q=0", None),
            (&format!("{TABLE},application/json"), Some(Asked::Table)),
            (&format!("application/json,{TABLE}"), Some(Asked::Object)),
            (&format!("application/json;q=0.9,{TABLE}"), Some(Asked::Table)),
            (&format!("{TABLE};q=0.5,application/json"), Some(Asked::Object)),
            (&format!("*/*,{TABLE}"), Some(Asked::Table)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Some(Asked::Object)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", None),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(Asked::Object),
            ),
        ] {
            assert_eq!(asked(accept, Verb::List), form, "{accept:?}");
        }
        assert_eq!(negotiate(&HeaderMap::new(), Verb::List).ok(), Some(Asked::Object));
    }

    #[test]
    fn metadata_is_a_list_for_lists_and_an_object_for_the_others() {
        for (verb, accept, form) in [
            (Verb::List, PARTIAL_LIST, Some(Asked::Metadata)),
            (Verb::List, PARTIAL, None),
            (Verb::Watch, PARTIAL, Some(Asked::Metadata)),
            (Verb::Watch, PARTIAL_LIST, None),
            (Verb::Get, PARTIAL, Some(Asked::Metadata)),
            (Verb::Watch, "application/json;stream=watch", Some(Asked::Object)),
            (Verb::Watch, "application/json;stream=other", None),
            (Verb::List, "application/json;stream=watch", None),
        ] {
            assert_eq!(asked(accept, verb), form, "{verb:?} {accept}");
        }
    }
}
