//! Asks the agent, and makes all of its text safe to show: what leaves this file has no control characters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::sources::api_server::ApiServer;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::list::{COLUMNS, Row};
use crate::api::seen::Sources;
use crate::api::table::harmless;
use crate::cli::client::{Server, escaped};
use crate::cli::follow::{Follower, Key, follow};
use crate::config::failure::Failure;
use crate::pod_api::own_cells;

/// The shortest pause between two requests for the sources.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause is at least this many times the duration of the last request, to limit the load on the agent.
const REST: u32 = 4;

/// The pods as of the last event.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) pods: BTreeMap<Key, Row>,
    /// Why they are not followed.
    pub(super) problem: Option<String>,
}

/// What the agent has answered.
pub(super) enum News {
    Sources(Result<Sources, String>),
    /// The pod with a UID.
    Yaml(String, Result<String, String>),
}

/// Keeps the pods current as long as they are shown.
pub(super) async fn follow_pods(server: Server, seen: watch::Sender<Seen>) {
    // It waits for every agent, so this ends with the user.
    let _ = follow(ApiServer::new(server.api(true)), &mut Rows(seen)).await;
}

struct Rows(watch::Sender<Seen>);

impl Follower for Rows {
    type Kept = Row;

    fn keep(&mut self, pod: &Pod) -> Row {
        let cells = own_cells(pod);
        COLUMNS.map(|column| harmless(&cells[column.cell]).into_owned())
    }

    fn change(&mut self, key: &Key, _: Option<&Row>, after: Option<&Row>) {
        self.0.send_if_modified(|seen| {
            match after {
                Some(row) => seen.pods.insert(key.clone(), row.clone()),
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

/// Asks for the sources, again and again.
pub(super) async fn poll(server: Server, heard: mpsc::Sender<News>) {
    loop {
        let started = Instant::now();
        let answer = json(&server, "/sources").await.map_err(|failure| words(&failure));
        if heard.send(News::Sources(answer)).await.is_err() {
            return;
        }
        sleep(PAUSE.max(started.elapsed() * REST)).await;
    }
}

/// Asks for the pod with the UID that is wanted.
pub(super) async fn read(
    server: Server,
    mut wanted: watch::Receiver<Option<String>>,
    heard: mpsc::Sender<News>,
) {
    while wanted.changed().await.is_ok() {
        let Some(uid) = wanted.borrow_and_update().clone() else { continue };
        let path = format!("/pods/{}", escaped(&uid));
        let yaml = server.get(&path, &[("accept", "application/yaml")]).await;
        let lines = |yaml: &str| yaml.lines().map(|line| harmless(line) + "\n").collect();
        let yaml = yaml.map(|yaml| lines(&String::from_utf8_lossy(&yaml)));
        if heard.send(News::Yaml(uid, yaml.map_err(|failure| words(&failure)))).await.is_err() {
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
        assert_eq!((&*cells[1], &*cells[9], &*cells[13]), ("a\u{fffd}b", "api", "app=\u{fffd}x"));
    }
}
