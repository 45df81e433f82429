//! Limits the number of watches: of all resources together, and of one client. Counts what they do.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::api::client::ClientLimits;
use crate::api::open_count::{Open, OpenCount};
use crate::config::changing::Changing;
use crate::config::values::MostWatches;

/// The limits of watches, and what the watches of all resources have done.
#[derive(Debug)]
pub(crate) struct WatchLimits {
    /// What the settings allow.
    most: Changing<MostWatches>,
    /// How many have file descriptors, whatever the settings allow.
    descriptors: usize,
    open: OpenCount,
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
    _of_all: Open,
    _of_client: Open,
}

impl WatchLimits {
    /// `descriptors`: for so many watches at most.
    pub(crate) fn new(most: Changing<MostWatches>, descriptors: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            descriptors,
            open: OpenCount::default(),
            events_sent: AtomicU64::new(0),
            encoded: AtomicU64::new(0),
            too_old: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Those of settings that never change.
    #[cfg(test)]
    pub(crate) fn of(most: MostWatches) -> Arc<Self> {
        Self::new(Changing::new(most), usize::MAX)
    }

    /// Permits a watch. The error names the limit that is reached. It goes to a client, so it names the flag, and not the place
    /// where the operator wrote it: where the agent's files are is no business of its clients.
    pub(crate) fn acquire(&self, client: &ClientLimits) -> Result<WatchPermit, String> {
        let most = self.most.get();
        let most_of_all = most.of_all.min(self.descriptors);
        let of_all = self
            .open
            .open_one(most_of_all)
            .ok_or_else(|| format!("all clients together may have {most_of_all} (--max-watches)"))?;
        let of_client = client
            .watches
            .open_one(most.of_client)
            .ok_or_else(|| format!("one client may have {} (--max-watches-per-client)", most.of_client))?;
        Ok(WatchPermit { _of_all: of_all, _of_client: of_client })
    }

    /// The number of open watches.
    pub(super) fn open(&self) -> usize {
        self.open.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::client::Clients;

    #[test]
    fn each_client_and_all_together_have_a_limit() {
        let limits = WatchLimits::of(MostWatches { of_all: 3, of_client: 2 });
        let clients = Clients::new();
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

    /// An operator changes the number while clients are connected and watch.
    #[test]
    fn another_number_counts_for_connected_clients_too_and_ends_no_watch() {
        let numbers = |of_all, of_client| MostWatches { of_all, of_client };
        let most = Changing::new(numbers(9, 1));
        let limits = WatchLimits::new(most.clone(), 8);
        let client = Clients::new().named("client");
        let acquire = || limits.acquire(&client);
        let mut open = vec![acquire().unwrap()];
        assert!(acquire().unwrap_err().contains("one client may have 1 "));

        let _stored = most.set(numbers(9, 3));
        open.extend([acquire().unwrap(), acquire().unwrap()]);
        assert!(acquire().unwrap_err().contains("one client may have 3 "));

        let _stored = most.set(numbers(9, 2));
        assert_eq!(limits.open(), 3, "those that are open go on");
        open.pop();
        assert!(acquire().unwrap_err().contains("one client may have 2 "));
        open.pop();
        open.push(acquire().unwrap());

        let _stored = most.set(numbers(2, 9));
        assert!(acquire().unwrap_err().contains("all clients together may have 2 "));
        let _stored = most.set(numbers(usize::MAX, usize::MAX));
        open.extend((2..8).map(|_| acquire().unwrap()));
        assert!(acquire().unwrap_err().contains("all clients together may have 8 "), "of the descriptors");
        drop(open);
        assert_eq!(limits.open(), 0);
    }
}
