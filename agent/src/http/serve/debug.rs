//! Changing the log level at run time, if enabled.

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http_body_util::{BodyExt, Collected, Limited};

use crate::api::refusal::refused;
use crate::config::log::Log;
use crate::config::log_filter::LogFilter;

/// Maximum size of the body, in bytes.
const LONGEST: usize = 64;
/// Timeout for the body.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn router(log: Log) -> Router {
    Router::new().route("/log-level", get(level).put(set_level)).with_state(log)
}

async fn level(State(log): State<Log>) -> String {
    format!("{}\n", log.shown())
}

async fn set_level(State(log): State<Log>, request: Request) -> Response {
    let body = tokio::time::timeout(TIMEOUT, Limited::new(request.into_body(), LONGEST).collect()).await;
    let Ok(body) = body else {
        return refused(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body is incomplete".to_owned());
    };
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let shown: LogFilter = match String::from_utf8_lossy(&body).trim().parse() {
        Ok(shown) => shown,
        Err(message) => return refused(StatusCode::BAD_REQUEST, "BadRequest", message),
    };
    log.show(shown.clone());
    tracing::warn!(level = %shown, "the log level was set");
    format!("{shown}\n").into_response()
}
