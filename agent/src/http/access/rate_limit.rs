//! The rate limit of unknown tokens. A client needs no credentials to send tokens, and each unknown one costs the API server
//! a request.
//!
//! Tokens that turn out to be valid cost nothing: a client that renews its token, or many clients behind one address, are
//! not limited by each other, but a client that invents tokens is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Rejected tokens of one client, and of all, in each period.
const OF_ONE: u32 = 10;
const OF_ALL: u32 = 50;
const PERIOD: Duration = Duration::from_secs(10);

/// Counts the reviews of unknown tokens in the current period.
#[derive(Debug)]
pub(super) struct RateLimit(Mutex<Spent>);

#[derive(Debug)]
struct Spent {
    since: Instant,
    by_client: HashMap<String, u32>,
}

impl RateLimit {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Spent { since: Instant::now(), by_client: HashMap::new() }))
    }

    /// Counts a review for this client. `false`: the limit is reached, and it must not be made.
    pub(super) fn take(&self, client: &str) -> bool {
        let mut spent = self.lock();
        if spent.since.elapsed() >= PERIOD {
            spent.since = Instant::now();
            spent.by_client.clear();
        }
        let of_client = spent.by_client.get(client).copied().unwrap_or_default();
        if of_client >= OF_ONE || spent.by_client.values().sum::<u32>() >= OF_ALL {
            return false;
        }
        spent.by_client.insert(client.to_owned(), of_client + 1);
        true
    }

    /// The token of a review was valid: it does not count.
    pub(super) fn give_back(&self, client: &str) {
        if let Some(spent) = self.lock().by_client.get_mut(client) {
            *spent = spent.saturating_sub(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_and_all_clients_together_have_a_limit_in_each_period() {
        let limit = RateLimit::new();
        let taken = |client: &str, wanted: u32| (0..wanted).filter(|_| limit.take(client)).count();
        for _ in 0..3 {
            assert_eq!(taken("greedy", 400), 10);
            assert_eq!(taken("other", 5), 5);
            let many: usize = (0..100).map(|client| taken(&client.to_string(), 10)).sum();
            assert_eq!(many, 35);
            assert!(!limit.take("late"));
            tokio::time::advance(PERIOD).await;
        }
    }

    #[test]
    fn valid_tokens_do_not_count() {
        let limit = RateLimit::new();
        for _ in 0..1000 {
            assert!(limit.take("client"));
            limit.give_back("client");
        }
        limit.give_back("client");
        let more = (0..100).filter(|_| limit.take("client")).count();
        assert_eq!(more, 10, "no credit is left from earlier");
    }
}
