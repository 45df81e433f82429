//! `/whois`: takes queries in the URL, or in the body with one per line. Answers each with one line of JSON.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use hyper::body::Bytes;
use pod_index::{OwnedSnapshot, Reader, Snapshot, Time};
use pod_index_kubelet::records::Record;
use tokio::time::{Instant, sleep, timeout_at};

use super::Whois;
use super::answer::Shown;
use super::body::HeldBody;
use super::find::{NO_ATTRIBUTES, Sought, Unknown, VISITED};
use super::lookups::Outcomes;
use super::processes::Placements;
use super::query::{self, Process};
use crate::api::client::{Client, ClientLimits};
use crate::api::refusal::{Reason, refused};
use crate::config::duration::go_duration;

/// Maximum number of queries in a GET.
const QUERIES: usize = 100;
/// Answers repeat at most this many bytes of a query. Paths of cgroups and logs are shorter.
const ECHO: usize = 4096;
/// Maximum number of queries in one part of the answers.
const PART: usize = 256;
/// Pods that the searches of one part visit. A search that has begun goes through all pods, up to three times. Between two parts, the
/// thread does other work: every part is a delay of a probe, and of several requests that take turns, each may add one.
const VISITED_IN_PART: usize = 2_000;
/// So few queries are answered without a turn, or wait for their pods.
pub(crate) const FEW: usize = 4;
/// The response is sent in parts of about this many bytes.
const CHUNK: usize = 64 * 1024;
/// Bytes of the answers to one request, after which queries get an error.
const ANSWERS: usize = 64 << 20;
const TOO_LARGE: &str =
    "the answers to one request are limited to 64 MiB; send this query in another request";
/// Why the agent knows nothing of an earlier time.
const CLOCK_WAS_SET: &str = ": the wall clock was set then";
const BEGAN: &str =
    ": it or its source began anew then, or it has forgotten what was before (--keep-removed)";
/// Longest time to wait for a pod.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// For so long, all answers to a request are of one moment. A client that takes longer gets the rest of a later one: the
/// snapshot of the first keeps replaced pods in memory.
const ONE_MOMENT: Duration = Duration::from_secs(10);
/// Minimum time between two looks of a request that waits.
const BETWEEN: Duration = Duration::from_millis(50);
const HEAD: [(header::HeaderName, &str); 2] =
    [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
/// No text contains this byte, which ends a query of a URL. Queries of a body are lines.
const END: u8 = 0xff;

pub(crate) fn router(whois: Arc<Whois>) -> Router {
    Router::new().route("/whois", get(of_url).post(of_body)).with_state(whois)
}

/// `GET /whois?q=…&q=…&at=…&details=true&fields=attributes&wait=2s`.
async fn of_url(
    State(whois): State<Arc<Whois>>,
    client: Client,
    RawQuery(of_url): RawQuery,
) -> Result<Response, Response> {
    let Parameters { count, queries } = whois.parameters(of_url.as_deref()).map_err(bad)?;
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
    if count <= FEW {
        return Ok(whois.answer_at_once(&client.limits, queries).await);
    }
    Ok(whois.answer_in_parts(client.limits, queries, None))
}

/// `POST /whois`, with a query in each line of the body.
async fn of_body(
    State(whois): State<Arc<Whois>>,
    client: Client,
    RawQuery(of_url): RawQuery,
    request: Request,
) -> Result<Response, Response> {
    let Parameters { count, queries } = whois.parameters(of_url.as_deref()).map_err(bad)?;
    if queries.wait > Duration::ZERO {
        return Err(bad("wait: only a GET waits"));
    }
    if count > 0 {
        return Err(bad("q: a POST has its queries in the body, one per line"));
    }
    let (text, held) = HeldBody::read(&client.limits, request.into_body()).await?;
    let queries = Queries { text, end: b'\n', ..queries };
    Ok(whois.answer_in_parts(client.limits, queries, Some(held)))
}

/// What the URL of a request says.
struct Parameters {
    /// The number of queries in the URL; 0 if they are in the body.
    count: usize,
    /// Those queries. What they have besides their text holds for queries in the body, too.
    queries: Queries,
}

/// `of_url`: what the URL has behind its `?`.
fn parameters(of_url: Option<&str>) -> Result<Parameters, String> {
    let mut text = Vec::new();
    let mut at = None;
    let mut is_detailed = false;
    let mut only_attributes = false;
    let mut wait = Duration::ZERO;
    for (name, value) in form_urlencoded::parse(of_url.unwrap_or_default().as_bytes()) {
        match &*name {
            "q" => text.extend([value.as_bytes(), &[END]].concat()),
            "at" => at = Some(query::time(&value)?),
            "details" => {
                is_detailed = value.parse().map_err(|_| "details: true or false".to_owned())?;
            }
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
    let queries = Queries {
        text: text.into(),
        end: END,
        at,
        is_detailed,
        only_attributes,
        wait,
        left: ANSWERS,
        budget: SearchBudget::default(),
    };
    Ok(Parameters { count, queries })
}

fn bad(message: impl Into<String>) -> Response {
    refused(Reason::BadRequest, message)
}

/// A snapshot, and since when it answers queries.
struct TakenSnapshot {
    snapshot: OwnedSnapshot<Record>,
    since: Instant,
}

impl TakenSnapshot {
    fn now(reader: &Reader<Record>) -> Self {
        Self { snapshot: reader.snapshot(), since: Instant::now() }
    }

    fn is_young(&self) -> bool {
        self.since.elapsed() < ONE_MOMENT
    }
}

/// Answers to some queries.
struct LookedUp {
    answers: Vec<u8>,
    /// Whether the same queries may soon have another answer.
    may_change: bool,
    /// Not counted yet: a query that waits is looked up more than once, and is one lookup.
    outcomes: Outcomes,
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
    budget: SearchBudget,
}

/// How many searches through all pods these queries may still cause.
#[derive(Clone, Copy, Default)]
struct SearchBudget {
    searches: usize,
    /// Queries until it is renewed.
    queries: usize,
    /// Bytes of the answers since it was renewed.
    answered: usize,
}

impl SearchBudget {
    /// Another query is looked up, in an index with so many pods: `PART` queries together may visit `VISITED` pods.
    fn take_query(&mut self, pods: usize) {
        if self.queries == 0 {
            *self = Self { searches: searches_among(pods, VISITED), queries: PART, answered: 0 };
        }
        self.queries -= 1;
    }

    /// A query got an answer of so many bytes. After `most` bytes, the budget is renewed, too: long answers are those of pods, and a
    /// batch that asks for existing ones finds each.
    fn spend(&mut self, bytes: usize, most: usize) {
        self.answered += bytes;
        if self.answered >= most {
            *self = Self::default();
        }
    }
}

/// How many searches visit this number of the pods: one at least.
fn searches_among(pods: usize, visited: usize) -> usize {
    (visited / pods.max(1)).max(1)
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
    fn parameters(&self, of_url: Option<&str>) -> Result<Parameters, String> {
        let parameters = parameters(of_url)?;
        if parameters.queries.only_attributes && !self.has_attributes {
            return Err("fields: the agent has no attributes; start it with --extract FILE".to_owned());
        }
        Ok(parameters)
    }

    /// Answers a few queries. They need no turn.
    async fn answer_at_once(&self, limits: &ClientLimits, mut queries: Queries) -> Response {
        let mut ahead = self.read_ahead(limits, &queries).await;
        let answers = self.part(&self.reader.load(), &mut queries, &mut ahead, usize::MAX);
        (HEAD, answers).into_response()
    }

    /// Answers queries in parts, while the client reads them. `body`: that the queries are in.
    fn answer_in_parts(
        self: Arc<Self>,
        limits: Arc<ClientLimits>,
        queries: Queries,
        body: Option<HeldBody>,
    ) -> Response {
        let answering = Answering { whois: self, limits, queries, ahead: None, moment: None, body };
        let parts = stream::try_unfold(answering, async |mut answering| {
            let part = answering.next_part().await?;
            Ok::<_, io::Error>((!part.is_empty()).then(|| (Bytes::from(part), answering)))
        });
        (HEAD, Body::from_stream(parts)).into_response()
    }

    /// The answers, as soon as each query has a pod that will not be replaced by another, or the time is over. For an event
    /// that is ahead of its pod.
    async fn waited_for(&self, limits: &ClientLimits, queries: &Queries) -> Vec<u8> {
        let deadline = Instant::now() + queries.wait;
        loop {
            let mut changes = self.reader.changes();
            // The first change is the present state, which the look below includes.
            let _ = changes.try_next();
            let mut ahead = self.read_ahead(limits, queries).await;
            let LookedUp { answers, may_change, outcomes } =
                self.looked_up(&self.reader.load(), &mut queries.clone(), &mut ahead, usize::MAX);
            if !may_change || timeout_at(deadline, changes.next()).await.is_err() {
                self.lookups.count(outcomes);
                return answers;
            }
            // Does not hold the snapshot any longer.
            drop(changes);
            sleep(BETWEEN).await;
        }
    }

    /// Reads the processes among the next queries.
    async fn read_ahead(&self, limits: &ClientLimits, queries: &Queries) -> ReadAhead {
        let process = |query: Bytes| -> Option<Process> { query::process(str::from_utf8(&query).ok()?) };
        let processes = queries.clone().take(PART).filter_map(process).collect();
        ReadAhead { placements: self.processes.get(limits, processes).await, queries: PART }
    }

    /// The next answers: about `most` bytes, and those of a few searches. It is bounded work. Without a limit of bytes, it is all
    /// answers to a few queries.
    fn part(
        &self,
        snapshot: &Snapshot<Record>,
        queries: &mut Queries,
        ahead: &mut ReadAhead,
        most: usize,
    ) -> Vec<u8> {
        let LookedUp { answers, outcomes, .. } = self.looked_up(snapshot, queries, ahead, most);
        self.lookups.count(outcomes);
        answers
    }

    /// As [`part`](Self::part), and whether other answers may follow. Counts no lookup.
    fn looked_up(
        &self,
        snapshot: &Snapshot<Record>,
        queries: &mut Queries,
        ahead: &mut ReadAhead,
        most: usize,
    ) -> LookedUp {
        let left = queries.left;
        let pods = snapshot.pods().len();
        let mut budget = queries.budget;
        let part = Part {
            whois: self,
            snapshot,
            placements: &ahead.placements,
            at: queries.at,
            shown: Shown { details: queries.is_detailed, attributes: self.has_attributes },
            only_attributes: queries.only_attributes,
            has_room: left > 0,
        };
        let mut looked_up =
            LookedUp { answers: Vec::new(), may_change: false, outcomes: Outcomes::default() };
        let mut may_search = searches_among(pods, VISITED_IN_PART);
        for query in queries.by_ref().take(ahead.queries) {
            ahead.queries -= 1;
            budget.take_query(pods);
            let (searches, bytes) = (budget.searches, looked_up.answers.len());
            part.answer(&query, &mut budget.searches, &mut looked_up);
            may_search = may_search.saturating_sub(searches - budget.searches);
            budget.spend(looked_up.answers.len() - bytes, most);
            // A short answer is one of few queries, which is not divided.
            if looked_up.answers.len() >= most || (may_search == 0 && most < usize::MAX) {
                break;
            }
        }
        queries.budget = budget;
        queries.left = left.saturating_sub(looked_up.answers.len());
        looked_up
    }
}

/// The processes among the next queries. A read may take long, so it is for several short parts.
struct ReadAhead {
    placements: Placements,
    /// So many queries are left whose processes were read.
    queries: usize,
}

/// Queries that are being answered in parts.
struct Answering {
    whois: Arc<Whois>,
    limits: Arc<ClientLimits>,
    /// Those that are left.
    queries: Queries,
    /// The processes among the next of them, if they are read.
    ahead: Option<ReadAhead>,
    /// The one of the last part.
    moment: Option<TakenSnapshot>,
    /// The body that the queries are in.
    body: Option<HeldBody>,
}

impl Answering {
    /// The next answers. None are left if it is empty.
    async fn next_part(&mut self) -> io::Result<Vec<u8>> {
        self.body.as_ref().map_or(Ok(()), HeldBody::check)?;
        // As old as the moment at most: a process ID is used again.
        let is_young = self.moment.as_ref().is_some_and(TakenSnapshot::is_young);
        let ahead = match self.ahead.take().filter(|ahead| is_young && ahead.queries > 0) {
            Some(ahead) => ahead,
            None => self.whois.read_ahead(&self.limits, &self.queries).await,
        };
        let ahead = self.ahead.insert(ahead);
        let moment = self.moment.take().filter(TakenSnapshot::is_young);
        let moment = self.moment.insert(moment.unwrap_or_else(|| TakenSnapshot::now(&self.whois.reader)));
        // At most `PART` queries, or a few searches: a fraction of a millisecond on a usual node.
        let answer = || self.whois.part(&moment.snapshot, &mut self.queries, ahead, CHUNK);
        let part = self.limits.in_short_turn(answer).await;
        part.ok_or_else(|| io::Error::other("the agent ends"))
    }
}

/// What the queries of one part of the answers have in common.
struct Part<'a> {
    whois: &'a Whois,
    snapshot: &'a Snapshot<Record>,
    placements: &'a Placements,
    /// When the events happened whose queries do not say so themselves.
    at: Option<Time>,
    shown: Shown,
    /// Whether each answer is the attributes of the pod, and nothing else.
    only_attributes: bool,
    /// Whether the answers may still take bytes. If not, each is an error.
    has_room: bool,
}

impl Part<'_> {
    /// Appends the answer to a query. `searches`: so many searches through all pods are still allowed.
    fn answer(&self, query: &[u8], searches: &mut usize, to: &mut LookedUp) {
        let echo = String::from_utf8_lossy(&query[..query.len().min(ECHO)]);
        let whois = self.whois;
        let sought = if self.has_room {
            Sought::parse(query, self.at, self.placements, whois.processes.roots())
        } else {
            Err(Unknown::new(None, TOO_LARGE))
        };
        let found = match &sought {
            Ok(sought) => sought.find(self.snapshot, whois.tolerance, searches),
            Err(unknown) => Err(unknown.clone()),
        };
        match found {
            Ok(found) => {
                to.outcomes.found += 1;
                to.may_change |= found.may_be_succeeded();
                if self.only_attributes {
                    found.write_attributes(self.snapshot, &mut to.answers);
                } else {
                    found.write(&echo, self.snapshot, &whois.owners, self.shown, &mut to.answers);
                }
            }
            Err(unknown) => self.answer_unknown(&echo, unknown, to),
        }
    }

    /// Appends that no pod was found.
    fn answer_unknown(&self, echo: &str, mut unknown: Unknown, to: &mut LookedUp) {
        if self.has_room {
            to.outcomes.failed(unknown.kind.is_some());
        }
        if unknown.is_missing && !self.whois.readiness.is_ready() {
            unknown.error.push_str("; not every source has been read");
        }
        if let Some(since) = unknown.known_since {
            let is_of_the_clock = self.whois.readiness.began_with_the_clock(since);
            unknown.error.push_str(if is_of_the_clock { CLOCK_WAS_SET } else { BEGAN });
        }
        to.may_change |= unknown.is_missing;
        if self.only_attributes {
            to.answers.extend_from_slice(NO_ATTRIBUTES);
            to.answers.push(b'\n');
        } else {
            unknown.write(echo, &mut to.answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::iter;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use pod_index::{Moment, Operation, Options, Writer};
    use pod_index_kubelet::owners::Owners;
    use pod_index_kubelet::records::{Change, Join, Rules};
    use pod_index_kubelet::sources::SourceUpdate;
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::api::client::Clients;
    use crate::config::tests::settings_of;
    use crate::metrics::Metrics;
    use crate::pipeline::readiness::Readiness;
    use crate::whois::processes::Processes;

    /// Pods of a Namespace, all with the same version in a label, and the Namespace too: one publication for each version.
    struct Versions {
        writer: Writer<Record>,
        join: Join,
        version: usize,
    }

    impl Versions {
        const PODS: usize = 3;

        fn next(&mut self) {
            self.version += 1;
            let version = self.version.to_string();
            let labels = json!({ "version": version });
            let pod = |number: usize| {
                let name = format!("web-{number}");
                let metadata = json!({ "namespace": "shop", "name": name, "uid": name, "labels": labels });
                let pod: Pod = from_value(json!({ "metadata": metadata })).unwrap();
                Change::Pod(Operation::Upsert(pod.into()))
            };
            let namespace: ObjectMeta =
                from_value(json!({ "name": "shop", "uid": "n", "labels": labels })).unwrap();
            let namespace = Change::Namespaces(SourceUpdate::Upsert(vec![namespace.into()]));
            let _ = self.join.write(&mut self.writer, (0..Self::PODS).map(pod).chain([namespace]));
        }

        /// Adds pods until there are so many. Each has this text in a label.
        fn fill(&mut self, pods: usize, label: &str) {
            for number in Self::PODS..pods {
                let (name, uid) = (format!("more-{number}"), format!("uid-{number}"));
                let labels = json!({ "text": label });
                let metadata = json!({ "namespace": "n", "name": name, "uid": uid, "labels": labels });
                let pod: Pod = from_value(json!({ "metadata": metadata })).unwrap();
                let _ = self.join.write(&mut self.writer, [Change::Pod(Operation::Upsert(pod.into()))]);
            }
        }
    }

    /// An agent with rules, and its index.
    fn whois() -> (Arc<Whois>, Versions) {
        let rules =
            "extract: { metadata: [], labels: [{ key: version, tag_name: namespace, from: namespace }] }";
        let (writer, reader) = pod_index::new();
        let settings = settings_of(&[]);
        let readiness = Arc::new(Readiness::new([], true));
        let mut metrics = Metrics::new(&reader);
        let owners = Owners::default();
        let whois = Whois::build(&settings, &reader, &readiness, &owners, &mut metrics).unwrap();
        let mut versions =
            Versions { writer, join: Join::new(Rules::parse(rules).unwrap().extract), version: 0 };
        versions.next();
        (Arc::new(Whois { has_attributes: true, ..whois }), versions)
    }

    /// The versions of the pod and of its Namespace in an answer.
    fn versions(line: &str) -> [String; 2] {
        let answer: Value = serde_json::from_str(line).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
        [text(&answer["labels"]["version"]), text(&answer["attributes"]["namespace"])]
    }

    #[tokio::test]
    async fn the_answers_to_the_queries_of_a_url_are_of_one_moment() {
        let (whois, mut index) = whois();
        let limits = Clients::new().named("client");
        let queries = parameters(Some("q=web-0&q=web-1&q=web-2")).unwrap().queries;
        let is_over = Arc::new(AtomicBool::new(false));
        let publishing = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    index.next();
                }
            }
        });
        let mut moments = HashSet::new();
        while moments.len() < 200 {
            let response = whois.answer_at_once(&limits, queries.clone()).await;
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let answers = str::from_utf8(&body).unwrap();
            let mut seen: Vec<_> = answers.lines().flat_map(versions).collect();
            assert_eq!(seen.len(), 2 * Versions::PODS);
            seen.dedup();
            assert_eq!(seen.len(), 1, "several moments: {seen:?}");
            moments.extend(seen);
        }
        is_over.store(true, Ordering::Relaxed);
        publishing.join().unwrap();
    }

    /// Several parts, with a publication before each.
    #[tokio::test(start_paused = true)]
    async fn the_answers_to_a_body_are_of_one_moment_unless_its_client_is_slow() {
        let (whois, mut index) = whois();
        let limits = Clients::new().named("client");
        let text: Bytes = "web-0\n".repeat(3 * PART).into();
        let queries = Queries { text, end: b'\n', ..parameters(None).unwrap().queries };
        for (pause, expected) in [(Duration::ZERO, 1), (ONE_MOMENT, 3)] {
            let response = Arc::clone(&whois).answer_in_parts(Arc::clone(&limits), queries.clone(), None);
            let mut body = response.into_body();
            let mut seen = Vec::new();
            while let Some(frame) = body.frame().await {
                let part = String::from_utf8(frame.unwrap().into_data().unwrap().into()).unwrap();
                seen.extend(part.lines().flat_map(versions));
                index.next();
                tokio::time::advance(pause).await;
            }
            assert_eq!(seen.len(), 2 * 3 * PART);
            seen.dedup();
            assert_eq!(seen.len(), expected, "{seen:?}");
        }
    }

    /// Back by an hour, as somebody sets a clock right.
    #[tokio::test]
    async fn after_a_step_of_the_clock_nothing_is_known_for_a_while_and_no_setting_is_blamed() {
        let options = Options::new().keep_removed(Duration::from_secs(60), 100).keep_times(true);
        let (mut writer, reader) = pod_index::with_options::<Record>(options);
        let readiness = Arc::new(Readiness::new([], true));
        let mut metrics = Metrics::new(&reader);
        let whois =
            Whois::build(&settings_of(&[]), &reader, &readiness, &Owners::default(), &mut metrics).unwrap();
        let limits = Clients::new().named("client");
        let start = std::time::Instant::now();
        let second = |second: i64| Time::from_seconds(1_700_000_000 + second);
        let moment = |passed: u64, time: i64| {
            Moment::new(start + Duration::from_secs(passed), second(time)).covering(second(0), second(time))
        };
        let asked = async |time: i64| {
            let query = format!("q=10.0.0.1&at={}", 1_700_000_000 + time);
            let queries = parameters(Some(&query)).unwrap().queries;
            let body = whois.answer_at_once(&limits, queries).await.into_body();
            let answer: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            (answer["error"].as_str().unwrap().to_owned(), answer["known"].clone())
        };
        writer.advance(moment(0, 5_000));
        let (error, known) = asked(-100).await;
        assert!(error.ends_with("(--keep-removed)"), "{error}");
        assert!(known["earliest"].as_str() < known["latest"].as_str(), "{known}");

        writer.advance(moment(1, 1_400));
        assert_eq!(writer.clock_steps(), 1);
        readiness.clock_was_set(second(1_400));
        let (error, known) = asked(1_300).await;
        assert!(error.ends_with("Z: the wall clock was set then"), "{error}");
        assert_eq!(known, Value::Null, "what is known is not older than the delay");
        writer.advance(moment(61, 1_460));
        let (error, known) = asked(1_300).await;
        assert!(error.ends_with("Z: the wall clock was set then"), "{error}");
        assert!(known["earliest"].as_str() < known["latest"].as_str(), "{known}");
    }

    /// Words that nobody knows, for each of which the whole index is searched. Each part is a delay of a probe.
    #[tokio::test]
    async fn between_two_parts_few_pods_are_visited_and_the_searches_of_a_batch_stay_limited() {
        const PODS: usize = 100;
        let (whois, mut index) = whois();
        index.fill(PODS, "");
        let limits = Clients::new().named("client");
        // Each is the start of a pod's name, which only a search finds.
        let text: Bytes = "web\n".repeat(2 * PART).into();
        let queries = Queries { text, end: b'\n', ..parameters(None).unwrap().queries };
        let mut body = whois.answer_in_parts(limits, queries, None).into_body();
        let mut searched = Vec::new();
        while let Some(frame) = body.frame().await {
            let part = String::from_utf8(frame.unwrap().into_data().unwrap().into()).unwrap();
            searched.push(part.lines().filter(|line| line.contains("did you mean")).count());
        }
        let in_part = VISITED_IN_PART / PODS;
        assert!(searched.iter().all(|searches| *searches <= in_part), "{searched:?}");
        assert_eq!(searched.iter().sum::<usize>(), 2 * VISITED / PODS, "{searched:?}");
    }

    /// A search finds each. Answers of a usual size fill several chunks before `PART` queries are answered.
    #[tokio::test]
    async fn a_batch_of_names_of_existing_pods_finds_each_of_them() {
        const PODS: usize = 100;
        let (whois, mut index) = whois();
        index.fill(PODS, &"x".repeat(1_000));
        let names = (Versions::PODS..PODS).cycle().take(3 * PART);
        let text: Vec<u8> = names.flat_map(|number| format!("more-{number}\n").into_bytes()).collect();
        let queries = Queries { text: text.into(), end: b'\n', ..parameters(None).unwrap().queries };
        let body = whois.answer_in_parts(Clients::new().named("client"), queries, None).into_body();
        let body = body.collect().await.unwrap().to_bytes();
        let answers: Vec<&str> = str::from_utf8(&body).unwrap().lines().collect();
        assert_eq!(answers.len(), 3 * PART);
        let unfound = answers.iter().position(|answer| !answer.contains(r#""foundBy""#));
        assert_eq!(unfound.map(|number| answers[number]), None, "answer {unfound:?}");
    }

    /// Each look at `/proc` may take long, and a batch of words has many short parts.
    #[tokio::test]
    async fn a_process_is_read_once_however_short_the_parts_before_it_are() {
        const PODS: usize = 2_000;
        let (whois, mut index) = whois();
        index.fill(PODS, "");
        let (words, processes) = (20, 100);
        let numbers = (1..=processes).map(|number| format!("{number}\n"));
        let text: String = iter::repeat_n("web\n".to_owned(), words).chain(numbers).collect();
        let queries = Queries { text: text.into(), end: b'\n', ..parameters(None).unwrap().queries };
        let reads = Arc::new(AtomicUsize::new(0));
        let whois = Arc::into_inner(whois).unwrap();
        let whois = Arc::new(Whois { processes: Processes::counting(Arc::clone(&reads)), ..whois });
        let body = whois.answer_in_parts(Clients::new().named("client"), queries, None).into_body();
        let body = body.collect().await.unwrap().to_bytes();
        let answers = str::from_utf8(&body).unwrap().lines().count();
        assert_eq!((answers, reads.load(Ordering::Relaxed)), (words + processes, processes));
    }

    #[test]
    fn a_query_is_a_line() {
        let queries = Queries { text: "a\n\nb".into(), end: b'\n', ..parameters(None).unwrap().queries };
        let lines: Vec<_> = queries.collect();
        assert_eq!(lines, ["a", "", "b"]);
    }
}
