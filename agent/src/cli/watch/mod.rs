//! `pod-index watch`: the events of a running agent as lines of JSON.
//!
//! ```text
//! pod API ─> events ─> pods (what is known) ─> lines
//!                        └─ fields (what has changed)
//! ```
//! After a broken connection, the watch continues after the last version. If the agent no longer has that version, for
//! example because it was restarted, the pods are listed and compared with those known: no event is lost or printed
//! twice. Changes that undo each other in the meantime are not seen.

mod fields;
mod pods;

use std::time::{Duration, Instant};

use form_urlencoded::Serializer;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use pod_index_kubelet::backoff::Backoff;
use tokio::time::{sleep, timeout};

use self::pods::{Event, Pods};
use super::client::{Denied, Server, escaped};
use super::{Output, format};
use crate::api::table::harmless;
use crate::config::failure::Failure;

/// Shortest and longest pause between attempts.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Timeout of the response's head.
const PATIENCE: Duration = Duration::from_secs(30);
/// A connection that is silent for this long counts as dead. The agent sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(150);
/// The longest event: several times the largest object that an API server stores.
const LONGEST: usize = 16 << 20;

/// The pods to watch.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) namespace: Option<&'a str>,
    pub(crate) selector: Option<&'a str>,
}

/// How a watch ended, if it can continue.
enum End {
    /// The connection broke or the watch reached its time limit: continue after the last version.
    Closed(String),
    /// The agent no longer has the version.
    Expired,
}

/// Why the watch cannot continue.
enum Fatal {
    /// Standard output was closed.
    Unread,
    Failed(Failure),
}

impl From<Failure> for Fatal {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Prints events until the reader of standard output is gone.
pub(crate) fn run(server: &Server, wanted: &Wanted<'_>, output: Output) -> Result<(), Failure> {
    if output == Output::Yaml {
        return Err(Failure::Usage("watch prints lines of JSON: -o json".to_owned()));
    }
    let runtime = super::runtime()?;
    let fatal = runtime.block_on(follow(server, wanted));
    match fatal {
        Fatal::Unread => Ok(()),
        Fatal::Failed(failure) => Err(failure),
    }
}

async fn follow(server: &Server, wanted: &Wanted<'_>) -> Fatal {
    let mut pods = Pods::default();
    let mut backoff = Backoff::new(WAITS.0, WAITS.1);
    let (mut has_answered, mut is_away) = (false, false);
    loop {
        let problem = match begin(server, &path(wanted, pods.version())).await {
            Ok(body) => {
                if is_away {
                    eprintln!("pod-index: the agent on {} answers again", server.place);
                }
                (has_answered, is_away) = (true, false);
                match lines(server, body, &mut pods).await {
                    Ok(End::Expired) => {
                        pods.list_again();
                        None
                    }
                    Ok(End::Closed(why)) => {
                        if pods.version().is_none() {
                            pods.list_again();
                        }
                        Some(why)
                    }
                    Err(fatal) => return fatal,
                }
            }
            // The agent is starting, or has too many watches.
            Err(Denied::Refused(
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS,
                failure,
            )) => Some(failure.message().unwrap_or_default().to_owned()),
            Err(Denied::Unreachable(failure)) if has_answered => {
                Some(failure.message().unwrap_or_default().to_owned())
            }
            Err(Denied::Refused(_, failure) | Denied::Unreachable(failure)) => return failure.into(),
        };
        if let Some(problem) = problem.filter(|problem| !problem.is_empty() && !is_away) {
            is_away = true;
            eprintln!("pod-index: {}; the watch continues when it answers", harmless(&problem));
        }
        sleep(backoff.wait(Instant::now())).await;
    }
}

/// The path and the query of the watch.
fn path(wanted: &Wanted<'_>, version: Option<&str>) -> String {
    let within = wanted.namespace.map(|namespace| format!("/namespaces/{}", escaped(namespace)));
    let mut query = Serializer::new(String::new());
    query.append_pair("watch", "true").append_pair("allowWatchBookmarks", "true");
    match version {
        Some(version) => query.append_pair("resourceVersion", version),
        None => {
            query.append_pair("sendInitialEvents", "true").append_pair("resourceVersionMatch", "NotOlderThan")
        }
    };
    if let Some(selector) = wanted.selector {
        query.append_pair("labelSelector", selector);
    }
    format!("/api/v1{}/pods?{}", within.unwrap_or_default(), query.finish())
}

async fn begin(server: &Server, path: &str) -> Result<Incoming, Denied> {
    let late =
        || Failure::Unable(format!("the agent on {} did not answer within {PATIENCE:?}", server.place));
    timeout(PATIENCE, server.stream(path, &[])).await.unwrap_or_else(|_| Err(Denied::Unreachable(late())))
}

/// Prints the events of one watch.
async fn lines(server: &Server, mut body: Incoming, pods: &mut Pods) -> Result<End, Fatal> {
    let mut buffer = Vec::new();
    loop {
        let frame = match timeout(SILENCE, body.frame()).await {
            Err(_) => return Ok(End::Closed(format!("{} is silent for {SILENCE:?}", server.place))),
            Ok(None) => return Ok(End::Closed(String::new())),
            Ok(Some(Err(error))) => {
                let failure = server.unreachable(&error);
                return Ok(End::Closed(failure.message().unwrap_or_default().to_owned()));
            }
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_else(|_| Bytes::new()),
        };
        buffer.extend_from_slice(&frame);
        let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else {
            if buffer.len() > LONGEST {
                return Err(unreadable(server, &"an event is too long").into());
            }
            continue;
        };
        let rest = buffer.split_off(end + 1);
        for line in buffer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Event = serde_json::from_slice(line).map_err(|error| unreadable(server, &error))?;
            if event.kind == "ERROR" {
                return Ok(ended(&event));
            }
            print(pods, &event)?;
        }
        buffer = rest;
    }
}

fn unreadable(server: &Server, why: &dyn std::fmt::Display) -> Failure {
    Failure::unable(format_args!("cannot read what {} sends", server.place), why)
}

/// The end that an `ERROR` event announces.
fn ended(event: &Event) -> End {
    if event.object["code"] == 410 {
        return End::Expired;
    }
    End::Closed(event.object["message"].as_str().unwrap_or("the agent ended the watch").to_owned())
}

fn print(pods: &mut Pods, event: &Event) -> Result<(), Fatal> {
    let lines = pods.apply(event);
    if lines.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    for line in lines {
        text += &serde_json::to_string(&line).map_err(|error| Failure::unable("JSON", error))?;
        text.push('\n');
    }
    if format::write(text.as_bytes())? { Ok(()) } else { Err(Fatal::Unread) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_begins_with_a_list_or_continues_after_a_version() {
        let all = Wanted { namespace: None, selector: None };
        assert_eq!(
            path(&all, None),
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        );
        let some = Wanted { namespace: Some("a/b"), selector: Some("app in (a,b)") };
        assert_eq!(
            path(&some, Some("17")),
            "/api/v1/namespaces/a%2Fb/pods?watch=true&allowWatchBookmarks=true&resourceVersion=17&labelSelector=app+in+%28a%2Cb%29"
        );
    }
}
