//! Limits the number of watches: of all resources together, and of one client. Counts what they do.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::api::client::Share;

/// The open watches, and what the watches of all resources have done.
#[derive(Debug, Default)]
pub(super) struct Seats {
    most: usize,
    most_per_client: usize,
    /// Shared with each open watch.
    open: Arc<()>,
    /// Events sent, counted once per watch.
    pub(super) events_sent: AtomicU64,
    /// Objects encoded for watches.
    pub(super) encoded: AtomicU64,
    /// Watches that ended because their next event was no longer stored.
    pub(super) too_old: AtomicU64,
    /// Watches rejected because there were too many.
    pub(super) refused: AtomicU64,
}

/// The place of one watch, among those of all and those of its client. Dropping it frees the place.
pub(super) type Seat = [Arc<()>; 2];

impl Seats {
    pub(super) fn new(most: usize, most_per_client: usize) -> Arc<Self> {
        Arc::new(Self { most, most_per_client, ..Self::default() })
    }

    /// Takes a place. The error names the limit that is reached.
    pub(super) fn take(&self, client: &Share) -> Result<Seat, String> {
        // Taken before it is counted: of clients that come at the same time, none exceeds a limit.
        let seat = [&self.open, &client.watches].map(Arc::clone);
        let Self { most, most_per_client, .. } = *self;
        if self.open() > most {
            return Err(format!("all clients together may have {most} (--max-watches)"));
        }
        if Arc::strong_count(&client.watches) - 1 > most_per_client {
            return Err(format!("one client may have {most_per_client} (--max-watches-per-client)"));
        }
        Ok(seat)
    }

    /// The number of open watches.
    pub(super) fn open(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::client::Clients;

    #[test]
    fn each_client_and_all_together_have_a_limit() {
        let (seats, clients) = (Seats::new(3, 2), Clients::new());
        let [a, b] = ["a", "b"].map(|name| clients.named(name));
        let take = |client: &str| seats.take(if client == "a" { &a } else { &b });
        let open = ["a", "a", "b"].map(|client| take(client).unwrap());
        assert!(take("a").unwrap_err().contains("(--max-watches)"));
        assert_eq!(seats.open(), 3);
        drop(open);
        assert_eq!(seats.open(), 0);
        let _open = ["a", "a"].map(|client| take(client).unwrap());
        assert!(take("a").unwrap_err().contains("(--max-watches-per-client)"));
        assert!(take("b").is_ok());
    }
}
