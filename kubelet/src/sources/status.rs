//! How a source is doing, for people and for metrics; and the log lines that go with it, one for each problem.
//!
//! This file knows counting and telling. It must not know how any source works.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use tokio::sync::watch;

use super::{Problem, ProblemKind, Source};

/// How a source is doing: plain data, to show or to count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SourceStatus {
    /// Which source it is.
    #[serde(serialize_with = "source_name")]
    pub source: Source,
    /// What it reads: a path, a URL.
    pub origin: String,
    /// Whether it has said what its pods are, at least once.
    pub seen: bool,
    /// How many pods it names now.
    pub pods: usize,
    /// How often it has looked.
    pub checks: u64,
    /// How many of these looks failed as a whole: no such path, no answer.
    pub failed_checks: u64,
    /// How often its pods have changed.
    pub updates: u64,
    /// How often it had to ask for all its pods anew, because what changed could not be told otherwise. Only a watch of
    /// the API server comes to that.
    pub relists: u64,
    /// When it last looked, whatever came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_check: Option<SystemTime>,
    /// When its place was last heard: read, answered, or told anything by a watch, be it a bookmark. See
    /// [`silence`](Self::silence).
    #[serde(skip)]
    pub last_heard: Option<Instant>,
    /// Everything that is wrong now.
    pub problems: Vec<Problem>,
}

impl SourceStatus {
    /// How long ago the source's place was last heard. `None` if it never was.
    ///
    /// A directory and a URL are heard each time they are read. An API server is heard about once a minute, even if nothing
    /// changes, and its watch counts as dead after 150 s.
    #[must_use]
    pub fn silence(&self) -> Option<Duration> {
        self.last_heard.map(|heard| heard.elapsed())
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn source_name<S: serde::Serializer>(source: &Source, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(source.as_str())
}

/// The source's end of its status.
#[derive(Debug)]
pub(crate) struct StatusWriter(watch::Sender<SourceStatus>);

impl StatusWriter {
    pub(crate) fn new(source: Source, origin: impl Into<String>) -> Self {
        Self(watch::Sender::new(SourceStatus {
            source,
            origin: origin.into(),
            seen: false,
            pods: 0,
            checks: 0,
            failed_checks: 0,
            updates: 0,
            relists: 0,
            last_check: None,
            last_heard: None,
            problems: Vec::new(),
        }))
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<SourceStatus> {
        self.0.subscribe()
    }

    /// A look at the source's place is over. `failed`: it told nothing about the pods.
    pub(crate) fn checked(&self, problems: Vec<Problem>, failed: bool) {
        self.0.send_modify(|status| {
            tell(status, &problems);
            status.checks += 1;
            status.failed_checks += u64::from(failed);
            status.last_check = Some(SystemTime::now());
            if !failed {
                status.last_heard = Some(Instant::now());
            }
            status.problems = problems;
        });
    }

    /// The source's place has said something. Nobody is woken for it.
    #[cfg(feature = "api-server")]
    pub(crate) fn heard(&self) {
        self.0.send_if_modified(|status| {
            status.last_heard = Some(Instant::now());
            false
        });
    }

    /// The source begins to ask for all its pods once more.
    #[cfg(feature = "api-server")]
    pub(crate) fn relisting(&self) {
        self.0.send_modify(|status| status.relists += 1);
    }

    /// The source is about to say that these are its pods, so many of them.
    pub(crate) fn updated(&self, pods: usize) {
        self.0.send_modify(|status| {
            status.seen = true;
            status.pods = pods;
            status.updates += 1;
        });
    }
}

/// Logs what is newly wrong, and what no longer is. What stays wrong has been said.
fn tell(status: &SourceStatus, problems: &[Problem]) {
    let source = status.source.as_str();
    let before: HashSet<_> = status.problems.iter().collect();
    for problem in problems.iter().filter(|problem| !before.contains(problem)) {
        let (path, line, field) = (problem.origin(), problem.line(), problem.field());
        if problem.kind() == ProblemKind::Skipped {
            tracing::info!(source, path, "{}", problem.message());
        } else {
            tracing::warn!(source, path, line, field, "{}", problem.message());
        }
    }
    let now: HashSet<_> = problems.iter().collect();
    // By place: a problem that only became another one is not over.
    let places: HashSet<_> = problems.iter().map(Problem::origin).collect();
    let over = status.problems.iter().filter(|problem| !now.contains(problem));
    let over: HashSet<_> = over.map(Problem::origin).filter(|place| !places.contains(place)).collect();
    for path in over {
        tracing::info!(source, path, "no problem any more");
    }
}
