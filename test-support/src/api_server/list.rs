//! Get and list.

use std::ops::Bound;

use hyper::Response;
use hyper::body::Bytes;
use serde_json::json;

use super::State;
use super::answer::{Body, Refusal, json_answer, render};
use super::request::Request;
use super::store::Key;

pub(super) fn get(state: &State, request: &Request) -> Result<Response<Body>, Refusal> {
    let selector = &request.selector;
    let key = Key::new(&selector.resource, &selector.namespace, &request.name);
    let object = state.store.get(&key).ok_or_else(|| not_found(&key))?;
    Ok(json_answer(200, render(object, request.metadata_only)))
}

pub(super) fn not_found(key: &Key) -> Refusal {
    Refusal::not_found(format!("{} \"{}\" not found", key.resource, key.name))
}

/// A page, or all of it. The pages of one list are of one version, as a real server's are.
pub(super) fn list(state: &mut State, request: &Request) -> Result<Response<Body>, Refusal> {
    let (version, objects, after) = match request.query("continue") {
        Some(token) => {
            let (version, after) = token.split_once(':').unwrap_or((token, ""));
            let page = state.store.pages.iter().find(|(kept, _)| kept.to_string() == version);
            let (version, objects) = page
                .ok_or_else(|| Refusal::new(410, "Expired", "The provided continue parameter is too old"))?;
            (*version, objects.clone(), after.to_owned())
        }
        None => (state.store.version, state.store.objects.clone(), String::new()),
    };
    let limit = request.query("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    let limit = limit.unwrap_or(usize::MAX);

    let resource = &request.selector.resource;
    let (namespace, name) = after.split_once('/').unwrap_or_default();
    // Before the first object of a kind stands the one without a name.
    let start = Bound::Excluded(Key::new(resource, namespace, name));
    let of_kind = objects.range((start, Bound::Unbounded)).map(|(_, object)| object);
    let of_kind = of_kind.take_while(|object| &object.key.resource == resource);
    let mut matching = of_kind.filter(|object| request.selector.matches(object));
    let page: Vec<_> = matching.by_ref().take(limit).collect();

    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if let (Some(last), Some(_)) = (page.last(), matching.next()) {
        metadata["continue"] = json!(format!("{version}:{}/{}", last.key.namespace, last.key.name));
        if after.is_empty() {
            state.store.pages.push((version, objects.clone()));
        }
    }
    let (kind, api_version) = match request.selector.resource.as_str() {
        _ if request.metadata_only => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
        "pods" => ("PodList", "v1"),
        "nodes" => ("NodeList", "v1"),
        "secrets" => ("SecretList", "v1"),
        "configmaps" => ("ConfigMapList", "v1"),
        _ => ("List", "v1"),
    };
    let mut body =
        format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#)
            .into_bytes();
    for (position, object) in page.iter().enumerate() {
        if position > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&render(object, request.metadata_only));
    }
    body.extend_from_slice(b"]}");
    Ok(json_answer(200, Bytes::from(body)))
}
