//! Who makes a request, and what one client may have at once.
//!
//! The runtime has few threads, and probes need one. So what takes long is computed in one of two ways:
//!
//! - What can be divided (lists, answers, first events) is computed in parts, and in turns: each client has one turn, and one
//!   part of all clients is computed at a time. So no client delays another's by more than its own part, and the runtime's
//!   other thread is free for short requests.
//! - What cannot (one large pod as YAML) is computed in a thread of its own: see [`large`](super::large).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::yield_now;

use super::encoder::Encoder;
use super::open_count::OpenCount;
use super::refusal::{Reason, Refusal};

/// Parts computed at once. Fewer than the runtime has threads.
const TURNS: usize = 1;
/// Places: of one client, and of all. See [`Place`].
pub(crate) const PLACES: usize = 16;
pub(crate) const ALL_PLACES: usize = 64;
/// Large responses in memory: of one client, and of all. One may take 5 MB.
pub(crate) const LARGE: usize = 2;
pub(crate) const ALL_LARGE: usize = 8;
/// Known clients that are gone, before they are forgotten.
const GONE: usize = 256;

/// All clients. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    known: Arc<Mutex<HashMap<Arc<str>, Weak<ClientLimits>>>>,
    shared: Arc<SharedLimits>,
}

/// What all clients may have together.
#[derive(Debug)]
struct SharedLimits {
    turns: Semaphore,
    /// For a short part while the turns are taken.
    spare_turn: Semaphore,
    places: Arc<ContendedSemaphore>,
    large: Arc<Semaphore>,
    encoder: Encoder,
}

/// By which a client is told from others: the common name in its certificate or the name in its token, otherwise its address or its
/// user on the socket. A name is better: clients can share an address, and a client can have several. What is counted for each client
/// is counted by this, and not by a [`PeerAddress`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientName(Arc<str>);

/// Where a connection comes from: an address, or a user on the socket. All clients there have it in common, also those with names. So
/// it serves only for what must be limited before it is known who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerAddress<'a>(&'a ClientName);

impl<'a> PeerAddress<'a> {
    pub(crate) fn as_str(self) -> &'a str {
        &self.0.0
    }
}

/// What one client may have at once.
///
/// It exists as long as the client has a connection, or something that it was permitted. So nothing belongs here that must
/// outlive a connection, such as a number of requests a second: each call of `curl` would begin with a new one.
#[derive(Debug)]
pub(crate) struct ClientLimits {
    pub(crate) name: ClientName,
    turn: Semaphore,
    shared: Arc<SharedLimits>,
    /// Its open watches. How many it may have, the pod API says at each.
    pub(crate) watches: OpenCount,
    places: Arc<ContendedSemaphore>,
    large: Arc<Semaphore>,
    /// Held while a large response is encoded for it.
    encoding: Semaphore,
    /// Held while processes are read for it. A `/proc` that blocks must not keep the client's turn.
    pub(crate) processes: Semaphore,
}

impl Clients {
    /// For one server: the port and the socket share theirs. Each other server has a thread of its own, and so clients of its own. If it
    /// shared them, a batch on the port could make a probe wait for a turn, and what a client has open here would count there.
    pub(crate) fn new() -> Self {
        let shared = SharedLimits {
            turns: Semaphore::new(TURNS),
            spare_turn: Semaphore::new(1),
            places: Arc::new(ContendedSemaphore::new(ALL_PLACES)),
            large: Arc::new(Semaphore::new(ALL_LARGE)),
            encoder: Encoder::default(),
        };
        Self { known: Arc::default(), shared: Arc::new(shared) }
    }

    /// The limits of the client with this name.
    pub(crate) fn named(&self, name: &str) -> Arc<ClientLimits> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limits) = known.get(name).and_then(Weak::upgrade) {
            return limits;
        }
        if known.len() >= GONE {
            known.retain(|_, limits| limits.strong_count() > 0);
        }
        let name: Arc<str> = name.into();
        let limits = Arc::new(ClientLimits {
            name: ClientName(Arc::clone(&name)),
            turn: Semaphore::new(1),
            shared: Arc::clone(&self.shared),
            watches: OpenCount::default(),
            places: Arc::new(ContendedSemaphore::new(PLACES)),
            large: Arc::new(Semaphore::new(LARGE)),
            encoding: Semaphore::new(1),
            processes: Semaphore::new(1),
        });
        known.insert(name, Arc::downgrade(&limits));
        limits
    }

    /// A client on this address. All of the loopback is one client: every process of the machine can use any of it.
    pub(crate) fn at(&self, address: IpAddr) -> Arc<Peer> {
        let address = address.to_canonical();
        let name = if address.is_loopback() { "loopback".to_owned() } else { address.to_string() };
        self.peer(&name)
    }

    /// The peer of a new connection.
    pub(crate) fn peer(&self, address: &str) -> Arc<Peer> {
        let unnamed = self.named(address);
        Arc::new(Peer { clients: self.clone(), unnamed, is_watching: AtomicBool::new(false) })
    }
}

impl ClientLimits {
    /// Computes a part in this client's turn. It must be bounded: less than a millisecond. `None`: the agent ends.
    pub(crate) async fn in_turn<T>(&self, part: impl FnOnce() -> T) -> Option<T> {
        let done = {
            let _turn = self.turn.acquire().await.ok()?;
            let _one_of_all = self.shared.turns.acquire().await.ok()?;
            part()
        };
        // Otherwise a client that reads as fast as parts are computed would keep its thread.
        yield_now().await;
        Some(done)
    }

    /// As [`in_turn`](Self::in_turn), for a part of a fraction of a millisecond. If it would have to wait, and nobody else does
    /// this, it is computed at once, by the runtime's other thread: a client with two batches gets both threads, and a probe
    /// waits for less than it would notice.
    pub(crate) async fn in_short_turn<T>(&self, part: impl FnOnce() -> T) -> Option<T> {
        let Some(spare) = self.spare_turn() else { return self.in_turn(part).await };
        let done = part();
        drop(spare);
        yield_now().await;
        Some(done)
    }

    /// The spare turn, if this client would have to wait for its own one and nobody else has it.
    fn spare_turn(&self) -> Option<SemaphorePermit<'_>> {
        let is_free = self.turn.available_permits() > 0 && self.shared.turns.available_permits() > 0;
        if is_free { None } else { self.shared.spare_turn.try_acquire().ok() }
    }

    /// Computes a bounded part that all clients share, in no client's turn.
    pub(crate) async fn in_shared_turn<T>(&self, part: impl FnOnce() -> T) -> Option<T> {
        let done = {
            let _one_of_all = self.shared.turns.acquire().await.ok()?;
            part()
        };
        yield_now().await;
        Some(done)
    }

    /// Waits for a place. `None`: the agent ends.
    pub(crate) async fn place(&self) -> Option<Place> {
        let of_client = self.places.acquire().await?;
        let of_all = self.shared.places.acquire().await?;
        Some(Place { of_client, of_all })
    }

    /// Waits for permission to keep a large response in memory. `None`: the agent ends.
    pub(crate) async fn large(&self) -> Option<LargePermit> {
        let of_client = Arc::clone(&self.large).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.shared.large).acquire_owned().await.ok()?;
        Some(LargePermit { _of_client: of_client, _of_all: of_all })
    }

    /// Computes what may take long in the thread for this, one at a time for a client and one at a time of all. `None`: the
    /// thread has ended, or the work has panicked.
    pub(crate) async fn encode<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let _turn = self.encoding.acquire().await.ok()?;
        self.shared.encoder.run(work).await
    }
}

/// A place in memory until the client has read its answer: for the body of a request, or for an answer of the Pods API. It is one of
/// the client's, and one of all.
#[derive(Debug)]
pub(crate) struct Place {
    of_client: ContendedPermit,
    of_all: ContendedPermit,
}

impl Place {
    /// Whether a request waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.of_client.is_wanted() || self.of_all.is_wanted()
    }
}

/// Permission to keep a large response in memory: one of the client's, and one of all.
#[derive(Debug)]
pub(crate) struct LargePermit {
    _of_client: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// A semaphore that knows whether somebody waits for it.
#[derive(Debug)]
struct ContendedSemaphore {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct ContendedPermit {
    semaphore: Arc<ContendedSemaphore>,
    _permit: OwnedSemaphorePermit,
}

/// Counts one that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl ContendedSemaphore {
    fn new(permits: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits)), waiting: AtomicUsize::new(0) }
    }

    async fn acquire(self: &Arc<Self>) -> Option<ContendedPermit> {
        let permit = if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            permit
        } else {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let _waiting = Waiting(&self.waiting);
            Arc::clone(&self.permits).acquire_owned().await.ok()?
        };
        Some(ContendedPermit { semaphore: Arc::clone(self), _permit: permit })
    }
}

impl ContendedPermit {
    fn is_wanted(&self) -> bool {
        self.semaphore.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The peer of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    clients: Clients,
    /// Of a client without a name.
    unnamed: Arc<ClientLimits>,
    /// Whether the connection currently serves a watch.
    pub(crate) is_watching: AtomicBool,
}

impl Peer {
    pub(crate) fn address(&self) -> PeerAddress<'_> {
        PeerAddress(&self.unnamed.name)
    }

    /// The limits of a client without a name, which its address stands for. Those of a request are in [`Client`].
    pub(crate) fn unnamed_limits(&self) -> &Arc<ClientLimits> {
        &self.unnamed
    }
}

/// The name of an authenticated client, in the extensions of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Named(pub(crate) Arc<str>);

/// The client that makes a request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) peer: Arc<Peer>,
    pub(crate) limits: Arc<ClientLimits>,
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Refusal;

    /// A request without a peer is a defect of the server. Served nevertheless, it would have no limit.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let peer = parts.extensions.get::<Arc<Peer>>().cloned();
        let peer =
            peer.ok_or_else(|| Refusal::new(Reason::InternalError, "the server does not know who asks"))?;
        let limits = match parts.extensions.get::<Named>() {
            // No address has this prefix.
            Some(Named(name)) => peer.clients.named(&format!("name {name}")),
            None => Arc::clone(&peer.unnamed),
        };
        Ok(Self { peer, limits })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_whole_loopback_is_one_client() {
        let clients = Clients::new();
        let at = |address: &str| clients.at(address.parse().unwrap()).address().as_str().to_owned();
        for address in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(at(address), "loopback", "{address}");
        }
        assert_eq!((at("10.0.0.1"), at("::ffff:10.0.0.1")), ("10.0.0.1".to_owned(), "10.0.0.1".to_owned()));
    }

    #[tokio::test]
    async fn a_request_of_an_unknown_peer_is_refused() {
        let (mut of_known, ()) = axum::http::Request::new(()).into_parts();
        let mut of_unknown = of_known.clone();
        of_known.extensions.insert(Clients::new().peer("client"));
        assert!(Client::from_request_parts(&mut of_known, &()).await.is_ok());
        let refusal = Client::from_request_parts(&mut of_unknown, &()).await.unwrap_err();
        assert_eq!(refusal.status().code, Some(500));
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
        let greedy = clients.named("greedy");
        let other = clients.named("other");
        let turn = greedy.turn.acquire().await.unwrap();
        let mut more: Vec<_> = (0..100).map(|_| Box::pin(greedy.in_turn(|| ()))).collect();
        for more in &mut more {
            assert!(more.now_or_never().is_none());
        }
        assert_eq!(other.in_turn(|| 7).await, Some(7));
        drop(turn);
        for more in more {
            assert_eq!(more.await, Some(()));
        }
    }

    #[tokio::test]
    async fn a_short_part_waits_for_no_turn_unless_another_does_the_same() {
        let clients = Clients::new();
        let client = clients.named("client");
        let turn = client.turn.acquire().await.unwrap();
        assert_eq!(client.in_short_turn(|| 7).await, Some(7));
        let spare = clients.shared.spare_turn.acquire().await.unwrap();
        let mut waits = Box::pin(client.in_short_turn(|| 8));
        assert!((&mut waits).now_or_never().is_none());
        assert_eq!(clients.named("other").in_short_turn(|| 9).await, Some(9), "its own turn is free");
        drop(turn);
        assert_eq!(waits.await, Some(8));
        drop(spare);
    }

    #[tokio::test]
    async fn large_responses_of_a_client_and_of_all_are_limited() {
        let clients = Clients::new();
        let mut held = Vec::new();
        for number in 0..ALL_LARGE / LARGE {
            let client = clients.named(&number.to_string());
            for _ in 0..LARGE {
                held.push(client.large().now_or_never().unwrap());
            }
            assert!(client.large().now_or_never().is_none(), "of one client");
        }
        let other = clients.named("other");
        assert!(other.large().now_or_never().is_none(), "of all");
        drop(held.pop());
        assert!(other.large().now_or_never().is_some());
    }
}
