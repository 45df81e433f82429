//! Counts client requests by path and outcome and measures their duration.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::metrics::registered;
use crate::pipeline::api_requests::outcome;

/// From a lookup to the first part of a long list.
const SECONDS: [f64; 5] = [1e-3, 10e-3, 100e-3, 1.0, 10.0];

/// The label for unknown paths. Clients must not be able to create label values.
const OTHER: &str = "other";

/// The request metrics. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    answered: Family<[(&'static str, String); 2], Counter>,
    /// The counters in use, by the router's path, so that a request needs no new labels.
    counters: Arc<RwLock<HashMap<String, CountersOfPath>>>,
    duration: Histogram,
}

/// The counters of a path that are in use, by outcome.
type CountersOfPath = HashMap<&'static str, Counter>;

impl Requests {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let duration = Histogram::new(SECONDS);
        let help = "Time from a request to the head of its response";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, duration.clone());
        let help = "Client requests, by the first part of the path and by outcome";
        let answered = registered(registry, "http_requests", help, Family::default());
        Self { answered, counters: Arc::default(), duration }
    }

    /// Counts a response. `path`: the router's, or [`OTHER`].
    fn count(&self, path: &str, outcome: &'static str) {
        let counters = self.counters.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counters.get(path).and_then(|counters| counters.get(outcome)) {
            counter.inc();
            return;
        }
        drop(counters);
        // Few series: all of `/pods/{key}` counts as `/pods`.
        let shown = path.split('/').nth(1).map_or(OTHER.to_owned(), |first| format!("/{first}"));
        let counter =
            self.answered.get_or_create(&[("path", shown), ("outcome", outcome.to_owned())]).clone();
        counter.inc();
        let mut counters = self.counters.write().unwrap_or_else(PoisonError::into_inner);
        counters.entry(path.to_owned()).or_default().insert(outcome, counter);
    }
}

/// Counts a request.
pub(super) async fn measured(State(requests): State<Requests>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let began = Instant::now();
    let response = next.run(request).await;
    requests.duration.observe(began.elapsed().as_secs_f64());
    requests.count(path.as_ref().map_or(OTHER, MatchedPath::as_str), outcome(response.status()));
    response
}
