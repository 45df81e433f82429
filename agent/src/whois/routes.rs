//! `/whois`: takes queries in the URL, or in the body with one per line. Answers each with one line of JSON.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Whois;
use super::batch::{Answered, Batch};
use super::body::HeldBody;
use super::read_ahead::ReadAhead;
use super::request::{Parameters, Queries};
use crate::api::client::{Client, ClientLimits};
use crate::api::refusal::{Reason, refused};

/// Maximum number of queries in a GET.
pub(super) const IN_A_GET: usize = 100;
/// So few queries are answered without a turn, or wait for their pods. `pod-index whois --wait` sends up to so many in one GET.
pub(crate) const FEW: usize = 4;
const _: () = assert!(FEW <= IN_A_GET, "the command would be refused");
/// Minimum time between two looks of a request that waits.
const BETWEEN: Duration = Duration::from_millis(50);
pub(super) const HEAD: [(header::HeaderName, &str); 2] =
    [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];

pub(crate) fn router(whois: Arc<Whois>) -> Router {
    Router::new().route("/whois", get(of_url).post(of_body)).with_state(whois)
}

/// `GET /whois?q=…&q=…&at=…&details=true&fields=attributes&wait=2s`.
async fn of_url(
    State(whois): State<Arc<Whois>>,
    client: Client,
    RawQuery(of_url): RawQuery,
) -> Result<Response, Response> {
    let Parameters { queries, options, wait } = whois.parameters(of_url.as_deref()).map_err(bad)?;
    let count = queries.clone().count();
    if count == 0 {
        return Err(bad("q is missing: /whois?q=WHATEVER"));
    }
    if count > IN_A_GET {
        return Err(bad(format!("q: at most {IN_A_GET} in one request; POST takes more")));
    }
    let batch = Batch::new(queries, options);
    if wait > Duration::ZERO {
        if count > FEW {
            return Err(bad(format!("wait: at most {FEW} queries in one request wait for their pods")));
        }
        return Ok(whois.answer_after_waiting(&client.limits, &batch, wait).await);
    }
    if count <= FEW {
        return Ok(whois.answer_at_once(&client.limits, batch).await);
    }
    Ok(whois.answer_in_parts(client.limits, batch, None).await)
}

/// `POST /whois`, with a query in each line of the body.
async fn of_body(
    State(whois): State<Arc<Whois>>,
    client: Client,
    RawQuery(of_url): RawQuery,
    request: Request,
) -> Result<Response, Response> {
    let Parameters { mut queries, options, wait } = whois.parameters(of_url.as_deref()).map_err(bad)?;
    if wait > Duration::ZERO {
        return Err(bad("wait: only a GET waits"));
    }
    if queries.next().is_some() {
        return Err(bad("q: a POST has its queries in the body, one per line"));
    }
    let (text, held) = HeldBody::read(&client.limits, request.into_body()).await?;
    let batch = Batch::new(Queries::of_body(text), options);
    Ok(whois.answer_in_parts(client.limits, batch, Some(held)).await)
}

fn bad(message: impl Into<String>) -> Response {
    refused(Reason::BadRequest, message)
}

impl Whois {
    /// The parameters of a request, if the agent can answer it.
    fn parameters(&self, of_url: Option<&str>) -> Result<Parameters, String> {
        let parameters = Parameters::parse(of_url)?;
        if parameters.options.only_attributes && !self.has_attributes {
            return Err("fields: the agent has no attributes; start it with --extract FILE".to_owned());
        }
        Ok(parameters)
    }

    /// Answers a few queries.
    pub(super) async fn answer_at_once(&self, limits: &ClientLimits, batch: Batch) -> Response {
        let answered = self.answered(limits, batch).await;
        self.sent(answered)
    }

    /// Answers a few queries as soon as each has a pod that will not be replaced by another, or the time is over. For an event that is
    /// ahead of its pod. It takes no longer than the time, and one answer that does not wait.
    pub(super) async fn answer_after_waiting(
        &self,
        limits: &ClientLimits,
        batch: &Batch,
        wait: Duration,
    ) -> Response {
        let deadline = Instant::now() + wait;
        loop {
            let mut changes = self.reader.changes();
            // The first change is the present state, which the look below includes.
            let _ = changes.try_next();
            let answered = self.answered(limits, batch.clone()).await;
            // Also if the index has changed during the look: the next look may take as long.
            let is_over = Instant::now() >= deadline;
            if is_over || !answered.may_change || timeout_at(deadline, changes.next()).await.is_err() {
                return self.sent(answered);
            }
            // Does not hold the snapshot any longer.
            drop(changes);
            sleep_until(deadline.min(Instant::now() + BETWEEN)).await;
        }
    }

    /// The present answers to a few queries. They need no turn, and are not counted yet.
    async fn answered(&self, limits: &ClientLimits, batch: Batch) -> Answered {
        let ahead = ReadAhead::of(batch.queries(), self, limits).await;
        batch.answer_all(self, &self.reader.load(), &ahead.placements)
    }

    /// Counts the answers, and sends them.
    fn sent(&self, answered: Answered) -> Response {
        self.lookups.count(answered.outcomes);
        (HEAD, answered.lines).into_response()
    }
}
