//! The requests that look queries up: how they are sent, and when they are sent again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use form_urlencoded::Serializer;
use hyper::Method;
use hyper::body::Bytes;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::printer::lines;
use crate::cli::client::{Refused, Server};
use crate::cli::patience::{PATIENCE, Patience};
use crate::cli::{DETAILS, FIELDS, WhoisArgs, format, runtime};
use crate::config::failure::Failure;
use crate::whois::answer::{Retry, is_passed_on};
use crate::whois::queries::LONGEST_WAIT;
use crate::whois::query;
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
    patience: Patience,
}

impl<'a> WhoisClient<'a> {
    pub(super) fn new(server: &'a Server, asked: &WhoisArgs, is_input: bool) -> Result<Self, Failure> {
        // Waiting must not move a time that is relative to now.
        let written = |at: &str| {
            if at.starts_with('-') { query::time(at).map(query::written) } else { Ok(at.to_owned()) }
        };
        let at = asked.at.as_deref().map(written).transpose().map_err(Failure::Usage)?;
        let is_detail = |field: &String| FIELDS.rsplit(',').take(DETAILS).any(|detail| detail == field);
        let has_details = asked.fields.iter().any(is_detail);
        let wait = asked.wait.unwrap_or_default();
        let patience = patience(asked.wait, is_input);
        Ok(Self { server, runtime: runtime()?, at, has_details, wait, patience })
    }

    /// The answers to the lines of a batch, in their order, after waiting for pods that may still come.
    pub(super) fn of_batch(&self, batch: &[u8]) -> Result<Vec<u8>, Failure> {
        let began = Instant::now();
        let queries: Vec<_> = batch.split_inclusive(|byte| *byte == b'\n').collect();
        let mut answers = Answers::read(&self.post(batch.to_owned())?);
        // An agent of another version may have more to say than one line for each query.
        if answers.0.len() == queries.len() {
            end_of_wait(self.wait_for_batch(began, &queries, &mut answers))?;
        }
        Ok(answers.text())
    }

    /// The answers to the queries of a command line, in their order, after waiting for pods that may still come.
    pub(super) fn of_arguments(&self, queries: &[String]) -> Result<Vec<u8>, Failure> {
        let began = Instant::now();
        let mut answers = Vec::new();
        for query in queries {
            answers.extend_from_slice(&self.get(&[query], Duration::ZERO)?);
        }
        let mut answers = Answers::read(&answers);
        if !self.wait.is_zero() && answers.0.len() == queries.len() {
            end_of_wait(self.wait_for_arguments(began, queries, &mut answers))?;
        }
        Ok(answers.text())
    }

    /// Asks again for the lines whose pods may still come.
    fn wait_for_batch(
        &self,
        began: Instant,
        queries: &[&[u8]],
        answers: &mut Answers,
    ) -> Result<(), Refused> {
        let mut pause = FIRST_PAUSE;
        loop {
            let waiting = answers.waiting();
            let left = self.left(began);
            if waiting.is_empty() || left.is_zero() {
                return Ok(());
            }
            if let Some(texts) = few(queries, &waiting) {
                return self.wait_for(began, &Few { waiting: &waiting, texts }, answers);
            }
            sleep(pause.min(left));
            pause = (2 * pause).min(LONGEST_PAUSE);
            let lines: Vec<_> = waiting.iter().map(|query| without_end(queries[*query])).collect();
            answers.replace(&waiting, &self.post(lines.join(&b'\n'))?);
        }
    }

    /// Asks again for the queries whose pods may still come.
    fn wait_for_arguments(
        &self,
        began: Instant,
        queries: &[String],
        answers: &mut Answers,
    ) -> Result<(), Refused> {
        // A query may have several lines, so they cannot share a body. Those behind the first few are looked up once more.
        for waiting in answers.waiting().chunks(FEW) {
            let texts = waiting.iter().map(|query| &*queries[*query]).collect();
            self.wait_for(began, &Few { waiting, texts }, answers)?;
        }
        Ok(())
    }

    /// Waits for the pods of a few queries. The agent answers as soon as they are there.
    ///
    /// It does not wait for what a time decides, such as an event that is too recent, nor may an agent of another version. So
    /// an answer that came before its time is asked for again, after growing pauses and at last when the wait is over.
    fn wait_for(&self, began: Instant, few: &Few<'_>, answers: &mut Answers) -> Result<(), Refused> {
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = Instant::now();
            let wait = self.left(began).min(LONGEST_WAIT);
            let new = self.get(&few.texts, wait)?;
            answers.replace(few.waiting, &new);
            let left = self.left(began);
            if left.is_zero() || Answers::read(&new).waiting().is_empty() {
                return Ok(());
            }
            if asked.elapsed() < wait {
                sleep(pause.min(left));
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }

    /// How much longer to wait for pods.
    fn left(&self, began: Instant) -> Duration {
        self.wait.saturating_sub(began.elapsed())
    }

    /// The answers to queries in an URL. The agent may wait so long for their pods.
    fn get(&self, queries: &[&str], wait: Duration) -> Result<Bytes, Refused> {
        let wait = (!wait.is_zero()).then(|| format!("{}ms", wait.as_millis().max(1)));
        let wait = wait.iter().map(|wait| ("wait", &**wait));
        let queries = queries.iter().map(|query| ("q", *query));
        self.ask(Method::GET, &self.path(wait.chain(queries)), Bytes::new())
    }

    /// The answers to queries in a body.
    fn post(&self, lines: Vec<u8>) -> Result<Bytes, Refused> {
        self.ask(Method::POST, &self.path([]), lines.into())
    }

    fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Refused> {
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

/// The texts of the queries that wait, if they are few and short enough for an URL.
fn few<'q>(queries: &[&'q [u8]], waiting: &[usize]) -> Option<Vec<&'q str>> {
    let length: usize = waiting.iter().map(|query| queries[*query].len()).sum();
    if waiting.len() > FEW || length > LONGEST_IN_URL {
        return None;
    }
    waiting.iter().map(|query| str::from_utf8(without_end(queries[*query])).ok()).collect()
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
