//! Identifies the client of a request, for the limits on watches.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::access::Certified;

/// The peer of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its address, or its user on the socket.
    origin: Arc<str>,
    /// Whether the connection currently serves a watch.
    pub(crate) is_watching: AtomicBool,
}

impl Peer {
    pub(crate) fn new(origin: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self { origin: origin.into(), is_watching: AtomicBool::new(false) })
    }
}

/// The client that makes a request.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) peer: Arc<Peer>,
    /// The key for counting its watches: the name in its certificate or token, otherwise its address or its user on the
    /// socket. A name is better: clients can share an address, and a client can have several.
    pub(super) name: Arc<str>,
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Arc<Peer>>().cloned().unwrap_or_else(|| Peer::new("unknown"));
        let identity = parts.extensions.get::<Certified>().and_then(|Certified(identity)| identity.as_ref());
        let name = identity.and_then(|identity| identity.names().next());
        // No address has this prefix.
        let name = name.map_or_else(|| Arc::clone(&peer.origin), |name| format!("name {name}").into());
        Ok(Self { peer, name })
    }
}
