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

/// The start of the period, and what each client has spent since.
#[derive(Debug)]
pub(super) struct Budget(Mutex<(Instant, HashMap<String, u32>)>);

impl Budget {
    pub(super) fn new() -> Self {
        Self(Mutex::new((Instant::now(), HashMap::new())))
    }

    /// Takes one review of this client from the budget.
    pub(super) fn take(&self, client: &str) -> Result<(), TooMany> {
        let (since, spent) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since.elapsed() >= PERIOD {
            *since = Instant::now();
            spent.clear();
        }
        let of_client = spent.get(client).copied().unwrap_or_default();
        if of_client >= OF_ONE || spent.values().sum::<u32>() >= OF_ALL {
            return Err(TooMany);
        }
        spent.insert(client.to_owned(), of_client + 1);
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
