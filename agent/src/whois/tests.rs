//! An index whose versions can be told apart, and tests of whole requests.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use axum::body::HttpBody;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::identity::{Identity, ParseIdentityError};
use pod_index::{Moment, Operation, Options, Time, Writer};
use pod_index_kubelet::owners::Owners;
use pod_index_kubelet::records::{Change, Join, Record, Rules};
use pod_index_kubelet::sources::SourceUpdate;
use serde_json::{Value, from_value, json};
use tokio::time::{Instant, sleep, timeout};

use super::Whois;
use super::batch::{ANSWERS, Batch, CHUNK, ECHO};
use super::body::{BODY, TIMEOUT};
use super::in_parts::ONE_MOMENT;
use super::processes::{PATIENCE, Processes, READERS};
use super::read_ahead::READ_AT_ONCE;
use super::request::{AnswerOptions, LONGEST_WAIT, Parameters, Queries};
use super::routes::{FEW, IN_A_GET};
use super::search_budget::{RENEWED_AFTER, VISITED, searches_among};
use crate::api::client::{ALL_PLACES, Clients, PLACES};
use crate::api::documented::{assert_states, bytes, count, status, too_many};
use crate::api::refusal::Reason;
use crate::config::tests::settings_of;
use crate::metrics::Metrics;
use crate::pipeline::readiness::Readiness;

/// Pods of a Namespace, all with the same version in a label, and the Namespace too: one publication for each version.
pub(super) struct Versions {
    writer: Writer<Record>,
    join: Join,
    version: usize,
}

impl Versions {
    pub(super) const PODS: usize = 3;

    pub(super) fn next(&mut self) {
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
    pub(super) fn fill(&mut self, pods: usize, label: &str) {
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
pub(super) fn whois() -> (Arc<Whois>, Versions) {
    let rules = "extract: { metadata: [], labels: [{ key: version, tag_name: namespace, from: namespace }] }";
    let (writer, reader) = pod_index::new();
    let settings = settings_of(&[]);
    let readiness = Arc::new(Readiness::new([], true));
    let mut metrics = Metrics::new(&reader);
    let owners = Owners::default();
    let whois = Whois::build(&settings, &reader, &readiness, &owners, &mut metrics).unwrap();
    let mut versions = Versions { writer, join: Join::new(Rules::parse(rules).unwrap().extract), version: 0 };
    versions.next();
    (Arc::new(Whois { has_attributes: true, ..whois }), versions)
}

/// The queries of a URL.
fn batch_of_url(parameters: &str) -> Batch {
    let Parameters { queries, options, .. } = Parameters::parse(Some(parameters)).unwrap();
    Batch::new(queries, options)
}

/// The queries of a body.
pub(super) fn batch_of_lines(lines: String) -> Batch {
    Batch::new(Queries::of_body(lines.into()), AnswerOptions::default())
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
    let batch = batch_of_url("q=web-0&q=web-1&q=web-2");
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
        let response = whois.answer_at_once(&limits, batch.clone()).await;
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
    let batch = batch_of_lines("web-0\n".repeat(3 * READ_AT_ONCE));
    for (pause, expected) in [(Duration::ZERO, 1), (ONE_MOMENT, 3)] {
        let response = Arc::clone(&whois).answer_in_parts(Arc::clone(&limits), batch.clone(), None).await;
        let mut body = response.into_body();
        let mut seen = Vec::new();
        while let Some(frame) = body.frame().await {
            let part = String::from_utf8(frame.unwrap().into_data().unwrap().into()).unwrap();
            seen.extend(part.lines().flat_map(versions));
            index.next();
            tokio::time::advance(pause).await;
        }
        assert_eq!(seen.len(), 2 * 3 * READ_AT_ONCE);
        seen.dedup();
        assert_eq!(seen.len(), expected, "{seen:?}");
    }
}

/// A response with a length leaves in one write, and a client reads it without taking chunks apart.
#[tokio::test]
async fn a_batch_whose_answers_fit_into_one_part_gets_a_response_with_a_length() {
    let (whois, _index) = whois();
    let limits = Clients::new().named("client");
    for (queries, is_one_part) in [(0, true), (1, true), (READ_AT_ONCE, true), (READ_AT_ONCE + 1, false)] {
        let batch = batch_of_lines("web-0\n".repeat(queries));
        let body = Arc::clone(&whois).answer_in_parts(Arc::clone(&limits), batch, None).await.into_body();
        let length = body.size_hint().exact();
        let body = body.collect().await.unwrap().to_bytes();
        let answers = str::from_utf8(&body).unwrap().lines().count();
        let expected_length = is_one_part.then_some(body.len() as u64);
        assert_eq!((answers, length), (queries, expected_length), "{queries} queries");
    }
}

/// A client decides by `retry` alone, whether it asks for one key or sends a batch.
#[tokio::test]
async fn an_answer_without_a_pod_says_whether_to_ask_again_in_batches_too() {
    let (whois, _index) = whois();
    let limits = Clients::new().named("client");
    let expected = [
        ("10.0.0.99", "later"),
        ("shop/nobody", "later"),
        ("containerd://4fa6d5e2c1b09f8e7d6c5b4a39281706f5e4d3c2b1a0918273645546372819ac", "later"),
        ("a-word", "later"),
        // No look at `/proc` answers in this test.
        ("4711", "later"),
        ("hello world", "never"),
        ("", "never"),
        ("10.0.0.0/8", "never"),
        ("/system.slice/sshd.service", "never"),
        ("10.0.0.99 at=x", "never"),
        ("4711 at=5", "never"),
        // This index keeps no times.
        ("10.0.0.99 at=5", "never"),
    ];
    let whois = Arc::into_inner(whois).unwrap();
    let whois = Arc::new(Whois { processes: Processes::counting(Arc::default()), ..whois });
    let lines = expected.map(|(query, _)| query).join("\n");
    let mut responses =
        vec![Arc::clone(&whois).answer_in_parts(Arc::clone(&limits), batch_of_lines(lines), None).await];
    for (query, _) in expected {
        let parameters = form_urlencoded::Serializer::new(String::new()).append_pair("q", query).finish();
        responses.push(whois.answer_at_once(&limits, batch_of_url(&parameters)).await);
    }
    let mut answers = Vec::new();
    for response in responses {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        answers.extend(str::from_utf8(&body).unwrap().lines().map(|line| {
            let answer: Value = serde_json::from_str(line).unwrap();
            let [query, retry] = ["query", "retry"].map(|field| answer[field].as_str().unwrap().to_owned());
            (query, retry)
        }));
    }
    let expected = expected.map(|(query, retry)| (query.to_owned(), retry.to_owned()));
    assert_eq!(answers, [expected.clone(), expected].concat(), "of the batch, then each alone");
}

/// An answer takes seconds, because no look at `/proc` ends, and the index changes during each.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_takes_no_longer_than_its_time_and_one_answer() {
    let (whois, mut index) = whois();
    let limits = Clients::new().named("client");
    // Another request of the client reads processes, for ever.
    let _reading = limits.processes.acquire().await.unwrap();
    let changing = tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(1)).await;
            index.next();
        }
    });
    let batch = batch_of_url("q=4711&q=10.0.0.99");
    for seconds in [2, 7] {
        let wait = Duration::from_secs(seconds);
        let began = Instant::now();
        let answer = whois.answer_after_waiting(&limits, &batch, wait);
        let ended = timeout(100 * wait, answer).await;
        assert!(ended.is_ok(), "it would wait for ever, after {wait:?}");
        assert!(began.elapsed() <= wait + PATIENCE, "{wait:?}: {:?}", began.elapsed());
    }
    changing.abort();
}

/// A change comes just before the end.
#[tokio::test(start_paused = true)]
async fn the_last_look_of_a_request_that_waits_is_at_its_end() {
    let (whois, mut index) = whois();
    let limits = Clients::new().named("client");
    let wait = Duration::from_secs(2);
    let changing = tokio::spawn(async move {
        sleep(Duration::from_millis(1_990)).await;
        index.next();
        index
    });
    let began = Instant::now();
    whois.answer_after_waiting(&limits, &batch_of_url("q=10.0.0.99"), wait).await;
    // Timers count in milliseconds.
    assert!(began.elapsed() <= wait + Duration::from_millis(1), "{:?}", began.elapsed());
    drop(changing.await);
}

/// What an answer about a time says.
struct Asked {
    error: String,
    retry: String,
    known: Value,
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
        let batch = batch_of_url(&format!("q=10.0.0.1&at={}", 1_700_000_000 + time));
        let body = whois.answer_at_once(&limits, batch).await.into_body();
        let answer: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        let [error, retry] = ["error", "retry"].map(|field| answer[field].as_str().unwrap().to_owned());
        Asked { error, retry, known: answer["known"].clone() }
    };
    writer.advance(moment(0, 5_000));
    let Asked { error, known, .. } = asked(-100).await;
    assert!(error.ends_with("(--keep-removed)"), "{error}");
    assert!(known["earliest"].as_str() < known["latest"].as_str(), "{known}");
    // Covered until 5,000, less the delay of 10 s. So 4,987 and the skew of 2 s is before what is not known yet.
    let retry = async |time: i64| asked(time).await.retry;
    assert_eq!([retry(-100).await, retry(4_987).await, retry(4_988).await], ["never", "never", "later"]);

    writer.advance(moment(1, 1_400));
    assert_eq!(writer.clock_steps(), 1);
    readiness.clock_was_set(second(1_400));
    let Asked { error, known, .. } = asked(1_300).await;
    assert!(error.ends_with("Z: the wall clock was set then"), "{error}");
    assert_eq!(known, Value::Null, "what is known is not older than the delay");
    assert_eq!(retry(1_300).await, "never", "nobody will know what was before the step");
    writer.advance(moment(61, 1_460));
    let Asked { error, known, .. } = asked(1_300).await;
    assert!(error.ends_with("Z: the wall clock was set then"), "{error}");
    assert!(known["earliest"].as_str() < known["latest"].as_str(), "{known}");
}

#[test]
fn the_reference_has_the_limits_of_whois() {
    /// Of the index, whose constant is private.
    const LONGEST_QUERY: usize = 64 << 10;
    let is_too_long =
        |length| matches!(Identity::parse(&"x".repeat(length)), Err(ParseIdentityError::TooLong));
    assert_eq!([LONGEST_QUERY, LONGEST_QUERY + 1].map(is_too_long), [false, true]);
    // What fits into the head of a request, with some room for its headers: a test of the agent's binary sends so much.
    let longest_in_url = bytes(12 << 10);
    let of_body =
        [bytes(BODY), status(Reason::RequestEntityTooLarge), TIMEOUT.into(), status(Reason::Timeout)];
    let of_all = bytes(ALL_PLACES * (BODY + CHUNK));
    let of_bodies = [count(PLACES), count(ALL_PLACES), of_all, TIMEOUT.into(), too_many()];
    let searches = |pods| [count(searches_among(pods, VISITED)), count(pods)];
    let of_searches = [count(RENEWED_AFTER), count(VISITED)].into_iter();
    let of_searches = of_searches.chain(searches(110)).chain(searches(5_000)).chain([count(VISITED)]);
    assert_states(
        "| limit | value |",
        &[
            ("queries in a GET", vec![count(IN_A_GET)]),
            ("body of a POST", of_body.to_vec()),
            ("bodies at once", of_bodies.to_vec()),
            ("answers to one request", vec![bytes(ANSWERS)]),
            ("one query", vec![bytes(LONGEST_QUERY), longest_in_url, bytes(ECHO)]),
            ("process IDs", vec![count(READERS), PATIENCE.into()]),
            ("queries that need a search", of_searches.collect()),
        ],
    );
}

#[test]
fn the_reference_has_the_limits_of_a_request_that_waits() {
    let ago_in_an_example = count(75_u64);
    let bad = status(Reason::BadRequest);
    assert_states(
        "| parameter | it does |",
        &[
            ("`q=KEY`", vec![]),
            ("`at=TIME`", vec![ago_in_an_example]),
            ("`details=true`", vec![bad]),
            ("`fields=attributes`", vec![]),
            ("`wait=2s`", vec![count(FEW), bad, LONGEST_WAIT.into()]),
        ],
    );
}
