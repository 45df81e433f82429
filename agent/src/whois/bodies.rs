//! The bodies of requests. Each stays in memory until its answers are sent, so there are places for a limited number.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::api::client::Places;
use crate::api::refusal::refused;

/// Maximum size of a body, in bytes.
const BODY: usize = 128 << 10;
/// Timeout for a place, and for the body.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A place for a body.
pub(super) struct Place {
    /// When the body was complete.
    since: Instant,
    places: [Arc<Places>; 2],
    _permits: [OwnedSemaphorePermit; 2],
}

impl Place {
    /// Waits for one of each of these places.
    pub(super) async fn take(places: &[Arc<Places>; 2]) -> Result<Self, Response> {
        let [of_client, of_all] = places;
        let permits = timeout(TIMEOUT, async { Some([of_client.take().await?, of_all.take().await?]) }).await;
        let permits = permits.ok().flatten().ok_or_else(|| {
            let message = "too many queries with a body at once".to_owned();
            refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        })?;
        Ok(Self { since: Instant::now(), places: places.clone(), _permits: permits })
    }

    /// Fails if the answers have taken 10 s or longer and another request waits for such a place.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.since.elapsed() >= TIMEOUT && self.places.iter().any(|places| places.are_wanted()) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"));
        }
        Ok(())
    }

    /// Reads the body into one piece of memory. Kept as it came, in chunks, it may take 40 times its size.
    pub(super) async fn read(&mut self, mut body: Body) -> Result<Vec<u8>, Response> {
        let read = async {
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
        };
        let incomplete =
            |_| refused(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body is incomplete".to_owned());
        let text = timeout(TIMEOUT, read).await.map_err(incomplete)??;
        self.since = Instant::now();
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::client::Clients;

    #[tokio::test(start_paused = true)]
    async fn clients_that_read_slowly_lose_their_places_to_others_that_wait() {
        let clients = Clients::new();
        let of_slow: Vec<_> = (0..64).map(|n| clients.named(&format!("slow {}", n / 16))).collect();
        let mut slow = Vec::new();
        for client in &of_slow {
            slow.push(Place::take(&client.bodies).await.unwrap());
        }
        tokio::time::advance(2 * TIMEOUT).await;
        assert!(slow.iter().all(|place| place.check().is_ok()), "nobody waits for their places");

        // The time until the body is complete does not count.
        slow[63].read(Body::from("u-1")).await.unwrap();
        let another = clients.named("another");
        let mut another = Box::pin(Place::take(&another.bodies));
        assert!(timeout(TIMEOUT / 2, &mut another).await.is_err());
        let error = slow[0].check().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(slow[63].check().is_ok(), "it is not slow yet");
        drop(slow.remove(0));
        let another = another.await.unwrap();
        assert!(slow.iter().all(|place| place.check().is_ok()), "nobody waits any more");
        drop(another);

        // A client that waits for itself takes its own place.
        let mut more = Box::pin(Place::take(&of_slow[16].bodies));
        assert!(timeout(TIMEOUT / 2, &mut more).await.is_err());
        let lost: Vec<_> = slow.iter().map(|place| place.check().is_err()).collect();
        assert_eq!(lost, [[false; 15].as_slice(), &[true; 16], &[false; 32]].concat());
        assert_eq!(more.await.err().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    }
}
