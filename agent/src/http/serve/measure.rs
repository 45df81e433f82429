//! Counts client requests by outcome and measures their duration.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// From a lookup to the first part of a long list.
const SECONDS: [f64; 10] = [100e-6, 250e-6, 1e-3, 2.5e-3, 10e-3, 25e-3, 100e-3, 250e-3, 1.0, 10.0];

/// The label for unknown paths. Clients must not be able to create label values.
const OTHER: &str = "other";

/// The label of a path.
type Path = [(&'static str, String); 1];

/// The request metrics. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    answered: Family<[(&'static str, String); 2], Counter>,
    duration: Family<Path, Histogram, fn() -> Histogram>,
}

impl Requests {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let requests = Self {
            answered: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        };
        registry.register(
            "http_requests",
            "Client requests, by path and status code",
            requests.answered.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time from a request to the head of its response",
            Unit::Seconds,
            requests.duration.clone(),
        );
        requests
    }
}

/// Counts a request.
pub(super) async fn measured(State(requests): State<Requests>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or(OTHER, MatchedPath::as_str).to_owned();
    let began = Instant::now();
    let response = next.run(request).await;
    let code = response.status().as_str().to_owned();
    requests.duration.get_or_create(&[("path", path.clone())]).observe(began.elapsed().as_secs_f64());
    requests.answered.get_or_create(&[("path", path), ("code", code)]).inc();
    response
}
