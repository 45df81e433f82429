//! Counts the decisions on requests, and logs refusals and new clients, so that an operator sees who was refused what, and why, and
//! from where a user is served for the first time: a stolen token is used at another address than its owner's.
//!
//! Whoever can reach the port can cause refusals. So a user's refusals of one kind at an address are one line a minute, and one after
//! it that says how many more there were. All clients together have a limit; beyond it, refusals are only counted. New clients have a
//! limit of their own, so that no flood of refusals hides one. No line contains a token or a query.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::Identity;
use crate::metrics::registered;

/// A user's refusals of one kind at an address are logged this often.
pub(super) const PERIOD: Duration = Duration::from_secs(60);
/// Maximum number of lines in a period: of refusals, and of new clients.
pub(super) const LINES: usize = 60;
/// Maximum number of users at an address that are remembered as served. Beyond it, those that were not served again go first.
const REMEMBERED: usize = 4096;
/// Maximum length of a path or a name in the log.
const SHOWN: usize = 128;

/// What was decided on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Decision {
    Allowed,
    /// Allowed by an answer of the API server that would be too old if it answered.
    AllowedBefore,
    /// No certificate or token identifies the client.
    Unauthorized,
    /// The client may not do this.
    Forbidden,
    /// The client has sent too many unknown tokens.
    TooManyTokens,
    /// The API server would have to be asked, and does not answer.
    Unavailable,
}

impl Decision {
    const ALL: [Self; 6] = [
        Self::Allowed,
        Self::AllowedBefore,
        Self::Unauthorized,
        Self::Forbidden,
        Self::TooManyTokens,
        Self::Unavailable,
    ];

    /// As a label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::AllowedBefore => "allowed_before",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::TooManyTokens => "too_many_tokens",
            Self::Unavailable => "unavailable",
        }
    }

    /// Why a request is refused.
    fn why(self) -> &'static str {
        match self {
            Self::Allowed | Self::AllowedBefore => "",
            Self::Unauthorized => "no valid certificate or token",
            Self::Forbidden => "no right to this",
            Self::TooManyTokens => "too many unknown tokens",
            Self::Unavailable => "the API server does not answer",
        }
    }
}

/// The decisions so far.
pub(crate) struct Decisions {
    counts: [Counter; Decision::ALL.len()],
    /// Users at an address that were served: hashes, by a key of this process.
    served: Cache<u64, ()>,
    hasher: RandomState,
    logged: Mutex<Logged>,
}

/// What was logged in this period.
struct Logged {
    since: Instant,
    /// The refusals that have a line, and how many came after the first, which is that line.
    refused: HashMap<Refused, u64>,
    /// The number of refusals that have no line.
    more_refusals: u64,
    new_clients: usize,
    /// New clients without a line, as in [`Decisions::served`]. Beyond `REMEMBERED`, further ones are not counted.
    more_new_clients: HashSet<u64>,
}

impl Logged {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            refused: HashMap::new(),
            more_refusals: 0,
            new_clients: 0,
            more_new_clients: HashSet::new(),
        }
    }

    /// Begins the next period if this one is over, and logs what had no line in it.
    fn renew(&mut self) {
        if self.since.elapsed() < PERIOD {
            return;
        }
        let before = std::mem::replace(self, Self::new());
        for (Refused { client, user, decision }, more) in before.refused {
            if more > 0 {
                let user = shortened(&user);
                tracing::info!(client, user, more, "refused further requests: {}", decision.why());
            }
        }
        let more = before.more_refusals;
        if more > 0 {
            tracing::info!(more, "refused requests of further clients or users");
        }
        let more = before.more_new_clients.len();
        if more > 0 {
            tracing::info!(more, "served further new clients");
        }
    }
}

/// What is refused in one line: a user's requests at an address, for one reason. Invented tokens have no user, so they make no more lines
/// than one.
#[derive(PartialEq, Eq, Hash)]
struct Refused {
    client: String,
    user: String,
    decision: Decision,
}

impl Decisions {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let help = "Decisions on requests of clients that must identify themselves";
        let family = Family::<[(&'static str, &'static str); 1], Counter>::default();
        let family = registered(registry, "access_decisions", help, family);
        let counts =
            Decision::ALL.map(|decision| family.get_or_create(&[("decision", decision.label())]).clone());
        Self {
            counts,
            served: Cache::new(REMEMBERED),
            hasher: RandomState::new(),
            logged: Mutex::new(Logged::new()),
        }
    }

    /// Counts a decision. Logs a refusal, and whom it serves at an address for the first time. `client`: its address; `identity`:
    /// who it is, if that is known.
    pub(super) fn add(&self, decision: Decision, client: &str, identity: Option<&Identity>, request: &Parts) {
        self.counts[decision as usize].inc();
        let user = identity.map_or("", |identity| &*identity.name);
        let has_line = match decision {
            Decision::Allowed | Decision::AllowedBefore => self.is_new(client, user),
            _ => self.is_logged(decision, client, user),
        };
        if !has_line {
            return;
        }
        let user = shortened(user);
        let path = shortened(request.uri.path());
        let method = &request.method;
        match decision {
            Decision::Allowed | Decision::AllowedBefore => {
                tracing::info!(client, user, %method, path, "serves this user at this address for the first time");
            }
            _ => tracing::info!(client, user, %method, path, "refused a request: {}", decision.why()),
        }
    }

    /// Whether the user is served at this address for the first time, as far as is remembered, and there is room for a line.
    fn is_new(&self, client: &str, user: &str) -> bool {
        let place = self.hasher.hash_one((client, user));
        if self.served.get(&place).is_some() {
            return false;
        }
        let mut logged = self.lock();
        logged.renew();
        if logged.new_clients >= LINES {
            // Not remembered, so it has a line if it is served again in another period.
            if logged.more_new_clients.len() < REMEMBERED {
                logged.more_new_clients.insert(place);
            }
            return false;
        }
        logged.new_clients += 1;
        self.served.insert(place, ());
        true
    }

    /// Whether a refusal has a line of its own.
    fn is_logged(&self, decision: Decision, client: &str, user: &str) -> bool {
        let mut logged = self.lock();
        logged.renew();
        let refused = Refused { client: client.to_owned(), user: user.to_owned(), decision };
        if let Some(more) = logged.refused.get_mut(&refused) {
            *more += 1;
            return false;
        }
        if logged.refused.len() >= LINES {
            logged.more_refusals += 1;
            return false;
        }
        logged.refused.insert(refused, 0);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Logged> {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning, with control characters escaped.
fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use axum::http::Request;
    use tracing::field::{Field, Visit};
    use tracing::subscriber::set_default;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// Counts the lines of the log.
    struct Lines(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> Layer<S> for Lines {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps what each line says of the user, and how many more there were.
    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<String>>>);

    impl Said {
        /// The lines since the last call, in alphabetical order.
        fn lines(&self) -> Vec<String> {
            let mut lines = std::mem::take(&mut *self.0.lock().unwrap());
            lines.sort();
            lines
        }
    }

    impl<S: tracing::Subscriber> Layer<S> for Said {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let mut line = Line::default();
            event.record(&mut line);
            let Line { message, user, more } = line;
            self.0.lock().unwrap().push(format!("{message}{user}{more}"));
        }
    }

    #[derive(Default)]
    struct Line {
        message: String,
        user: String,
        more: String,
    }

    impl Visit for Line {
        fn record_u64(&mut self, field: &Field, value: u64) {
            if field.name() == "more" {
                self.more = format!(", more={value}");
            }
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == "user" {
                self.user = format!(", user={value}");
            }
        }

        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                self.message = format!("{value:?}");
            }
        }
    }

    /// The number in the last line that says how many more there were.
    struct More(Arc<AtomicU64>);

    impl<S: tracing::Subscriber> Layer<S> for More {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            event.record(&mut More(Arc::clone(&self.0)));
        }
    }

    impl Visit for More {
        fn record_u64(&mut self, field: &Field, value: u64) {
            if field.name() == "more" {
                self.0.store(value, Ordering::Relaxed);
            }
        }

        fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
    }

    #[tokio::test(start_paused = true)]
    async fn every_decision_is_counted_and_the_log_has_refusals_and_new_clients() {
        let lines = Arc::new(AtomicUsize::new(0));
        let _guard = set_default(tracing_subscriber::registry().with(Lines(Arc::clone(&lines))));
        let decisions = Decisions::register(&mut Registry::default());
        let (request, ()) = Request::get("/pods").body(()).unwrap().into_parts();
        for decision in Decision::ALL {
            decisions.add(decision, "10.0.0.1", None, &request);
        }
        assert_eq!(decisions.counts.each_ref().map(Counter::get), [1; Decision::ALL.len()]);
        assert_eq!(
            lines.swap(0, Ordering::Relaxed),
            5,
            "four refusals, and one client that was served twice"
        );
        tokio::time::advance(PERIOD).await;
        decisions.add(Decision::Forbidden, "10.0.0.1", None, &request);
        assert_eq!(lines.swap(0, Ordering::Relaxed), 1, "there were no more in the minute before");
    }

    /// The thief of a token uses it somewhere else.
    #[tokio::test(start_paused = true)]
    async fn a_user_has_a_line_for_each_address_at_which_it_is_served_and_few_in_all() {
        let lines = Arc::new(AtomicUsize::new(0));
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let _guard = set_default(tracing_subscriber::registry().with(Lines(Arc::clone(&lines))));
        let decisions = Decisions::register(&mut Registry::default());
        let (request, ()) = Request::get("/pods").body(()).unwrap().into_parts();
        let serve = |user: &str, client: &str| -> usize {
            let identity = Identity { name: user.to_owned(), ..Identity::default() };
            decisions.add(Decision::Allowed, client, Some(&identity), &request);
            lines.swap(0, Ordering::Relaxed)
        };
        assert_eq!(serve("alice", "10.0.0.1"), 1);
        assert_eq!(serve("alice", "10.0.0.1"), 0, "it is known");
        assert_eq!(serve("alice", "10.0.0.2"), 1, "somewhere else");
        assert_eq!(serve("bob", "10.0.0.1"), 1, "somebody else");
        // Neither a flood of refusals nor one of clients makes the log long, and none of them is forgotten for ever.
        (0..1000).for_each(|n| decisions.add(Decision::Unauthorized, &format!("10.1.0.{n}"), None, &request));
        assert_eq!(lines.swap(0, Ordering::Relaxed), LINES);
        assert_eq!(serve("carol", "10.0.0.1"), 1);
        let flood: usize = (0..2 * REMEMBERED).map(|n| serve("mallory", &format!("10.2.{n}"))).sum();
        assert_eq!(flood, LINES - 4);
        assert_eq!(serve("dave", "10.0.0.1"), 0);
        tokio::time::advance(PERIOD).await;
        assert_eq!(
            serve("dave", "10.0.0.1"),
            3,
            "and how many refusals had no line, and how many new clients"
        );
        assert_eq!(serve("alice", "10.0.0.2"), 0, "it is still known");
    }

    /// A client that asks often is one client.
    #[tokio::test(start_paused = true)]
    async fn the_line_of_further_new_clients_has_their_number_and_not_that_of_their_requests() {
        let more = Arc::new(AtomicU64::new(0));
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let _guard = set_default(tracing_subscriber::registry().with(More(Arc::clone(&more))));
        let decisions = Decisions::register(&mut Registry::default());
        let (request, ()) = Request::get("/pods").body(()).unwrap().into_parts();
        for (requests, further) in [(1, 3), (20, 3), (1, 2 * REMEMBERED)] {
            for client in 0..LINES + further {
                let client = format!("{requests} {further} {client}");
                (0..requests).for_each(|_| decisions.add(Decision::Allowed, &client, None, &request));
            }
            tokio::time::advance(PERIOD).await;
            decisions.add(Decision::Unauthorized, "10.0.0.1", None, &request);
            let expected = further.min(REMEMBERED);
            assert_eq!(more.swap(0, Ordering::Relaxed), u64::try_from(expected).unwrap(), "{requests}");
        }
    }

    #[test]
    fn what_a_client_writes_is_short_and_one_line_in_the_log() {
        assert_eq!(shortened("/pods\n\u{1b}[2J"), "/pods\\n\\u{1b}[2J");
        assert_eq!(shortened(&"x".repeat(1_000)), "x".repeat(SHOWN));
    }

    /// On loopback, all users of the node have one address.
    #[tokio::test(start_paused = true)]
    async fn each_user_who_is_refused_at_an_address_has_a_line_and_those_beyond_the_limit_are_counted() {
        let said = Said::default();
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let _guard = set_default(tracing_subscriber::registry().with(said.clone()));
        let decisions = Decisions::register(&mut Registry::default());
        let (request, ()) = Request::get("/pods").body(()).unwrap().into_parts();
        let forbid = |user: &str| {
            let identity = Identity { name: user.to_owned(), ..Identity::default() };
            decisions.add(Decision::Forbidden, "loopback", Some(&identity), &request);
        };
        ["alice", "bob", "bob"].into_iter().for_each(forbid);
        // Each with another invented token.
        (0..3).for_each(|_| decisions.add(Decision::Unauthorized, "loopback", None, &request));
        let first = [
            "refused a request: no right to this, user=alice",
            "refused a request: no right to this, user=bob",
            "refused a request: no valid certificate or token, user=",
        ];
        assert_eq!(said.lines(), first);
        (3..LINES + 10).for_each(|number| forbid(&format!("user-{number}")));
        assert_eq!(said.lines().len(), LINES - 3);
        tokio::time::advance(PERIOD).await;
        forbid("bob");
        let sums = [
            "refused a request: no right to this, user=bob",
            "refused further requests: no right to this, user=bob, more=1",
            "refused further requests: no valid certificate or token, user=, more=2",
            "refused requests of further clients or users, more=10",
        ];
        assert_eq!(said.lines(), sums);
    }

    /// Whoever can reach the port decides how many requests are refused. He must not decide how long the log is.
    #[tokio::test(start_paused = true)]
    async fn however_many_requests_are_refused_the_log_has_few_lines_of_them() {
        let lines = Arc::new(AtomicUsize::new(0));
        // The test has one thread.
        // Other tests reach the same call sites without a subscriber, and tracing remembers of a call site whether anybody listens.
        // So one listens for the whole process, and keeps nothing.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let _guard = set_default(tracing_subscriber::registry().with(Lines(Arc::clone(&lines))));
        let decisions = Decisions::register(&mut Registry::default());
        let (request, ()) = Request::get("/pods").body(()).unwrap().into_parts();
        let refuse = |clients: usize| -> usize {
            for _ in 0..10 {
                for client in 0..clients {
                    let client = format!("10.0.{}.{}", client / 256, client % 256);
                    for decision in [Decision::Unauthorized, Decision::TooManyTokens] {
                        decisions.add(decision, &client, None, &request);
                    }
                }
            }
            lines.swap(0, Ordering::Relaxed)
        };
        assert_eq!(refuse(1), 2, "one for each reason");
        tokio::time::advance(PERIOD).await;
        assert_eq!(refuse(1), 4, "and how many more there were");
        tokio::time::advance(PERIOD).await;
        for _ in 0..5 {
            // New ones, those of the minute before, summed up, and the number of those that had no line then.
            assert!(refuse(3000) <= 2 * LINES + 1);
            assert_eq!(refuse(3000), 0, "in the same minute");
            tokio::time::advance(PERIOD).await;
        }
    }
}
