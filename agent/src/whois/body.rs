//! The bodies of requests. Each stays in memory until its answers are sent, so there may be a limited number.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::api::client::{ClientLimits, Place};
use crate::api::refusal::{Reason, Refusal, refused};

/// Maximum size of a body, in bytes.
pub(super) const BODY: usize = 128 << 10;
/// Timeout for a place, and for the body.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// A body in memory.
pub(super) struct HeldBody {
    /// When it was complete.
    since: Instant,
    place: Place,
}

impl HeldBody {
    /// Waits for a place, then reads the body.
    pub(super) async fn read(limits: &ClientLimits, body: Body) -> Result<(Bytes, Self), Response> {
        let place = timeout(TIMEOUT, limits.place()).await.ok().flatten().ok_or_else(|| {
            Refusal::still_too_many_requests("too many queries with a body at once").into_response()
        })?;
        let incomplete = |_| refused(Reason::Timeout, "the body is incomplete");
        let text = timeout(TIMEOUT, text(body)).await.map_err(incomplete)??;
        Ok((text.into(), Self { since: Instant::now(), place }))
    }

    /// Fails if the answers have taken 10 s or longer and another request waits for a place.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.since.elapsed() >= TIMEOUT && self.place.is_wanted() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"));
        }
        Ok(())
    }
}

/// Reads the body into one piece of memory. Kept as it came, in chunks, it may take 40 times its size.
async fn text(mut body: Body) -> Result<Vec<u8>, Response> {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| refused(Reason::BadRequest, format!("the body cannot be read: {error}")))?;
        // Trailers are ignored.
        let data = frame.into_data().unwrap_or_default();
        if text.len() + data.len() > BODY {
            let message = format!("the body must not exceed {BODY} bytes");
            return Err(refused(Reason::RequestEntityTooLarge, message));
        }
        text.extend_from_slice(&data);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;
    use crate::api::client::Clients;

    async fn read(limits: &ClientLimits) -> Result<HeldBody, Response> {
        HeldBody::read(limits, Body::from("u-1")).await.map(|(_, held)| held)
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_read_slowly_are_cut_off_when_others_wait() {
        let clients = Clients::new();
        let of_slow: Vec<_> = (0..64).map(|n| clients.named(&format!("slow {}", n / 16))).collect();
        let mut slow = Vec::new();
        for client in &of_slow[..63] {
            slow.push(read(client).await.unwrap());
        }
        tokio::time::advance(2 * TIMEOUT).await;
        assert!(slow.iter().all(|body| body.check().is_ok()), "nobody waits");

        slow.push(read(&of_slow[63]).await.unwrap());
        let another = clients.named("another");
        let mut another = Box::pin(read(&another));
        assert!(timeout(TIMEOUT / 2, &mut another).await.is_err());
        let error = slow[0].check().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(slow[63].check().is_ok(), "it is not slow yet");
        drop(slow.remove(0));
        let another = another.await.unwrap();
        assert!(slow.iter().all(|body| body.check().is_ok()), "nobody waits any more");
        drop(another);

        // A client that waits for itself cuts off its own.
        let mut more = Box::pin(read(&of_slow[16]));
        assert!(timeout(TIMEOUT / 2, &mut more).await.is_err());
        let cut_off: Vec<_> = slow.iter().map(|body| body.check().is_err()).collect();
        assert_eq!(cut_off, [[false; 15].as_slice(), &[true; 16], &[false; 32]].concat());
        assert_eq!(more.await.err().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    }

    /// A client that waits for the end of the bodies of all must not be the one that is waited for.
    #[tokio::test(start_paused = true)]
    async fn an_incomplete_body_is_refused_in_time() {
        let clients = Clients::new();
        let endless = Body::from_stream(futures_util::stream::pending::<Result<Bytes, io::Error>>());
        let refusal = HeldBody::read(&clients.named("client"), endless).await.err().unwrap();
        assert_eq!(refusal.status(), StatusCode::REQUEST_TIMEOUT);
    }
}
