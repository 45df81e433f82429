//! Errors as `v1` `Status` objects, as the API server answers them. Every refusal of the agent's HTTP interface is made here, so that
//! none that may succeed later lacks `Retry-After`.

use std::time::Duration;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};

/// When a client may try again that has waited already, or that waits for the agent's start.
const SOON: Duration = Duration::from_secs(1);

/// A rejected request and the reason.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: StatusCode,
    status: Box<Status>,
}

/// Why a request fails, however often it is repeated. The words are the API server's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    Timeout,
    Expired,
    RequestEntityTooLarge,
    MisdirectedRequest,
    InternalError,
}

impl Reason {
    fn code(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Expired => StatusCode::GONE,
            Self::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MisdirectedRequest => StatusCode::MISDIRECTED_REQUEST,
            Self::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Refusal {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        // The variants have the API server's names.
        Self::with_code(reason.code(), &format!("{reason:?}"), message.into())
    }

    /// The client, or all clients together, have too much. It may try again after this time.
    pub(crate) fn too_many_requests(message: impl Into<String>, after: Duration) -> Self {
        Self::with_code(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.into()).retry_after(after)
    }

    /// As [`too_many_requests`](Self::too_many_requests), after the request has waited: the client may try again soon.
    pub(crate) fn still_too_many_requests(message: impl Into<String>) -> Self {
        Self::too_many_requests(message, SOON)
    }

    /// Something that the agent depends on is not there. The client may try again after this time.
    pub(crate) fn unavailable(message: impl Into<String>, after: Duration) -> Self {
        Self::with_code(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message.into())
            .retry_after(after)
    }

    /// As [`unavailable`](Self::unavailable), while the agent starts or ends: the client may try again soon.
    pub(crate) fn not_ready(message: impl Into<String>) -> Self {
        Self::unavailable(message, SOON)
    }

    /// What the request is about.
    pub(crate) fn with(mut self, details: StatusDetails) -> Self {
        self.status.details = Some(details);
        self
    }

    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    fn with_code(code: StatusCode, reason: &str, message: String) -> Self {
        let status = Status {
            code: Some(code.as_u16().into()),
            message: Some(message),
            reason: Some(reason.to_owned()),
            status: Some("Failure".to_owned()),
            ..Status::default()
        };
        Self { code, status: Box::new(status) }
    }

    fn retry_after(self, after: Duration) -> Self {
        let seconds = whole_seconds(after);
        self.with(StatusDetails { retry_after_seconds: Some(seconds), ..StatusDetails::default() })
    }
}

/// The form of `Retry-After`: rounded up, and at least 1. A client that is told 0 would ask again at once.
fn whole_seconds(after: Duration) -> i32 {
    let has_rest = after.subsec_nanos() > 0;
    let seconds = after.as_secs().saturating_add(has_rest.into()).max(1);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let after = self.status.details.as_ref().and_then(|details| details.retry_after_seconds);
        let response = (self.code, Json(&*self.status)).into_response();
        match after {
            Some(seconds) => ([(header::RETRY_AFTER, seconds.to_string())], response).into_response(),
            None => response,
        }
    }
}

pub(crate) fn refused(reason: Reason, message: impl Into<String>) -> Response {
    Refusal::new(reason, message).into_response()
}

pub(crate) fn not_found(message: String) -> Response {
    refused(Reason::NotFound, message)
}

/// The answer to a probe that fails: its text is for people, one reason on each line. Without `Retry-After`: by it, `kubectl
/// get --raw` and other clients of client-go would repeat the request up to ten times before they show the answer.
pub(crate) fn failed_probe(lines: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn whoever_may_try_again_is_told_when_in_the_header_and_in_the_body() {
        for (refusal, code, seconds) in [
            (Refusal::too_many_requests("m", Duration::from_secs(5)), 429, 5),
            (Refusal::too_many_requests("m", Duration::ZERO), 429, 1),
            (Refusal::too_many_requests("m", Duration::from_millis(300)), 429, 1),
            (Refusal::unavailable("m", Duration::from_millis(1_001)), 503, 2),
            (Refusal::unavailable("m", Duration::MAX), 503, i32::MAX),
            (Refusal::still_too_many_requests("m"), 429, 1),
            (Refusal::unavailable("m", Duration::from_secs(7)), 503, 7),
            (Refusal::not_ready("m"), 503, 1),
        ] {
            let in_body = refusal.status().details.as_ref().and_then(|details| details.retry_after_seconds);
            assert_eq!(in_body, Some(seconds));
            let response = refusal.into_response();
            assert_eq!(response.status(), code);
            assert_eq!(response.headers()[header::RETRY_AFTER], seconds.to_string());
        }
        assert!(!failed_probe(String::new()).headers().contains_key(header::RETRY_AFTER));
        assert!(!not_found(String::new()).headers().contains_key(header::RETRY_AFTER));
    }

    /// The code of a file, without its tests.
    fn code(path: &Path) -> String {
        let text = fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()
    }

    /// The client of the commands looks at the code of an answer, and makes none.
    fn makes_one(code: &str) -> bool {
        !code.contains("fn retry_after(&self)")
            && (code.contains("TOO_MANY_REQUESTS") || code.contains("SERVICE_UNAVAILABLE"))
    }

    /// Any other place could forget `Retry-After`.
    #[test]
    fn a_429_and_a_503_are_made_here_alone() {
        let mut places = Vec::new();
        let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if makes_one(&code(&path)) {
                    places.push(path);
                }
            }
        }
        assert_eq!(places.len(), 1, "{places:?}");
        assert!(places[0].ends_with("api/refusal.rs"), "{places:?}");
    }
}
