//! The requests that look queries up: how they are sent, and when they are sent again.

use std::borrow::Cow;
use std::thread::sleep;
use std::time::{Duration, Instant};

use form_urlencoded::Serializer;
use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::BATCH;
use super::printer::lines;
use crate::cli::client::{Refused, Server};
use crate::cli::patience::{PATIENCE, Patience};
use crate::cli::{DETAILS, FIELDS, WhoisArgs, format, runtime};
use crate::config::failure::Failure;
use crate::whois::answer::{Retry, is_passed_on};
use crate::whois::query_text;
use crate::whois::request::LONGEST_WAIT;
use crate::whois::routes::FEW;

/// Time before the first request for pods that have not come. Each later one comes after twice the time of the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Queries of more bytes do not wait in an URL: escaped, they may be longer than the agent takes.
const LONGEST_IN_URL: usize = 4096;
/// How long each request of a pipe bears an agent that refuses for now. A pipe that ends loses all that comes later.
const PATIENCE_OF_A_PIPE: Duration = Duration::from_secs(5 * 60);

/// Looks queries up at a running agent.
pub(super) struct WhoisClient<'a> {
    server: &'a Server,
    /// Keeps connections with another thread: this one may be blocked in a read.
    runtime: Runtime,
    /// The time of `--at`.
    at: Option<String>,
    /// Whether a field needs the details of an answer.
    pub(super) has_details: bool,
    /// How long to wait for unknown pods.
    wait: Duration,
    /// When the command began. Its queries wait from then on, and those of a pipe from each batch on.
    began: Instant,
    patience: Patience,
}

impl<'a> WhoisClient<'a> {
    pub(super) fn new(server: &'a Server, asked: &WhoisArgs, is_input: bool) -> Result<Self, Failure> {
        // Waiting must not move a time that is relative to now.
        let written = |at: &str| {
            if at.starts_with('-') {
                query_text::time(at).map(query_text::written)
            } else {
                Ok(at.to_owned())
            }
        };
        let at = asked.at.as_deref().map(written).transpose().map_err(Failure::Usage)?;
        let is_detail = |field: &String| FIELDS.rsplit(',').take(DETAILS).any(|detail| detail == field);
        let has_details = asked.fields.iter().any(is_detail);
        let wait = asked.wait.unwrap_or_default();
        let runtime = runtime()?;
        // Before the patience: when that ends, no time is left to wait.
        let began = Instant::now();
        let patience = patience(asked.wait, is_input);
        Ok(Self { server, runtime, at, has_details, wait, began, patience })
    }

    /// The answers to the lines of a batch, in their order, after waiting for pods that may still come.
    pub(super) fn of_batch(&self, batch: &[u8]) -> Result<Vec<u8>, Failure> {
        let wait = Wait { began: Instant::now(), longest: self.wait };
        let queries: Vec<_> = batch.split_inclusive(|byte| *byte == b'\n').map(without_end).collect();
        let answers = Answers::read(&self.post(batch.to_owned())?);
        self.after_waiting(wait, &queries, answers)
    }

    /// The answers to the queries of a command line, in their order, after waiting for pods that may still come.
    pub(super) fn of_arguments(&self, queries: &[String]) -> Result<Vec<u8>, Failure> {
        let wait = Wait { began: self.began, longest: self.wait };
        let mut answers = Vec::new();
        for query in queries {
            answers.extend_from_slice(&self.get(&[query], || Duration::ZERO)?);
        }
        let lines: Vec<_> = queries.iter().map(|query| line_of(query)).collect();
        let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        self.after_waiting(wait, &lines, Answers::read(&answers))
    }

    /// The answers to these lines, after waiting for pods that may still come. `answers`: those so far.
    fn after_waiting(&self, wait: Wait, lines: &[&[u8]], mut answers: Answers) -> Result<Vec<u8>, Failure> {
        // An agent of another version may have more to say than one line for each query.
        if answers.0.len() == lines.len() {
            end_of_wait(self.wait_for_all(wait, lines, &mut answers))?;
        }
        Ok(answers.text())
    }

    /// Asks again for the lines whose pods may still come, until the time is over.
    fn wait_for_all(&self, wait: Wait, lines: &[&[u8]], answers: &mut Answers) -> Result<(), Refused> {
        let mut pause = FIRST_PAUSE;
        loop {
            let waiting = answers.waiting();
            let left = wait.left();
            if waiting.is_empty() || left.is_zero() {
                return Ok(());
            }
            if let Some(texts) = few(lines, &waiting) {
                return self.wait_for_few(wait, &Few { waiting: &waiting, texts }, answers);
            }
            sleep(pause.min(left));
            pause = (2 * pause).min(LONGEST_PAUSE);
            self.look_up_again(lines, &waiting, answers)?;
        }
    }

    /// Waits for the pods of a few queries. The agent answers as soon as they are there.
    ///
    /// It does not wait for what a time decides, such as an event that is too recent, nor may an agent of another version. So
    /// an answer that came before its time is asked for again, after growing pauses and at last when the wait is over.
    fn wait_for_few(&self, wait: Wait, few: &Few<'_>, answers: &mut Answers) -> Result<(), Refused> {
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = Instant::now();
            let longest = wait.left_of_request();
            let new = self.get(&few.texts, || wait.left_of_request())?;
            answers.replace(few.waiting, &new);
            let left = wait.left();
            if left.is_zero() || Answers::read(&new).waiting().is_empty() {
                return Ok(());
            }
            if asked.elapsed() < longest {
                sleep(pause.min(left));
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }

    /// Looks these lines up once more: in one request, unless they are too long for a body.
    fn look_up_again(
        &self,
        lines: &[&[u8]],
        waiting: &[usize],
        answers: &mut Answers,
    ) -> Result<(), Refused> {
        let mut rest = waiting;
        while !rest.is_empty() {
            let mut length = 0;
            let fitting = rest.iter().take_while(|line| {
                let fits = length < BATCH;
                length += lines[**line].len() + 1;
                fits
            });
            let (now, later) = rest.split_at(fitting.count());
            let body: Vec<_> = now.iter().map(|line| lines[*line]).collect();
            answers.replace(now, &self.post(body.join(&b'\n'))?);
            rest = later;
        }
        Ok(())
    }

    /// The answers to queries in an URL. `wait`: how long the agent may wait for their pods, at each attempt.
    fn get(&self, queries: &[&str], wait: impl Fn() -> Duration) -> Result<Bytes, Refused> {
        let path = || {
            let wait = wait();
            let wait = (!wait.is_zero()).then(|| format!("{}ms", wait.as_millis().max(1)));
            let wait = wait.iter().map(|wait| ("wait", &**wait));
            let queries = queries.iter().map(|query| ("q", *query));
            self.path(wait.chain(queries))
        };
        self.ask(Method::GET, path, Bytes::new())
    }

    /// The answers to queries in a body.
    fn post(&self, lines: Vec<u8>) -> Result<Bytes, Refused> {
        self.ask(Method::POST, || self.path([]), lines.into())
    }

    fn ask(&self, method: Method, path: impl Fn() -> String, body: Bytes) -> Result<Bytes, Refused> {
        self.runtime.block_on(self.server.ask(method, path, body, &self.patience))
    }

    /// The path of the agent with these parameters, and those of all queries.
    fn path<'p>(&'p self, more: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
        let at = self.at.iter().map(|at| ("at", &**at));
        let details = self.has_details.then_some(("details", "true"));
        let pairs = at.chain(details).chain(more);
        format!("/whois?{}", Serializer::new(String::new()).extend_pairs(pairs).finish())
    }
}

/// The time in which pods may still come. It ends whatever the agent answers: no request may begin it anew.
#[derive(Clone, Copy)]
struct Wait {
    began: Instant,
    longest: Duration,
}

impl Wait {
    fn left(self) -> Duration {
        self.longest.saturating_sub(self.began.elapsed())
    }

    /// How long the agent may wait in a request that is sent now.
    fn left_of_request(self) -> Duration {
        self.left().min(LONGEST_WAIT)
    }
}

/// How long the client bears an agent that refuses for now.
fn patience(wait: Option<Duration>, is_input: bool) -> Patience {
    if is_input {
        Patience::of_each_request(PATIENCE_OF_A_PIPE)
    } else {
        Patience::of(wait.unwrap_or(PATIENCE))
    }
}

/// Whether the wait for pods ended as it may. If the agent refused for longer than the client bears, it did: each query has an
/// answer, which is printed.
fn end_of_wait(waited: Result<(), Refused>) -> Result<(), Failure> {
    let Err(refused) = waited else { return Ok(()) };
    if refused.after.is_none() {
        return Err(refused.failure);
    }
    let why = refused.failure.message().unwrap_or_default();
    // Whoever listens there wrote a part of it.
    format::note(&format!("pod-index: {why}; waits no longer for pods, and prints the answers so far"));
    Ok(())
}

/// Queries that wait in one URL.
struct Few<'a> {
    /// Which queries they are.
    waiting: &'a [usize],
    texts: Vec<&'a str>,
}

/// The lines that wait, if they are few and short enough for an URL. The agent lets so few wait; that a GET may have as many
/// queries is asserted beside [`FEW`].
fn few<'q>(lines: &[&'q [u8]], waiting: &[usize]) -> Option<Vec<&'q str>> {
    let length: usize = waiting.iter().map(|line| lines[*line].len()).sum();
    if waiting.len() > FEW || length > LONGEST_IN_URL {
        return None;
    }
    waiting.iter().map(|line| str::from_utf8(lines[*line]).ok()).collect()
}

/// A query of the command line, as a line of a body. One that has several lines itself is JSON there.
fn line_of(query: &str) -> Cow<'_, str> {
    if !query.contains('\n') {
        return query.into();
    }
    let text = query_text::of_json(query.as_bytes());
    json!({ "query": text.as_deref().unwrap_or(query) }).to_string().into()
}

/// A line without what ends it.
fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// The latest answer to each query: lines without their ends.
struct Answers(Vec<Vec<u8>>);

impl Answers {
    fn read(answers: &[u8]) -> Self {
        Self(lines(answers).map(<[u8]>::to_vec).collect())
    }

    /// The queries to which another answer may come.
    fn waiting(&self) -> Vec<usize> {
        self.0.iter().enumerate().filter(|(_, answer)| may_change(answer)).map(|(query, _)| query).collect()
    }

    /// Puts new answers to these queries in the place of the old ones.
    fn replace(&mut self, queries: &[usize], new: &[u8]) {
        for (query, answer) in queries.iter().zip(lines(new)) {
            answer.clone_into(&mut self.0[*query]);
        }
    }

    fn text(mut self) -> Vec<u8> {
        self.0.iter_mut().for_each(|answer| answer.push(b'\n'));
        self.0.concat()
    }
}

/// Whether asking again may bring another answer to the query:
/// - no pod was found, and the agent says that this may change (`retry`);
/// - a removed pod was found by a key that another pod may get, such as an IP or a name.
fn may_change(answer: &[u8]) -> bool {
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else { return false };
    match answer["foundBy"].as_str() {
        Some(by) => is_passed_on(by) && answer["removed"].is_string() && answer["at"].is_null(),
        None => answer["retry"].as_str().is_some_and(|retry| retry != Retry::Never.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five minutes from the begin of a batch would end a pipe at the first refusal, if it waits for pods for longer.
    #[test]
    fn a_command_line_has_one_patience_and_a_pipe_one_for_each_request() {
        let minute = Duration::from_secs(60);
        let ago = |time| Instant::now().checked_sub(time).unwrap();
        let pause = |wait, is_input, began| patience(wait, is_input).pause(began, minute / 60);
        for wait in [None, Some(Duration::ZERO), Some(10 * minute)] {
            assert!(pause(wait, true, ago(4 * minute)).is_some(), "{wait:?}");
            assert!(pause(wait, true, ago(6 * minute)).is_none(), "{wait:?}");
        }
        assert!(pause(None, false, ago(6 * minute)).is_some(), "it began now");
        assert!(pause(Some(Duration::ZERO), false, ago(Duration::ZERO)).is_none());
    }
}
