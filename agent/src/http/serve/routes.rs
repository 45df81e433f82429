//! Paths and their handlers. Errors are `v1` `Status` objects, like the API server's.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::api::core::v1::Pod;
use pod_index::workload::Workload;
use pod_index_kubelet::owners::Owners;
use serde::Serialize;
use serde_json::json;

use super::{App, page};
use crate::api::client::{Client, ClientLimits};
use crate::api::headers::{Element, elements};
use crate::api::large;
use crate::api::refusal::{failed_probe, not_found};
use crate::api::table::escaped;
use crate::api::types::SourceLine;
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::pipeline::readiness::Readiness;
use crate::vitals::Vitals;
use crate::whois;
use crate::whois::suggestion;

/// The annotations of a pod with its workload, in the form `Deployment/web`. One of them, on pods with a controller.
const WORKLOAD: &str = "pod-index/workload";
const DERIVED_WORKLOAD: &str = "pod-index/derived-workload";

pub(super) fn router(app: App) -> Router {
    let pods_of_the_api = app.pods.router();
    let whois = whois::router(Arc::clone(&app.whois));
    let metrics = metrics_alone(Arc::clone(&app.metrics));
    Router::new()
        .route("/pods/{key}", get(pod_by_key))
        .route("/pods/{namespace}/{name}", get(pod_by_name))
        .route("/mirrors", get(mirrors))
        .route("/sources", get(sources))
        .route("/healthz", get(livez))
        .route("/livez", get(livez))
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
        return one(&client.limits, &headers, pod, app.pods.owners()).await;
    }
    let hint = client.limits.in_turn(|| suggestion(&app.reader.load(), &key)).await;
    let hint = hint.flatten().unwrap_or_default();
    not_found(format!("no pod has the name or the UID {key:?}{hint}"))
}

async fn pod_by_name(
    State(app): State<App>,
    client: Client,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if let Some(record) = app.reader.pod((&*namespace, &*name)) {
        return one(&client.limits, &headers, Arc::clone(record.pod()), app.pods.owners()).await;
    }
    let hint = client.limits.in_turn(|| suggestion(&app.reader.load(), &name)).await;
    let hint = hint.flatten().unwrap_or_default();
    not_found(format!("no pod {name:?} in namespace {namespace:?}{hint}"))
}

/// One pod with its workload: as YAML if the client names that.
async fn one(limits: &ClientLimits, headers: &HeaderMap, pod: Arc<Pod>, owners: &Owners) -> Response {
    let is_yaml = |range: Element<'_>| range.value.eq_ignore_ascii_case("application/yaml");
    let format = if elements(headers, header::ACCEPT).any(is_yaml) { Format::Yaml } else { Format::Json };
    let head = [(header::VARY, "accept"), (header::CONTENT_TYPE, format.content_type())];
    if !large::is_large(&*pod) {
        return (head, encoded(&pod, owners, format)).into_response();
    }
    let owners = owners.clone();
    match large::response_body(limits, move || encoded(&pod, &owners, format)).await {
        Ok(body) => (head, body).into_response(),
        Err(refusal) => refusal,
    }
}

/// How one pod is written.
#[derive(Clone, Copy)]
enum Format {
    Json,
    Yaml,
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// The pod, with its workload as an annotation.
fn encoded(pod: &Pod, owners: &Owners, format: Format) -> Vec<u8> {
    let mut shown = pod.clone();
    let owner = owners.asked_of(pod);
    let workload = Workload::of(&pod.metadata, owner.as_ref().map(|owner| &owner.metadata));
    if let Some(Workload { kind, name, derived }) = workload {
        let annotation = if derived { DERIVED_WORKLOAD } else { WORKLOAD };
        let annotations = shown.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation.to_owned(), format!("{kind}/{name}"));
    }
    // Serializing a pod does not fail.
    match format {
        Format::Json => serde_json::to_vec(&shown).unwrap_or_default(),
        Format::Yaml => serde_saphyr::to_string(&shown).unwrap_or_default().into_bytes(),
    }
}

/// JSON that is computed in the thread for large responses.
async fn large_json<T: Serialize>(
    limits: &ClientLimits,
    view: impl FnOnce() -> T + Send + 'static,
) -> Response {
    // Serializing what the agent made does not fail.
    match large::response_body(limits, move || serde_json::to_vec(&view()).unwrap_or_default()).await {
        Ok(body) => ([(header::CONTENT_TYPE, Format::Json.content_type())], body).into_response(),
        Err(refusal) => refusal,
    }
}

/// All static pods and their mirror pods: on a large node, too much for the runtime's threads.
async fn mirrors(State(app): State<App>, client: Client) -> Response {
    large_json(&client.limits, move || app.mirrors.view(&app.reader.load())).await
}

/// The sources of pods, which may have many problems. `resources`: the other resources that the agent follows. `restored`: those
/// known only from checkpoints, and the age of these in seconds.
async fn sources(State(app): State<App>, client: Client) -> Response {
    large_json(&client.limits, move || {
        let sources: Vec<_> = app.readiness.sources().into_iter().map(SourceLine::from).collect();
        let resources: Vec<_> = app.pods.sources().map(SourceLine::from).collect();
        let restored = app.pods.restored();
        let node = app.mirrors.node.as_str();
        let mut answer = json!({ "node": node, "ready": app.readiness.is_ready(), "sources": sources });
        if !resources.is_empty() {
            answer["resources"] = json!(resources);
        }
        if !restored.is_empty() {
            answer["restored"] = json!(restored);
        }
        answer
    })
    .await
}

/// Alive while every vital part runs. Otherwise, the response names those that have stopped.
async fn livez(State(app): State<App>) -> Response {
    alive(&app.vitals).map_or_else(failed_probe, |()| "ok".into_response())
}

/// Fails with a line for each part that has stopped.
fn alive(vitals: &Vitals) -> Result<(), String> {
    let stopped = vitals.stopped(Instant::now());
    if stopped.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = stopped.iter().map(ToString::to_string).collect();
    Err(lines.join("\n") + "\n")
}

/// Ready once every configured source was read. Until then, the response names the missing ones and why. In an outage of a
/// source, the agent stays ready, and the response says what is served as last seen, and why. Not ready while a vital part has
/// stopped: the pods are those of an earlier time.
async fn readyz(State(app): State<App>) -> Response {
    if let Err(stopped) = alive(&app.vitals) {
        return failed_probe(stopped);
    }
    let missing = lines_of_sources("not read yet: ", &app.readiness.missing());
    let outages = lines_of_sources("", &app.readiness.outages());
    if !missing.is_empty() {
        return failed_probe(missing + &outages);
    }
    let text = if outages.is_empty() { "ok".to_owned() } else { format!("ok\n{outages}") };
    text.into_response()
}

/// A line for each source, which begins so. A source's message may be a server's own words.
fn lines_of_sources(begin: &str, messages: &[String]) -> String {
    let lines: Vec<_> =
        messages.iter().map(|message| format!("{begin}{}\n", escaped(message, &[]))).collect();
    lines.concat()
}

/// `/livez` and `/readyz`, and nothing else, for clients without a certificate such as a kubelet's probe. Why the agent is
/// not ready is left out, because that names paths and URLs.
pub(crate) fn health_alone(readiness: Arc<Readiness>, vitals: Vitals) -> Router {
    let same_vitals = vitals.clone();
    let livez = async move || alive(&vitals).map(|()| "ok\n").map_err(failed_probe);
    let readyz = async move || {
        alive(&same_vitals).map_err(failed_probe)?;
        let is_ready = readiness.missing().is_empty();
        if is_ready { Ok("ok\n") } else { Err(failed_probe("not ready\n".to_owned())) }
    };
    Router::new().route("/livez", get(livez)).route("/readyz", get(readyz))
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use axum::http::StatusCode;
    use futures_util::{FutureExt, poll};
    use pod_index_kubelet::sources::http::HttpConfig;
    use pod_index_kubelet::sources::{NodeName, Nudge, Problem, ProblemKind, Source, StatusWriter};
    use serde_json::from_value;
    use tokio::sync::watch;
    use tower::ServiceExt;

    use super::super::Requests;
    use super::*;
    use crate::api::client::{Clients, Peer};
    use crate::config::changing::Changing;
    use crate::config::tests::settings_of;
    use crate::pipeline::mirrors::MirrorKeeper;
    use crate::pipeline::records::alone;
    use crate::pod_api::build::{Built, Inputs};
    use crate::vitals::Part;
    use crate::whois::Whois;

    /// The paths of an agent with a pod that is `large`, in a runtime of one thread.
    fn router_with_a_large_pod() -> Router {
        router_of(Readiness::new([], true), Vitals::new(Instant::now()), &[])
    }

    fn router_of(readiness: Readiness, vitals: Vitals, args: &[&str]) -> Router {
        let annotations = json!({ "large": "x".repeat(100_000) });
        let pod: Pod = from_value(json!({
            "metadata": { "namespace": "shop", "name": "large", "uid": "large", "annotations": annotations },
        }))
        .unwrap();
        let (mut index, reader) = pod_index::new();
        index.upsert_pod(alone(pod)).unwrap();
        let settings = settings_of(args);
        let readiness = Arc::new(readiness);
        let mut metrics = Metrics::new(&reader);
        let heartbeat = vitals.heartbeat(Part::Changes);
        let (feed, _joining) = crate::pipeline::records::build(&settings).unwrap();
        let inputs = Inputs {
            client: None,
            reader: &reader,
            readiness: &readiness,
            feed: &feed,
            most_watches: &Changing::new(settings.effective.most_watches()),
        };
        let built = Built::new(&settings, inputs, heartbeat, &mut metrics);
        // Until it has seen the pod.
        drop(index);
        let pods = built.run_to_the_end();
        let whois = Whois::build(&settings, &reader, &readiness, pods.owners(), &mut metrics).unwrap();
        readiness.indexed(&[]);
        let requests = Requests::register(metrics.ours());
        router(App {
            metrics: Arc::new(metrics),
            reader,
            mirrors: Arc::new(MirrorKeeper::new(NodeName::new("n"), false, Arc::clone(&readiness))),
            readiness,
            vitals,
            pods,
            whois: Arc::new(whois),
            connections: prometheus_client::metrics::gauge::Gauge::default(),
            requests,
            access: None,
        })
    }

    fn request(peer: &Arc<Peer>, path: &str, accept: &str) -> Request {
        Request::get(path)
            .header(header::ACCEPT, accept)
            .extension(Arc::clone(peer))
            .body(Body::empty())
            .unwrap()
    }

    /// While the thread for large responses is busy, they wait for it, and everything else is answered: the runtime's thread
    /// computes none of them.
    #[tokio::test]
    async fn large_responses_delay_no_probe_and_no_lookup() {
        let router = router_with_a_large_pod();
        let clients = Clients::new();
        let (busy, client) = (clients.named("busy"), clients.peer("client"));
        let (release, released) = mpsc::channel::<()>();
        let mut busy = Box::pin(busy.encode(move || released.recv()));
        assert!(poll!(&mut busy).is_pending());
        let mut waiting = Vec::new();
        for (path, accept) in [
            ("/pods/shop/large", "application/json"),
            ("/pods/large", "application/yaml"),
            ("/api/v1/namespaces/shop/pods/large", "application/json"),
            ("/mirrors", ""),
            ("/sources", ""),
        ] {
            // Each of another client: one has two large responses at a time.
            let peer = clients.peer(&format!("{path} {accept}"));
            let mut response = Box::pin(router.clone().oneshot(request(&peer, path, accept)));
            for _ in 0..100 {
                assert!(poll!(&mut response).is_pending(), "{path}");
                tokio::task::yield_now().await;
            }
            waiting.push((path, response));
        }
        for path in ["/livez", "/readyz", "/healthz", "/metrics", "/whois?q=large", "/pods"] {
            let response = router.clone().oneshot(request(&client, path, "")).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{path}");
        }
        release.send(()).unwrap();
        assert!(busy.await.is_some());
        for (path, response) in waiting {
            assert_eq!(response.await.unwrap().status(), StatusCode::OK, "{path}");
        }
    }

    /// A kubelet asks these at its own pace. client-go would repeat a request that is told when to ask again.
    const PROBES: [&str; 3] = ["GET /readyz", "GET /livez", "GET /healthz"];

    /// Paths of which each can be refused for now, for one of the reasons below.
    const REFUSED: [&str; 11] = [
        "GET /pods",
        "GET /api/v1/pods",
        "GET /api/v1/pods?watch=1",
        "GET /api/v1/namespaces/shop/pods",
        "GET /api/v1/namespaces/shop/pods/large",
        "GET /pods/large",
        "GET /pods/shop/large",
        "GET /mirrors",
        "GET /sources",
        "GET /readyz",
        "POST /whois",
    ];

    /// The status of the answer to each of these requests. A 429 and a 503 say when to ask again, except to a probe.
    async fn codes(router: &Router, peer: &Arc<Peer>) -> Vec<u16> {
        let mut codes = Vec::new();
        for what in REFUSED.iter().chain(&["GET /livez", "GET /healthz"]) {
            let (method, path) = what.split_once(' ').unwrap();
            let request = Request::builder().method(method).uri(path).extension(Arc::clone(peer));
            let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let code = response.status().as_u16();
            if [429, 503].contains(&code) {
                let after = response.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok());
                assert_eq!(after.is_none(), PROBES.contains(what), "{path}: {after:?}");
                let seconds = after.map_or(1, |after| after.parse().unwrap());
                assert!((1..=5_u64).contains(&seconds), "{path}: {seconds}");
            }
            codes.push(code);
        }
        codes
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_is_refused_for_now_says_when_to_ask_again() {
        let clients = Clients::new();
        let peer = clients.peer("client");

        let url = HttpConfig::new("http://localhost:1/").unwrap();
        let unread = pod_index_kubelet::sources::http::follow(url, NodeName::new("n")).unwrap();
        let starting = Readiness::new([(unread.status(), Nudge::default())], false);
        let router = router_of(starting, Vitals::new(Instant::now()), &[]);
        let codes_at_the_start = codes(&router, &peer).await;
        assert_eq!(codes_at_the_start[1..5], [503; 4], "the API");
        assert_eq!(codes_at_the_start[9], 503, "/readyz");

        let long_ago = Instant::now().checked_sub(2 * crate::vitals::LIMIT).unwrap();
        let vitals = Vitals::new(long_ago);
        vitals.heartbeat(Part::Index).beat_at(long_ago);
        let router = router_of(Readiness::new([], true), vitals, &[]);
        let codes_of_a_stopped_agent = codes(&router, &peer).await;
        assert_eq!([9, 11, 12].map(|path| codes_of_a_stopped_agent[path]), [503; 3], "the probes");

        let router = router_of(Readiness::new([], true), Vitals::new(Instant::now()), &["--max-watches=0"]);
        let mut held = Vec::new();
        while let Some(Some(permit)) = peer.unnamed_limits().large().now_or_never() {
            held.push(permit);
        }
        let mut places = Vec::new();
        while let Some(Some(place)) = peer.unnamed_limits().place().now_or_never() {
            places.push(place);
        }
        let codes_of_a_busy_client = codes(&router, &peer).await;
        assert_eq!(codes_of_a_busy_client, [200, 200, 429, 200, 429, 429, 429, 429, 429, 200, 429, 200, 200]);
    }

    /// A probe that failed would make every agent of the cluster unready in an outage of the API server. So the body alone tells
    /// of it.
    #[tokio::test]
    async fn readyz_stays_200_in_an_outage_and_says_which_source_fails() {
        let mut status = StatusWriter::new(Source::Http, "http://h").subscribe().borrow().clone();
        status.failing_since = Instant::now().checked_sub(Duration::from_secs(130));
        status.problems = vec![Problem::new(ProblemKind::Request, "u", None, None, "no\u{1b}[31m\nanswer")];
        let readiness = Readiness::new([(watch::channel(status).1, Nudge::default())], false);
        readiness.indexed(&[Source::Http]);
        let router = router_of(readiness, Vitals::new(Instant::now()), &[]);
        let client = Clients::new().peer("client");
        let response = router.oneshot(request(&client, "/readyz", "")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let body = str::from_utf8(&body).unwrap();
        // A busy machine may need some seconds more than 130.
        assert!(body.starts_with("ok\nfailing for 1"), "{body}");
        assert!(body.ends_with(" s: http (http://h): no\\u001b[31m\\nanswer\n"), "{body}");
    }

    #[test]
    fn a_message_of_a_server_stays_on_its_line() {
        let messages = ["http (http://h): no\u{1b}[31m\nready".to_owned(), "api".to_owned()];
        for begin in ["not read yet: ", ""] {
            let expected = format!("{begin}http (http://h): no\\u001b[31m\\nready\n{begin}api\n");
            assert_eq!(lines_of_sources(begin, &messages), expected);
        }
    }
}
