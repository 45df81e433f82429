//! Limits the number of watches: of all resources together, and of one client. Counts what they do.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The open watches of each client.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    most_per_client: usize,
    taken: Mutex<HashMap<Arc<str>, usize>>,
    pub(super) counts: Counts,
}

/// What the watches of all resources have done.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Events sent, counted once per watch.
    pub(super) events_sent: AtomicU64,
    /// Objects encoded for watches.
    pub(super) encoded: AtomicU64,
    /// Watches that ended because their next event was no longer stored.
    pub(super) too_old: AtomicU64,
    /// Watches rejected because there were too many.
    pub(super) refused: AtomicU64,
}

/// The place of one watch. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    client: Arc<str>,
}

impl Seats {
    pub(super) fn new(most: usize, most_per_client: usize) -> Arc<Self> {
        Arc::new(Self { most, most_per_client, taken: Mutex::default(), counts: Counts::default() })
    }

    /// Takes a place. The error names the limit that is reached.
    pub(super) fn take(self: &Arc<Self>, client: &Arc<str>) -> Result<Seat, String> {
        let mut taken = self.taken();
        let of_client = taken.get(client).copied().unwrap_or_default();
        let Self { most, most_per_client, .. } = **self;
        if taken.values().sum::<usize>() >= most {
            return Err(format!("all clients together may have {most} (--max-watches)"));
        }
        if of_client >= most_per_client {
            return Err(format!("one client may have {most_per_client} (--max-watches-per-client)"));
        }
        taken.insert(Arc::clone(client), of_client + 1);
        Ok(Seat { seats: Arc::clone(self), client: Arc::clone(client) })
    }

    /// The number of open watches.
    pub(super) fn open(&self) -> usize {
        self.taken().values().sum()
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(count) = taken.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_and_all_together_have_a_limit() {
        let seats = Seats::new(3, 2);
        let take = |client: &str| seats.take(&client.into());
        let open = ["a", "a", "b"].map(|client| take(client).unwrap());
        assert!(take("a").unwrap_err().contains("(--max-watches)"));
        drop(open);
        let _open = ["a", "a"].map(|client| take(client).unwrap());
        assert!(take("a").unwrap_err().contains("(--max-watches-per-client)"));
        assert!(take("b").is_ok());
    }
}
