//! The paths of the API and their handlers, the same for each resource.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};

use super::accept::form;
use super::collection::Collection;
use super::discovery::with_slash;
use super::history::Now;
use super::list::{self, selected};
use super::query::{Options, version_of};
use super::status;
use super::watch;
use crate::api::client::Client;
use crate::api::gzip::{self, Gzip};
use crate::api::in_turns::in_turns;
use crate::api::large;
use crate::api::refusal::Refusal;
use crate::api::request::parameter;
use crate::api::view::View;

/// Minimum number of objects in a compressed list.
const LARGE: usize = 64;

/// Adds the paths of a collection.
pub(super) fn of(collection: Arc<Collection>, router: Router) -> Router {
    let of = collection.of();
    let base = of.base();
    let name = of.name;
    let lists = lists(Arc::clone(&collection), View::ApiServer);
    let objects = get(one).with_state(collection);
    let mut router = with_slash(router, &format!("{base}/{name}"), lists.clone());
    let mut objects_of = format!("{base}/{name}");
    if of.is_namespaced {
        objects_of = format!("{base}/namespaces/{{namespace}}/{name}");
        router = with_slash(router, &objects_of, lists);
    }
    with_slash(router, &format!("{objects_of}/{{name}}"), objects)
}

/// A collection, and the view of it at a path.
#[derive(Clone, Debug)]
struct Viewed {
    collection: Arc<Collection>,
    view: View,
}

/// Answers lists and watches: of all namespaces or of one.
pub(super) fn lists(collection: Arc<Collection>, view: View) -> MethodRouter {
    get(list).with_state(Viewed { collection, view })
}

async fn list(
    State(Viewed { collection, view }): State<Viewed>,
    client: Client,
    Path(path): Path<HashMap<String, String>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let namespace = path.get("namespace").cloned();
    let mut options = Options::read(collection.of(), query.as_deref(), namespace)?;
    options.selection.view = view;
    let form = form(&headers, &options.include, view)?;
    let has_to_be_complete = view == View::ApiServer;
    collection.current(has_to_be_complete).await?;
    if options.watch {
        let body = watch::response_body(&collection.history, &client, options, form).await?;
        return Ok((head(), body).into_response());
    }
    if let Some(version) = options.version {
        collection.history.check(version, options.is_exact)?;
    }
    let Now { objects, version } = collection.history.now();
    let objects = selected(&client.limits, &objects, &options.selection).await;
    let objects = objects.ok_or_else(status::ending)?;
    let is_large = objects.len() >= LARGE;
    let list = list::list(collection.of(), version, objects, form);
    if is_large && gzip::is_accepted(&headers) {
        let body = Body::from_stream(in_turns(&client.limits, Gzip::new(list)));
        return Ok((head(), [(header::CONTENT_ENCODING, "gzip")], body).into_response());
    }
    Ok((head(), Body::from_stream(in_turns(&client.limits, list))).into_response())
}

async fn one(
    State(collection): State<Arc<Collection>>,
    client: Client,
    Path(path): Path<HashMap<String, String>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let [namespace, name] = ["namespace", "name"].map(|name| path.get(name).map_or("", String::as_str));
    let query = query.as_deref();
    let version = version_of(parameter(query, "resourceVersion").as_deref())?;
    let include = parameter(query, "includeObject").unwrap_or_default();
    let form = form(&headers, &include, View::ApiServer)?;
    collection.current(true).await?;
    if let Some(version) = version {
        collection.history.check(version, false)?;
    }
    let object = collection.history.get(&format!("{namespace}/{name}"));
    let object = object.ok_or_else(|| status::no_such_object(collection.of(), name))?;
    let write = move || {
        let mut body = Vec::new();
        object.write(form, Some(true), object.version, &mut body);
        body
    };
    // An object of any size takes long as a table, too: the API server's own limit is 1.5 MB.
    match large::response_body(&client.limits, write).await {
        Ok(body) => Ok((head(), body).into_response()),
        Err(refusal) => Ok(refusal),
    }
}

fn head() -> [(header::HeaderName, &'static str); 3] {
    [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-cache, private"),
        (header::VARY, "accept, accept-encoding"),
    ]
}
