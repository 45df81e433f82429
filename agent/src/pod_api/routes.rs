//! The paths of the pod API and their handlers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path as PathParameters, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use super::accept::{Asked, Verb, negotiate};
use super::list::List;
use super::object::Object;
use super::query::{Matching, Options, Version, version_of};
use super::selection::Selection;
use super::shape::{Form, Include};
use super::status::Refusal;
use super::{PodApi, discovery, history, watch};
use crate::api::body::in_turns;
use crate::api::client::Client;
use crate::api::gzip::{self, Gzip};

/// Minimum number of pods in a compressed list.
const LARGE: usize = 64;

/// `/pods`, and all paths below `/api`, `/apis` and `/version`.
pub(crate) fn router(api: PodApi) -> Router {
    let routes = [
        ("/version", get(discovery::version)),
        ("/api", get(discovery::versions)),
        ("/apis", get(discovery::groups)),
        ("/api/v1", get(discovery::resources)),
        ("/api/v1/pods", get(all)),
        ("/api/v1/namespaces/{namespace}/pods", get(of_namespace)),
        ("/api/v1/namespaces/{namespace}/pods/{name}", get(one)),
    ];
    // Clients generated from the OpenAPI description request some of these paths with a slash at the end.
    let routes = routes.into_iter().fold(Router::new(), |router, (path, handler)| {
        router.route(path, handler.clone()).route(&format!("{path}/"), handler)
    });
    routes
        .route("/pods", get(own))
        .route("/api/{*path}", any(nothing))
        .route("/apis/{*path}", any(nothing))
        .method_not_allowed_fallback(async || Refusal::method_not_allowed())
        .with_state(api)
}

async fn nothing() -> Refusal {
    Refusal::no_such_resource()
}

async fn all(
    State(api): State<PodApi>,
    client: Client,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    collection(&api, &client, None, query.as_deref(), &headers, Path::Api).await
}

async fn of_namespace(
    State(api): State<PodApi>,
    client: Client,
    PathParameters(namespace): PathParameters<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    collection(&api, &client, Some(&namespace), query.as_deref(), &headers, Path::Api).await
}

/// `/pods`, which is the kubelet's: it has no mirror pods of unknown pods, and does not wait for the sources.
async fn own(
    State(api): State<PodApi>,
    client: Client,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    collection(&api, &client, None, query.as_deref(), &headers, Path::Own).await
}

/// The path of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Api,
    /// `/pods`, whose tables have the agent's own columns.
    Own,
}

/// A list or a watch.
async fn collection(
    api: &PodApi,
    client: &Client,
    namespace: Option<&str>,
    query: Option<&str>,
    headers: &HeaderMap,
    path: Path,
) -> Result<Response, Refusal> {
    let mut options = Options::read::<Pod>(query, namespace)?;
    options.selection.only_listed = path == Path::Own;
    let asked = negotiate(headers, if options.watch { Verb::Watch } else { Verb::List })?;
    let form = form(asked, &options.include, path)?;
    api.current(path == Path::Api).await?;
    if options.watch {
        let body = watch::body(&api.history, client, options, form).await?;
        return Ok((head(), body).into_response());
    }
    if let Version::At(version) = options.version {
        api.history.check(version, options.matching == Some(Matching::Exact))?;
    }
    let (state, version) = api.history.now();
    let is_large = state.len() >= LARGE;
    let list = List::new(state, version, options.selection, form);
    Ok(list_response(client, headers, list, is_large))
}

/// These pods, in the form that the client asks for, with the versions of their sources.
pub(crate) fn pods_as_they_are<'a>(
    client: &Client,
    headers: &HeaderMap,
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
) -> Result<Response, Refusal> {
    let form = form(negotiate(headers, Verb::List)?, "", Path::Own)?;
    let key = |pod: &Arc<Pod>| format!("{}/{}/{}", pod.namespace(), pod.name(), pod.uid());
    let state: history::State<Pod> =
        pods.into_iter().map(|pod| (Arc::from(key(pod)), Object::new(Arc::clone(pod), 0, true))).collect();
    let is_large = state.len() >= LARGE;
    Ok(list_response(client, headers, List::new(state, 0, Selection::default(), form), is_large))
}

fn list_response(client: &Client, headers: &HeaderMap, list: List<Pod>, is_large: bool) -> Response {
    if is_large && gzip::is_accepted(headers) {
        let body = in_turns(&client.share, Gzip::new(list));
        return (head(), [(header::CONTENT_ENCODING, "gzip")], body).into_response();
    }
    (head(), in_turns(&client.share, list)).into_response()
}

async fn one(
    State(api): State<PodApi>,
    client: Client,
    PathParameters((namespace, name)): PathParameters<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let parameter = |wanted: &str| {
        let query = query.as_deref().unwrap_or_default().as_bytes();
        form_urlencoded::parse(query).find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    let version = version_of(parameter("resourceVersion").as_deref())?;
    let include = parameter("includeObject").unwrap_or_default();
    let form = form(negotiate(&headers, Verb::Get)?, &include, Path::Api)?;
    api.current(true).await?;
    if let Version::At(version) = version {
        api.history.check(version, false)?;
    }
    let (state, _) = api.history.now();
    let key: Arc<str> = format!("{namespace}/{name}").into();
    let object = Arc::clone(state.get(&key).ok_or_else(|| Refusal::no_such_pod(&name))?);
    drop(state);
    let written = client.share.work(move || {
        let mut body = Vec::new();
        object.write_one(form, true, &mut body);
        body
    });
    let body =
        written.await.ok_or_else(|| Refusal::unavailable("the pod could not be written".to_owned()))?;
    Ok((head(), body).into_response())
}

/// The form of the response. `include` is the parameter `includeObject`: the object in each row of a `Table`.
fn form(asked: Asked, include: &str, path: Path) -> Result<Form, Refusal> {
    let include = match (asked, include) {
        (Asked::Object, _) => return Ok(Form::Object),
        (Asked::Metadata, _) => return Ok(Form::Metadata),
        (Asked::Table, "" | "Metadata") => Include::Metadata,
        (Asked::Table, "None") => Include::Nothing,
        (Asked::Table, "Object") => Include::Object,
        (Asked::Table, other) => {
            return Err(Refusal::bad_request(format!(
                "includeObject: {other:?} is unknown; supported values: \"None\", \"Metadata\", \"Object\""
            )));
        }
    };
    Ok(if path == Path::Own { Form::Rows } else { Form::Table(include) })
}

fn head() -> [(header::HeaderName, &'static str); 3] {
    [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-cache, private"),
        (header::VARY, "accept, accept-encoding"),
    ]
}
