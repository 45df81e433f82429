//! Watches the agent's pods, polls the rest, and sends each round's result to the model.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::seen::{Answer, Cells, Counts, Identified, Table};
use crate::api::seen::Sources;
use crate::cli::client::{Denied, Server, escaped};
use crate::config::failure::Failure;

/// Timeout of a round.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a round is at least this many times the round's duration, to limit the load on the agent.
const REST: u32 = 4;
/// A watch that is silent for this long counts as dead. The agent sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(150);
/// The shortest pause.
const SHORTEST: Duration = Duration::from_millis(100);
/// The pause between a change of the filter and the question which pod it identifies: more keys may follow.
const TYPING: Duration = Duration::from_millis(200);
/// The pods in a form with only the columns shown.
const TABLE: [(&str, &str); 1] = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];

/// The pods as of the last event.
#[derive(Debug, Default)]
struct Pods {
    /// By namespace and name.
    cells: BTreeMap<(String, String), Cells>,
    has_changed: bool,
    /// Their version. `None`: list them again.
    version: Option<String>,
    /// Whether a task follows a watch.
    is_watched: bool,
}

/// Shared with the task that follows the watch.
type Shared = Arc<Mutex<Pods>>;

/// An event of a watch.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// Sends the agent's responses, or its errors, to `heard` until the receiver is gone.
pub(super) async fn follow(server: Server, every: Duration, heard: mpsc::Sender<Result<Answer, String>>) {
    let pods = Shared::default();
    loop {
        let started = Instant::now();
        let answer = match timeout(TIMEOUT, round(&server, &pods)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
        };
        if answer.is_err() {
            // Another agent may answer next.
            lock(&pods).version = None;
        }
        if heard.send(answer).await.is_err() {
            return;
        }
        sleep(every.max(SHORTEST).max(started.elapsed() * REST)).await;
    }
}

/// Asks the agent which pod the filter identifies, after each change of the filter. The lists have no container IDs,
/// addresses or processes. Returns when the receiver of the answers is gone.
pub(super) async fn identify(
    server: Server,
    mut filters: watch::Receiver<String>,
    identified: mpsc::Sender<(String, Identified)>,
) {
    while filters.changed().await.is_ok() {
        sleep(TYPING).await;
        let text = filters.borrow_and_update().clone();
        if text.trim().is_empty() {
            continue;
        }
        let path = format!("/whois?q={}", escaped(&text));
        // Without an answer, only the filter's words count.
        let Ok(Ok(found)) = timeout(TIMEOUT, server.get_json(&path)).await else { continue };
        if identified.send((text, found)).await.is_err() {
            return;
        }
    }
}

/// Makes one round of requests.
async fn round(server: &Server, pods: &Shared) -> Result<Answer, String> {
    let words = |failure: Failure| failure.message().unwrap_or_default().to_owned();
    let sources: Sources = server.get_json("/sources").await.map_err(words)?;
    keep_current(server, pods).await.map_err(words)?;
    let mirrors = server.get_json("/mirrors").await.map_err(words)?;
    let metrics = server.get("/metrics", &[]).await.map_err(words)?;
    let counts = Counts::read(&String::from_utf8_lossy(&metrics));
    let pods = {
        let mut pods = lock(pods);
        mem::take(&mut pods.has_changed).then(|| pods.cells.values().cloned().collect())
    };
    Ok(Answer { pods, mirrors, sources, counts })
}

/// Makes sure that a watch updates the pods.
async fn keep_current(server: &Server, pods: &Shared) -> Result<(), Failure> {
    let (is_watched, version) = {
        let pods = lock(pods);
        (pods.is_watched, pods.version.clone())
    };
    if is_watched {
        return Ok(());
    }
    let version = match version {
        Some(version) => version,
        None => list(server, pods).await?,
    };
    let path = format!("/pods?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
    let body = match server.stream(&path, &TABLE).await {
        Ok(body) => body,
        Err(Denied::Unreachable(failure)) => return Err(failure),
        Err(Denied::Refused(..)) => {
            // There are too many watches. The next round lists.
            lock(pods).version = None;
            return Ok(());
        }
    };
    lock(pods).is_watched = true;
    let pods = Arc::clone(pods);
    tokio::spawn(async move {
        // If the watch is cut, the next round starts another.
        watch(body, &pods).await;
        lock(&pods).is_watched = false;
    });
    Ok(())
}

/// Replaces the pods. Returns their version.
async fn list(server: &Server, pods: &Shared) -> Result<String, Failure> {
    let body = server.get("/pods", &TABLE).await?;
    let table: Table = serde_json::from_slice(&body)
        .map_err(|error| Failure::unable(format_args!("cannot read the pods of {}", server.place), error))?;
    let mut pods = lock(pods);
    pods.version = Some(table.metadata.resource_version.clone());
    pods.cells = table.rows.into_iter().map(|row| (key(&row.cells), row.cells)).collect();
    pods.has_changed = true;
    Ok(table.metadata.resource_version)
}

/// Applies the events of a watch until it ends or is silent.
async fn watch(mut body: impl Body<Data = Bytes> + Unpin, pods: &Shared) {
    let mut text = Vec::new();
    while let Ok(Some(Ok(frame))) = timeout(SILENCE, body.frame()).await {
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { continue };
        let mut pods = lock(pods);
        for line in text[..end].split(|byte| *byte == b'\n') {
            if pods.apply(line).is_none() {
                pods.version = None;
                return;
            }
        }
        drop(pods);
        text.drain(..=end);
    }
}

impl Pods {
    /// Applies an event. `None` if it ends the watch.
    fn apply(&mut self, line: &[u8]) -> Option<()> {
        let Event { kind, object } = serde_json::from_slice(line).ok()?;
        let table = Table::deserialize(object).ok()?;
        self.version = Some(table.metadata.resource_version);
        if kind == "BOOKMARK" {
            return Some(());
        }
        let cells = table.rows.into_iter().next()?.cells;
        if kind == "DELETED" {
            self.cells.remove(&key(&cells));
        } else {
            self.cells.insert(key(&cells), cells);
        }
        self.has_changed = true;
        Some(())
    }
}

fn key(cells: &Cells) -> (String, String) {
    (cells.namespace.clone(), cells.name.clone())
}

fn lock(pods: &Shared) -> MutexGuard<'_, Pods> {
    pods.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use serde_json::json;

    use super::*;

    fn line(kind: &str, version: &str, name: &str, uid: &str) -> Vec<u8> {
        let cells = ["shop", name, uid, "api", "pod", "Running", "node-1"];
        let table = json!({ "metadata": { "resourceVersion": version }, "rows": [{ "cells": cells }] });
        json!({ "type": kind, "object": table }).to_string().into_bytes()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_silent_ends() {
        let event = [line("ADDED", "5", "web", "a"), b"\n".to_vec()].concat();
        let first = Ok::<_, std::io::Error>(event);
        let events = stream::iter([first]).chain(stream::pending());
        let pods = Shared::default();
        watch(axum::body::Body::from_stream(events), &pods).await;
        assert_eq!(lock(&pods).version.as_deref(), Some("5"), "the next watch continues");
    }

    #[test]
    fn events_change_the_pods_and_an_error_ends_the_watch() {
        let mut pods = Pods::default();
        for (event, uids) in [
            (line("ADDED", "5", "web", "a"), &["a"][..]),
            (line("ADDED", "6", "db", "b"), &["b", "a"]),
            (line("MODIFIED", "7", "web", "a"), &["b", "a"]),
            (line("BOOKMARK", "8", "", ""), &["b", "a"]),
            (line("DELETED", "9", "web", "a"), &["b"]),
            (line("ADDED", "10", "web", "c"), &["b", "c"]),
        ] {
            pods.has_changed = false;
            assert_eq!(pods.apply(&event), Some(()));
            assert_eq!(pods.cells.values().map(|cells| &*cells.uid).collect::<Vec<_>>(), uids);
            let is_bookmark = event.windows(8).any(|bytes| bytes == b"BOOKMARK");
            assert_ne!(pods.has_changed, is_bookmark);
        }
        assert_eq!(pods.version.as_deref(), Some("10"));
        let gone = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "metadata": {} } });
        for end in [gone.to_string(), "{".to_owned()] {
            assert_eq!(pods.apply(end.as_bytes()), None);
        }
    }
}
