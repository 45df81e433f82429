//! `/livez` and `/readyz` on an address of their own, for whoever has no certificate to show, such as a kubelet's probe.
//!
//! Nothing else is answered there, and no answer tells what is read or from where.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use crate::readiness::Readiness;

pub(super) fn router(readiness: Arc<Readiness>) -> Router {
    Router::new().route("/livez", get(async || "ok\n")).route("/readyz", get(readyz)).with_state(readiness)
}

/// Ready once every configured source was seen. Why it is not yet is for those who may ask: it names paths and URLs.
async fn readyz(State(readiness): State<Arc<Readiness>>) -> (StatusCode, &'static str) {
    if readiness.missing().is_empty() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}
