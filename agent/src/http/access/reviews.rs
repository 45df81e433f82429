//! The API server's answers to one kind of question (whose token is this, may this client do that), and how long each
//! counts.
//!
//! An agent is installed so that its clients have answers during an outage. So an answer is not simply forgotten when it is
//! old:
//!
//! | the last answer | what happens to a request |
//! |---|---|
//! | accepted, younger than `renew_after` | allowed |
//! | accepted, older than that | allowed, and the question is asked again in the background |
//! | accepted, older than `accepted` | waits for a new answer, but not longer than [`WAIT`], and not at all while the API server is away. Without one it is allowed until [`OUTAGE`] |
//! | accepted, older than [`OUTAGE`] | waits for a new answer; without one, nobody knows |
//! | rejected, younger than `rejected` | rejected |
//! | none, or a rejection older than that | waits for an answer; without one, nobody knows |
//!
//! However many requests need the same answer, the API server is asked once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quick_cache::sync::Cache;
use tokio::time::{Instant, timeout};

use super::digest::Digest;
use super::rate_limit::RateLimit;

/// Maximum number of accepted and of rejected questions: more clients than a node has. The cache drops those that were not
/// asked again first.
const LARGEST: usize = 512;
/// How long an accepted answer counts while the API server does not answer.
pub(super) const OUTAGE: Duration = Duration::from_secs(60 * 60);
/// How long a request waits for an answer in place of an expired one.
const WAIT: Duration = Duration::from_secs(2);
/// While the API server does not answer, it is asked this often.
const RETRY: Duration = Duration::from_secs(5);

/// How long answers count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) renew_after: Duration,
    pub(super) accepted: Duration,
    pub(super) rejected: Duration,
}

/// What the API server answered, or why there is no answer.
pub(super) type Answer<T> = Result<Option<T>, String>;
/// A request to the API server.
pub(super) type Review<T> = BoxFuture<'static, Answer<T>>;

/// What follows for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict<T> {
    Accepted(T),
    /// Accepted by an answer that is too old, because there is no newer one.
    AcceptedBefore(T),
    Rejected,
    /// The API server does not answer.
    Unanswered,
    /// The client has asked too many new questions.
    RateLimited,
}

/// The rate limit of new questions, and the client that it counts.
#[derive(Clone, Copy)]
pub(super) struct Limited<'a> {
    pub(super) limit: &'a RateLimit,
    pub(super) client: &'a str,
}

/// The answers to one kind of question. Clones share them.
pub(super) struct Reviews<T>(Arc<Inner<T>>);

struct Inner<T> {
    accepted: Cache<Digest, Arc<Accepted<T>>>,
    /// When each was rejected. Apart from the others: invented tokens must not displace real ones. While a question that was
    /// never accepted is under way, a placeholder in this cache lets the same question of others wait.
    rejected: Cache<Digest, Instant>,
    lifetimes: Lifetimes,
    server: Server,
}

struct Accepted<T> {
    value: T,
    at: Instant,
    /// Held while it is renewed.
    renewing: Arc<tokio::sync::Mutex<()>>,
}

impl<T: Clone + Send + Sync + 'static> Reviews<T> {
    /// `kind`: of the review, for the log.
    pub(super) fn new(kind: &'static str, lifetimes: Lifetimes) -> Self {
        Self(Arc::new(Inner {
            accepted: Cache::new(LARGEST),
            rejected: Cache::new(LARGEST),
            lifetimes,
            server: Server { kind, failing: Mutex::default() },
        }))
    }

    /// What is known of this question, or what `review` brings: one request to the API server. `limited`: the limit of
    /// questions that nobody has asked with success.
    pub(super) async fn ask(
        &self,
        question: Digest,
        limited: Option<Limited<'_>>,
        review: impl FnOnce() -> Review<T>,
    ) -> Verdict<T> {
        let Self(inner) = self;
        loop {
            if let Some(known) = inner.accepted.get(&question) {
                return inner.ask_again(question, known, review).await;
            }
            // Waits while another request asks the same.
            let place = match inner.rejected.get_value_or_guard_async(&question).await {
                Ok(at) if at.elapsed() < inner.lifetimes.rejected => return Verdict::Rejected,
                Ok(_) => {
                    inner.rejected.remove_if(&question, |at| at.elapsed() >= inner.lifetimes.rejected);
                    continue;
                }
                Err(place) => place,
            };
            // The other request was successful.
            if inner.accepted.contains_key(&question) {
                continue;
            }
            if !inner.server.may_be_asked() {
                return Verdict::Unanswered;
            }
            let mut counted = None;
            if let Some(Limited { limit, client }) = limited {
                counted = limit.take(client, question);
                if counted.is_none() {
                    return Verdict::RateLimited;
                }
            }
            return match inner.server.answer(review()).await {
                Some(Some(value)) => {
                    if let (Some(Limited { limit, client }), Some(counted)) = (limited, counted) {
                        limit.give_back(client, counted);
                    }
                    inner.accept(question, value.clone());
                    Verdict::Accepted(value)
                }
                Some(None) => {
                    // Fails if the cache has dropped the placeholder.
                    let _ = place.insert(Instant::now());
                    Verdict::Rejected
                }
                None => Verdict::Unanswered,
            };
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Inner<T> {
    /// The verdict on a question that was accepted before.
    async fn ask_again(
        self: &Arc<Self>,
        question: Digest,
        known: Arc<Accepted<T>>,
        review: impl FnOnce() -> Review<T>,
    ) -> Verdict<T> {
        let age = known.at.elapsed();
        if age < self.lifetimes.renew_after {
            return Verdict::Accepted(known.value.clone());
        }
        if let Ok(turn) = Arc::clone(&known.renewing).try_lock_owned()
            && self.server.may_be_asked()
        {
            let review = review();
            let inner = Arc::clone(self);
            // A task of its own: the client need not wait, and may disconnect.
            tokio::spawn(async move {
                let _turn = turn;
                inner.renew(question, review).await;
            });
        }
        if age < self.lifetimes.accepted {
            return Verdict::Accepted(known.value.clone());
        }
        if age >= OUTAGE || !self.server.is_away() {
            // Until the renewal has ended.
            let _ = timeout(WAIT, known.renewing.lock()).await;
        }
        match self.accepted.get(&question) {
            Some(renewed) if renewed.at.elapsed() < self.lifetimes.accepted => {
                Verdict::Accepted(renewed.value.clone())
            }
            _ if self.is_rejected(&question) => Verdict::Rejected,
            _ if age < OUTAGE => Verdict::AcceptedBefore(known.value.clone()),
            _ => Verdict::Unanswered,
        }
    }

    async fn renew(&self, question: Digest, review: Review<T>) {
        match self.server.answer(review).await {
            Some(Some(value)) => self.accept(question, value),
            Some(None) => {
                self.rejected.insert(question, Instant::now());
                self.accepted.remove(&question);
            }
            None => {}
        }
    }

    fn accept(&self, question: Digest, value: T) {
        let accepted = Accepted { value, at: Instant::now(), renewing: Arc::default() };
        self.accepted.insert(question, Arc::new(accepted));
    }

    fn is_rejected(&self, question: &Digest) -> bool {
        self.rejected.get(question).is_some_and(|at| at.elapsed() < self.lifetimes.rejected)
    }
}

/// Whether the API server answers this kind of question.
struct Server {
    kind: &'static str,
    failing: Mutex<Option<Failing>>,
}

#[derive(Clone, Copy)]
struct Failing {
    since: Instant,
    /// When it was asked last.
    asked: Instant,
}

impl Server {
    fn is_away(&self) -> bool {
        self.lock().is_some()
    }

    /// Whether to ask it now. While it does not answer, one question in each [`RETRY`] finds out when it is back.
    fn may_be_asked(&self) -> bool {
        let mut failing = self.lock();
        match &mut *failing {
            Some(Failing { asked, .. }) if asked.elapsed() < RETRY => false,
            Some(Failing { asked, .. }) => {
                *asked = Instant::now();
                true
            }
            None => true,
        }
    }

    /// Waits for the answer. `None`: there is none.
    async fn answer<T>(&self, review: Review<T>) -> Option<Option<T>> {
        let answer = review.await;
        let now = Instant::now();
        let before = *self.lock();
        let since = before.map_or(now, |failing| failing.since);
        *self.lock() = answer.is_err().then_some(Failing { since, asked: now });
        let kind = self.kind;
        let minutes = OUTAGE.as_secs() / 60;
        match (answer, before) {
            (Err(error), None) => {
                tracing::warn!(
                    "the API server does not answer a {kind}: {error}. Clients whose last {kind} it accepted are served for \
                     {minutes} minutes after that; others get 503"
                );
                None
            }
            (Err(_), Some(_)) => None,
            (Ok(answer), before) => {
                if before.is_some() {
                    tracing::info!(
                        seconds = since.elapsed().as_secs(),
                        "the API server answers a {kind} again"
                    );
                }
                Some(answer)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
