//! Why a list or a watch failed.

use std::time::Duration;

use http::{HeaderMap, header};
use kube::core::Status;

use crate::text::{LONGEST_REFUSAL, shorten_to};

/// The longest `Retry-After` that is obeyed.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Why a list or a watch failed. The message quotes nothing of an object.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    /// The HTTP status of a refusal.
    pub(crate) code: Option<u16>,
    /// The server asks for this pause.
    pub(super) retry_after: Duration,
}

/// What a failure means for what was received before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureKind {
    /// The connection broke, or the server refused: nothing was lost.
    Broken,
    /// The watch was silent for too long. What it did not send comes when it is continued.
    Silent,
    /// 410: the history that follows the version is gone.
    Expired,
    /// The server has not reached the version. It may have another history.
    TooLarge,
    /// An event may have been lost.
    Doubt,
    /// The same, because an answer in protobuf could not be read. Another one is in JSON.
    NoProtobuf,
    /// The server has another history.
    Restored,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, retry_after: Duration::ZERO }
    }

    /// The API server's refusal, as an answer or as an event. Its message is meant for people. A refusal without one is
    /// reported by its code.
    pub(super) fn refused(code: u16, status: &Status, headers: &HeaderMap) -> Self {
        let is_too_large = |reason: &str| reason == "ResourceVersionTooLarge";
        let details = status.details.as_ref();
        let kind = match code {
            410 => FailureKind::Expired,
            _ if matches!(&*status.reason, "Expired" | "Gone") => FailureKind::Expired,
            504 if details.is_some_and(|it| it.causes.iter().any(|it| is_too_large(&it.reason))) => {
                FailureKind::TooLarge
            }
            _ => FailureKind::Broken,
        };
        let message = match &*status.message {
            "" => format!("the API server answers {code}"),
            message => format!("{} ({code})", shorten_to(message, LONGEST_REFUSAL)),
        };
        let header = headers.get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        let seconds = header.or(details.map(|it| u64::from(it.retry_after_seconds))).unwrap_or_default();
        let retry_after = Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER);
        Self { code: Some(code), retry_after, ..Self::new(kind, message) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_that_is_too_old_or_too_new_is_recognized_in_every_form() {
        use FailureKind::{Broken, Expired, TooLarge};
        let too_large =
            json!({ "causes": [{ "reason": "ResourceVersionTooLarge" }], "retryAfterSeconds": 1 });
        for (code, status, expected, wait) in [
            (410, json!({ "reason": "Expired" }), Expired, 0),
            (410, json!({ "reason": "Gone" }), Expired, 0),
            (410, json!({}), Expired, 0),
            (0, json!({ "reason": "Gone" }), Expired, 0),
            (504, json!({ "reason": "Timeout", "details": too_large }), TooLarge, 1),
            (504, json!({ "reason": "Timeout" }), Broken, 0),
            (429, json!({ "details": { "retryAfterSeconds": 7 } }), Broken, 7),
            (500, json!({ "details": { "retryAfterSeconds": 7000 } }), Broken, 60),
        ] {
            let parsed = serde_json::from_value(status.clone()).unwrap();
            let failure = Failure::refused(code, &parsed, &HeaderMap::new());
            assert_eq!((failure.kind, failure.retry_after.as_secs()), (expected, wait), "{code} {status}");
        }
        // Priority and fairness answers with text.
        let headers = HeaderMap::from_iter([(header::RETRY_AFTER, "5".parse().unwrap())]);
        let failure = Failure::refused(429, &Status::default(), &headers);
        assert_eq!((failure.retry_after.as_secs(), &*failure.message), (5, "the API server answers 429"));
    }
}
