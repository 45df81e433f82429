//! Responses that are large and cannot be computed in parts: one pod as JSON or YAML, all mirror pods.
//!
//! A pod of 1.4 MB takes 150 ms as YAML. Computed on the runtime's threads, a few of them would delay a probe until the kubelet
//! ends the agent. So they are computed by a thread of their own, one at a time, and the thread's clients take turns. In
//! memory, a client and all clients together may have a limited number: a response stays there until the client has read it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use tokio::time::timeout;

use super::client::{ClientLimits, LargePermit};
use super::refusal::{Reason, Refusal};

/// What is smaller than this as JSON is computed at once. As YAML it takes up to 2 ms.
const SMALL: usize = 16 * 1024;
/// How long a request waits for permission to have a large response.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the value is large as JSON. Stops counting there, so it takes microseconds.
pub(crate) fn is_large(value: &impl Serialize) -> bool {
    // Fails only if there is no room.
    serde_json::to_writer(Room(SMALL), value).is_err()
}

/// Counts what is written, and fails when it is too much.
struct Room(usize);

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A response body that `encode` computes, in the thread for large responses. The error is the response if there are too many.
pub(crate) async fn response_body(
    limits: &ClientLimits,
    encode: impl FnOnce() -> Vec<u8> + Send + 'static,
) -> Result<Body, Response> {
    let permit = timeout(PATIENCE, limits.large()).await.ok().flatten().ok_or_else(|| {
        Refusal::still_too_many_requests("too many large responses at once").into_response()
    })?;
    let bytes = limits.encode(encode).await.ok_or_else(|| {
        Refusal::new(Reason::InternalError, "the response cannot be computed").into_response()
    })?;
    Ok(Body::new(Large { bytes: bytes.into(), _permit: permit }))
}

/// A response in memory, until it is sent.
struct Large {
    bytes: Bytes,
    _permit: LargePermit,
}

impl hyper::body::Body for Large {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // In parts, so that it is dropped, and the permit with it, only when the last part is sent.
        let part = self.bytes.len().min(PART);
        let part = self.bytes.split_to(part);
        Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// Bytes handed to the connection at a time.
const PART: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use axum::http::StatusCode;
    use http_body_util::BodyExt;

    use super::super::client::Clients;
    use super::*;

    #[test]
    fn a_value_is_large_beyond_a_bound() {
        assert!(!is_large(&"x".repeat(SMALL - 2)));
        assert!(is_large(&"x".repeat(SMALL - 1)));
    }

    /// The runtime has one thread here, and the work blocks its own until the end.
    #[tokio::test]
    async fn large_work_delays_nothing_else() {
        let clients = Clients::new();
        let (release, released) = mpsc::channel::<()>();
        let slow = clients.named("slow");
        let mut slow = Box::pin(response_body(&slow, move || {
            released.recv().unwrap();
            vec![1; 200_000]
        }));
        assert!(futures_util::poll!(&mut slow).is_pending());
        let other = clients.named("other");
        assert_eq!(other.in_turn(|| 7).await, Some(7));
        release.send(()).unwrap();
        let whole = slow.await.unwrap().collect().await.unwrap().to_bytes();
        assert_eq!(whole, vec![1; 200_000]);
    }

    #[tokio::test]
    async fn a_panic_ends_one_response_and_no_other() {
        let client = Clients::new().named("client");
        let response = response_body(&client, || panic!("a panic that the test wants")).await.unwrap_err();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(response_body(&client, || vec![1]).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_none_of_its_large_responses_gets_no_more() {
        let clients = Clients::new();
        let greedy = clients.named("greedy");
        let one = response_body(&greedy, || vec![1]).await.unwrap();
        let held = [one, response_body(&greedy, || vec![1]).await.unwrap()];
        let refusal = response_body(&greedy, || vec![1]).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(response_body(&clients.named("other"), || vec![1]).await.is_ok());
        drop(held);
        assert!(response_body(&greedy, || vec![1]).await.is_ok());
    }
}
