//! Counts the decisions on requests and logs refusals, so that an operator sees who was refused what, and why.
//!
//! Whoever can reach the port can cause refusals. So a client's refusals of one kind are one line a minute, which says how
//! many there were, and all clients together have a limit. No line contains a token or a query.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::Identity;
use crate::metrics::registered;

/// A client's refusals of one kind are logged this often.
const PERIOD: Duration = Duration::from_secs(60);
/// Maximum number of lines in a period.
const LINES: usize = 60;
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
    logged: Mutex<Logged>,
}

/// The refusals of this period.
struct Logged {
    since: Instant,
    by_client: HashMap<(String, Decision), Refusals>,
}

/// A client's refusals of one kind: the user of the first, which was logged, and how many came after it.
struct Refusals {
    user: String,
    more: u64,
}

impl Decisions {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let help = "Decisions on requests of clients that must identify themselves";
        let family = Family::<[(&'static str, &'static str); 1], Counter>::default();
        let family = registered(registry, "access_decisions", help, family);
        let counts =
            Decision::ALL.map(|decision| family.get_or_create(&[("decision", decision.label())]).clone());
        let logged = Logged { since: Instant::now(), by_client: HashMap::new() };
        Self { counts, logged: Mutex::new(logged) }
    }

    /// Counts a decision. Logs a refusal. `client`: its address; `identity`: who it is, if that is known.
    pub(super) fn add(&self, decision: Decision, client: &str, identity: Option<&Identity>, request: &Parts) {
        self.counts[decision as usize].inc();
        if matches!(decision, Decision::Allowed | Decision::AllowedBefore) {
            return;
        }
        let user = identity.map_or("", |identity| &*identity.name);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.since.elapsed() >= PERIOD {
            logged.since = Instant::now();
            for ((client, decision), refusals) in logged.by_client.drain() {
                if refusals.more > 0 {
                    let user = shortened(&refusals.user);
                    let more = refusals.more;
                    tracing::info!(client, user, more, "refused further requests: {}", decision.why());
                }
            }
        }
        let lines = logged.by_client.len();
        if let Some(refusals) = logged.by_client.get_mut(&(client.to_owned(), decision)) {
            refusals.more += 1;
            return;
        }
        if lines >= LINES {
            return;
        }
        let refusals = Refusals { user: user.to_owned(), more: 0 };
        logged.by_client.insert((client.to_owned(), decision), refusals);
        drop(logged);
        let user = shortened(user);
        let path = shortened(request.uri.path());
        tracing::info!(client, user, method = %request.method, path, "refused a request: {}", decision.why());
    }
}

/// The beginning, with control characters escaped.
fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::Request;
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

    #[tokio::test(start_paused = true)]
    async fn every_decision_is_counted_and_the_log_has_refusals_alone() {
        let lines = Arc::new(AtomicUsize::new(0));
        let _guard = set_default(tracing_subscriber::registry().with(Lines(Arc::clone(&lines))));
        let decisions = Decisions::register(&mut Registry::default());
        let (request, ()) = Request::get("/pods").body(()).unwrap().into_parts();
        for decision in Decision::ALL {
            decisions.add(decision, "10.0.0.1", None, &request);
        }
        assert_eq!(decisions.counts.each_ref().map(Counter::get), [1; Decision::ALL.len()]);
        assert_eq!(lines.swap(0, Ordering::Relaxed), 4);
        tokio::time::advance(PERIOD).await;
        decisions.add(Decision::Forbidden, "10.0.0.1", None, &request);
        assert_eq!(lines.swap(0, Ordering::Relaxed), 1, "there were no more in the minute before");
    }

    #[test]
    fn what_a_client_writes_is_short_and_one_line_in_the_log() {
        assert_eq!(shortened("/pods\n\u{1b}[2J"), "/pods\\n\\u{1b}[2J");
        assert_eq!(shortened(&"x".repeat(1_000)), "x".repeat(SHOWN));
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
            // New ones, and those of the minute before, summed up.
            assert!(refuse(3000) <= 2 * LINES);
            assert_eq!(refuse(3000), 0, "in the same minute");
            tokio::time::advance(PERIOD).await;
        }
    }
}
