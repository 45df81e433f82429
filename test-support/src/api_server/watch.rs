//! Watches: changes since a version, as they happen.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Response, header};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

use super::answer::{Body, Cut, Refusal, render, streamed};
use super::fault::Fault;
use super::request::Request;
use super::selector::Selector;
use super::store::{Change, Key, Object};
use super::{ProgressNotices, Shared, State, list};

/// A server ends a watch after 30 to 60 minutes if the client does not set a limit.
const LONGEST: Duration = Duration::from_secs(45 * 60);

/// How long before that a server sends a last bookmark.
const FAREWELL: Duration = Duration::from_secs(2);

/// One open watch.
struct Watch {
    shared: Arc<Shared>,
    request: Request,
    fault: Fault,
    /// It began with the changes after this version.
    since: u64,
    /// Every change up to this version has been sent.
    seen: u64,
    /// Number of complete events sent.
    sent: usize,
    reversals: u64,
    bookmarks: u64,
    expiries: u64,
    closures: u64,
}

/// What a watch sends at once, and whether it continues.
struct Batch {
    events: Vec<Bytes>,
    ends: bool,
}

impl Watch {
    fn new(shared: &Arc<Shared>, state: &State, request: Request, fault: Fault, since: u64) -> Self {
        Self {
            shared: Arc::clone(shared),
            request,
            fault,
            since,
            seen: since,
            sent: 0,
            reversals: state.reversals,
            bookmarks: state.bookmarks,
            expiries: state.expiries,
            closures: state.closures,
        }
    }

    /// New changes since the last call.
    fn news(&mut self, state: &State) -> Batch {
        let mut batch = Batch { events: Vec::new(), ends: false };
        if state.expiries > self.expiries {
            let gone = Refusal::gone(state.gone, self.seen, state.store.compacted);
            return Batch { events: vec![error_event(&gone)], ends: true };
        }
        if self.seen < state.store.forgotten && state.store.forgotten <= state.store.version {
            let gone = Refusal::gone(state.gone, self.seen, state.store.forgotten);
            return Batch { events: vec![error_event(&gone)], ends: true };
        }
        batch.ends = state.closures > self.closures;
        // Silent until a future version is reached.
        if state.held || state.store.version < self.seen {
            return batch;
        }
        let history = &state.store.history;
        let from = history.partition_point(|change| change.version <= self.seen);
        batch.events.extend(history[from..].iter().filter_map(|change| self.event(change)));
        if state.reversals > self.reversals {
            self.reversals = state.reversals;
            batch.events.reverse();
        }
        self.seen = self.seen.max(state.store.version);
        if state.bookmarks > self.bookmarks {
            self.bookmarks = state.bookmarks;
            batch.events.extend(self.bookmark(self.seen));
        }
        batch
    }

    /// A bookmark of this version, if bookmarks were requested.
    fn bookmark(&self, version: u64) -> Option<Bytes> {
        let wanted = self.request.asks_for("allowWatchBookmarks");
        wanted.then(|| bookmark(&self.request, version, false))
    }

    /// The change as this watch sees it: an object that starts to match is added, one that stops matching is
    /// deleted.
    fn event(&self, change: &Change) -> Option<Bytes> {
        let matched = |object: &Option<Arc<Object>>| {
            object.as_ref().is_some_and(|object| self.request.selector.matches(object))
        };
        let kind = match (matched(&change.old), matched(&change.new)) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        // An object that left the selection is reported as it last matched, with the version in which it
        // left.
        let object = match (&change.old, &change.new) {
            (Some(old), Some(_)) if kind == "DELETED" => {
                &Arc::new(Object::new(old.key.clone(), change.version, old.value.clone()))
            }
            _ => &change.last,
        };
        Some(object_event(kind, &render(object, self.request.metadata_only)))
    }

    /// The bookmark that is due. None while waiting for a future version or while events are held, and none of a version that the
    /// watch has begun with: without progress notices, the server's cache of a kind has the version of the kind's last change.
    fn timed_bookmark(&self) -> Option<Bytes> {
        let state = self.shared.lock();
        let told_all = state.store.version >= self.seen && !state.held;
        if !told_all {
            return None;
        }
        if state.progress_notices == ProgressNotices::Frequent {
            return self.bookmark(self.seen);
        }
        let changed = state.store.changed(&self.request.selector.resource);
        if changed > self.since { self.bookmark(changed) } else { None }
    }

    /// Sends the batch as far as the fault allows. `false`: the watch ends.
    async fn send(&mut self, batch: Batch, body: &Sender) -> bool {
        for event in batch.events {
            match self.fault {
                Fault::CutInEvent(after) if self.sent >= after => {
                    let half = event.slice(..event.len() / 2);
                    let cut = Cut::other("planted: the connection is cut in an event");
                    if body.send(Ok(half)).await.is_ok() {
                        let _ = body.send(Err(cut)).await;
                    }
                    return false;
                }
                Fault::End(after) if self.sent >= after => return true,
                Fault::Slow(pause) if self.sent > 0 => time::sleep(pause).await,
                _ => {}
            }
            if body.send(Ok(event)).await.is_err() {
                return false;
            }
            self.sent += 1;
        }
        true
    }

    fn is_over(&self, batch_ends: bool) -> bool {
        batch_ends || matches!(self.fault, Fault::End(after) if self.sent >= after)
    }

    async fn run(mut self, first: Batch, body: Sender) {
        let _open = OpenWatch::new(&self.shared, &self.request.selector);
        let mut news = self.shared.changed.subscribe();
        let every = self.shared.lock().bookmark_period;
        let mut bookmarks = time::interval_at(Instant::now() + every, every);
        let seconds = self.request.query("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
        let end =
            Instant::now() + seconds.filter(|seconds| *seconds > 0).map_or(LONGEST, Duration::from_secs);
        // A shorter watch ends without a bookmark, as on a real server.
        let mut farewell = end.checked_sub(FAREWELL).filter(|time| *time > Instant::now());
        let mut batch = first;
        loop {
            let ends = batch.ends;
            if !self.send(batch, &body).await {
                return;
            }
            if self.is_over(ends) {
                return;
            }
            news.borrow_and_update();
            let shared = Arc::clone(&self.shared);
            batch = self.news(&shared.lock());
            if !batch.events.is_empty() || batch.ends {
                continue;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = body.closed() => return,
                _ = bookmarks.tick() => batch.events.extend(self.timed_bookmark()),
                () = time::sleep_until(farewell.unwrap_or(end)), if farewell.is_some() => {
                    farewell = None;
                    batch.events.extend(self.timed_bookmark());
                }
                () = time::sleep_until(end) => batch.ends = true,
            }
        }
    }
}

type Sender = mpsc::Sender<Result<Bytes, Cut>>;

/// Opens a watch, or returns the HTTP error.
pub(super) fn watch(
    shared: &Arc<Shared>,
    state: &State,
    request: Request,
    fault: Fault,
) -> Result<Response<Body>, Refusal> {
    let asked = request.version("resourceVersion")?;
    let from = asked.unwrap_or(0);
    let given = |name| request.query(name).filter(|text| !text.is_empty());
    let initial = match (given("sendInitialEvents"), given("resourceVersionMatch")) {
        (None, None) => from == 0,
        (Some(wanted), Some("NotOlderThan")) => wanted == "true",
        (initial, matching) => {
            let forbidden = |why: &str| format!("resourceVersionMatch: Forbidden: {why}");
            let mut wrong = Vec::new();
            if initial.is_none() {
                wrong.push(forbidden(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            } else if matching.is_none() {
                wrong.push(forbidden(
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            if let Some(other) = matching.filter(|matching| *matching != "NotOlderThan") {
                wrong.push(format!(
                    r#"resourceVersionMatch: Unsupported value: "{other}": supported values: "NotOlderThan""#
                ));
            }
            list::invalid_options(&wrong)?;
            from == 0
        }
    };
    let mut first = Batch { events: Vec::new(), ends: false };
    let mut since = from;
    if let Fault::ErrorEvent(code) = fault {
        first = Batch { events: vec![error_event(&state.planted(code))], ends: true };
    } else if initial {
        // The current state, then later changes.
        match list::not_older_than(state, asked) {
            Ok((version, objects)) => {
                since = version;
                let matching = objects.values().filter(|object| request.selector.matches(object));
                let rendered =
                    matching.map(|object| object_event("ADDED", &render(object, request.metadata_only)));
                first.events.extend(rendered);
                if request.asks_for("sendInitialEvents") && request.asks_for("allowWatchBookmarks") {
                    first.events.push(bookmark(&request, since, true));
                }
            }
            Err(refusal) => first = Batch { events: vec![error_event(&refusal)], ends: true },
        }
    } else if from < state.store.compacted {
        let gone = Refusal::gone(state.gone, from, state.store.compacted);
        if state.gone_as_status {
            return Err(gone);
        }
        first = Batch { events: vec![error_event(&gone)], ends: true };
    }
    let (sender, body) = mpsc::channel(16);
    let watch = Watch::new(shared, state, request, fault, since);
    tokio::spawn(watch.run(first, sender));
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    Ok(response.body(streamed(body)).unwrap())
}

fn object_event(kind: &str, object: &Bytes) -> Bytes {
    let mut event = format!(r#"{{"type":"{kind}","object":"#).into_bytes();
    event.extend_from_slice(object);
    event.extend_from_slice(b"}\n");
    event.into()
}

fn error_event(refusal: &Refusal) -> Bytes {
    object_event("ERROR", &refusal.status().to_string().into())
}

fn bookmark(request: &Request, version: u64, ends_initial_events: bool) -> Bytes {
    let (kind, api_version) = match request.selector.resource.as_str() {
        _ if request.metadata_only => ("PartialObjectMetadata", "meta.k8s.io/v1"),
        "namespaces" => ("Namespace", "v1"),
        "nodes" => ("Node", "v1"),
        "secrets" => ("Secret", "v1"),
        "configmaps" => ("ConfigMap", "v1"),
        _ => ("Pod", "v1"),
    };
    let mut metadata = json!({ "resourceVersion": version.to_string(), "creationTimestamp": null });
    if ends_initial_events {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    let object = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
    object_event("BOOKMARK", &object.to_string().into())
}

/// Counts an open watch while it exists.
struct OpenWatch {
    shared: Arc<Shared>,
    key: Key,
}

impl OpenWatch {
    fn new(shared: &Arc<Shared>, selector: &Selector) -> Self {
        let key = selector.key();
        let mut state = shared.lock();
        state.open_watches += 1;
        *state.open_by_object.entry(key.clone()).or_default() += 1;
        *state.begun_by_object.entry(key.clone()).or_default() += 1;
        drop(state);
        shared.announce();
        Self { shared: Arc::clone(shared), key }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.open_watches -= 1;
        let open = state.open_by_object.get_mut(&self.key).unwrap();
        *open -= 1;
        if *open == 0 {
            state.open_by_object.remove(&self.key);
        }
        drop(state);
        self.shared.announce();
    }
}
