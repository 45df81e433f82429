//! `/whois`: takes queries in the URL, or in the body with one per line. Answers each with one line of JSON.

use std::iter;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Pod;
use pod_index::Snapshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::Answer;
use super::find::{Found, Sought, Unknown};
use super::{Outcome, Whois, limits};
use crate::duration::GoDuration;
use crate::refusal::refused;
use crate::serve::pod_list::Parts;

/// The response is sent in parts of about this many bytes.
const CHUNK: usize = 32 * 1024;

pub(crate) fn router(whois: Whois) -> Router {
    Router::new().route("/whois", get(of_url).post(of_body)).with_state(whois)
}

/// `GET /whois?q=…&q=…&wait=5s`.
async fn of_url(State(whois): State<Whois>, RawQuery(query): RawQuery) -> Result<Response, Response> {
    let Parameters { queries, wait } = Parameters::read(query.as_deref()).map_err(bad)?;
    if queries.is_empty() {
        return Err(bad("q is missing: /whois?q=WHATEVER"));
    }
    if queries.len() > limits::QUERIES {
        return Err(bad(format!("q: at most {} in one request; POST takes more", limits::QUERIES)));
    }
    whois.respond(queries.into_iter(), wait).await
}

/// `POST /whois?wait=5s`, with a query in each line of the body.
async fn of_body(
    State(whois): State<Whois>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Response> {
    let Parameters { queries, wait } = Parameters::read(query.as_deref()).map_err(bad)?;
    if !queries.is_empty() {
        return Err(bad("q: a POST has its queries in the body, one per line"));
    }
    // Permits bound the memory for bodies: a request takes one before it reads its body and holds it as long as the
    // body.
    let permit = timeout(limits::BODY_TIMEOUT, Arc::clone(&whois.bodies).acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
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
    if wait.is_some() {
        if body.len() > limits::WAITED_BODY {
            return Err(bad(format!("wait: the body must not exceed {} bytes", limits::WAITED_BODY)));
        }
        drop(permit);
        return whois.respond(lines(body), wait).await;
    }
    let mut lines = lines(body);
    let queries = iter::from_fn(move || {
        let _held = &permit;
        lines.next()
    });
    whois.respond(queries, wait).await
}

/// The lines of the body.
fn lines(mut body: Bytes) -> impl Iterator<Item = Bytes> + Send + Unpin {
    iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let end = body.iter().position(|byte| *byte == b'\n');
        let mut line = body.split_to(end.map_or(body.len(), |end| end + 1));
        line.truncate(end.unwrap_or(line.len()));
        Some(line)
    })
}

/// The parameters of the URL.
struct Parameters {
    queries: Vec<Bytes>,
    wait: Option<GoDuration>,
}

impl Parameters {
    fn read(query: Option<&str>) -> Result<Self, String> {
        let (mut queries, mut wait) = (Vec::new(), None);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "q" => queries.push(value.into_owned().into()),
                "wait" => wait = Some(value.parse().map_err(|error| format!("wait: {error}"))?),
                _ => return Err(format!("unknown parameter {name:?}; the parameters are q and wait")),
            }
        }
        if wait.is_some_and(|GoDuration(wait)| wait > limits::WAIT) {
            return Err(format!("wait: at most {} s", limits::WAIT.as_secs()));
        }
        Ok(Self { queries, wait })
    }
}

fn bad(message: impl Into<String>) -> Response {
    refused(StatusCode::BAD_REQUEST, "BadRequest", message.into())
}

impl Whois {
    async fn respond(
        self,
        queries: impl Iterator<Item = Bytes> + Send + Unpin + 'static,
        wait: Option<GoDuration>,
    ) -> Result<Response, Response> {
        let head = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
        let Some(GoDuration(wait)) = wait else {
            let answers = Answers { whois: self, queries, sent: 0 };
            return Ok((head, Body::new(Parts::new(answers))).into_response());
        };
        let queries: Vec<_> = queries.take(limits::QUERIES + 1).collect();
        if queries.len() > limits::QUERIES {
            return Err(bad(format!("wait: at most {} queries in one request", limits::QUERIES)));
        }
        Ok((head, self.wait(&queries, Instant::now() + wait).await).into_response())
    }

    /// Waits until every pod is found or the deadline passes, then returns the answers. Looks up the missing pods once
    /// per publication.
    async fn wait(&self, queries: &[Bytes], deadline: Instant) -> Vec<u8> {
        let mut answers = vec![Vec::new(); queries.len()];
        let mut room = limits::WAITED_ANSWERS;
        let mut waiting = Vec::new();
        for (query, answer) in queries.iter().zip(&mut answers) {
            match self.parse(query) {
                Ok((text, sought)) => waiting.push((text, sought, answer)),
                Err(unknown) => self.write_within(&mut room, query, Err(unknown), answer),
            }
        }
        let mut changes = self.reader.changes();
        while !waiting.is_empty() {
            let step = tokio::select! {
                step = timeout_at(deadline, changes.next()) => step,
                () = self.closed() => break,
            };
            let Ok(Some(step)) = step else { break };
            waiting.retain_mut(|(text, sought, answer)| match sought.find(step.after()) {
                Ok(found) if found.is_final() => {
                    self.write_within(&mut room, text.as_bytes(), Ok((sought, found)), answer);
                    false
                }
                _ => true,
            });
        }
        let snapshot = self.reader.load();
        for (text, sought, answer) in waiting {
            let found = sought.find(&snapshot).map(|found| (&sought, found));
            self.write_within(&mut room, text.as_bytes(), found, answer);
        }
        answers.concat()
    }

    fn parse<'a>(&self, query: &'a [u8]) -> Result<(&'a str, Sought<'a>), Unknown> {
        let text = str::from_utf8(query).map_err(|_| Unknown::NotUtf8)?;
        Ok((text, self.seek(text)?))
    }

    /// Looks one query up and appends the answer.
    fn look_up(&self, query: &[u8], snapshot: &Snapshot<Pod>, to: &mut Vec<u8>) {
        match self.parse(query) {
            Ok((_, sought)) => {
                let found = sought.find(snapshot).map(|found| (&sought, found));
                self.write(query, found, to);
            }
            Err(unknown) => self.write(query, Err(unknown), to),
        }
    }

    /// Like [`write`](Self::write) while `room`, the bytes left for answers, is above zero. Then writes an error.
    fn write_within<'a>(
        &self,
        room: &mut usize,
        query: &'a [u8],
        found: Result<(&Sought<'_>, Found<'a>), Unknown>,
        to: &mut Vec<u8>,
    ) {
        let found = if *room == 0 { Err(Unknown::NoRoom) } else { found };
        self.write(query, found, to);
        *room = room.saturating_sub(to.len());
    }

    /// Appends the answer to a query, and counts it.
    fn write<'a>(&self, query: &'a [u8], found: Result<(&Sought<'_>, Found<'a>), Unknown>, to: &mut Vec<u8>) {
        let query = String::from_utf8_lossy(query);
        let query = shortened(&query);
        let answer = match found {
            Ok((sought, found)) => {
                self.lookups.count(Some(sought.kind()), Outcome::Found);
                found.answer(query, sought.kind())
            }
            Err(unknown) => {
                self.lookups.count(unknown.kind(), unknown.outcome());
                let mut error = unknown.words();
                if matches!(unknown, Unknown::NoPod(_)) {
                    if !self.readiness.is_ready() {
                        error.to_mut().push_str("; not every source has been read");
                    }
                    if *self.is_closed.borrow() {
                        error.to_mut().push_str("; the agent is shutting down");
                    }
                }
                Answer { query: query.into(), kind: unknown.kind(), error: Some(error), ..Answer::default() }
            }
        };
        // Writing to memory does not fail, and every field is text.
        let _ = serde_json::to_writer(&mut *to, &answer);
        to.push(b'\n');
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

/// The answers in parts. Each part comes from one snapshot. No snapshot is held between parts.
struct Answers<I> {
    whois: Whois,
    queries: I,
    /// Bytes written so far.
    sent: usize,
}

impl<I: Iterator<Item = Bytes>> Iterator for Answers<I> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        let snapshot = self.whois.reader.load();
        while chunk.len() < CHUNK {
            let Some(query) = self.queries.next() else { break };
            if self.sent + chunk.len() < limits::ANSWERS {
                self.whois.look_up(&query, &snapshot, &mut chunk);
            } else {
                self.whois.write(&query, Err(Unknown::NoRoom), &mut chunk);
            }
        }
        self.sent += chunk.len();
        (!chunk.is_empty()).then_some(chunk)
    }
}
