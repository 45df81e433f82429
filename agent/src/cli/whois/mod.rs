//! `pod-index whois`: queries from the command line or from standard input.

mod input;
mod printer;

use std::time::{Duration, Instant};
use std::{io, thread};

use futures_util::{StreamExt, stream};
use hyper::body::Bytes;
use tokio::sync::mpsc;

use self::printer::Printer;
use crate::cli::client::Server;
use crate::cli::{Output, WhoisArgs};
use crate::config::duration::GoDuration;
use crate::config::failure::Failure;
use crate::whois::{limits, query};

/// The fields that the agent sends with `details=true`.
const DETAILS: [&str; 4] = ["podIP", "phase", "image", "annotations"];
/// Maximum length of the queries in one URL. The agent accepts request heads of up to 16 KiB.
const URL: usize = 12 * 1024;
/// Concurrent requests: the agent answers one while the next request and the last response are in transit.
const REQUESTS: usize = 3;

/// Looks up all queries. Fails if a pod was not found.
pub(crate) fn ask(server: &Server, asked: &WhoisArgs, output: Output) -> Result<(), Failure> {
    let wait = asked.wait.map(|GoDuration(wait)| wait);
    if wait.is_some_and(|wait| wait > limits::WAIT) {
        return Err(Failure::Usage(format!("--wait: at most {} s", limits::WAIT.as_secs())));
    }
    if let Some(at) = &asked.at {
        query::time(at).map_err(|error| Failure::Usage(format!("--{error}")))?;
    }
    let is_input = matches!(&asked.anything[..], [] | [_]) && asked.anything.iter().all(|only| only == "-");
    if asked.time_field.is_some() && !is_input {
        return Err(Failure::Usage("--time-field is for lines of standard input".to_owned()));
    }
    // What every request has in its URL, besides the queries and the wait.
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
    let all_found = match asked.anything.as_slice() {
        _ if is_input => runtime.block_on(of_input(server, &query, asked.time_field, wait, printer)),
        queries => runtime.block_on(of_arguments(server, queries, &query, wait, printer)),
    };
    // Each error has been printed.
    if all_found? { Ok(()) } else { Err(Failure::No(None)) }
}

async fn of_arguments(
    server: &Server,
    queries: &[String],
    query: &str,
    wait: Option<Duration>,
    mut printer: Printer,
) -> Result<bool, Failure> {
    let deadline = wait.map(|wait| Instant::now() + wait);
    let mut answers = Vec::new();
    for group in urls(queries)? {
        let wait = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let path = format!("/whois?{group}&{query}{}", wait_parameter(wait));
        let answer = server.within(wait, server.get(&path, &[])).await?;
        answers.extend_from_slice(&answer);
    }
    printer.print(&answers)?;
    Ok(printer.all_found)
}

fn wait_parameter(wait: Option<Duration>) -> String {
    wait.map(|wait| format!("&wait={}ms", wait.as_millis())).unwrap_or_default()
}

/// The queries, in as few URLs as possible.
fn urls(queries: &[String]) -> Result<Vec<String>, Failure> {
    let mut urls: Vec<(String, usize)> = Vec::new();
    for query in queries {
        let pair = form_urlencoded::Serializer::new(String::new()).append_pair("q", query).finish();
        if pair.len() > URL {
            let start: String = query.chars().take(40).collect();
            let message = format!("{start:?}…: too long for an argument; give it on standard input");
            return Err(Failure::Usage(message));
        }
        match urls.last_mut() {
            Some((url, queries)) if url.len() + pair.len() < URL && *queries < limits::QUERIES => {
                *url += "&";
                *url += &pair;
                *queries += 1;
            }
            _ => urls.push((pair, 1)),
        }
    }
    Ok(urls.into_iter().map(|(url, _)| url).collect())
}

/// Uses three threads: one reads lines, this one requests the answers, one prints them.
async fn of_input(
    server: &Server,
    query: &str,
    time_field: Option<u8>,
    wait: Option<Duration>,
    mut printer: Printer,
) -> Result<bool, Failure> {
    let path = format!("/whois?{query}{}", wait_parameter(wait));
    let lines = if wait.is_some() { limits::QUERIES } else { usize::MAX };
    let (batches, read) = mpsc::channel(1);
    // Never joined: it may be blocked in a read.
    thread::spawn(move || {
        let done = input::batches(io::stdin().lock(), lines, |batch| {
            batches.blocking_send(Ok(input::queries(batch, time_field))).is_ok()
        });
        if let Err(error) = done {
            // Fails if the receiver is gone.
            let _ = batches.blocking_send(Err(Failure::unable("standard input", error)));
        }
    });
    let (answers, mut answered) = mpsc::channel::<Bytes>(1);
    let printing = thread::spawn(move || {
        while let Some(answers) = answered.blocking_recv() {
            if !printer.print(&answers)? {
                break;
            }
        }
        Ok(printer.all_found)
    });

    let read = stream::unfold(read, async |mut read| read.recv().await.map(|batch| (batch, read)));
    let asked = read.map(async |batch: Result<Vec<u8>, Failure>| {
        server.within(wait, server.post(&path, batch?.into())).await
    });
    let mut asked = std::pin::pin!(asked.buffered(REQUESTS));
    let mut failed = None;
    while let Some(answer) = asked.next().await {
        match answer {
            // Fails if the output was closed.
            Ok(answer) => {
                if answers.send(answer).await.is_err() {
                    break;
                }
            }
            Err(failure) => {
                failed = Some(failure);
                break;
            }
        }
    }
    drop(answers);
    let outcome =
        printing.join().unwrap_or_else(|_| Err(Failure::Unable("the output thread has failed".to_owned())));
    failed.map_or(outcome, Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_share_urls_of_bounded_length_and_number() {
        let queries = |count: usize, text: &str| vec![text.to_owned(); count];
        assert_eq!(urls(&queries(2, "a/b c&d")).unwrap(), ["q=a%2Fb+c%26d&q=a%2Fb+c%26d"]);
        for (count, text, expected) in [(100, "x", 1), (101, "x", 2), (4, &*"x".repeat(URL / 2), 4)] {
            let urls = urls(&queries(count, text)).unwrap();
            assert_eq!(urls.len(), expected, "{count}");
            assert!(urls.iter().all(|url| url.len() <= URL));
            assert_eq!(urls.join("&").split('&').count(), count, "none is lost");
        }
        assert!(matches!(urls(&queries(1, &"/".repeat(URL))), Err(Failure::Usage(_))));
    }
}
