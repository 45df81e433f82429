//! Paths and their handlers. Errors are `v1` `Status` objects, like the API server's.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use pod_index::workload::Workload;
use serde_json::{Value, json};

use super::{App, page};
use crate::api::client::Client;
use crate::api::headers::{Element, elements};
use crate::api::refusal::not_found;
use crate::api::types::SourceLine;
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::pipeline::readiness::Readiness;
use crate::pod_api::owners::Owners;
use crate::whois;
use crate::whois::suggestion;

/// The annotations of a pod with its workload, in the form `Deployment/web`. One of them, on pods with a controller.
const WORKLOAD: &str = "pod-index/workload";
const DERIVED_WORKLOAD: &str = "pod-index/derived-workload";

pub(super) fn router(app: App) -> Router {
    let pods_of_the_api = app.pods.router();
    let whois = whois::router(app.whois.clone());
    let metrics = metrics_alone(Arc::clone(&app.metrics));
    Router::new()
        .route("/pods/{key}", get(pod_by_key))
        .route("/pods/{namespace}/{name}", get(pod_by_name))
        .route("/mirrors", get(async |State(app): State<App>| Json(app.mirrors.view(&app.reader.load()))))
        .route("/sources", get(sources))
        .route("/healthz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(readyz))
        .fallback(nothing_here)
        .with_state(app)
        .merge(pods_of_the_api)
        .merge(whois)
        .merge(metrics)
        .merge(page::router())
}

/// A pod by its UID or full name, or by anything else that identifies it, except a process.
async fn pod_by_key(
    State(app): State<App>,
    client: Client,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(pod) = app.whois.pod(&key) {
        return one(&headers, &pod, app.pods.owners());
    }
    let hint = client.share.work(|| suggestion(&app.reader.load(), &key)).await.flatten().unwrap_or_default();
    not_found(format!("no pod has the name or the UID {key:?}{hint}"))
}

async fn pod_by_name(
    State(app): State<App>,
    client: Client,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if let Some(pod) = app.reader.get((&*namespace, &*name)) {
        return one(&headers, &pod, app.pods.owners());
    }
    let hint =
        client.share.work(|| suggestion(&app.reader.load(), &name)).await.flatten().unwrap_or_default();
    not_found(format!("no pod {name:?} in namespace {namespace:?}{hint}"))
}

/// One pod with its workload: as YAML if the client names that.
fn one(headers: &HeaderMap, pod: &Pod, owners: &Owners) -> Response {
    let mut shown = pod.clone();
    let owner = owners.of(pod);
    let workload = Workload::of(&pod.metadata, owner.as_ref().map(|owner| &owner.metadata));
    if let Some(Workload { kind, name, derived }) = workload {
        let annotation = if derived { DERIVED_WORKLOAD } else { WORKLOAD };
        let annotations = shown.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation.to_owned(), format!("{kind}/{name}"));
    }
    let is_yaml = |range: Element<'_>| range.value.eq_ignore_ascii_case("application/yaml");
    // Serializing a pod does not fail.
    let (form, text) = if elements(headers, header::ACCEPT).any(is_yaml) {
        ("application/yaml", serde_saphyr::to_string(&shown).unwrap_or_default())
    } else {
        // Not axum's `Json`: it writes into another type of buffer than the lists do, which adds 100 KB of machine code.
        ("application/json", serde_json::to_string(&shown).unwrap_or_default())
    };
    ([(header::VARY, "accept"), (header::CONTENT_TYPE, form)], text).into_response()
}

/// The sources of pods. `resources`: the other resources that the agent follows. `restored`: those known only from
/// checkpoints, and the age of these in seconds.
async fn sources(State(app): State<App>) -> Json<Value> {
    let sources: Vec<_> = app.readiness.sources().into_iter().map(SourceLine::from).collect();
    let resources: Vec<_> = app.pods.sources().map(SourceLine::from).collect();
    let (node, restored) = (app.mirrors.node.as_str(), app.pods.restored());
    let mut answer = json!({ "node": node, "ready": app.readiness.is_ready(), "sources": sources });
    if !resources.is_empty() {
        answer["resources"] = json!(resources);
    }
    if !restored.is_empty() {
        answer["restored"] = json!(restored);
    }
    Json(answer)
}

/// Ready once every configured source was read. Until then, the body names the missing ones and why.
async fn readyz(State(app): State<App>) -> Response {
    let missing = app.readiness.missing();
    if missing.is_empty() {
        return "ok".into_response();
    }
    let missing = format!("not seen yet: {}\n", missing.join("\nnot seen yet: "));
    (StatusCode::SERVICE_UNAVAILABLE, missing).into_response()
}

/// `/livez` and `/readyz`, and nothing else, for clients without a certificate such as a kubelet's probe. Why the agent is
/// not ready is left out, because that names paths and URLs.
pub(crate) fn health_alone(readiness: Arc<Readiness>) -> Router {
    let readyz = async move || {
        let is_ready = readiness.missing().is_empty();
        if is_ready { Ok("ok\n") } else { Err((StatusCode::SERVICE_UNAVAILABLE, "not ready\n")) }
    };
    Router::new().route("/livez", get(async || "ok\n")).route("/readyz", get(readyz))
}

/// `/metrics`, and nothing else.
pub(crate) fn metrics_alone(metrics: Arc<Metrics>) -> Router {
    let answer = async move || ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.text());
    Router::new().route("/metrics", get(answer))
}

async fn nothing_here(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(128).collect();
    not_found(format!("nothing is served at {path:?}"))
}
