//! Who calls, and whether he watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::api::client::{ClientLimits, Peer};
use crate::pod_api::watch_limits::WatchPermit;

/// Who calls: a connection of a client.
#[derive(Debug)]
pub(super) struct Caller {
    peer: Arc<Peer>,
    /// Open watches of the connection.
    watches: AtomicUsize,
}

impl Caller {
    pub(super) fn new(peer: Arc<Peer>) -> Self {
        Self { peer, watches: AtomicUsize::new(0) }
    }

    pub(super) fn limits(&self) -> &ClientLimits {
        self.peer.unnamed_limits()
    }

    /// Counts a watch, until the result is dropped. A connection that watches is not closed for a new one.
    pub(super) fn begin_watch(self: &Arc<Self>, permit: WatchPermit) -> Watching {
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.peer.is_watching.store(true, Ordering::Relaxed);
        Watching { caller: Arc::clone(self), _permit: permit }
    }
}

/// An open watch of a connection.
#[derive(Debug)]
pub(super) struct Watching {
    caller: Arc<Caller>,
    _permit: WatchPermit,
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.caller.watches.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.caller.peer.is_watching.store(false, Ordering::Relaxed);
        }
    }
}
