//! Answers: objects, and errors as Kubernetes' `Status`.

use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Response, header};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::store::{Key, Object};

/// An error that cuts a connection in the middle of a body.
pub(super) type Cut = std::io::Error;
pub(super) type Body = UnsyncBoxBody<Bytes, Cut>;

/// Why a request was refused.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: u16,
    reason: &'static str,
    message: String,
    details: Value,
    /// A token with which a list can go on.
    next: Option<String>,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, next: None }
    }

    /// The same error about this object.
    pub(super) fn about(self, key: &Key) -> Self {
        self.with(json!({ "name": key.name, "kind": key.resource }))
    }

    pub(super) fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// The requested version is in the future.
    pub(super) fn too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message).with(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        }))
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "NotFound", message)
    }

    /// `reason` is `Expired`, or `Gone` as older servers say.
    pub(super) fn gone(reason: &'static str, asked: u64, oldest: u64) -> Self {
        Self::new(410, reason, format!("too old resource version: {asked} ({oldest})"))
    }

    /// A page of a list that is too old. With the token in the answer the list goes on at the latest version.
    pub(super) fn page_gone(reason: &'static str, next: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                       list without the continue parameter, or use the continue token in this response to retrieve the \
                       remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                       that were created, modified, or deleted between the time the first chunk was returned and now may show \
                       up in the list.";
        Self { next: Some(next), ..Self::new(410, reason, message) }
    }

    /// An error that a test requested.
    pub(super) fn of_code(code: u16, gone: &'static str) -> Self {
        let reason = match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => gone,
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        Self::new(code, reason, format!("planted: {code}"))
    }

    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = json!(next);
        }
        status
    }

    pub(super) fn answer(&self) -> Response<Body> {
        let mut response = json_answer(self.code, self.status().to_string().into());
        if let Some(seconds) = self.details["retryAfterSeconds"].as_u64() {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// What priority and fairness answers when its queues are full: text, before any handler of the API.
pub(super) fn too_many_requests(retry_after: u64) -> Response<Body> {
    let body = Full::new(Bytes::from_static(b"Too many requests, please try again later.\n"));
    Response::builder()
        .status(429)
        .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::RETRY_AFTER, retry_after)
        .body(body.map_err(|never| match never {}).boxed_unsync())
        .unwrap()
}

pub(super) fn json_answer(code: u16, json: Bytes) -> Response<Body> {
    let body = Full::new(json).map_err(|never| match never {}).boxed_unsync();
    let response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    response.body(body).unwrap()
}

/// A body that continues while its sender exists; an error cuts the connection.
pub(super) fn streamed(parts: mpsc::Receiver<Result<Bytes, Cut>>) -> Body {
    let frames = stream::unfold(parts, async |mut parts| {
        let part = parts.recv().await?;
        if part.is_err() {
            // Earlier data has to arrive: flush when there is nothing to send for a moment.
            tokio::task::yield_now().await;
        }
        Some((part.map(Frame::data), parts))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The object as the client wants it: complete, or only its metadata.
pub(super) fn render(object: &Object, metadata_only: bool) -> Bytes {
    if metadata_only {
        let partial = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.value["metadata"],
        });
        partial.to_string().into()
    } else {
        object.json.clone()
    }
}
