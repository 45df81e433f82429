//! Errors in the API server's format: a `Status` with code, reason and details.

use super::resource::Resource;
use crate::api::refusal::status;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};

/// A rejected request and the reason.
#[derive(Debug)]
pub(crate) struct Refusal(StatusCode, Box<Status>);

impl Refusal {
    fn new(code: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Self(code, Box::new(status(code, reason, message.into())))
    }

    fn with(mut self, details: StatusDetails) -> Self {
        self.1.details = Some(details);
        self
    }

    fn retry_after(self, seconds: i32) -> Self {
        self.with(StatusDetails { retry_after_seconds: Some(seconds), ..StatusDetails::default() })
    }

    /// An invalid parameter.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(super) fn no_such_object(of: &Resource, name: &str) -> Self {
        let details = StatusDetails {
            group: Some(of.group.to_owned()).filter(|group| !group.is_empty()),
            kind: Some(of.name.to_owned()),
            name: Some(name.to_owned()),
            ..StatusDetails::default()
        };
        let message = format!("{} {name:?} not found", of.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(details)
    }

    /// `what` is served, or what it would take.
    pub(super) fn no_such_resource(what: &str) -> Self {
        let message = format!("the server could not find the requested resource: {what}");
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(StatusDetails::default())
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(StatusDetails::default())
    }

    pub(super) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, \
                       application/json;as=Table;v=v1;g=meta.k8s.io, \
                       application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io, \
                       application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// A version at which no list or watch can start.
    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub(super) fn too_many_watches(limit: &str) -> Self {
        let message = format!("too many watches: {limit}");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(5)
    }

    pub(super) fn unavailable(message: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).retry_after(1)
    }

    pub(super) fn ending() -> Self {
        Self::unavailable("the agent is shutting down".to_owned())
    }

    pub(super) fn status(&self) -> &Status {
        &self.1
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let retry = self.1.details.as_ref().and_then(|details| details.retry_after_seconds);
        let response = (self.0, Json(&*self.1)).into_response();
        match retry {
            Some(seconds) => ([(header::RETRY_AFTER, seconds.to_string())], response).into_response(),
            None => response,
        }
    }
}
