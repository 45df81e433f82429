//! Limits the number of watches: of all resources together, and of one client. Counts what they do.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::client::ClientLimits;

/// The limits of watches, and what the watches of all resources have done.
#[derive(Debug)]
pub(crate) struct WatchLimits {
    most: usize,
    most_per_client: usize,
    permits: Arc<Semaphore>,
    /// Events sent, counted once per watch.
    pub(super) events_sent: AtomicU64,
    /// Objects encoded for watches.
    pub(super) encoded: AtomicU64,
    /// Watches that ended because their next event was no longer stored.
    pub(super) too_old: AtomicU64,
    /// Watches rejected because there were too many.
    pub(super) refused: AtomicU64,
}

/// Permission for one watch: one of all, and one of its client. Dropping it ends the permission.
#[derive(Debug)]
pub(crate) struct WatchPermit {
    _of_all: OwnedSemaphorePermit,
    _of_client: OwnedSemaphorePermit,
}

impl WatchLimits {
    pub(crate) fn new(most: usize, most_per_client: usize) -> Arc<Self> {
        let most = most.min(Semaphore::MAX_PERMITS);
        let most_per_client = most_per_client.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            most,
            most_per_client,
            permits: Arc::new(Semaphore::new(most)),
            events_sent: AtomicU64::new(0),
            encoded: AtomicU64::new(0),
            too_old: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Permits a watch. The error names the limit that is reached. It goes to a client, so it names the flag, and not the place
    /// where the operator wrote it: where the agent's files are is no business of its clients.
    pub(crate) fn acquire(&self, client: &ClientLimits) -> Result<WatchPermit, String> {
        let Self { most, most_per_client, .. } = *self;
        let of_all = Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| format!("all clients together may have {most} (--max-watches)"))?;
        let of_client = client.watches.get_or_init(|| Arc::new(Semaphore::new(most_per_client)));
        let of_client = Arc::clone(of_client)
            .try_acquire_owned()
            .map_err(|_| format!("one client may have {most_per_client} (--max-watches-per-client)"))?;
        Ok(WatchPermit { _of_all: of_all, _of_client: of_client })
    }

    /// The number of open watches.
    pub(super) fn open(&self) -> usize {
        self.most - self.permits.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::client::Clients;

    #[test]
    fn each_client_and_all_together_have_a_limit() {
        let (limits, clients) = (WatchLimits::new(3, 2), Clients::new());
        let [a, b] = ["a", "b"].map(|name| clients.named(name));
        let acquire = |client: &str| limits.acquire(if client == "a" { &a } else { &b });
        let open = ["a", "a", "b"].map(|client| acquire(client).unwrap());
        assert!(acquire("a").unwrap_err().contains("(--max-watches)"));
        assert_eq!(limits.open(), 3);
        drop(open);
        assert_eq!(limits.open(), 0);
        let _open = ["a", "a"].map(|client| acquire(client).unwrap());
        assert!(acquire("a").unwrap_err().contains("(--max-watches-per-client)"));
        assert!(acquire("b").is_ok());
    }
}
