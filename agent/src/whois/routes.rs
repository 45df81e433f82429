//! `/whois`: takes queries in the URL, or in the body with one per line. Answers each with one line of JSON.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use pod_index::Time;
use tokio::time::timeout;

use super::answer::Kind;
use super::bodies::{Place, Queries};
use super::find::{Found, Sought, Unknown, VISITED, by_short_id};
use super::processes::Placements;
use super::query::{self, Process};
use super::{Whois, limits};
use crate::api::client::{Client, Share};
use crate::api::refusal::refused;

/// Maximum number of queries in one part of the answers.
const PART: usize = 256;
/// So few queries are answered without a turn.
const FEW: usize = 4;
/// The response is sent in parts of about this many bytes.
const CHUNK: usize = 64 * 1024;

pub(crate) fn router(whois: Whois) -> Router {
    Router::new().route("/whois", get(of_url).post(of_body)).with_state(whois)
}

/// `GET /whois?q=…&q=…&at=…`.
async fn of_url(
    State(whois): State<Whois>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<Response, Response> {
    let Parameters { queries, at, is_detailed } = Parameters::read(query.as_deref()).map_err(bad)?;
    if queries.is_empty() {
        return Err(bad("q is missing: /whois?q=WHATEVER"));
    }
    if queries.len() > limits::QUERIES {
        return Err(bad(format!("q: at most {} in one request; POST takes more", limits::QUERIES)));
    }
    let queries = Queries::List(queries.into_iter());
    Whois { is_detailed, ..whois }.respond(&client.share, queries, None, at).await
}

/// `POST /whois`, with a query in each line of the body.
async fn of_body(
    State(whois): State<Whois>,
    client: Client,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Response> {
    let Parameters { queries, at, is_detailed } = Parameters::read(query.as_deref()).map_err(bad)?;
    if !queries.is_empty() {
        return Err(bad("q: a POST has its queries in the body, one per line"));
    }
    // Places bound the memory for bodies: a request takes one before it reads its body.
    let Some(place) = Place::take(&whois.bodies, &client.share).await else {
        let message = "too many queries with a body at once".to_owned();
        return Err(refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message));
    };
    let body = Limited::new(request.into_body(), limits::BODY).collect();
    let body = match timeout(limits::BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body must not exceed {} bytes", limits::BODY);
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
        }
        Ok(Err(error)) => return Err(bad(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let message = "the body is incomplete".to_owned();
            return Err(refused(StatusCode::REQUEST_TIMEOUT, "Timeout", message));
        }
    };
    let whois = Whois { is_detailed, ..whois };
    whois.respond(&client.share, Queries::Lines(body), Some(place), at).await
}

/// The parameters of the URL.
struct Parameters {
    queries: Vec<Bytes>,
    /// When the events happened whose queries do not say so themselves.
    at: Option<Time>,
    is_detailed: bool,
}

impl Parameters {
    fn read(query: Option<&str>) -> Result<Self, String> {
        let (mut queries, mut at, mut is_detailed) = (Vec::new(), None, false);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "q" => queries.push(value.into_owned().into()),
                "at" => at = Some(query::time(&value)?),
                "details" => is_detailed = value == "true",
                _ => {
                    return Err(format!("unknown parameter {name:?}; the parameters are q, at and details"));
                }
            }
        }
        Ok(Self { queries, at, is_detailed })
    }
}

fn bad(message: impl Into<String>) -> Response {
    refused(StatusCode::BAD_REQUEST, "BadRequest", message.into())
}

impl Whois {
    async fn respond(
        self,
        client: &Arc<Share>,
        queries: Queries,
        place: Option<Place>,
        at: Option<Time>,
    ) -> Result<Response, Response> {
        let head = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
        // Not worth a turn, unless one may be a workload, which can have many pods.
        if let Queries::List(few) = &queries
            && few.len() <= FEW
            && !few.as_slice().iter().any(|query| may_be_workload(query))
        {
            let placements = self.processes.get(client, pids(queries.clone())).await;
            let (mut rest, mut all) = (queries, Vec::new());
            loop {
                let part = Part::of(&self, rest, at, &placements, all.len());
                if part.answers.is_empty() {
                    return Ok((head, all).into_response());
                }
                all.extend(part.answers);
                rest = part.rest;
            }
        }
        let asked = (self, Arc::clone(client), queries, place, at, 0);
        let answers = stream::try_unfold(asked, async |(whois, client, queries, place, at, sent)| {
            place.as_ref().map_or(Ok(()), Place::check)?;
            let placements = whois.processes.get(&client, pids(queries.clone())).await;
            let part = client.work(|| Part::of(&whois, queries, at, &placements, sent)).await;
            let Part { answers, rest } = part.ok_or_else(|| io::Error::other("the agent ends"))?;
            if answers.is_empty() {
                return Ok::<_, io::Error>(None);
            }
            let sent = sent + answers.len();
            Ok(Some((Bytes::from(answers), (whois, client, rest, place, at, sent))))
        });
        Ok((head, Body::from_stream(answers)).into_response())
    }

    /// Appends the answer to a query, and counts it.
    fn write<'a>(&self, query: &'a [u8], found: Result<(&Sought<'_>, Found<'a>), Unknown>, to: &mut Vec<u8>) {
        let query = String::from_utf8_lossy(query);
        let query = shortened(&query);
        match found {
            Ok((sought, found)) => {
                self.lookups.found();
                found.write(query, sought, &self.owners, self.is_detailed, to);
            }
            Err(mut unknown) => {
                self.lookups.failed(&unknown);
                if unknown.is_missing && !self.readiness.is_ready() {
                    unknown.error.to_mut().push_str("; not every source has been read");
                }
                unknown.write(query, to);
            }
        }
    }
}

/// The part of the query that its answer repeats.
fn shortened(query: &str) -> &str {
    let mut end = query.len().min(limits::ECHO);
    while !query.is_char_boundary(end) {
        end -= 1;
    }
    &query[..end]
}

/// Parses a query. Process IDs were resolved to their cgroups, so that later steps need only a snapshot.
fn parse<'a>(
    query: &'a [u8],
    at: Option<Time>,
    placements: &Placements,
) -> Result<(&'a str, Sought<'a>), Unknown> {
    let text = str::from_utf8(query).map_err(|_| Unknown::new(None, "an identity must be UTF-8"))?;
    Ok((text, Sought::parse(text, at, placements)?))
}

/// Whether the query has the form `NAMESPACE/KIND/NAME`, and not that of a path, of `containerd://ID` or of a line of
/// `/proc/PID/cgroup`.
fn may_be_workload(query: &[u8]) -> bool {
    let mut parts = query.splitn(3, |byte| *byte == b'/');
    let is_namespace = |part: &[u8]| !part.is_empty() && !part.contains(&b':');
    parts.next().is_some_and(is_namespace)
        && parts.next().is_some_and(|kind| !kind.is_empty())
        && parts.next().is_some()
}

/// The processes among the queries of the next part.
fn pids(queries: impl Iterator<Item = Bytes>) -> Vec<Process> {
    queries.take(PART).filter_map(|query| query::process(str::from_utf8(&query).ok()?)).collect()
}

/// A part of the answers, from one snapshot. It is bounded work.
struct Part {
    answers: Vec<u8>,
    /// The queries of the next parts.
    rest: Queries,
}

impl Part {
    fn of(
        whois: &Whois,
        mut queries: Queries,
        at: Option<Time>,
        placements: &Placements,
        sent: usize,
    ) -> Self {
        // Growing copies what is written. The few queries of a URL have short answers.
        let mut answers = match queries {
            Queries::Lines(_) => Vec::with_capacity(CHUNK + CHUNK / 4),
            Queries::List(_) => Vec::new(),
        };
        let snapshot = whois.reader.load();
        let mut searches = (VISITED / snapshot.pods().len().max(1)).max(1);
        for _ in 0..PART {
            if answers.len() >= CHUNK {
                break;
            }
            let Some(query) = queries.next() else { break };
            if sent + answers.len() >= limits::ANSWERS {
                whois.write(&query, Err(no_room()), &mut answers);
                continue;
            }
            let parsed = parse(&query, at, placements);
            let found = parsed.as_ref().map_err(Unknown::clone).and_then(|(text, sought)| {
                let found = match sought.find(&snapshot, whois.bounds, &whois.owners) {
                    Err(unknown) if unknown.is_missing && sought.kind() == Kind::Uid && searches > 0 => {
                        searches -= 1;
                        let query = query::split(text).map_or(*text, |(query, _)| query);
                        let found = by_short_id(&snapshot, query);
                        found.ok_or_else(|| Unknown::no_uid(query, Some(&snapshot)))
                    }
                    found => found,
                };
                found.map(|found| (sought, found))
            });
            whois.write(&query, found, &mut answers);
        }
        Self { answers, rest: queries }
    }
}

fn no_room() -> Unknown {
    Unknown::new(None, "the response is full; send fewer queries per request")
}

#[cfg(test)]
mod tests {
    use super::may_be_workload;

    #[test]
    fn only_workloads_and_relative_paths_take_a_turn() {
        for workload in ["shop/Deployment/web", "shop/deploy/", " shop/rs/../x"] {
            assert!(may_be_workload(workload.as_bytes()), "{workload}");
        }
        for other in [
            "",
            "web-0",
            "shop/web-0",
            "containerd://3e5f",
            "0::/kubepods/pod1",
            "/var/log/pods/a_b_c",
            "//x/y",
            "10.0.0.1",
        ] {
            assert!(!may_be_workload(other.as_bytes()), "{other}");
        }
    }
}
