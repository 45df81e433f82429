//! Asks the agent, and makes all of its text safe to show: what leaves this file has no control characters.

use std::array;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::api::seen::{Mirrors, Sources};
use crate::api::table::harmless;
use crate::api::types::TABLE_COLUMNS;
use crate::cli::client::{Server, TABLE, escaped};
use crate::cli::follow::{Change, Follower, Key, Target, follow};
use crate::config::failure::Failure;

/// The pause after a round is at least this many times the round's duration, to limit the load on the agent.
const REST: u32 = 4;
/// The shortest pause.
const SHORTEST: Duration = Duration::from_millis(100);
/// The pause between a change of the filter and the question which pod it identifies: more keys may follow.
const TYPING: Duration = Duration::from_millis(200);

/// The cells of a pod, in the order of [`TABLE_COLUMNS`].
pub(super) type Cells = [String; TABLE_COLUMNS.len()];

/// The pods as of the last event.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) pods: BTreeMap<Key, Cells>,
    /// Why they are not followed.
    pub(super) problem: Option<String>,
}

/// What the user wants to know, besides the lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Nothing,
    /// Which pod this text identifies.
    Identity(String),
    /// The pod with this UID.
    Yaml(String),
}

/// What the agent has answered.
pub(super) enum News {
    Round(Result<Round, String>),
    /// The UID of the pod that a text identifies.
    Identified(String, Option<String>),
    /// The pod with a UID.
    Yaml(String, Result<String, String>),
}

/// The responses of one round.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) mirrors: Mirrors,
    pub(super) sources: Sources,
}

/// Keeps the pods current as long as they are shown.
pub(super) async fn follow_pods(server: Server, seen: watch::Sender<Seen>) {
    let (path, query) = ("/pods".to_owned(), Vec::new());
    let target = Target { path, query, headers: TABLE, is_patient: true };
    // It waits for every agent, so this ends with the user.
    let _ = follow(&server, &target, &mut Rows(seen)).await;
}

struct Rows(watch::Sender<Seen>);

impl Follower for Rows {
    type Kept = Cells;

    fn keep(&mut self, table: &Value) -> Option<(Key, String, Cells)> {
        let cells = table.pointer("/rows/0/cells")?.as_array()?;
        let identity = |at: usize| Some(cells.get(at)?.as_str()?.to_owned());
        let (namespace, name, uid) = (identity(0)?, identity(1)?, identity(2)?);
        // Another version of the agent may have fewer columns, or more.
        let text = |at: usize| cells.get(at).and_then(Value::as_str).unwrap_or_default();
        Some(((namespace, name), uid, array::from_fn(|at| harmless(text(at)).into_owned())))
    }

    fn change(&mut self, Change { key, after, .. }: Change<'_, Cells>) {
        self.0.send_if_modified(|seen| {
            match after {
                Some(pod) => seen.pods.insert(key.clone(), pod.kept.clone()),
                None => seen.pods.remove(key),
            };
            false
        });
    }

    fn flush(&mut self) -> Result<bool, Failure> {
        self.0.send_modify(|_| ());
        Ok(!self.0.is_closed())
    }

    fn away(&mut self, problem: Option<&str>) {
        self.0.send_modify(|seen| seen.problem = problem.map(|problem| harmless(problem).into_owned()));
    }
}

/// Asks for everything but the pods, again and again.
pub(super) async fn poll(server: Server, every: Duration, heard: mpsc::Sender<News>) {
    loop {
        let started = Instant::now();
        let answer = server.within(None, round(&server)).await.map_err(|failure| words(&failure));
        if heard.send(News::Round(answer)).await.is_err() {
            return;
        }
        sleep(every.max(SHORTEST).max(started.elapsed() * REST)).await;
    }
}

async fn round(server: &Server) -> Result<Round, Failure> {
    Ok(Round { mirrors: json(server, "/mirrors").await?, sources: json(server, "/sources").await? })
}

/// Answers the last question. The lists have no container IDs, processes or whole pods.
pub(super) async fn answer(server: Server, mut wanted: watch::Receiver<Wanted>, heard: mpsc::Sender<News>) {
    while wanted.changed().await.is_ok() {
        let asked = wanted.borrow_and_update().clone();
        let news = match asked {
            Wanted::Nothing => continue,
            Wanted::Identity(text) => {
                sleep(TYPING).await;
                if wanted.has_changed().unwrap_or(true) {
                    continue;
                }
                let path = format!("/whois?q={}", escaped(&text));
                // Without an answer, only the filter's words count.
                let found: Value = server.within(None, json(&server, &path)).await.unwrap_or_default();
                let uid = ["podUID", "mirrorUID"].into_iter().find_map(|name| found[name].as_str());
                News::Identified(text, uid.map(str::to_owned))
            }
            Wanted::Yaml(uid) => {
                let path = format!("/pods/{}", escaped(&uid));
                let yaml = server.get(&path, &[("accept", "application/yaml")]);
                let yaml = server.within(None, yaml).await.map_err(|failure| words(&failure));
                let lines = |yaml: &str| yaml.lines().map(|line| harmless(line) + "\n").collect();
                News::Yaml(uid, yaml.map(|yaml| lines(&String::from_utf8_lossy(&yaml))))
            }
        };
        if heard.send(news).await.is_err() {
            return;
        }
    }
}

/// The body at `path`, with safe text.
async fn json<T: DeserializeOwned>(server: &Server, path: &str) -> Result<T, Failure> {
    fn clean(value: &mut Value) {
        match value {
            Value::String(text) => *text = harmless(text).into_owned(),
            Value::Array(items) => items.iter_mut().for_each(clean),
            Value::Object(members) => members.values_mut().for_each(clean),
            _ => {}
        }
    }
    let mut answer: Value = server.get_json(path).await?;
    clean(&mut answer);
    serde_json::from_value(answer)
        .map_err(|error| Failure::unable(format_args!("cannot read what {} answers", server.place), error))
}

fn words(failure: &Failure) -> String {
    harmless(failure.message().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_of_other_versions_are_read_and_incomplete_rows_are_not() {
        let mut rows = Rows(watch::channel(Seen::default()).0);
        let mut read = |cells: Value| rows.keep(&json!({ "rows": [{ "cells": cells }] }));
        let (key, uid, cells) = read(json!(["ns", "a\u{1b}b", "u", "api"])).unwrap();
        assert_eq!((key, &*uid), (("ns".to_owned(), "a\u{1b}b".to_owned()), "u"));
        assert_eq!((&*cells[1], &*cells[3], &*cells[14]), ("a\u{fffd}b", "api", ""));
        let many: Vec<_> = (0..20).map(|at| at.to_string()).collect();
        assert_eq!(read(json!(many)).unwrap().2[14], "14");
        assert_eq!(read(json!(["ns", "n", "u", 7, null, { "a": [] }])).unwrap().2[3], "");
        for incomplete in [json!(["ns", "n"]), json!([]), json!(null), json!(["ns", 7, "u"])] {
            assert_eq!(read(incomplete), None);
        }
    }
}
