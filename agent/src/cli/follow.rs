//! Follows the agent's pods by a watch, for `top`, `watch` and `list -w`.
//!
//! After a broken connection, the watch continues after the last version. If the agent no longer has that version, for
//! example because it was restarted, the pods are listed and compared with those known: no change is lost or told
//! twice. Changes that undo each other in the meantime are not seen.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::time::{Duration, Instant};

use form_urlencoded::Serializer;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Bytes};
use pod_index_kubelet::backoff::Backoff;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::client::{Headers, Server};
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
/// Kubernetes: `InitialEventsAnnotationKey`.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The pods to follow, and their form.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) path: String,
    /// Selectors.
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: Headers,
    /// Also waits for an agent that has not answered yet, or that refuses.
    pub(crate) is_patient: bool,
}

/// Namespace and name.
pub(crate) type Key = (String, String);

/// What is kept of a pod.
#[derive(Debug)]
pub(crate) struct Pod<T> {
    pub(crate) uid: String,
    pub(crate) kept: T,
}

/// A pod was added (`before` is `None`), changed, or removed (`after` is `None`).
#[derive(Debug)]
pub(crate) struct Change<'a, T> {
    pub(crate) key: &'a Key,
    pub(crate) before: Option<&'a Pod<T>>,
    pub(crate) after: Option<&'a Pod<T>>,
    /// Whether the pod existed before the watch began.
    pub(crate) is_initial: bool,
    /// Whether an event told of it, and not a list after a lost version.
    pub(crate) is_event: bool,
}

/// Is told what happens to pods.
pub(crate) trait Follower {
    /// What is kept of a pod, until its next change.
    type Kept;

    /// The identity of a pod, and what to keep of it. `object` has the form that [`Target`] asks for.
    fn keep(&mut self, object: &Value) -> Option<(Key, String, Self::Kept)>;

    fn change(&mut self, change: Change<'_, Self::Kept>);

    /// No more changes are known for now. `false`: nobody reads them any more.
    fn flush(&mut self) -> Result<bool, Failure>;

    /// The agent does not answer, for this reason, or answers again.
    fn away(&mut self, problem: Option<&str>) {
        match problem {
            Some(problem) => {
                eprintln!("pod-index: {}; the watch continues when it answers", harmless(problem));
            }
            None => eprintln!("pod-index: the agent answers again"),
        }
    }
}

/// Follows the pods until nobody reads the changes any more.
pub(crate) async fn follow<F: Follower>(
    server: &Server,
    target: &Target,
    follower: &mut F,
) -> Result<(), Failure> {
    let mut pods = Pods::default();
    let mut backoff = Backoff::new(WAITS.0, WAITS.1);
    let (mut has_answered, mut is_away) = (false, false);
    loop {
        let path = path(target, pods.version.as_deref());
        let begun = timeout(PATIENCE, server.stream(&path, target.headers)).await.unwrap_or_else(|_| {
            let why = format!("the agent on {} did not answer within {PATIENCE:?}", server.place);
            Err((None, Failure::Unable(why)))
        });
        let ended = match begun {
            Ok(body) => {
                has_answered = true;
                if mem::take(&mut is_away) {
                    follower.away(None);
                }
                read(server, body, &mut pods, follower).await
            }
            // The agent is starting, or has too many watches.
            Err((Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS), failure)) => {
                Ok(closed(&failure))
            }
            Err((None, failure)) if has_answered => Ok(closed(&failure)),
            Err((_, failure)) => Err(failure),
        };
        let problem = match ended {
            Ok(End::Unread) => return Ok(()),
            Ok(End::Expired) => {
                pods.list_again();
                String::new()
            }
            Ok(End::Closed(why)) => why,
            Err(failure) if target.is_patient => {
                pods.list_again();
                failure.message().unwrap_or_default().to_owned()
            }
            Err(failure) => return Err(failure),
        };
        // An incomplete list cannot be continued.
        if pods.version.is_none() {
            pods.list_again();
        }
        if !problem.is_empty() && !mem::replace(&mut is_away, true) {
            follower.away(Some(&problem));
        }
        sleep(backoff.wait(Instant::now())).await;
    }
}

/// How a watch ended.
#[derive(Debug, PartialEq)]
enum End {
    /// The connection broke or the watch reached its time limit: continue after the last version.
    Closed(String),
    /// The agent no longer has the version.
    Expired,
    /// Nobody reads the changes.
    Unread,
}

fn closed(failure: &Failure) -> End {
    End::Closed(failure.message().unwrap_or_default().to_owned())
}

/// The path and the query of the watch.
fn path(target: &Target, version: Option<&str>) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("watch", "true").append_pair("allowWatchBookmarks", "true");
    match version {
        Some(version) => query.append_pair("resourceVersion", version),
        None => {
            query.append_pair("sendInitialEvents", "true").append_pair("resourceVersionMatch", "NotOlderThan")
        }
    };
    query.extend_pairs(&target.query);
    format!("{}?{}", target.path, query.finish())
}

/// An event as the pod API sends it.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// Reads the events of one watch.
async fn read<F: Follower>(
    server: &Server,
    mut body: impl Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
    pods: &mut Pods<F::Kept>,
    follower: &mut F,
) -> Result<End, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::unable(format_args!("cannot read what {} sends", server.place), why)
    };
    let mut buffer = Vec::new();
    loop {
        let frame = match timeout(SILENCE, body.frame()).await {
            Err(_) => return Ok(End::Closed(format!("{} is silent for {SILENCE:?}", server.place))),
            Ok(None) => return Ok(End::Closed(String::new())),
            Ok(Some(Err(error))) => return Ok(closed(&server.unreachable(&error))),
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        };
        buffer.extend_from_slice(&frame);
        let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else {
            if buffer.len() > LONGEST {
                return Err(unreadable(&"an event is too long"));
            }
            continue;
        };
        let rest = buffer.split_off(end + 1);
        for line in buffer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Event = serde_json::from_slice(line).map_err(|error| unreadable(&error))?;
            if event.kind == "ERROR" {
                let is_expired = event.object["code"] == 410;
                let why = event.object["message"].as_str().unwrap_or("the agent ended the watch");
                return Ok(if is_expired { End::Expired } else { End::Closed(why.to_owned()) });
            }
            pods.apply(&event, follower).ok_or_else(|| unreadable(&"an event names no pod"))?;
        }
        if !follower.flush()? {
            return Ok(End::Unread);
        }
        buffer = rest;
    }
}

/// All pods that were told as added and not yet as removed.
struct Pods<T> {
    known: HashMap<Key, Pod<T>>,
    /// The version up to which every event is known. `None`: the pods have to be listed.
    version: Option<String>,
    /// Known pods that the list has not had yet.
    unlisted: HashSet<Key>,
    /// Whether a list was completed.
    is_listed: bool,
}

impl<T> Default for Pods<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), version: None, unlisted: HashSet::new(), is_listed: false }
    }
}

impl<T> Pods<T> {
    /// Makes the next watch begin with a list. Only its differences from the known pods are told.
    fn list_again(&mut self) {
        self.version = None;
        self.unlisted = self.known.keys().cloned().collect();
    }

    /// Applies an event other than `ERROR`. `None` if it has no pod.
    fn apply(&mut self, event: &Event, follower: &mut impl Follower<Kept = T>) -> Option<()> {
        // Of the pod or of the table.
        let metadata = &event.object["metadata"];
        let version = metadata["resourceVersion"].as_str().unwrap_or_default().to_owned();
        if event.kind == "BOOKMARK" {
            let of_the_row = &event.object["rows"][0]["object"]["metadata"];
            let is_end = |metadata: &Value| metadata["annotations"][INITIAL_EVENTS_END] == "true";
            if is_end(metadata) || is_end(of_the_row) {
                self.listed(follower);
                self.version = Some(version);
                return Some(());
            }
        } else {
            let (key, uid, kept) = follower.keep(&event.object)?;
            let is_there = event.kind != "DELETED";
            self.set(key, is_there.then_some(Pod { uid, kept }), follower);
        }
        // An incomplete list has no version to continue from: removed pods would not be noticed.
        if self.version.is_some() {
            self.version = Some(version);
        }
        Some(())
    }

    /// Replaces what is known of a pod, and tells of it.
    fn set(&mut self, key: Key, after: Option<Pod<T>>, follower: &mut impl Follower<Kept = T>) {
        self.unlisted.remove(&key);
        let before = self.known.remove(&key);
        let (is_first, is_event) = (!self.is_listed, self.version.is_some());
        let mut tell = |before: Option<&Pod<T>>, after| {
            let is_initial = is_first && before.is_none();
            follower.change(Change { key: &key, before, after, is_initial, is_event });
        };
        match (&before, &after) {
            (None, None) => {}
            (Some(old), Some(new)) if old.uid != new.uid => {
                tell(Some(old), None);
                tell(None, Some(new));
            }
            (before, after) => tell(before.as_ref(), after.as_ref()),
        }
        if let Some(after) = after {
            self.known.insert(key, after);
        }
    }

    /// The list is complete: pods that it does not contain were removed.
    fn listed(&mut self, follower: &mut impl Follower<Kept = T>) {
        self.is_listed = true;
        let mut gone: Vec<_> = mem::take(&mut self.unlisted).into_iter().collect();
        gone.sort_unstable();
        for key in gone {
            self.set(key, None, follower);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use serde_json::json;

    use super::*;

    /// Keeps phases, and the changes in words.
    #[derive(Default)]
    struct Told(Vec<String>);

    impl Follower for Told {
        type Kept = String;

        fn keep(&mut self, object: &Value) -> Option<(Key, String, String)> {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let metadata = &object["metadata"];
            let key = (text(&metadata["namespace"])?, text(&metadata["name"])?);
            Some((key, text(&metadata["uid"])?, text(&object["phase"])?))
        }

        fn change(&mut self, change: Change<'_, String>) {
            let Change { key: (_, name), before, after, is_initial, is_event } = change;
            let words = match (before, after) {
                (None, Some(pod)) => format!("added {name} {}", pod.uid),
                (Some(pod), None) => format!("removed {name} {}", pod.uid),
                (before, after) => {
                    format!("changed {name} {:?}", before.map(|pod| &pod.kept) != after.map(|pod| &pod.kept))
                }
            };
            let [initial, event] = [is_initial.then_some(" initial"), is_event.then_some(" event")];
            self.0.push(words + initial.unwrap_or_default() + event.unwrap_or_default());
        }

        fn flush(&mut self) -> Result<bool, Failure> {
            Ok(true)
        }
    }

    fn event(kind: &str, name: &str, uid: &str, phase: &str, version: &str) -> Event {
        let metadata = json!({ "namespace": "a", "name": name, "uid": uid, "resourceVersion": version });
        Event { kind: kind.to_owned(), object: json!({ "metadata": metadata, "phase": phase }) }
    }

    fn end(version: &str) -> Event {
        let metadata = json!({ "resourceVersion": version, "annotations": { INITIAL_EVENTS_END: "true" } });
        Event { kind: "BOOKMARK".to_owned(), object: json!({ "metadata": metadata }) }
    }

    fn apply(pods: &mut Pods<String>, events: &[Event]) -> Vec<String> {
        let mut told = Told::default();
        for event in events {
            pods.apply(event, &mut told).unwrap();
        }
        told.0
    }

    #[test]
    fn after_a_lost_version_only_differences_are_told() {
        let mut pods = Pods::default();
        let first = [
            event("ADDED", "stays", "1", "Running", "5"),
            event("ADDED", "changes", "2", "Pending", "6"),
            event("ADDED", "goes", "3", "Running", "7"),
            event("ADDED", "replaced", "4", "Running", "8"),
        ];
        let told = apply(&mut pods, &first);
        assert_eq!(
            told,
            ["stays 1", "changes 2", "goes 3", "replaced 4"].map(|pod| format!("added {pod} initial"))
        );
        assert_eq!(pods.version, None, "an unfinished list cannot be continued");
        assert_eq!(apply(&mut pods, &[end("9")]), [""; 0]);
        assert_eq!(pods.version.as_deref(), Some("9"));
        let change = event("MODIFIED", "changes", "2", "Running", "10");
        assert_eq!(apply(&mut pods, &[change]), ["changed changes true event"]);
        assert_eq!(pods.version.as_deref(), Some("10"));

        pods.list_again();
        let again = [
            event("ADDED", "stays", "1", "Running", "105"),
            event("ADDED", "changes", "2", "Failed", "106"),
            event("ADDED", "replaced", "9", "Running", "107"),
            event("ADDED", "comes", "5", "Running", "108"),
        ];
        // The connection breaks in the middle of the list.
        assert_eq!(apply(&mut pods, &again[..2]), ["changed stays false", "changed changes true"]);
        pods.list_again();
        let told = apply(&mut pods, &again);
        assert_eq!(told[..2], ["changed stays false", "changed changes false"]);
        assert_eq!(told[2..], ["removed replaced 4", "added replaced 9", "added comes 5"]);
        assert_eq!(apply(&mut pods, &[end("109")]), ["removed goes 3"]);
        let gone = event("DELETED", "stays", "1", "Running", "110");
        assert_eq!(apply(&mut pods, std::slice::from_ref(&gone)), ["removed stays 1 event"]);
        assert_eq!(apply(&mut pods, &[gone]), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_silent_ends() {
        let server = Server::plain("127.0.0.1:1".parse().unwrap()).unwrap();
        let line = |kind: &str, object: Value| json!({ "type": kind, "object": object }).to_string() + "\n";
        let events = line("BOOKMARK", end("5").object);
        let silent = stream::iter([Ok::<_, std::io::Error>(events)]).chain(stream::pending());
        let (mut pods, mut told) = (Pods::default(), Told::default());
        let ended = read(&server, axum::body::Body::from_stream(silent), &mut pods, &mut told).await.unwrap();
        assert!(matches!(ended, End::Closed(why) if why.contains("is silent for 150s")));
        assert_eq!(pods.version.as_deref(), Some("5"), "the next watch continues");
        let expired = line("ERROR", json!({ "kind": "Status", "code": 410 }));
        let ended = read(&server, axum::body::Body::from(expired), &mut pods, &mut told).await.unwrap();
        assert_eq!(ended, End::Expired);
        for unreadable in ["{\n".to_owned(), line("ADDED", json!({}))] {
            assert!(read(&server, axum::body::Body::from(unreadable), &mut pods, &mut told).await.is_err());
        }
    }

    #[test]
    fn a_watch_begins_with_a_list_or_continues_after_a_version() {
        let target =
            |path: &str, query| Target { path: path.to_owned(), query, headers: &[], is_patient: false };
        assert_eq!(
            path(&target("/pods", Vec::new()), None),
            "/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        );
        let query = vec![("labelSelector", "app in (a,b)".to_owned())];
        assert_eq!(
            path(&target("/pods", query), Some("17")),
            "/pods?watch=true&allowWatchBookmarks=true&resourceVersion=17&labelSelector=app+in+%28a%2Cb%29"
        );
    }
}
