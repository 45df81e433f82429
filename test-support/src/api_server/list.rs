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

/// What a list reads: the version, the objects, and the last object of the previous page.
type View = (u64, Objects, String);

fn view(state: &State, request: &Request, limit: Option<usize>) -> Result<View, Refusal> {
    let bad = |message: &str| Refusal::new(400, "BadRequest", message);
    let asked = request.version("resourceVersion")?;
    let matching = request.query("resourceVersionMatch").filter(|matching| !matching.is_empty());
    let token = request.query("continue").filter(|token| !token.is_empty());
    check_options(asked, matching, token, request.query("sendInitialEvents"))?;
    if let Some(token) = token {
        if asked.is_some_and(|asked| asked > 0) {
            return Err(bad("specifying resource version is not allowed when using continue"));
        }
        let (version, after) = token.split_once(':').ok_or_else(|| bad("continue key is not valid"))?;
        // As in a token that came with a 410.
        if version == LATEST {
            return Ok((state.store.version, state.store.objects.clone(), after.to_owned()));
        }
        let page = state.store.pages.iter().find(|(kept, _)| kept.to_string() == version);
        let gone = || Refusal::page_gone(state.gone, format!("{LATEST}:{after}"));
        let (version, objects) = page.ok_or_else(gone)?;
        return Ok((*version, objects.clone(), after.to_owned()));
    }
    let exact =
        matching.map_or(limit.is_some() && asked.is_some_and(|asked| asked > 0), |how| how == "Exact");
    match asked {
        Some(asked) if exact => {
            if asked > state.store.version {
                return Err(Refusal::too_large(asked, state.store.version));
            }
            let objects = state.store.at(asked);
            let objects = objects.ok_or_else(|| Refusal::gone(state.gone, asked, state.store.compacted))?;
            Ok((asked, objects, String::new()))
        }
        _ => not_older_than(state, asked).map(|(version, objects)| (version, objects, String::new())),
    }
}

/// The version in a token with which a list goes on at the latest version.
const LATEST: &str = "-1";

/// `ValidateListOptions`.
fn check_options(
    asked: Option<u64>,
    matching: Option<&str>,
    token: Option<&str>,
    initial: Option<&str>,
) -> Result<(), Refusal> {
    let mut wrong = Vec::new();
    if let Some(matching) = matching {
        let forbidden = |why: &str| format!("resourceVersionMatch: Forbidden: resourceVersionMatch {why}");
        if asked.is_none() {
            wrong.push(forbidden("is forbidden unless resourceVersion is provided"));
        }
        if token.is_some() {
            wrong.push(forbidden("is forbidden when continue is provided"));
        }
        match matching {
            "Exact" if asked == Some(0) => {
                wrong.push(forbidden(r#""exact" is forbidden for resourceVersion "0""#));
            }
            "Exact" | "NotOlderThan" => {}
            other => wrong.push(format!(
                r#"resourceVersionMatch: Unsupported value: "{other}": supported values: "", "Exact", "NotOlderThan""#
            )),
        }
    }
    if initial.is_some() {
        wrong.push("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list".to_owned());
    }
    invalid_options(&wrong)
}

/// The refusal of these options, if any is wrong.
pub(super) fn invalid_options(wrong: &[String]) -> Result<(), Refusal> {
    let all = match wrong {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Err(Refusal::new(422, "Invalid", format!("ListOptions.meta.k8s.io \"\" is invalid: {all}")))
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
        if request.selector.is_everything() && request.selector.namespace.is_empty() {
            metadata["remainingItemCount"] = json!(1 + matching.count());
        }
        state.store.pages.push((version, objects.clone()));
    }
    let (kind, api_version) = match request.selector.resource.as_str() {
        _ if request.metadata_only => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
        "pods" => ("PodList", "v1"),
        "namespaces" => ("NamespaceList", "v1"),
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
