//! The queries of requests with a body, which stay in memory until their answers are sent.
//!
//! A client that reads its answers slowly keeps its queries for as long. It loses them if another request waits for a place.

use std::io;
use std::sync::Arc;

use hyper::body::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::limits;
use crate::api::client::{Places, Share};

/// A place for a body, of its client and of all.
#[derive(Debug)]
pub(super) struct Place {
    client: Arc<Share>,
    all: Arc<Places>,
    since: Instant,
    #[expect(dead_code, reason = "what matters is that they are dropped")]
    permits: [OwnedSemaphorePermit; 2],
}

impl Place {
    /// Waits for a place. `None`: all are in use by requests that are not slow.
    pub(super) async fn take(all: &Arc<Places>, client: &Arc<Share>) -> Option<Self> {
        // A slow request notices this when its client reads the next part.
        let permits = async { Some([client.bodies.take().await?, all.take().await?]) };
        let permits = timeout(limits::PLACE_TIMEOUT, permits).await.ok()??;
        Some(Self { client: Arc::clone(client), all: Arc::clone(all), since: Instant::now(), permits })
    }

    /// Fails if the request is slow, and another one waits for its place.
    pub(super) fn check(&self) -> io::Result<()> {
        let is_wanted = self.client.bodies.are_wanted() || self.all.are_wanted();
        if is_wanted && self.since.elapsed() >= limits::BODY_TIMEOUT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"));
        }
        Ok(())
    }
}

/// Queries, in their order.
#[derive(Clone, Debug)]
pub(super) enum Queries {
    /// One per line.
    Lines(Bytes),
    List(std::vec::IntoIter<Bytes>),
}

impl Iterator for Queries {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Lines(body) if body.is_empty() => None,
            Self::Lines(body) => {
                let end = body.iter().position(|byte| *byte == b'\n');
                let mut line = body.split_to(end.map_or(body.len(), |end| end + 1));
                line.truncate(end.unwrap_or(line.len()));
                Some(line)
            }
            Self::List(list) => list.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::client::Clients;

    fn all() -> Arc<Places> {
        Arc::new(Places::new(limits::BODIES))
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_read_slowly_lose_their_places_to_others() {
        let (clients, all) = (Clients::new(), all());
        let mut slow = Vec::new();
        for number in 0..limits::BODIES {
            let client = clients.named(&format!("slow {}", number / 4));
            slow.push(Place::take(&all, &client).await.unwrap());
        }
        let [another, own] = ["another", "slow 1"].map(|name| clients.named(name));
        let mut another = Box::pin(Place::take(&all, &another));
        assert!(timeout(limits::BODY_TIMEOUT / 2, &mut another).await.is_err());
        assert!(slow.iter().all(|place| place.check().is_ok()), "they are not slow yet");
        assert!(timeout(limits::BODY_TIMEOUT, &mut another).await.is_err());
        assert_eq!(slow[0].check().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(slow.remove(0));
        let another = another.await.unwrap();
        assert!(slow.iter().all(|place| place.check().is_ok()), "nobody waits any more");
        // A client that waits for itself takes its own place.
        let mut fifth = Box::pin(Place::take(&all, &own));
        assert!(timeout(limits::BODY_TIMEOUT, &mut fifth).await.is_err());
        let lost: Vec<_> = slow.iter().map(|place| place.check().is_err()).collect();
        assert_eq!(lost.iter().filter(|is_lost| **is_lost).count(), 4);
        assert!(lost[3..7].iter().all(|is_lost| *is_lost) && another.check().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_does_not_wait_for_a_place_for_ever() {
        let (clients, all) = (Clients::new(), all());
        let mut places = Vec::new();
        for number in 0..limits::BODIES {
            places.push(Place::take(&all, &clients.named(&number.to_string())).await.unwrap());
        }
        assert!(Place::take(&all, &clients.named("another")).await.is_none());
    }

    #[test]
    fn a_query_is_a_line() {
        let lines: Vec<_> = Queries::Lines("a\n\nb".into()).collect();
        assert_eq!(lines, ["a", "", "b"]);
    }
}
