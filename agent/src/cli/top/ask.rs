//! Asks the agent, and makes all of its text safe to show: what leaves this file has no control characters.

use std::array;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::sources::api_server::ApiServer;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::api::seen::{Mirrors, Sources};
use crate::api::table::harmless;
use crate::api::types::TABLE_COLUMNS;
use crate::cli::client::{Server, escaped};
use crate::cli::follow::{Follower, Key, follow};
use crate::config::failure::Failure;
use crate::pod_api::own_cells;

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
    // It waits for every agent, so this ends with the user.
    let _ = follow(ApiServer::new(server.api(true)), &mut Rows(seen)).await;
}

struct Rows(watch::Sender<Seen>);

impl Follower for Rows {
    type Kept = Cells;

    fn keep(&mut self, pod: &Pod) -> Cells {
        let cells = own_cells(pod);
        array::from_fn(|at| harmless(&cells[at]).into_owned())
    }

    fn change(&mut self, key: &Key, _: Option<&Cells>, after: Option<&Cells>) {
        self.0.send_if_modified(|seen| {
            match after {
                Some(cells) => seen.pods.insert(key.clone(), cells.clone()),
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
        let answer = round(&server).await.map_err(|failure| words(&failure));
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
                let found: Value = json(&server, &path).await.unwrap_or_default();
                let uid = ["podUID", "mirrorUID"].into_iter().find_map(|name| found[name].as_str());
                News::Identified(text, uid.map(str::to_owned))
            }
            Wanted::Yaml(uid) => {
                let path = format!("/pods/{}", escaped(&uid));
                let yaml = server.get(&path, &[("accept", "application/yaml")]).await;
                let yaml = yaml.map_err(|failure| words(&failure));
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
    use super::*;

    #[test]
    fn the_cells_of_a_pod_are_safe_to_show() {
        let mut pod = Pod::default();
        pod.metadata.name = Some("a\u{1b}b".to_owned());
        pod.metadata.labels = Some([("app".to_owned(), "\u{9b}x".to_owned())].into());
        let cells = Rows(watch::channel(Seen::default()).0).keep(&pod);
        assert_eq!((&*cells[1], &*cells[3], &*cells[14]), ("a\u{fffd}b", "api", "app=\u{fffd}x"));
    }
}
