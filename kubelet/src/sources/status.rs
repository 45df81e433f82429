//! Status of a source, for people and metrics, and its log lines: one for each problem.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use tokio::sync::watch;

#[cfg(feature = "api-server")]
use super::problem::{limited, undecodable};
use super::{Problem, ProblemKind, Source};
#[cfg(feature = "api-server")]
use crate::reflector::{Cause, Failure, Observer, Undecodable};

/// Status of a source. Plain data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SourceStatus {
    /// The source.
    pub source: Source,
    /// What it reads: a path or a URL.
    pub origin: String,
    /// Whether it has reported its pods at least once.
    pub seen: bool,
    /// Number of pods it reports now.
    pub pods: usize,
    /// Number of reads so far.
    pub checks: u64,
    /// Number of reads that failed as a whole, for example because the path is missing or the server does not answer.
    pub failed_checks: u64,
    /// How often its pods have changed.
    pub updates: u64,
    /// How often it listed all its pods again because it could not tell what had changed: an API server, after its watch
    /// ended; a kubelet, after it was restarted or unreachable. In between, pods may have come and gone unseen. Always 0
    /// for files and URLs.
    pub relists: u64,
    /// Time of the last read, successful or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_check: Option<SystemTime>,
    /// When it last heard from its origin: a file was read, a URL answered, or a watch sent anything, even a
    /// bookmark. See [`silence`](Self::silence).
    #[serde(skip)]
    pub last_heard: Option<Instant>,
    /// When the last successful read began. See [`Merge::read`](super::Merge::read).
    #[serde(skip)]
    pub last_read: Option<Instant>,
    /// When the last successful read began that found all pods. It is older than [`last_read`](Self::last_read) while a
    /// kubelet's list may be incomplete.
    #[serde(skip)]
    pub last_complete_read: Option<Instant>,
    /// When the first of the reads failed that have failed since the last successful one. `None` after a successful one.
    /// See [`failing`](Self::failing).
    #[serde(skip)]
    pub failing_since: Option<Instant>,
    /// When it reads or connects again. `None` while it does so, and while changes come over a connection. See
    /// [`until_next_try`](Self::until_next_try).
    #[serde(skip)]
    pub next_try: Option<Instant>,
    /// All current problems.
    pub problems: Vec<Problem>,
}

impl SourceStatus {
    /// Time since the source last heard from its origin. `None` if it never did.
    ///
    /// A directory or a URL answers each read. An API server sends something about once a minute even if nothing
    /// changes; its watch counts as dead after 150 s.
    #[must_use]
    pub fn silence(&self) -> Option<Duration> {
        self.last_heard.map(|heard| heard.elapsed())
    }

    /// For how long every read has failed as a whole. `None` if the last one succeeded.
    ///
    /// A short failure is normal, for example while a server restarts. Pods are served as last seen.
    #[must_use]
    pub fn failing(&self) -> Option<Duration> {
        self.failing_since.map(|since| since.elapsed())
    }

    /// How long it waits until it reads or connects again. `None` if it waits for its origin instead.
    #[must_use]
    pub fn until_next_try(&self) -> Option<Duration> {
        self.next_try.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// The sending side of the status.
#[derive(Debug)]
pub(crate) struct StatusWriter {
    status: watch::Sender<SourceStatus>,
    /// The problems of single pods. Later reads do not remove them.
    of_pods: Mutex<Vec<Problem>>,
}

impl StatusWriter {
    pub(crate) fn new(source: Source, origin: impl Into<String>) -> Self {
        let status = watch::Sender::new(SourceStatus {
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
            last_read: None,
            last_complete_read: None,
            failing_since: None,
            next_try: None,
            problems: Vec::new(),
        });
        Self { status, of_pods: Mutex::default() }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<SourceStatus> {
        self.status.subscribe()
    }

    /// Records that the problems are these now, and when a read began that has ended. `failed`: it gave no information
    /// about the pods.
    pub(crate) fn read(&self, began: impl Into<Option<Instant>>, problems: Vec<Problem>, failed: bool) {
        let began = began.into().filter(|_| !failed);
        self.record(began, true, problems, failed);
    }

    /// Records that an incomplete list was read, and when the read began.
    pub(crate) fn read_incompletely(&self, began: Instant, problems: Vec<Problem>) {
        self.record(Some(began), false, problems, false);
    }

    /// `began`: the start of a good read.
    fn record(&self, began: Option<Instant>, is_complete: bool, mut problems: Vec<Problem>, failed: bool) {
        problems.extend_from_slice(&self.of_pods.lock().unwrap_or_else(PoisonError::into_inner));
        self.status.send_modify(|status| {
            log_changes(status, &problems);
            status.checks += 1;
            status.failed_checks += u64::from(failed);
            status.last_check = Some(SystemTime::now());
            if failed {
                status.failing_since.get_or_insert_with(Instant::now);
            } else {
                status.failing_since = None;
            }
            if began.is_some() {
                // After incomplete lists, nothing tells what has come and gone since the last complete one.
                let was_incomplete = status.last_read != status.last_complete_read;
                status.relists += u64::from(is_complete && was_incomplete);
                status.last_read = began;
                status.last_heard = Some(Instant::now());
                if is_complete {
                    status.last_complete_read = began;
                }
            }
            status.problems = problems;
        });
    }

    /// Records that the source has panicked, and will be read again.
    pub(crate) fn panicked(&self) {
        let origin = self.status.borrow().origin.clone();
        let message = "this program has a defect: it panicked while it read this (see the log). It reads it again after a pause; \
                       the last pods stay";
        self.read(None, vec![Problem::new(ProblemKind::Defect, origin, None, None, message)], true);
    }

    /// Records when the source reads or connects again; `None`: it does so now. Wakes no subscriber.
    pub(crate) fn tries_again(&self, at: Option<Instant>) {
        self.status.send_if_modified(|status| {
            status.next_try = at;
            false
        });
    }

    /// Records that something was heard of the origin. Wakes no subscriber.
    pub(crate) fn heard(&self) {
        self.status.send_if_modified(|status| {
            status.last_heard = Some(Instant::now());
            false
        });
    }

    /// Records that the source is about to emit a set of `pods` pods.
    pub(crate) fn updated(&self, pods: usize) {
        self.status.send_modify(|status| {
            status.seen = true;
            status.pods = pods;
            status.updates += 1;
        });
    }
}

#[cfg(feature = "api-server")]
impl Observer for StatusWriter {
    fn heard(&self) {
        Self::heard(self);
    }

    fn pauses(&self, pause: Option<Duration>) {
        self.tries_again(pause.map(|pause| Instant::now() + pause));
    }

    fn watching(&self) {
        self.read(None, Vec::new(), false);
    }

    fn relisting(&self) {
        self.status.send_modify(|status| status.relists += 1);
    }

    fn failed(&self, failure: &Failure) {
        let origin = self.status.borrow().origin.clone();
        let problem = Problem::new(ProblemKind::Request, origin, None, None, failure.message.clone());
        self.read(None, vec![problem], true);
    }

    /// Replaces the problems of single pods.
    fn undecodable<'a>(&self, pods: impl ExactSizeIterator<Item = &'a Undecodable>) {
        let problems = limited(pods.map(|it| {
            let kind = match it.cause {
                Cause::Undecodable => ProblemKind::Syntax,
                Cause::TooLarge => ProblemKind::Warning,
                Cause::Panicked => ProblemKind::Defect,
            };
            undecodable(kind, &it.namespace, &it.name, &it.field, &it.message)
        }));
        let mut of_pods = self.of_pods.lock().unwrap_or_else(PoisonError::into_inner);
        if *of_pods == problems {
            return;
        }
        self.status.send_modify(|status| {
            let others = status.problems.iter().filter(|problem| !of_pods.contains(problem));
            let all: Vec<_> = others.chain(&problems).cloned().collect();
            log_changes(status, &all);
            status.problems = all;
        });
        *of_pods = problems;
    }
}

/// Whether these are the same objects in the same order.
pub(crate) fn is_same(one: &[Arc<Pod>], other: &[Arc<Pod>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Logs new problems and solved ones. Continuing problems are logged only once.
fn log_changes(status: &SourceStatus, problems: &[Problem]) {
    let source = status.source.as_str();
    let before: HashSet<_> = status.problems.iter().collect();
    for problem in problems.iter().filter(|problem| !before.contains(problem)) {
        let (path, line, field) = (&problem.origin, problem.line, &problem.field);
        if matches!(problem.kind, ProblemKind::Skipped | ProblemKind::Incomplete) {
            tracing::info!(source, path, "{}", problem.message);
        } else {
            tracing::warn!(source, path, line, field, "{}", problem.message);
        }
    }
    // Compare by origin: if the same file now has another problem, the first one is not solved.
    let [before, now] = [&status.problems[..], problems]
        .map(|problems| problems.iter().map(|problem| &problem.origin).collect::<HashSet<_>>());
    for path in before.difference(&now) {
        tracing::info!(source, path, "problem solved");
    }
}
