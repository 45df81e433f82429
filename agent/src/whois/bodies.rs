//! The queries of requests with a body, which stay in memory until their answers are sent.
//!
//! A client that reads its answers slowly keeps its queries for as long. It loses them if another request has waited for
//! the place.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::limits;
use crate::api::client::Share;

/// The bodies in memory. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    places: Arc<Semaphore>,
    held: Arc<Mutex<Vec<Weak<Held>>>>,
}

/// A place for a body, of its client and of all.
#[derive(Debug)]
pub(super) struct Place {
    /// Keeps the client's share: without it, the client's next request would get a new one.
    client: Arc<Share>,
    #[expect(dead_code, reason = "what matters is that they are dropped")]
    permits: [OwnedSemaphorePermit; 2],
}

/// The queries of one request whose answers are not sent.
#[derive(Debug)]
pub(super) struct Held {
    client: Arc<str>,
    since: Instant,
    /// `None`: another request has the place.
    queries: Mutex<Option<(Queries, Option<Place>)>>,
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

impl Bodies {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(limits::BODIES)), held: Arc::default() }
    }

    /// A place for a body of this client. `None`: all are in use by requests that are not slow.
    pub(super) async fn place(&self, client: &Arc<Share>) -> Option<Place> {
        let own = self.one_of(&client.bodies, |held| held.client == client.name).await?;
        let one_of_all = self.one_of(&self.places, |_| true).await?;
        Some(Place { client: Arc::clone(client), permits: [own, one_of_all] })
    }

    /// Waits for a permit. If there is none, takes the place of the oldest of `these` that is older than the wait.
    async fn one_of(
        &self,
        places: &Arc<Semaphore>,
        these: impl Fn(&Held) -> bool,
    ) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = timeout(limits::BODY_TIMEOUT, Arc::clone(places).acquire_owned()).await {
            return permit.ok();
        }
        let slowest = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|held| held.strong_count() > 0);
            let held = held.iter().filter_map(Weak::upgrade).filter(|held| these(held));
            held.filter(|held| held.since.elapsed() >= limits::BODY_TIMEOUT && held.is_held())
                .min_by_key(|held| held.since)
        };
        slowest?.lose();
        Arc::clone(places).try_acquire_owned().ok()
    }

    /// Holds the queries of a request until they are answered.
    pub(super) fn hold(&self, queries: Queries, place: Option<Place>) -> Arc<Held> {
        let client = place.as_ref().map_or_else(|| "".into(), |place| Arc::clone(&place.client.name));
        let has_place = place.is_some();
        let held =
            Arc::new(Held { client, since: Instant::now(), queries: Mutex::new(Some((queries, place))) });
        if has_place {
            let mut all = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|held| held.strong_count() > 0);
            all.push(Arc::downgrade(&held));
        }
        held
    }
}

impl Held {
    /// The queries that are left.
    pub(super) fn queries(&self) -> io::Result<Queries> {
        let queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = || io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly");
        queries.as_ref().map(|(queries, _)| queries.clone()).ok_or_else(lost)
    }

    /// Leaves these queries.
    pub(super) fn leave(&self, rest: Queries) {
        if let Some((queries, _)) = &mut *self.queries.lock().unwrap_or_else(PoisonError::into_inner) {
            *queries = rest;
        }
    }

    fn is_held(&self) -> bool {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn lose(&self) {
        drop(self.queries.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::client::Clients;

    #[tokio::test(start_paused = true)]
    async fn clients_that_read_slowly_lose_their_places_to_others() {
        let (clients, bodies) = (Clients::new(), Bodies::new());
        let mut slow = Vec::new();
        for number in 0..limits::BODIES {
            let client = clients.named(&format!("slow {}", number / 4));
            let place = bodies.place(&client).await.unwrap();
            slow.push(bodies.hold(Queries::Lines("a\nb".into()), Some(place)));
        }
        let began = Instant::now();
        let place = bodies.place(&clients.named("another")).await.unwrap();
        assert_eq!(began.elapsed(), limits::BODY_TIMEOUT);
        assert_eq!(slow[0].queries().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(slow[1..].iter().all(|held| held.queries().is_ok()));
        // A client that waits for itself takes its own place.
        let fifth = bodies.place(&clients.named("slow 1")).await.unwrap();
        assert!(slow[4].queries().is_err() && slow[1].queries().is_ok());
        drop((place, fifth));
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_are_still_read_keep_their_places() {
        let (clients, bodies) = (Clients::new(), Bodies::new());
        let mut places = Vec::new();
        for number in 0..limits::BODIES {
            places.push(bodies.place(&clients.named(&number.to_string())).await.unwrap());
        }
        assert!(bodies.place(&clients.named("another")).await.is_none());
    }

    #[test]
    fn a_query_is_a_line() {
        let lines: Vec<_> = Queries::Lines("a\n\nb".into()).collect();
        assert_eq!(lines, ["a", "", "b"]);
    }
}
