//! A watch as a response body: first the initial objects, if requested, then events.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use futures_util::{StreamExt, stream};
use hyper::body::Bytes;
use serde_json::json;
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::event::Event;
use super::history::{History, Next, Watcher};
use super::list::{parts, selected};
use super::object::Object;
use super::query::Options;
use super::shape::{Form, Kind};
use super::status;
use crate::api::client::Client;
use crate::api::in_turns::in_turns;
use crate::api::refusal::Refusal;

/// Interval between bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// Minimum duration of a watch that sets no timeout. The maximum is twice as long.
pub(crate) const LEAST: Duration = Duration::from_secs(30 * 60);

/// Maximum duration of a watch. Clients ask for five to ten minutes.
pub(crate) const MOST: Duration = Duration::from_secs(2 * 60 * 60);

/// Starts a watch.
pub(super) async fn response_body(
    history: &Arc<History>,
    client: &Client,
    options: Options,
    form: Form,
) -> Result<Body, Refusal> {
    // Without a version, and with 0, initial objects are sent by default.
    let with_initial = options.send_initial_events.unwrap_or(options.version.is_none());
    // A version that does not exist yet is of another run of the agent. The watch sends one ERROR event and ends.
    if with_initial
        && let Some(version) = options.version
        && let Err(refusal) = history.check(version, false)
    {
        return Ok(error(&refusal).into());
    }
    let after = options.version.filter(|_| !with_initial);
    let selection = Arc::new(options.selection);
    let (watcher, state) = history.watch(Arc::clone(&selection), &client.limits, after)?;
    let mut initial = Vec::new();
    if with_initial {
        initial = selected(&client.limits, &state, &selection).await.ok_or_else(status::ending)?;
        // A disconnected client resumes from the last object it saw.
        initial.sort_unstable_by_key(|object| object.version);
    }
    let now = Instant::now();
    client.peer.is_watching.store(true, Ordering::Relaxed);
    let lacks_columns = form.is_table() && initial.is_empty();
    let has_end = with_initial && options.bookmarks;
    let end = if has_end { form.bookmark(history.of, watcher.version, true) } else { Vec::new() };
    let mut with_columns = true;
    let watch_limits = Arc::clone(&history.watch_limits);
    let write = move |object: &Object, part: &mut Vec<u8>| {
        watch_limits.events_sent.fetch_add(1, Ordering::Relaxed);
        let with_columns = mem::take(&mut with_columns);
        part.extend_from_slice(&object.line(form, Kind::Added, object.version, with_columns));
    };
    let initial = in_turns(&client.limits, parts(Vec::new(), initial, write, end));
    let watch = Watch {
        watcher,
        client: client.clone(),
        form,
        bookmarks: options.bookmarks,
        bookmark_at: now + BOOKMARKS,
        ends_at: now + duration(options.timeout),
        lacks_columns,
        is_over: false,
    };
    let events = stream::unfold(watch, async |mut watch| {
        let bytes = watch.next().await?;
        Some((Ok::<_, Infallible>(bytes), watch))
    });
    Ok(Body::from_stream(initial.chain(events)))
}

/// The end of a watch that fails. Like the API server, after status 200. `type` comes first, as in every event.
fn error(refusal: &Refusal) -> Bytes {
    let status = json!(refusal.status());
    format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into()
}

/// The duration of a watch. A negative timeout ends it at once; zero counts as absent; more than [`MOST`] counts as that.
fn duration(seconds: Option<i64>) -> Duration {
    match seconds.unwrap_or_default() {
        0 => LEAST + Duration::from_secs(RandomState::new().hash_one(0) % LEAST.as_secs()),
        seconds => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(MOST),
    }
}

#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct Watch {
    watcher: Watcher,
    /// Its connection is marked as watching until the watch is dropped.
    client: Client,
    form: Form,
    bookmarks: bool,
    bookmark_at: Instant,
    ends_at: Instant,
    /// Whether the next table event must include the columns.
    lacks_columns: bool,
    is_over: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.client.peer.is_watching.store(false, Ordering::Relaxed);
    }
}

impl Watch {
    /// The next bytes. `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.is_over {
            let now = Instant::now();
            if now >= self.ends_at {
                self.is_over = true;
                return self.bookmarks.then(|| self.bookmark());
            }
            match self.watcher.next() {
                Next::Closed => return None,
                Next::TooOld(refusal) => {
                    self.is_over = true;
                    return Some(error(&refusal));
                }
                Next::Event(kind, event) => return Some(self.event(kind, &event).await),
                Next::More => {
                    yield_now().await;
                    continue;
                }
                Next::Nothing => {}
            }
            if self.bookmarks && now >= self.bookmark_at {
                return Some(self.bookmark());
            }
            let timer = if self.bookmarks { self.ends_at.min(self.bookmark_at) } else { self.ends_at };
            let _ = timeout_at(timer, self.watcher.woken()).await;
        }
        None
    }

    async fn event(&mut self, kind: Kind, event: &Event) -> Bytes {
        let history = &self.watcher.history;
        let form = self.form;
        history.watch_limits.events_sent.fetch_add(1, Ordering::Relaxed);
        let with_columns = mem::take(&mut self.lacks_columns);
        if !with_columns && let Some(line) = event.kept_line(form, kind) {
            // A watch that catches up yields now and then.
            consume_budget().await;
            return line;
        }
        let line = if with_columns {
            self.client.limits.in_turn(|| event.encode(form, kind, true)).await
        } else {
            self.client.limits.in_shared_turn(|| history.line(event, form, kind)).await
        };
        line.unwrap_or_default()
    }

    fn bookmark(&mut self) -> Bytes {
        self.bookmark_at = Instant::now() + BOOKMARKS;
        self.form.bookmark(self.watcher.history.of, self.watcher.version, false).into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::api::refusal::Reason;

    /// A client may look for the type at the start of each line, instead of parsing it.
    #[test]
    fn the_type_of_an_error_comes_first_as_in_other_events() {
        let refusal = Refusal::new(Reason::Expired, "a \"quoted\"\nmessage");
        let line = error(&refusal);
        assert!(line.starts_with(br#"{"type":"ERROR","object":{"#), "{line:?}");
        assert_eq!(line.split(|byte| *byte == b'\n').count(), 2, "{line:?}");
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(event, json!({ "type": "ERROR", "object": refusal.status() }));
    }

    #[test]
    fn no_watch_lasts_for_ever() {
        for (asked, expected) in [
            (-1, Duration::ZERO),
            (1, Duration::from_secs(1)),
            (600, Duration::from_secs(600)),
            (31_536_000, MOST),
            (i64::MAX, MOST),
        ] {
            assert_eq!(duration(Some(asked)), expected, "{asked}");
        }
        for asked in [None, Some(0)] {
            assert!((LEAST..2 * LEAST).contains(&duration(asked)), "{asked:?}");
        }
    }
}
