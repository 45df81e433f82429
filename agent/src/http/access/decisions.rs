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
                    let (user, more) = (shortened(&refusals.user), refusals.more);
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
        let (user, path) = (shortened(user), shortened(request.uri.path()));
        tracing::info!(client, user, method = %request.method, path, "refused a request: {}", decision.why());
    }
}

/// The beginning, with control characters escaped.
fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}
