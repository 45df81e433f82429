//! The bodies of requests. Each stays in memory until its answers are sent, so there are places for a limited number.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::api::refusal::refused;

/// Maximum size of a body, in bytes.
const BODY: usize = 128 << 10;
/// Timeout for a place, and for the body.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Places of all clients.
const PLACES: usize = 64;

/// The places of all clients.
pub(crate) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(PLACES))
}

/// A place for a body: one of its client, and one of all.
pub(super) struct Place {
    since: Instant,
    permits: [OwnedSemaphorePermit; 2],
}

impl Place {
    /// Waits for a place.
    pub(super) async fn take(of_client: &Arc<Semaphore>, of_all: &Arc<Semaphore>) -> Result<Self, Response> {
        let take = async |places: &Arc<Semaphore>| Arc::clone(places).acquire_owned().await.ok();
        let permits = timeout(TIMEOUT, async { Some([take(of_client).await?, take(of_all).await?]) }).await;
        let permits = permits.ok().flatten().ok_or_else(|| {
            let message = "too many queries with a body at once".to_owned();
            refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        })?;
        Ok(Self { since: Instant::now(), permits })
    }

    /// Fails if the request is slow and no other place is free. A client that reads slowly keeps none from others.
    pub(super) fn check(&self) -> io::Result<()> {
        let mut places = self.permits.iter().map(OwnedSemaphorePermit::semaphore);
        if self.since.elapsed() >= TIMEOUT && places.any(|places| places.available_permits() == 0) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"));
        }
        Ok(())
    }
}

/// Reads a body into one piece of memory. Kept as it came, in chunks, it may take 40 times its size.
pub(super) async fn read(body: Body) -> Result<Vec<u8>, Response> {
    let message = "the body is incomplete".to_owned();
    let incomplete = |_| refused(StatusCode::REQUEST_TIMEOUT, "Timeout", message);
    timeout(TIMEOUT, read_all(body)).await.map_err(incomplete)?
}

async fn read_all(mut body: Body) -> Result<Vec<u8>, Response> {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let message = format!("the body cannot be read: {error}");
            refused(StatusCode::BAD_REQUEST, "BadRequest", message)
        })?;
        // Trailers are ignored.
        let data = frame.into_data().unwrap_or_default();
        if text.len() + data.len() > BODY {
            let message = format!("the body must not exceed {BODY} bytes");
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
        }
        text.extend_from_slice(&data);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::client::Clients;

    #[tokio::test(start_paused = true)]
    async fn clients_that_read_slowly_lose_their_places_to_others() {
        let (clients, all) = (Clients::new(), places());
        let of_slow: Vec<_> = (0..PLACES).map(|n| clients.named(&format!("slow {}", n / 16))).collect();
        let mut slow = Vec::new();
        for client in &of_slow {
            slow.push(Place::take(&client.bodies, &all).await.unwrap());
        }
        let another = clients.named("another");
        let mut another = Box::pin(Place::take(&another.bodies, &all));
        assert!(timeout(TIMEOUT / 2, &mut another).await.is_err());
        assert!(slow.iter().all(|place| place.check().is_ok()), "they are not slow yet");
        assert_eq!(another.await.err().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(slow[0].check().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(slow.remove(0));
        assert!(
            slow[0].check().is_ok() && slow[15].check().is_err(),
            "a place of its client and of all is free"
        );
        // A client that waits for itself takes its own place.
        assert!(timeout(TIMEOUT / 2, Place::take(&of_slow[16].bodies, &all)).await.is_err());
        let lost: Vec<_> = slow.iter().map(|place| place.check().is_err()).collect();
        assert!(!lost[0] && lost[15..31].iter().all(|is_lost| *is_lost));
    }
}
