//! The paths of the pod API and their handlers.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};

use super::accept::{Asked, Verb, negotiate};
use super::list::Page;
use super::query::{Options, Version, version_of};
use super::shape::{Form, Include};
use super::status::Refusal;
use super::{Client, PodApi, discovery, watch};
use crate::serve::gzip::{self, Gzip};
use crate::serve::pod_list::Parts;

/// Minimum number of pods in a compressed list.
const LARGE: usize = 64;

/// All paths below `/api`, `/apis` and `/version`.
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
    collection(&api, &client, None, query.as_deref(), &headers, Form::Table).await
}

async fn of_namespace(
    State(api): State<PodApi>,
    client: Client,
    Path(namespace): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    collection(&api, &client, Some(&namespace), query.as_deref(), &headers, Form::Table).await
}

/// The same for `/pods`, whose tables have the agent's own columns.
pub(crate) async fn collection_of_rows(
    api: &PodApi,
    client: &Client,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Response {
    collection(api, client, None, query, headers, |_| Form::Rows).await.into_response()
}

/// A list or a watch.
async fn collection(
    api: &PodApi,
    client: &Client,
    namespace: Option<&str>,
    query: Option<&str>,
    headers: &HeaderMap,
    table: fn(Include) -> Form,
) -> Result<Response, Refusal> {
    let options = Options::read(query, namespace)?;
    let asked = negotiate(headers, if options.watch { Verb::Watch } else { Verb::List })?;
    let form = form(asked, &options.include, table)?;
    api.current().await?;
    if options.watch {
        let body = watch::body(&api.history, client, options, form)?;
        return Ok((head(), body).into_response());
    }
    let page = Page::of(&api.history, &options)?;
    if page.len() >= LARGE && gzip::is_accepted(headers) {
        let body = Body::new(Parts::new(Gzip::new(page.write(form))));
        return Ok((head(), [(header::CONTENT_ENCODING, "gzip")], body).into_response());
    }
    Ok((head(), Body::new(Parts::new(page.write(form)))).into_response())
}

async fn one(
    State(api): State<PodApi>,
    Path((namespace, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let parameter = |wanted: &str| {
        let query = query.as_deref().unwrap_or_default().as_bytes();
        form_urlencoded::parse(query).find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    let version = version_of(parameter("resourceVersion").as_deref())?;
    let include = parameter("includeObject").unwrap_or_default();
    let form = form(negotiate(&headers, Verb::Get)?, &include, Form::Table)?;
    api.current().await?;
    if let Version::At(version) = version {
        api.history.check(version)?;
    }
    let (state, _) = api.history.now();
    let key: Arc<str> = format!("{namespace}/{name}").into();
    let object = state.get(&key).ok_or_else(|| Refusal::no_such_pod(&name))?;
    let mut body = Vec::new();
    form.write_one(object, true, &mut body);
    Ok((head(), body).into_response())
}

/// The form of the response. `include` is the parameter `includeObject`: the object in each row of a `Table`.
fn form(asked: Asked, include: &str, table: fn(Include) -> Form) -> Result<Form, Refusal> {
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
    Ok(table(include))
}

fn head() -> [(header::HeaderName, &'static str); 3] {
    [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-cache, private"),
        (header::VARY, "accept, accept-encoding"),
    ]
}
