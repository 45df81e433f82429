//! Get and list.

use std::ops::Bound;

use hyper::Response;
use hyper::body::Bytes;
use serde_json::json;

use super::State;
use super::answer::{Body, Refusal, json_answer, render};
use super::request::Request;
use super::store::{Key, Objects};

pub(super) fn get(state: &State, request: &Request) -> Result<Response<Body>, Refusal> {
    let selector = &request.selector;
    let key = Key::new(&selector.resource, &selector.namespace, &request.name);
    let asked = request.version("resourceVersion")?;
    let (_, objects) = not_older_than(state, asked)?;
    let object = objects.get(&key).ok_or_else(|| not_found(&key))?;
    Ok(json_answer(200, render(object, request.metadata_only)))
}

pub(super) fn not_found(key: &Key) -> Refusal {
    Refusal::not_found(format!("{} \"{}\" not found", key.resource, key.name)).about(key)
}

/// A view of at least this version. `None`: the latest. `Some(0)`: the cache, which may be old.
pub(super) fn not_older_than(state: &State, asked: Option<u64>) -> Result<(u64, Objects), Refusal> {
    let latest = (state.store.version, &state.store.objects);
    let (version, objects) = match (&state.cached, asked) {
        (Some((version, objects)), Some(asked)) if asked <= *version => (*version, objects),
        _ => latest,
    };
    match asked {
        Some(asked) if asked > version => Err(Refusal::too_large(asked, version)),
        _ => Ok((version, objects.clone())),
    }
}

/// The basis of a list: the version, the objects, and the last object of the previous page.
fn view(state: &State, request: &Request, limit: Option<usize>) -> Result<(u64, Objects, String), Refusal> {
    let bad = |message: &str| Refusal::new(400, "BadRequest", message);
    let invalid =
        |message: String| Refusal::new(422, "Invalid", format!("ListOptions is invalid: {message}"));
    let asked = request.version("resourceVersion")?;
    let matching = request.query("resourceVersionMatch").filter(|matching| !matching.is_empty());
    if let Some(token) = request.query("continue").filter(|token| !token.is_empty()) {
        if asked.is_some_and(|asked| asked > 0) {
            return Err(bad("specifying resource version is not allowed when using continue"));
        }
        let (version, after) = token.split_once(':').ok_or_else(|| bad("continue key is not valid"))?;
        let page = state.store.pages.iter().find(|(kept, _)| kept.to_string() == version);
        let (version, objects) =
            page.ok_or_else(|| Refusal::new(410, "Expired", "The provided continue parameter is too old"))?;
        return Ok((*version, objects.clone(), after.to_owned()));
    }
    let exact = match (matching, asked) {
        (None, _) => limit.is_some() && asked.is_some_and(|asked| asked > 0),
        (Some(_), None) => {
            let what = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(invalid(what.to_owned()));
        }
        (Some("NotOlderThan"), _) => false,
        (Some("Exact"), Some(0)) => {
            let what = "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            return Err(invalid(what.to_owned()));
        }
        (Some("Exact"), _) => true,
        (Some(other), _) => {
            return Err(invalid(format!("resourceVersionMatch: Unsupported value: {other:?}")));
        }
    };
    match asked {
        Some(asked) if exact => {
            if asked > state.store.version {
                return Err(Refusal::too_large(asked, state.store.version));
            }
            let objects = state.store.at(asked);
            let objects = objects.ok_or_else(|| Refusal::gone(&asked.to_string(), state.store.compacted))?;
            Ok((asked, objects, String::new()))
        }
        _ => not_older_than(state, asked).map(|(version, objects)| (version, objects, String::new())),
    }
}

/// A page, or everything. All pages of one list have the same version, as in a real server.
pub(super) fn list(state: &mut State, request: &Request) -> Result<Response<Body>, Refusal> {
    let limit = request.query("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    let (version, objects, after) = view(state, request, limit)?;
    // Like a real server, ignores the limit of a list of any version.
    let limit = limit.filter(|_| request.query("resourceVersion") != Some("0")).unwrap_or(usize::MAX);

    let resource = &request.selector.resource;
    let (namespace, name) = after.split_once('/').unwrap_or_default();
    // The key without a name precedes all objects of a kind.
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
