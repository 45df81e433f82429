//! `/livez` and `/readyz` on a separate address, for clients without a certificate such as a kubelet's probe.
//!
//! No other path is served there. Responses do not reveal what is read or from where.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use crate::pipeline::readiness::Readiness;

pub(crate) fn router(readiness: Arc<Readiness>) -> Router {
    Router::new().route("/livez", get(async || "ok\n")).route("/readyz", get(readyz)).with_state(readiness)
}

/// Ready once every configured source was read. The reason is left out, because it names paths and URLs.
async fn readyz(State(readiness): State<Arc<Readiness>>) -> (StatusCode, &'static str) {
    if readiness.missing().is_empty() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}
