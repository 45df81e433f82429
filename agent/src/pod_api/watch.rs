//! A watch as a response body: first the initial pods, if requested, then events.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use futures_util::stream;
use hyper::body::Bytes;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::encodings;
use super::history::{Begun, History, Next, Start, Watcher, range};
use super::object::Object;
use super::query::{Options, Version};
use super::shape::{Form, Kind};
use super::status::Refusal;
use super::{Client, Peer};

/// Interval between bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// Minimum duration of a watch that sets no timeout. The maximum is twice as long.
const LEAST: Duration = Duration::from_secs(30 * 60);
/// Bytes of initial pods to write before yielding.
const CHUNK: usize = 32 * 1024;

/// Starts a watch.
pub(super) fn body(
    history: &Arc<History>,
    client: &Client,
    options: Options,
    form: Form,
) -> Result<Body, Refusal> {
    // Without a version, and with 0, initial pods are sent by default.
    let with_initial =
        options.send_initial_events.unwrap_or(matches!(options.version, Version::Latest | Version::Any));
    let start = match options.version {
        Version::At(version) if with_initial => match history.check(version) {
            Ok(()) => Start::Now,
            Err(refusal) => return Ok(refused(&refusal)),
        },
        Version::At(version) => Start::After(version),
        Version::Latest | Version::Any => Start::Now,
    };
    let selection = options.selection.clone();
    let Begun { watcher, state, version } = match history.watch(options.selection, &client.name, start)? {
        Ok(begun) => begun,
        Err(refusal) => return Ok(refused(&refusal)),
    };
    let initial = with_initial.then(|| {
        let objects = range(&state, selection.namespace.as_deref(), None).map(|(_, object)| object);
        let mut objects: Vec<_> = objects.filter(|object| selection.matches(&object.pod)).cloned().collect();
        // A disconnected client resumes from the last object it saw, so initial pods are sorted by version.
        objects.sort_unstable_by_key(|object| object.version);
        objects.into_iter()
    });
    let now = Instant::now();
    client.peer.is_watching.store(true, Ordering::Relaxed);
    let watch = Watch {
        watcher,
        history: Arc::clone(history),
        peer: Watching(Arc::clone(&client.peer)),
        form,
        initial,
        says_end: options.bookmarks,
        version,
        bookmarks: options.bookmarks,
        bookmark_at: now + BOOKMARKS,
        ends_at: now + duration(options.timeout),
        lacks_columns: matches!(form, Form::Table(_) | Form::Rows),
        is_over: false,
    };
    Ok(Body::from_stream(stream::unfold(watch, async |mut watch| {
        let bytes = watch.next().await?;
        Some((Ok::<_, Infallible>(bytes), watch))
    })))
}

/// A watch that fails. Like the API server, sends the error as an event after status 200.
fn refused(refusal: &Refusal) -> Body {
    Body::from_stream(stream::iter([Ok::<_, Infallible>(error(refusal))]))
}

fn error(refusal: &Refusal) -> Bytes {
    format!("{}\n", json!({ "type": "ERROR", "object": refusal.status() })).into()
}

/// The duration of a watch. A negative timeout ends it at once; zero counts as absent.
fn duration(seconds: Option<i64>) -> Duration {
    match seconds.unwrap_or_default() {
        0 => LEAST + Duration::from_secs(RandomState::new().hash_one(0) % LEAST.as_secs()),
        // Limited to a year, so that adding it to the current time cannot overflow.
        seconds => Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(365 * 86_400)),
    }
}

/// Marks a connection as watching until dropped.
struct Watching(Arc<Peer>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.is_watching.store(false, Ordering::Relaxed);
    }
}

#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct Watch {
    watcher: Watcher,
    history: Arc<History>,
    #[expect(dead_code, reason = "what matters is that it is dropped")]
    peer: Watching,
    form: Form,
    /// The initial pods left to send.
    initial: Option<std::vec::IntoIter<Arc<Object>>>,
    /// Whether a bookmark ends the initial pods.
    says_end: bool,
    /// The history version reached.
    version: u64,
    bookmarks: bool,
    bookmark_at: Instant,
    ends_at: Instant,
    /// Whether the next table event must include the columns.
    lacks_columns: bool,
    is_over: bool,
}

impl Watch {
    /// The next bytes. `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.initial.is_some() {
            tokio::task::yield_now().await;
            if let Some(bytes) = self.initial() {
                return Some(bytes);
            }
        }
        loop {
            if self.is_over {
                return None;
            }
            let now = Instant::now();
            let is_late = now >= self.ends_at;
            match self.watcher.next() {
                Next::Closed => return None,
                Next::TooOld(refusal) => {
                    self.is_over = true;
                    return Some(error(&refusal));
                }
                // The client resumes before this event.
                Next::Event(..) if is_late => {}
                Next::Event(kind, object, version) => {
                    self.version = version;
                    return Some(self.event(kind, &object));
                }
                Next::Nothing(version) => self.version = version,
            }
            if is_late {
                self.is_over = true;
                return self.bookmarks.then(|| self.bookmark(false));
            }
            if self.bookmarks && now >= self.bookmark_at {
                return Some(self.bookmark(false));
            }
            let timer = if self.bookmarks { self.ends_at.min(self.bookmark_at) } else { self.ends_at };
            tokio::select! {
                () = self.watcher.woken() => {}
                () = sleep_until(timer) => {}
            }
        }
    }

    /// A part of the initial pods, or the bookmark that ends them.
    fn initial(&mut self) -> Option<Bytes> {
        let mut objects = self.initial.take()?;
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK {
            let Some(object) = objects.next() else {
                if self.says_end {
                    chunk.extend_from_slice(&self.bookmark(true));
                }
                return Some(chunk.into()).filter(|chunk: &Bytes| !chunk.is_empty());
            };
            chunk.extend_from_slice(&self.event(Kind::Added, &object));
        }
        self.initial = Some(objects);
        Some(chunk.into())
    }

    fn event(&mut self, kind: Kind, object: &Arc<Object>) -> Bytes {
        self.history.counts.events_sent.fetch_add(1, Ordering::Relaxed);
        if std::mem::take(&mut self.lacks_columns) {
            return encodings::line(object, self.form, kind, true);
        }
        self.history.encodings.event(object, self.form, kind)
    }

    fn bookmark(&mut self, ends_initial_events: bool) -> Bytes {
        self.bookmark_at = Instant::now() + BOOKMARKS;
        self.form.bookmark(self.version, ends_initial_events).into()
    }
}
