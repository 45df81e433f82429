//! The rate limit of unknown tokens. A client needs no credentials to send tokens, and each unknown one costs the API server
//! a request. A client is an address here, because it is not known yet who it is. A limit of clients that are known counts by
//! [`ClientName`](crate::api::client::ClientName) instead: what one client may have at once is in [`api::client`](crate::api::client).
//!
//! Tokens that turn out to be valid cost nothing: a client that renews its token, or many clients behind one address, are
//! not limited by each other, but a client that invents tokens is.
//!
//! What about a client whose token is valid and new, while somebody at its address invents tokens? Nothing tells its first
//! request from the invented ones, so it may be refused. But it comes back with the same token, and whoever invents tokens gains
//! nothing by that. So tokens that come back have a limit of their own, and of these, the one that came first is first: however
//! many others there are, they cannot take its place.
//!
//! And a client whose address has invented nothing? A part of the limit of all clients is kept for those without a rejected
//! token in this period, so that a few other addresses do not even delay its first request.
//!
//! And if somebody keeps thousands of invented tokens coming back? Each client has a queue of its own: the first tokens of all
//! clients go before the second ones. So he delays those who share his address, and nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::digest::Digest;

/// Rejected tokens of one client, and of all, in each period.
pub(in crate::http) const OF_ONE: u32 = 10;
pub(in crate::http) const OF_ALL: u32 = 50;
/// Of these, what is kept for clients without a rejected token in this period. Each of them can take one. So who wants to take
/// all needs this many addresses, besides the four that spend the rest.
pub(super) const RESERVED: u32 = 10;
/// Rejected tokens of all clients that had been refused before and came back, in each period.
pub(super) const OF_RETURNING: u32 = 25;
pub(in crate::http) const PERIOD: Duration = Duration::from_secs(10);

/// A refused token is remembered for this long. Clients that scrape metrics come back after up to a minute.
const REMEMBERED: Duration = Duration::from_secs(65);
/// A token that is not sent again within this time keeps no other one waiting. Clients are told to come back after 5 s.
const WAITS: Duration = Duration::from_secs(15);
/// Maximum number of remembered tokens, of 200 bytes each. If there are more, those of the client that has most are forgotten.
pub(super) const MOST: usize = 1024;

/// Counts the reviews of unknown tokens in the current period.
pub(super) struct RateLimit(Mutex<Window>);

/// What is counted in the current period, and which tokens were refused.
struct Window {
    since: Instant,
    by_client: HashMap<String, u32>,
    returning: u32,
    /// The tokens that were refused.
    refused: HashMap<Digest, Refused>,
    /// How many tokens were refused so far.
    count: u64,
}

/// A token that was refused, because the limit was reached.
struct Refused {
    client: Arc<str>,
    /// Its number: the token that came first has the lowest.
    number: u64,
    last: Instant,
    came_back: bool,
}

/// Which limit a review counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    New,
    Returning,
}

impl RateLimit {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Window {
            since: Instant::now(),
            by_client: HashMap::new(),
            returning: 0,
            refused: HashMap::new(),
            count: 0,
        }))
    }

    /// Counts a review of this client's token. `None`: the limit is reached, and it must not be made.
    ///
    /// # Complexity
    /// O([`MOST`]) if the limit of new tokens is reached.
    pub(super) fn take(&self, client: &str, token: Digest) -> Option<Counted> {
        let mut window = self.lock();
        window.begin_period();
        if window.take_new(client) {
            window.refused.remove(&token);
            Some(Counted::New)
        } else if window.take_returning(client, token) {
            Some(Counted::Returning)
        } else {
            None
        }
    }

    /// The token of a review was valid: it does not count.
    pub(super) fn give_back(&self, client: &str, counted: Counted) {
        let mut window = self.lock();
        let window = &mut *window;
        match counted {
            Counted::New => {
                if let Some(spent) = window.by_client.get_mut(client) {
                    *spent = spent.saturating_sub(1);
                }
            }
            Counted::Returning => window.returning = window.returning.saturating_sub(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    /// Begins a period if the last one is over.
    fn begin_period(&mut self) {
        if self.since.elapsed() >= PERIOD {
            self.since = Instant::now();
            self.by_client.clear();
            self.returning = 0;
        }
    }

    /// Counts a review against the limits of one client's and of all new tokens, unless one of them is reached.
    fn take_new(&mut self, client: &str) -> bool {
        let of_client = self.by_client.get(client).copied().unwrap_or_default();
        let of_all: u32 = self.by_client.values().sum();
        let most_of_all = if of_client == 0 { OF_ALL } else { OF_ALL - RESERVED };
        let is_within = of_client < OF_ONE && of_all < most_of_all;
        if is_within {
            self.by_client.insert(client.to_owned(), of_client + 1);
        }
        is_within
    }

    /// A client's token came although the limit of new ones is reached. Counts its review if it may be made, because the token came
    /// back and there are fewer before it than reviews are left. Otherwise remembers the token.
    fn take_returning(&mut self, client: &str, token: Digest) -> bool {
        self.refused.retain(|_, refused| refused.last.elapsed() < REMEMBERED);
        let Some(own) = self.refused.get_mut(&token) else {
            self.refuse(client, token);
            return false;
        };
        own.last = Instant::now();
        own.came_back = true;
        let number = own.number;
        let left = OF_RETURNING.saturating_sub(self.returning);
        if self.before(client, number) >= left as usize {
            return false;
        }
        self.returning += 1;
        self.refused.remove(&token);
        true
    }

    /// How many tokens go before the one of this client with this number: all clients' first ones, then their second ones, and
    /// so on; of several, the one that came first.
    fn before(&self, client: &str, number: u64) -> usize {
        let mut queues = HashMap::<&str, Queue>::new();
        for token in self.refused.values().filter(|token| token.came_back && token.last.elapsed() < WAITS) {
            let queue = queues.entry(&token.client).or_default();
            queue.length += 1;
            queue.came_before += usize::from(token.number < number);
        }
        let place = queues.remove(client).map_or(0, |own| own.came_before);
        let go_before = |queue: &Queue| {
            // Of another client, the token at the same place goes before if it came before.
            if queue.came_before > place { place + 1 } else { queue.length.min(place) }
        };
        place + queues.values().map(go_before).sum::<usize>()
    }

    /// Remembers a token that is refused for the first time.
    fn refuse(&mut self, client: &str, token: Digest) {
        if self.refused.len() >= MOST {
            let Some(token) = self.replaced_by(client) else { return };
            self.refused.remove(&token);
        }
        self.count += 1;
        let client = Arc::from(client);
        let refused = Refused { client, number: self.count, last: Instant::now(), came_back: false };
        self.refused.insert(token, refused);
    }

    /// Which token is forgotten for a new one of this client: one of the client that has most. First the oldest that has not come
    /// back; if there is none, the newest. But no client forgets one that has come back for a new one of its own.
    fn replaced_by(&self, client: &str) -> Option<Digest> {
        match self.greedier_than(client) {
            Some(greedy) => self.oldest_not_back(greedy).or_else(|| self.newest(greedy)),
            None => self.oldest_not_back(client),
        }
    }

    /// The client of which most tokens are remembered, if these are more than this one's.
    fn greedier_than(&self, client: &str) -> Option<&str> {
        let mut remembered = HashMap::<&str, usize>::new();
        for token in self.refused.values() {
            *remembered.entry(&token.client).or_default() += 1;
        }
        let own = remembered.remove(client).unwrap_or_default();
        let (greediest, most) = remembered.into_iter().max_by_key(|(_, tokens)| *tokens)?;
        (most > own).then_some(greediest)
    }

    fn oldest_not_back(&self, client: &str) -> Option<Digest> {
        let not_back = self.refused.iter().filter(|(_, token)| &*token.client == client && !token.came_back);
        not_back.min_by_key(|(_, token)| token.number).map(|(digest, _)| *digest)
    }

    fn newest(&self, client: &str) -> Option<Digest> {
        let all = self.refused.iter().filter(|(_, token)| &*token.client == client);
        all.max_by_key(|(_, token)| token.number).map(|(digest, _)| *digest)
    }
}

/// The tokens of a client that wait for a review.
#[derive(Default)]
struct Queue {
    length: usize,
    /// How many of them came before a certain token.
    came_before: usize,
}

#[cfg(test)]
mod tests {
    use super::super::digest::Digests;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_and_all_clients_together_have_a_limit_in_each_period() {
        let limit = RateLimit::new();
        let digests = Digests::new();
        let mut number = 0;
        let mut taken = |client: &str, wanted: u32| {
            let take = |_: &u32| {
                number += 1;
                limit.take(client, digests.of(&number)).is_some()
            };
            (0..wanted).filter(take).count()
        };
        for _ in 0..3 {
            assert_eq!(taken("greedy", 400), 10);
            assert_eq!(taken("other", 5), 5);
            let many: usize = (0..100).map(|client| taken(&client.to_string(), 10)).sum();
            assert_eq!(many, 35);
            assert_eq!(taken("late", 1), 0);
            tokio::time::advance(PERIOD).await;
        }
    }

    #[test]
    fn valid_tokens_do_not_count() {
        let limit = RateLimit::new();
        let digests = Digests::new();
        for number in 0..1000 {
            let counted = limit.take("client", digests.of(&number)).unwrap();
            limit.give_back("client", counted);
        }
        limit.give_back("client", Counted::New);
        let more = (1000..1100).filter(|number| limit.take("client", digests.of(number)).is_some()).count();
        assert_eq!(more, 10, "no credit is left from earlier");
    }

    /// Tokens that come back are reviewed in the order in which they came first, whoever comes back first.
    #[tokio::test(start_paused = true)]
    async fn of_the_tokens_that_come_back_the_first_one_has_a_place() {
        let limit = RateLimit::new();
        let digests = Digests::new();
        let take = |number: u32| limit.take("client", digests.of(&number));
        assert_eq!((0..10).filter(|number| take(*number).is_some()).count(), 10);
        assert_eq!((100..400).filter(|number| take(*number).is_some()).count(), 0);
        // All come back at once, the last one first: those before it have not come back yet.
        let back: Vec<_> = (100..400).rev().filter(|number| take(*number).is_some()).collect();
        assert_eq!(back.len(), 25);
        assert_eq!(take(100), None, "nothing is left");
        tokio::time::advance(PERIOD).await;
        assert_eq!((500..510).filter(|number| take(*number).is_some()).count(), 10);
        let back: Vec<_> = (100..400).rev().filter(|number| take(*number).is_some()).collect();
        assert_eq!(back, (100..125).rev().collect::<Vec<_>>());
        assert!(limit.lock().refused.len() <= 275);
    }

    /// Spends what all clients together have for new tokens in this period, in which none has any yet.
    fn spend(limit: &RateLimit, digests: &Digests) {
        let many = ["spends-1", "spends-2", "spends-3", "spends-4"];
        let one = (0..RESERVED).map(|client| (format!("spends-one-{client}"), 1));
        for (client, tokens) in many.map(|client| (client.to_owned(), OF_ONE)).into_iter().chain(one) {
            for number in 0..tokens {
                assert_eq!(limit.take(&client, digests.of(&(&*client, number))), Some(Counted::New));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_clients_with_rejected_tokens_refuse_none_of_a_client_without() {
        let limit = RateLimit::new();
        let digests = Digests::new();
        for period in 0..3 {
            let mut reviewed = 0;
            for client in ["many-1", "many-2", "many-3", "many-4", "many-5"] {
                for number in 0..OF_ONE {
                    let counted = limit.take(client, digests.of(&(period, client, number)));
                    reviewed += u32::from(counted == Some(Counted::New));
                }
            }
            // The first token of the fifth client is one of the reserved ones.
            assert_eq!(reviewed, OF_ALL - RESERVED + 1);
            for client in 0..9 {
                let take = |token: &str| {
                    limit.take(&format!("modest-{client}"), digests.of(&(period, client, token)))
                };
                assert_eq!(take("first"), Some(Counted::New), "{client}");
                assert_eq!(take("second"), None, "{client}");
            }
            assert_eq!(limit.take("late", digests.of(&period)), None);
            tokio::time::advance(PERIOD).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_one_token_waits_for_no_second_one_of_another() {
        let limit = RateLimit::new();
        let digests = Digests::new();
        let greedy = |number: usize| limit.take("greedy", digests.of(&number));
        let modest = || limit.take("modest", digests.of(&"modest"));
        spend(&limit, &digests);
        // More than are remembered, and all come back.
        for _ in 0..2 {
            assert_eq!((0..2 * MOST).filter(|number| greedy(*number).is_some()).count(), 0);
        }
        let reviewed = (MOST..2 * MOST).filter(|number| greedy(*number).is_some()).count();
        assert_eq!(reviewed, OF_RETURNING as usize);
        assert_eq!(modest(), None, "it is new");
        tokio::time::advance(PERIOD).await;
        spend(&limit, &digests);
        assert_eq!(modest(), Some(Counted::Returning));
        assert!(limit.lock().refused.len() <= MOST);
    }

    /// Tokens of these clients, which all came back, in the order in which they came first.
    fn waiting(clients: &[&str]) -> RateLimit {
        let limit = RateLimit::new();
        let digests = Digests::new();
        for (number, client) in (1..).zip(clients) {
            let client = Arc::from(*client);
            let last = Instant::now();
            let refused = Refused { client, number, last, came_back: true };
            limit.lock().refused.insert(digests.of(&number), refused);
        }
        limit
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_tokens_of_all_clients_go_before_the_second_ones() {
        let limit = waiting(&["a", "b", "a", "b", "a"]);
        let before = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]
            .map(|(client, number)| limit.lock().before(client, number));
        assert_eq!(before, [0, 1, 2, 3, 4]);
        let limit = waiting(&["a", "a", "a", "b"]);
        let before = [("a", 1), ("a", 2), ("a", 3), ("b", 4)]
            .map(|(client, number)| limit.lock().before(client, number));
        assert_eq!(before, [0, 2, 3, 1]);
    }

    /// How many tokens of each of these clients are remembered.
    fn remembered<const N: usize>(limit: &RateLimit, clients: [&str; N]) -> [usize; N] {
        let window = limit.lock();
        clients.map(|client| window.refused.values().filter(|token| &*token.client == client).count())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_takes_the_place_of_one_of_the_client_that_has_most_and_never_of_an_own_one_that_came_back()
     {
        let digests = Digests::new();
        let limit = waiting(&["greedy"; MOST]);
        limit.lock().refuse("greedy", digests.of(&"new"));
        assert!(!limit.lock().refused.contains_key(&digests.of(&"new")), "all others came back");
        limit.lock().refuse("modest", digests.of(&"new"));
        assert_eq!(remembered(&limit, ["greedy", "modest"]), [MOST - 1, 1]);
        let newest = limit.lock().refused.values().map(|token| token.number).max();
        assert_eq!(newest, Some(MOST as u64 - 1), "the newest of the greedy one went");

        let limit = waiting(&[["a"; MOST / 2], ["b"; MOST / 2]].concat());
        limit.lock().refused.values_mut().for_each(|token| token.came_back = false);
        limit.lock().refuse("a", digests.of(&"new"));
        assert_eq!(remembered(&limit, ["a", "b"]), [MOST / 2; 2], "it has as many as the other one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_reviewed_keeps_no_other_one_waiting() {
        let limit = RateLimit::new();
        let digests = Digests::new();
        spend(&limit, &digests);
        assert_eq!(limit.take("a", digests.of(&"token")), None);
        assert_eq!(remembered(&limit, ["a"]), [1]);
        tokio::time::advance(PERIOD).await;
        assert_eq!(limit.take("a", digests.of(&"token")), Some(Counted::New));
        assert_eq!(remembered(&limit, ["a"]), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_refused_tokens_is_bounded_and_ends() {
        let limit = RateLimit::new();
        let digests = Digests::new();
        for number in 0..5000 {
            limit.take("client", digests.of(&number));
        }
        assert_eq!(limit.lock().refused.len(), MOST);
        tokio::time::advance(REMEMBERED).await;
        assert_eq!((0..20).filter(|number| limit.take("client", digests.of(number)).is_some()).count(), 10);
        assert_eq!(limit.lock().refused.len(), 10);
    }
}
