//! How many unknown tokens are reviewed. A client needs no credentials to send tokens, and each unknown one would cost the
//! API server a request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Unknown tokens of one client, and of all, in each period.
const OF_ONE: u32 = 10;
const OF_ALL: u32 = 50;
const PERIOD: Duration = Duration::from_secs(10);

/// The budget of this period is spent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// What is spent of the budget.
#[derive(Debug)]
pub(super) struct Budget(Mutex<Spent>);

#[derive(Debug)]
struct Spent {
    since: Instant,
    all: u32,
    of: HashMap<String, u32>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Spent { since: Instant::now(), all: 0, of: HashMap::new() }))
    }

    /// Takes one review of this client from the budget.
    pub(super) fn take(&self, client: &str) -> Result<(), TooMany> {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.since.elapsed() >= PERIOD {
            *spent = Spent { since: Instant::now(), all: 0, of: HashMap::new() };
        }
        let of_client = spent.of.get(client).copied().unwrap_or_default();
        if spent.all >= OF_ALL || of_client >= OF_ONE {
            return Err(TooMany);
        }
        spent.all += 1;
        spent.of.insert(client.to_owned(), of_client + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_and_all_clients_together_have_a_budget_in_each_period() {
        let budget = Budget::new();
        let taken = |client: &str, wanted: u32| (0..wanted).filter(|_| budget.take(client).is_ok()).count();
        for _ in 0..3 {
            assert_eq!(taken("greedy", 400), 10);
            assert_eq!(taken("other", 5), 5);
            let many: usize = (0..100).map(|client| taken(&client.to_string(), 10)).sum();
            assert_eq!(many, 35);
            assert_eq!(budget.take("late"), Err(TooMany));
            tokio::time::advance(PERIOD).await;
        }
    }
}
