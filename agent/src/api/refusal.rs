//! Errors as `v1` `Status` objects, as the API server answers them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

pub(crate) fn not_found(message: String) -> Response {
    refused(StatusCode::NOT_FOUND, "NotFound", message)
}

/// An error response.
pub(crate) fn refused(code: StatusCode, reason: &str, message: String) -> Response {
    (code, Json(status(code, reason, message))).into_response()
}

/// An error.
pub(crate) fn status(code: StatusCode, reason: &str, message: String) -> Status {
    Status {
        code: Some(code.as_u16().into()),
        message: Some(message),
        reason: Some(reason.to_owned()),
        status: Some("Failure".to_owned()),
        ..Status::default()
    }
}
