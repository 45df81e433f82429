//! The form of the response, from the `Accept` header, by the API server's rules.
//!
//! Clauses are tried in order: clients of Kubernetes send no qualities. Clauses that cannot be served are skipped: clients
//! send `application/vnd.kubernetes.protobuf,application/json` and get JSON.

use axum::http::{HeaderMap, header};

use super::shape::Form;
use super::status;
use crate::api::headers::{Element, elements};
use crate::api::refusal::Refusal;
use crate::api::view::View;

/// The first available form that the client accepts. `include` is the parameter `includeObject`: what each row of a `Table`
/// has besides its cells, `Object` or the object's metadata.
pub(super) fn form(headers: &HeaderMap, include: &str, view: View) -> Result<Form, Refusal> {
    let whole = match view {
        View::Kubelet => Form::KubeletObject,
        View::ApiServer => Form::Object,
    };
    let ranges = || elements(headers, header::ACCEPT);
    if ranges().all(|range| range.value.is_empty()) {
        return Ok(whole);
    }
    let json = ["application/json", "application/*", "*/*"];
    let is_json = |range: &Element<'_>| json.iter().any(|json| range.value.eq_ignore_ascii_case(json));
    let first = ranges().find(|range| is_json(range) && is_available(range));
    match first.ok_or_else(status::not_acceptable)?.parameter("as") {
        None => Ok(whole),
        Some("Table") if view == View::Kubelet => Ok(Form::KubeletTable),
        Some("Table") if include == "Object" => Ok(Form::FullTable),
        Some("Table") => Ok(Form::Table),
        Some(_) => Ok(Form::Metadata),
    }
}

fn is_available(range: &Element<'_>) -> bool {
    let Some(kind) = range.parameter("as") else { return true };
    ["Table", "PartialObjectMetadata", "PartialObjectMetadataList"].contains(&kind)
        && (range.parameter("v"), range.parameter("g")) == (Some("v1"), Some("meta.k8s.io"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

    fn asked(accept: &str) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        form(&headers, "", View::ApiServer).ok()
    }

    #[test]
    fn the_first_clause_that_can_be_served_counts() {
        for (accept, form) in [
            ("", Some(Form::Object)),
            ("application/json", Some(Form::Object)),
            ("*/*", Some(Form::Object)),
            ("text/html, application/*;q=0.1", Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html, application/yaml", None),
            (PARTIAL, Some(Form::Metadata)),
            (&PARTIAL.replace("Metadata", "MetadataList"), Some(Form::Metadata)),
            ("application/json;stream=watch", Some(Form::Object)),
            (&format!("{TABLE},application/json"), Some(Form::Table)),
            (&format!("application/json,{TABLE}"), Some(Form::Object)),
            (&format!("*/*,{TABLE}"), Some(Form::Object)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Some(Form::Object)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", None),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(Form::Object),
            ),
        ] {
            assert_eq!(asked(accept), form, "{accept:?}");
        }
        assert_eq!(form(&HeaderMap::new(), "", View::ApiServer).ok(), Some(Form::Object));
    }
}
