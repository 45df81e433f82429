//! `pod-index whois`: queries from the command line or from standard input.

mod input;
mod printer;

use std::time::{Duration, Instant};
use std::{io, thread};

use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::body::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::sleep;

use self::printer::Printer;
use crate::cli::client::Server;
use crate::cli::{Output, WhoisArgs};
use crate::config::duration::GoDuration;
use crate::config::failure::Failure;
use crate::whois::query;

/// The fields that the agent sends with `details=true`.
const DETAILS: [&str; 4] = ["podIP", "phase", "image", "annotations"];
/// Maximum length of a query in a URL. The agent accepts request heads of up to 16 KiB.
const URL: usize = 12 * 1024;
/// Time between two requests for pods that are not there yet.
const RETRY: Duration = Duration::from_millis(200);
/// Concurrent requests: the agent answers one while the next request and the last response are in transit.
const REQUESTS: usize = 3;

/// Looks up all queries. Fails if a pod was not found.
pub(crate) fn ask(server: &Server, asked: &WhoisArgs, output: Output) -> Result<(), Failure> {
    let wait = asked.wait.map(|GoDuration(wait)| wait);
    if let Some(at) = &asked.at {
        query::time(at).map_err(|error| Failure::Usage(format!("--{error}")))?;
    }
    let is_input = matches!(&asked.anything[..], [] | [_]) && asked.anything.iter().all(|only| only == "-");
    if asked.time_field.is_some() && !is_input {
        return Err(Failure::Usage("--time-field is for lines of standard input".to_owned()));
    }
    if asked.namespace.is_some() && is_input {
        return Err(Failure::Usage("--namespace is for arguments; a line has NAMESPACE/NAME".to_owned()));
    }
    // What every request has in its URL, besides the queries.
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(at) = &asked.at {
        query.append_pair("at", at);
    }
    if asked.fields.iter().any(|field| DETAILS.contains(&&**field)) {
        query.append_pair("details", "true");
    }
    let query = query.finish();
    let runtime = crate::cli::runtime()?;
    let printer = Printer::new(output, asked.fields.clone());
    let all_found = if is_input {
        runtime.block_on(of_input(server, &query, asked.time_field, wait, printer))
    } else {
        runtime.block_on(of_arguments(server, asked, &query, wait, printer))
    };
    // Each error has been printed.
    if all_found? { Ok(()) } else { Err(Failure::No(None)) }
}

async fn of_arguments(
    server: &Server,
    asked: &WhoisArgs,
    query: &str,
    wait: Option<Duration>,
    mut printer: Printer,
) -> Result<bool, Failure> {
    let answers = stream::iter(&asked.anything).map(async |text| {
        let text = asked.namespace.iter().chain([text]).map(String::as_str).collect::<Vec<_>>().join("/");
        let pair = form_urlencoded::Serializer::new(String::new()).append_pair("q", &text).finish();
        if pair.len() > URL {
            let start: String = text.chars().take(40).collect();
            let message = format!("{start:?}…: too long for an argument; give it on standard input");
            return Err(Failure::Usage(message));
        }
        let path = format!("/whois?{pair}&{query}");
        complete(wait, async || server.get(&path, &[]).await).await
    });
    let answers: Vec<Bytes> = answers.buffered(REQUESTS).try_collect().await?;
    printer.print(&answers.concat())?;
    Ok(printer.all_found)
}

/// The answers to a request. Asks again for this long, while a pod may still come.
async fn complete(
    wait: Option<Duration>,
    ask: impl AsyncFn() -> Result<Bytes, Failure>,
) -> Result<Bytes, Failure> {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        let answers = ask().await?;
        let left = wait.unwrap_or_default().saturating_sub(began.elapsed());
        if left.is_zero() || !may_change(&answers) {
            return Ok(answers);
        }
        // A large batch takes the agent half of the time at most.
        sleep(RETRY.max(asked.elapsed()).min(left)).await;
    }
}

/// Whether asking again may bring another answer to one of the queries:
/// - no pod was found, and one may still come. A process does not change its pod, and what is no identity stays none;
/// - a removed pod was found by an IP or a name, which another pod may get.
fn may_change(answers: &[u8]) -> bool {
    let mut answers =
        answers.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    answers.any(|answer| match answer["foundBy"].as_str() {
        Some(by) => {
            let is_now = answer["removed"].is_string() && answer["at"].is_null();
            is_now && ["ip", "name", "nameOnly"].contains(&by)
        }
        None => answer["found"] == false && answer["kind"].as_str().is_some_and(|kind| kind != "pid"),
    })
}

/// Uses two threads: one reads lines, this one requests the answers and prints them.
async fn of_input(
    server: &Server,
    query: &str,
    time_field: Option<u8>,
    wait: Option<Duration>,
    mut printer: Printer,
) -> Result<bool, Failure> {
    let path = format!("/whois?{query}");
    let (batches, read) = mpsc::channel(1);
    // Never joined: it may be blocked in a read.
    thread::spawn(move || {
        let done = input::batches(io::stdin().lock(), |batch| {
            batches.blocking_send(Ok(input::queries(batch, time_field))).is_ok()
        });
        if let Err(error) = done {
            // Fails if the receiver is gone.
            let _ = batches.blocking_send(Err(Failure::unable("standard input", error)));
        }
    });
    let read = stream::unfold(read, async |mut read| read.recv().await.map(|batch| (batch, read)));
    let asked = read.map(async |batch: Result<Vec<u8>, Failure>| {
        let batch = Bytes::from(batch?);
        complete(wait, async || server.post(&path, batch.clone()).await).await
    });
    let mut asked = std::pin::pin!(asked.buffered(REQUESTS));
    while let Some(answers) = asked.next().await {
        if !printer.print(&answers?)? {
            break;
        }
    }
    Ok(printer.all_found)
}
