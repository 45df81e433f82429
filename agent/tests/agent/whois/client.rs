//! How `pod-index whois` asks: how often, and what it does when an agent refuses for now.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::support::{binary, refusal, serve_bodies, stderr, stdout};

/// An agent that writes down what it is asked.
struct FakeAgent {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeAgent {
    /// `answer`: to the number of a request, from zero, with these queries.
    fn start(answer: impl Fn(usize, &[String]) -> (&'static str, String) + Send + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&requests);
        let address = serve_bodies(move |head, body| {
            let path = head.split(' ').take(2).collect::<Vec<_>>().join(" ");
            let of_url = path.split_once('?').map_or("", |(_, query)| query);
            let of_url = form_urlencoded::parse(of_url.as_bytes()).filter(|(name, _)| name == "q");
            let of_url = of_url.map(|(_, query)| query.into_owned());
            let queries: Vec<_> = of_url.chain(body.lines().map(str::to_owned)).collect();
            let mut requests = written.lock().unwrap();
            requests.push(if body.is_empty() {
                path
            } else {
                format!("{path} {}", body.trim_end().replace('\n', " "))
            });
            answer(requests.len() - 1, &queries)
        });
        Self { address, requests }
    }

    fn whois(&self, args: &[&str]) -> Command {
        let (address, port) = self.address.split_once(':').unwrap();
        binary(&[&["whois", "--address", address, "--port", port, "-o", "json"], args].concat())
    }

    fn ask(&self, args: &[&str]) -> Output {
        self.whois(args).output().unwrap()
    }

    fn pipe(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.whois(args);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Answers in which these queries have a pod.
fn answers(queries: &[String], are_found: impl Fn(&str) -> bool) -> (&'static str, String) {
    let answer = |query: &String| {
        // The agent's lines begin so.
        let found = are_found(query);
        let how = if found { r#""foundBy":"uid""# } else { r#""retry":"later""# };
        format!("{{\"found\":{found},\"query\":{},\"kind\":\"uid\",{how}}}\n", json!(query))
    };
    ("200 OK", queries.iter().map(answer).collect())
}

#[test]
fn a_pipe_goes_on_after_an_agent_has_refused_for_a_while() {
    let agent = FakeAgent::start(|number, queries| match number {
        0 | 1 => refusal(429),
        2 => refusal(503),
        _ => answers(queries, |_| true),
    });
    let output = agent.pipe(&[], "u-1\nu-2\n");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 2, "{}", stdout(&output));
    assert_eq!(agent.requests(), ["POST /whois? u-1 u-2"; 4]);
    assert!(stderr(&output).contains("429 Too Many Requests planted; asks again"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "it says so once: {}", stderr(&output));
}

#[test]
fn a_query_of_the_command_line_bears_a_refusal_for_as_long_as_it_may_wait() {
    let agent = FakeAgent::start(|_, _| refusal(429));
    let output = agent.ask(&["u-1", "--wait", "0s"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(agent.requests().len(), 1);
    let output = agent.ask(&["u-1", "--wait", "1500ms"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    // One of the first command, and of the second at most those after 0, 1 and 1.5 s. A busy machine may send fewer.
    assert!((2..=4).contains(&agent.requests().len()), "{:?}", agent.requests());
}

/// Each query is refused at first. If each had a patience of its own, all would be answered after twelve seconds.
#[test]
fn the_queries_of_a_command_line_share_one_patience() {
    let agent = FakeAgent::start(|number, queries| match number % 2 {
        0 => refusal(429),
        _ => answers(queries, |_| true),
    });
    let queries: Vec<_> = (0..12).map(|number| format!("u-{number}")).collect();
    let queries: Vec<_> = queries.iter().map(String::as_str).collect();
    let output = agent.ask(&[&queries[..], &["--wait", "5s"]].concat());
    assert_eq!(output.status.code(), Some(3), "{} {:?}", stdout(&output), agent.requests());
    assert_eq!(stderr(&output).matches("asks again for up to 5s").count(), 1, "{}", stderr(&output));
}

#[test]
fn without_wait_a_query_of_the_command_line_bears_a_short_refusal() {
    let agent = FakeAgent::start(|number, queries| match number {
        0 => refusal(429),
        _ => answers(queries, |_| true),
    });
    let output = agent.ask(&["u-1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("asks again for up to 10s"), "{}", stderr(&output));
}

/// The wait and the patience of a command line end together. So a refusal at the end of the wait is not borne, and must cost nothing
/// that was answered before it.
#[test]
fn a_refusal_while_waiting_ends_the_wait_and_the_answers_so_far_are_printed() {
    let found = |queries: &[String]| answers(queries, |query| query == "there");
    // More than a request may wait for: the others are not asked for after the refusal.
    let many = ["there", "u-1", "u-2", "u-3", "u-4", "u-5"];
    let agent = FakeAgent::start(move |number, queries| match number {
        0..6 => found(queries),
        _ => refusal(429),
    });
    let output = agent.ask(&[&["--wait", "5s"], &many[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{} {:?}", stderr(&output), agent.requests());
    let queries: Vec<_> =
        stdout(&output).lines().map(|line| line.split('"').nth(5).unwrap().to_owned()).collect();
    assert_eq!(queries, many);
    let told = "planted; waits no longer for pods, and prints the answers so far";
    assert_eq!(stderr(&output).matches(told).count(), 1, "{}", stderr(&output));

    // What came while it waited.
    let agent = FakeAgent::start(move |number, queries| match number {
        0 | 1 => answers(queries, |_| false),
        2 => found(queries),
        _ => refusal(503),
    });
    let output = agent.ask(&["--wait", "5s", "there", "u-1"]);
    assert_eq!(output.status.code(), Some(1), "{} {:?}", stderr(&output), agent.requests());
    assert_eq!(stdout(&output).matches(r#""found":true"#).count(), 1, "{}", stdout(&output));

    // Another failure is one.
    let agent = FakeAgent::start(move |number, queries| match number {
        0 => found(queries),
        _ => ("500 Internal Server Error", String::new()),
    });
    let output = agent.ask(&["--wait", "60s", "u-1"]);
    assert_eq!(output.status.code(), Some(3), "{} {:?}", stderr(&output), agent.requests());
}

#[test]
fn the_agent_waits_for_a_few_pods_and_only_what_may_change_is_asked_again() {
    let found_by_the_second =
        |number: usize, queries: &[String]| answers(queries, |query| number > 0 || query == "there");
    let agent = FakeAgent::start(found_by_the_second);
    let output = agent.ask(&["u-1", "--wait", "60s"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(agent.requests(), ["GET /whois?q=u-1", "GET /whois?wait=10000ms&q=u-1"]);

    let agent = FakeAgent::start(found_by_the_second);
    let output = agent.pipe(&["--wait", "60s"], "u-1\nthere\nu-2\n");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(agent.requests(), ["POST /whois? u-1 there u-2", "GET /whois?wait=10000ms&q=u-1&q=u-2"]);
    let queries: Vec<_> = stdout(&output).lines().map(|line| line.split('"').nth(5).unwrap()).collect();
    assert_eq!(queries, ["u-1", "there", "u-2"]);
}

/// An agent answers a query with a time at once, however long it may wait: what happened then is not known yet, or several pods may
/// have had the key.
fn not_known_until(known: usize) -> impl Fn(usize, &[String]) -> (&'static str, String) {
    move |number, queries| {
        let answer = |query: &String| {
            let found = number >= known;
            let why = if found {
                r#""foundBy":"ip""#
            } else {
                r#""error":"what happened at that time is not known yet","retry":"later""#
            };
            let at = r#""at":"2026-01-02T03:04:05Z""#;
            format!("{{\"found\":{found},\"query\":{},\"kind\":\"ip\",{at},{why}}}\n", json!(query))
        };
        ("200 OK", queries.iter().map(answer).collect())
    }
}

#[test]
fn what_is_not_known_yet_of_a_time_is_asked_again_until_the_wait_is_over() {
    let agent = FakeAgent::start(not_known_until(3));
    let output = agent.ask(&["--wait", "60s", "--at", "2026-01-02T03:04:05Z", "10.0.0.7"]);
    assert!(output.status.success(), "{} {:?}", stdout(&output), agent.requests());
    assert_eq!(agent.requests().len(), 4, "{:?}", agent.requests());

    let agent = FakeAgent::start(not_known_until(3));
    let output = agent.pipe(&["--wait", "60s", "--at", "2026-01-02T03:04:05Z"], "10.0.0.7\n10.0.0.8\n");
    assert!(output.status.success(), "{} {:?}", stdout(&output), agent.requests());
    assert_eq!(agent.requests().len(), 4, "{:?}", agent.requests());

    // Less and less often: after 0, 0, 0.2, 0.6 and 1 s at most. A busy machine may send fewer.
    let agent = FakeAgent::start(not_known_until(usize::MAX));
    let output = agent.ask(&["--wait", "1s", "--at", "2026-01-02T03:04:05Z", "10.0.0.7"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!((1..=5).contains(&agent.requests().len()), "{:?}", agent.requests());
}

/// Whoever listens on the port of an agent that is down may answer anything.
#[test]
fn what_an_agent_says_of_a_refusal_cannot_control_the_terminal() {
    let message = "\u{1b}]0;title\u{7}\u{1b}[2J\nmade up";
    let agent = FakeAgent::start(move |number, queries| match number {
        0 => {
            (refusal(429).0, json!({ "kind": "Status", "apiVersion": "v1", "message": message }).to_string())
        }
        _ => answers(queries, |_| true),
    });
    let output = agent.pipe(&[], "u-1\n");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("made up; asks again"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(!stderr(&output).contains(['\u{1b}', '\u{7}']), "{:?}", stderr(&output));
}

#[test]
fn a_pipe_goes_on_when_nobody_reads_its_errors() {
    let agent = FakeAgent::start(|number, queries| match number {
        0 => refusal(429),
        _ => answers(queries, |query| query == "there"),
    });
    let (address, port) = agent.address.split_once(':').unwrap();
    let mut child = binary(&["whois", "--address", address, "--port", port, "-o", "table"]);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    drop(child.stderr.take());
    child.stdin.take().unwrap().write_all(b"u-1\nthere\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("there"), "{}", stdout(&output));
}

/// Less and less often, without the line that is found, until all are found or the time is over.
#[test]
fn many_queries_wait_gently() {
    let agent = FakeAgent::start(|number, queries| answers(queries, |query| number >= 2 || query == "there"));
    let output = agent.pipe(&["--wait", "60s"], "u-1\nthere\nu-2\nu-3\nu-4\nu-5\n");
    assert!(output.status.success(), "{}", stderr(&output));
    let again = "POST /whois? u-1 u-2 u-3 u-4 u-5";
    assert_eq!(agent.requests(), ["POST /whois? u-1 there u-2 u-3 u-4 u-5", again, again]);

    let agent = FakeAgent::start(|_, queries| answers(queries, |query| query == "there"));
    let output = agent.pipe(&["--wait", "1s"], "u-1\nthere\nu-2\nu-3\nu-4\nu-5\n");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 6);
    let requests = agent.requests();
    // After 0, 0.2, 0.6 and 1 s. A busy machine may send fewer.
    assert!((1..=4).contains(&requests.len()), "{requests:?}");
    assert!(requests[1..].iter().all(|request| request == again), "{requests:?}");
}

/// How long the agent may wait in each request, in milliseconds.
fn waits(requests: &[String]) -> Vec<Option<u64>> {
    let wait = |request: &String| {
        let (_, wait) = request.split_once("wait=")?;
        Some(wait.split("ms").next()?.parse().unwrap())
    };
    requests.iter().map(wait).collect()
}

/// A request that waits is refused until the time is over. Made again as it was, it would then wait for the whole time once more.
#[test]
fn a_refusal_takes_its_time_from_the_wait_of_the_next_attempt() {
    let agent = FakeAgent::start(|number, queries| match number {
        0 => answers(queries, |_| false),
        _ => refusal(429),
    });
    let output = agent.ask(&["--wait", "1500ms", "u-1"]);
    assert_eq!(output.status.code(), Some(1), "{} {:?}", stderr(&output), agent.requests());
    let waits = waits(&agent.requests());
    // After 0, 0, 1 and 1.5 s. A busy machine may send fewer, or end while the third one waits.
    assert!((1..=4).contains(&waits.len()), "{waits:?}");
    assert!(waits.iter().skip(3).all(Option::is_none), "when the time is over, no request waits: {waits:?}");
    let after_a_refusal = waits.iter().skip(2).flatten();
    assert!(after_a_refusal.clone().all(|wait| *wait <= 500), "a second has passed: {waits:?}");
}

/// One request for all: if a few after the other were asked for, the last would come long after the time. One key has several lines.
#[test]
fn many_queries_of_a_command_line_wait_together() {
    let agent = FakeAgent::start(|number, queries| answers(queries, |query| number >= 8 || query == "there"));
    let lines = "1:cpu:/a\n2:memory:/a";
    let output = agent.ask(&["--wait", "60s", lines, "there", "u-1", "u-2", "u-3", "u-4"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 6, "{}", stdout(&output));
    let requests = agent.requests();
    let (alone, together) = requests.split_at(6);
    assert!(alone.iter().all(|request| request.starts_with("GET /whois?q=")), "{requests:?}");
    assert_eq!(together.len(), 3, "{requests:?}");
    let expected = format!("POST /whois? {} u-1 u-2 u-3 u-4", json!({ "query": lines }));
    assert!(together.iter().all(|request| *request == expected), "{requests:?}");
}
