//! Who makes a request, and what one client may have at once.
//!
//! Lists, answers and first events are computed in parts, and in turns: each client has one turn, and one part of all
//! clients is computed at a time. So no client delays another's by more than its own part, and the runtime's other
//! thread is free for short requests, such as probes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

/// Parts computed at once. Fewer than the runtime has threads.
const TURNS: usize = 1;
/// Request bodies in memory: of one client, and of all.
const BODIES: usize = 16;
const ALL_BODIES: usize = 64;
/// Known clients that are gone, before they are forgotten.
const GONE: usize = 256;

/// All clients. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    known: Arc<Mutex<HashMap<Arc<str>, Weak<Share>>>>,
    turns: Arc<Semaphore>,
    bodies: Arc<Places>,
}

/// What one client may have at once.
#[derive(Debug)]
pub(crate) struct Share {
    /// The common name in its certificate or the name in its token, otherwise its address or its user on the socket. A
    /// name is better: clients can share an address, and a client can have several.
    pub(crate) name: Arc<str>,
    turn: Semaphore,
    turns: Arc<Semaphore>,
    /// Shared with each open watch of the client.
    pub(crate) watches: Arc<()>,
    /// For the bodies of its requests: its own places, and those of all clients. A request takes one of each.
    pub(crate) bodies: [Arc<Places>; 2],
    /// Held while processes are read for it. A `/proc` that blocks must not keep the client's turn.
    pub(crate) processes: Semaphore,
}

impl Clients {
    pub(crate) fn new() -> Self {
        Self {
            known: Arc::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
            bodies: Arc::new(Places::new(ALL_BODIES)),
        }
    }

    /// The client with this name.
    pub(crate) fn named(&self, name: &str) -> Arc<Share> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = known.get(name).and_then(Weak::upgrade) {
            return share;
        }
        if known.len() >= GONE {
            known.retain(|_, share| share.strong_count() > 0);
        }
        let name: Arc<str> = name.into();
        let share = Arc::new(Share {
            name: Arc::clone(&name),
            turn: Semaphore::new(1),
            turns: Arc::clone(&self.turns),
            watches: Arc::default(),
            bodies: [Arc::new(Places::new(BODIES)), Arc::clone(&self.bodies)],
            processes: Semaphore::new(1),
        });
        known.insert(name, Arc::downgrade(&share));
        share
    }

    /// A client on this address. All of the loopback is one client: every process of the machine can use any of it.
    pub(crate) fn at(&self, address: IpAddr) -> Arc<Peer> {
        let address = address.to_canonical();
        let name = if address.is_loopback() { "loopback".to_owned() } else { address.to_string() };
        self.peer(&name)
    }

    /// The peer of a new connection.
    pub(crate) fn peer(&self, origin: &str) -> Arc<Peer> {
        let (clients, origin) = (self.clone(), self.named(origin));
        Arc::new(Peer {
            clients,
            origin,
            has_handshake: AtomicBool::new(false),
            is_watching: AtomicBool::new(false),
        })
    }
}

impl Share {
    /// Computes a part in this client's turn. It must be bounded: less than a millisecond. `None`: the agent ends.
    pub(crate) async fn work<T>(&self, part: impl FnOnce() -> T) -> Option<T> {
        let done = {
            let _turn = self.turn.acquire().await.ok()?;
            let _one_of_all = self.turns.acquire().await.ok()?;
            part()
        };
        // Otherwise a client that reads as fast as parts are computed would keep its thread.
        yield_now().await;
        Some(done)
    }

    /// Computes a bounded part that all clients share, in no client's turn.
    pub(crate) async fn shared_work<T>(&self, part: impl FnOnce() -> T) -> Option<T> {
        let done = {
            let _one_of_all = self.turns.acquire().await.ok()?;
            part()
        };
        yield_now().await;
        Some(done)
    }
}

/// Places for a limited number of requests.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    /// Shared with each request that waits for a place.
    waiting: Arc<()>,
}

impl Places {
    fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), waiting: Arc::default() }
    }

    /// Waits for a place, if none is free. `None`: the agent ends.
    pub(crate) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(place);
        }
        let _waiting = Arc::clone(&self.waiting);
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Whether a request waits for a place.
    pub(crate) fn are_wanted(&self) -> bool {
        Arc::strong_count(&self.waiting) > 1
    }
}

/// The peer of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    clients: Clients,
    /// The client without a name.
    pub(crate) origin: Arc<Share>,
    /// Whether the TLS handshake is complete, or none is needed.
    pub(crate) has_handshake: AtomicBool,
    /// Whether the connection currently serves a watch.
    pub(crate) is_watching: AtomicBool,
}

/// The name of an authenticated client, in the extensions of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Named(pub(crate) Arc<str>);

/// The client that makes a request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) peer: Arc<Peer>,
    pub(crate) share: Arc<Share>,
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Arc<Peer>>().cloned();
        let peer = peer.unwrap_or_else(|| Clients::new().peer("unknown"));
        let share = match parts.extensions.get::<Named>() {
            // No address has this prefix.
            Some(Named(name)) => peer.clients.named(&format!("name {name}")),
            None => Arc::clone(&peer.origin),
        };
        Ok(Self { peer, share })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_whole_loopback_is_one_client() {
        let clients = Clients::new();
        let at = |address: &str| clients.at(address.parse().unwrap()).origin.name.to_string();
        for address in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(at(address), "loopback", "{address}");
        }
        assert_eq!((at("10.0.0.1"), at("::ffff:10.0.0.1")), ("10.0.0.1".to_owned(), "10.0.0.1".to_owned()));
    }

    #[test]
    fn clients_that_are_gone_are_forgotten() {
        let clients = Clients::new();
        let held = clients.named("held");
        for number in 0..10 * GONE {
            drop(clients.named(&number.to_string()));
        }
        assert!(clients.known.lock().unwrap().len() <= GONE);
        assert!(Arc::ptr_eq(&held, &clients.named("held")));
    }

    #[tokio::test]
    async fn a_client_that_waits_for_its_turn_delays_no_other() {
        let clients = Clients::new();
        let (greedy, other) = (clients.named("greedy"), clients.named("other"));
        let turn = greedy.turn.acquire().await.unwrap();
        let mut more: Vec<_> = (0..100).map(|_| Box::pin(greedy.work(|| ()))).collect();
        for more in &mut more {
            assert!(more.now_or_never().is_none());
        }
        assert_eq!(other.work(|| 7).await, Some(7));
        drop(turn);
        for more in more {
            assert_eq!(more.await, Some(()));
        }
    }
}
