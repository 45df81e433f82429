//! `/whois`: takes queries in the URL, or in the body with one per line. Answers each with one line of JSON.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use hyper::body::Bytes;
use pod_index::{Reader, Time};
use tokio::time::{Instant, sleep, timeout_at};

use super::Whois;
use super::body::HeldBody;
use super::find::{NO_ATTRIBUTES, Sought, Unknown, VISITED};
use super::processes::Placements;
use super::query::{self, Process};
use crate::api::client::{Client, ClientLimits};
use crate::api::refusal::refused;
use crate::config::duration::go_duration;

/// Maximum number of queries in a GET.
const QUERIES: usize = 100;
/// Answers repeat at most this many bytes of a query. Paths of cgroups and logs are shorter.
const ECHO: usize = 4096;
/// Maximum number of queries in one part of the answers.
const PART: usize = 256;
/// So few queries are answered without a turn.
const FEW: usize = 4;
/// The response is sent in parts of about this many bytes.
const CHUNK: usize = 64 * 1024;
/// Bytes of the answers to one request, after which queries get an error.
const ANSWERS: usize = 64 << 20;
const TOO_LARGE: &str =
    "the answers to one request are limited to 64 MiB; send this query in another request";
/// Longest time to wait for a pod.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Minimum time between two looks of a request that waits.
const BETWEEN: Duration = Duration::from_millis(50);
const HEAD: [(header::HeaderName, &str); 2] =
    [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
/// No text contains this byte, which ends a query of a URL. Queries of a body are lines.
const END: u8 = 0xff;

pub(crate) fn router(whois: Whois) -> Router {
    Router::new().route("/whois", get(of_url).post(of_body)).with_state(Arc::new(whois))
}

/// `GET /whois?q=…&q=…&at=…&details=true&fields=attributes&wait=2s`.
async fn of_url(
    State(whois): State<Arc<Whois>>,
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<Response, Response> {
    let (count, queries) = whois.parameters(query.as_deref()).map_err(bad)?;
    if count == 0 {
        return Err(bad("q is missing: /whois?q=WHATEVER"));
    }
    if count > QUERIES {
        return Err(bad(format!("q: at most {QUERIES} in one request; POST takes more")));
    }
    if queries.wait > Duration::ZERO {
        if count > FEW {
            return Err(bad(format!("wait: at most {FEW} queries in one request wait for their pods")));
        }
        return Ok((HEAD, whois.waited_for(&client.limits, &queries).await).into_response());
    }
    Ok(whois.respond(client.limits, queries, count <= FEW, None).await)
}

/// `POST /whois`, with a query in each line of the body.
async fn of_body(
    State(whois): State<Arc<Whois>>,
    client: Client,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Response> {
    let (count, queries) = whois.parameters(query.as_deref()).map_err(bad)?;
    if queries.wait > Duration::ZERO {
        return Err(bad("wait: only a GET waits"));
    }
    if count > 0 {
        return Err(bad("q: a POST has its queries in the body, one per line"));
    }
    let (text, held) = HeldBody::read(&client.limits, request.into_body()).await?;
    Ok(whois.respond(client.limits, Queries { text, end: b'\n', ..queries }, false, Some(held)).await)
}

/// The queries in the URL and how many they are, with the parameters of these or of those in the body.
fn parameters(query: Option<&str>) -> Result<(usize, Queries), String> {
    let mut text = Vec::new();
    let mut at = None;
    let mut is_detailed = false;
    let mut only_attributes = false;
    let mut wait = Duration::ZERO;
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*name {
            "q" => text.extend([value.as_bytes(), &[END]].concat()),
            "at" => at = Some(query::time(&value)?),
            "details" => is_detailed = value == "true",
            "fields" if value == "attributes" => only_attributes = true,
            "fields" => return Err("fields: attributes can be asked for alone".to_owned()),
            "wait" => {
                wait = go_duration(&value).map_err(|why| format!("wait {why}"))?;
                if wait > LONGEST_WAIT {
                    return Err(format!("wait: at most {LONGEST_WAIT:?}"));
                }
            }
            _ => {
                let known = "q, at, details, fields and wait";
                return Err(format!("unknown parameter {name:?}; the parameters are {known}"));
            }
        }
    }
    let count = text.split(|byte| *byte == END).count() - 1;
    let queries =
        Queries { text: text.into(), end: END, at, is_detailed, only_attributes, wait, left: ANSWERS };
    Ok((count, queries))
}

fn bad(message: impl Into<String>) -> Response {
    refused(StatusCode::BAD_REQUEST, "BadRequest", message.into())
}

/// Answers to some queries.
struct LookedUp {
    answers: Vec<u8>,
    /// Whether a pod is missing that may come.
    are_missing: bool,
}

/// Queries, in their order.
#[derive(Clone)]
struct Queries {
    text: Bytes,
    /// What ends each.
    end: u8,
    /// When the events happened whose queries do not say so themselves.
    at: Option<Time>,
    is_detailed: bool,
    /// Whether each answer is the attributes of the pod, and nothing else.
    only_attributes: bool,
    /// How long to wait for a pod that is not there yet.
    wait: Duration,
    /// The bytes that are left of `ANSWERS`.
    left: usize,
}

impl Iterator for Queries {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.text.is_empty() {
            return None;
        }
        let end = self.text.iter().position(|byte| *byte == self.end);
        let mut query = self.text.split_to(end.map_or(self.text.len(), |end| end + 1));
        query.truncate(end.unwrap_or(query.len()));
        Some(query::of_json(&query).map_or(query, Bytes::from))
    }
}

impl Whois {
    /// As [`parameters`], if the agent can answer them.
    fn parameters(&self, query: Option<&str>) -> Result<(usize, Queries), String> {
        let (count, queries) = parameters(query)?;
        if queries.only_attributes && self.records.is_none() {
            return Err("fields: the agent has no attributes; start it with --extract FILE".to_owned());
        }
        Ok((count, queries))
    }

    /// `body`: that the queries are in.
    async fn respond(
        self: Arc<Self>,
        limits: Arc<ClientLimits>,
        mut queries: Queries,
        are_few: bool,
        body: Option<HeldBody>,
    ) -> Response {
        let head = HEAD;
        if are_few {
            let placements = self.placements(&limits, &queries).await;
            return (head, self.part(&mut queries, &placements, usize::MAX)).into_response();
        }
        let state = (self, limits, queries, body);
        let answers = stream::try_unfold(state, async |(whois, limits, mut queries, body)| {
            body.as_ref().map_or(Ok(()), HeldBody::check)?;
            let placements = whois.placements(&limits, &queries).await;
            // At most `PART` queries: a fraction of a millisecond.
            let part = limits.in_short_turn(|| whois.part(&mut queries, &placements, CHUNK)).await;
            let part = part.ok_or_else(|| io::Error::other("the agent ends"))?;
            Ok::<_, io::Error>(
                (!part.is_empty()).then(|| (Bytes::from(part), (whois, limits, queries, body))),
            )
        });
        (head, Body::from_stream(answers)).into_response()
    }

    /// The answers, as soon as each query has a pod, or the time is over. For an event that is ahead of its pod.
    async fn waited_for(&self, limits: &ClientLimits, queries: &Queries) -> Vec<u8> {
        let deadline = Instant::now() + queries.wait;
        loop {
            let mut changes = self.reader.changes();
            // The first change is the present state, which the look below includes.
            let _ = changes.try_next();
            let placements = self.placements(limits, queries).await;
            let LookedUp { answers, are_missing } =
                self.looked_up(&mut queries.clone(), &placements, usize::MAX);
            if !are_missing {
                return answers;
            }
            if timeout_at(deadline, changes.next()).await.is_err() {
                return answers;
            }
            // Does not hold the snapshot any longer.
            drop(changes);
            sleep(BETWEEN).await;
        }
    }

    /// The processes among the queries of the next part.
    async fn placements(&self, limits: &ClientLimits, queries: &Queries) -> Placements {
        let process = |query: Bytes| -> Option<Process> { query::process(str::from_utf8(&query).ok()?) };
        self.processes.get(limits, queries.clone().take(PART).filter_map(process).collect()).await
    }

    /// The next answers, from one snapshot: about `most` bytes. It is bounded work.
    fn part(&self, queries: &mut Queries, placements: &Placements, most: usize) -> Vec<u8> {
        self.looked_up(queries, placements, most).answers
    }

    /// As [`part`](Self::part), and whether a pod is missing that may come.
    fn looked_up(&self, queries: &mut Queries, placements: &Placements, most: usize) -> LookedUp {
        let mut are_missing = false;
        let records = self.records.as_ref().map(Reader::load);
        let records = records.as_deref();
        let only_attributes = queries.only_attributes;
        let at = queries.at;
        let is_detailed = queries.is_detailed;
        let left = queries.left;
        let mut answers = Vec::new();
        let snapshot = self.reader.load();
        let mut searches = (VISITED / snapshot.pods().len().max(1)).max(1);
        for query in queries.by_ref().take(PART) {
            let shown = String::from_utf8_lossy(&query[..query.len().min(ECHO)]);
            let sought = match left {
                0 => Err(Unknown::new(None, TOO_LARGE)),
                _ => Sought::parse(&query, at, placements, self.processes.roots()),
            };
            let found = match &sought {
                Ok(sought) => sought.find(&snapshot, self.bounds, &mut searches),
                Err(unknown) => Err(unknown.clone()),
            };
            match found {
                Ok(found) => {
                    self.lookups.found.inc();
                    if only_attributes {
                        found.write_attributes(&snapshot, records, &mut answers);
                    } else {
                        found.write(&shown, &snapshot, &self.owners, records, is_detailed, &mut answers);
                    }
                }
                Err(mut unknown) => {
                    if left > 0 {
                        self.lookups.failed(unknown.kind.is_some());
                    }
                    if unknown.is_missing && !self.readiness.is_ready() {
                        unknown.error.push_str("; not every source has been read");
                    }
                    are_missing |= unknown.is_missing;
                    if only_attributes {
                        answers.extend_from_slice(NO_ATTRIBUTES);
                        answers.push(b'\n');
                    } else {
                        unknown.write(&shown, &mut answers);
                    }
                }
            }
            if answers.len() >= most {
                break;
            }
        }
        queries.left = left.saturating_sub(answers.len());
        LookedUp { answers, are_missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_a_line() {
        let queries = Queries { text: "a\n\nb".into(), end: b'\n', ..parameters(None).unwrap().1 };
        let lines: Vec<_> = queries.collect();
        assert_eq!(lines, ["a", "", "b"]);
    }
}
