//! Status of a source, for people and metrics, and its log lines: one for each problem.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

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
    /// Whether it has reported its pods at least once, also by a list that may lack some. See
    /// [`has_reported_all`](Self::has_reported_all).
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
    /// Every change before this moment has been reported. Of an API server, after an outage, not before its watch has sent all that
    /// was missed; of another source, when the last read began that found all pods. `None` before the first complete list. For
    /// [what an index covers](pod_index::Moment::covering).
    #[serde(skip)]
    pub reported_until: Option<Instant>,
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
    /// changes, or, if its etcd sends few progress notices, at least the end of a watch every two minutes. A watch that is silent
    /// for 150 s is given up.
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

    /// Whether the source has reported all its pods, so that a pod that it did not report does not exist: its last list was
    /// complete, and no problem hides a pod.
    ///
    /// An API server has done so once its first list is complete, whatever happens to its watch later. A kubelet that has just
    /// started has not, and neither has a directory with an unusable manifest.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    /// use pod_index_kubelet::sources::{Source, StatusWriter};
    ///
    /// let status = StatusWriter::new(Source::Kubelet, "the kubelet");
    /// let has_reported_all = || status.subscribe().borrow().has_reported_all();
    /// status.read_incompletely(Instant::now(), Vec::new());
    /// status.updated(1);
    /// assert!(!has_reported_all());
    /// status.read(Instant::now(), Vec::new());
    /// assert!(has_reported_all());
    /// ```
    #[must_use]
    pub fn has_reported_all(&self) -> bool {
        let hides_none = || !self.problems.iter().any(|problem| problem.kind.is_grave());
        let is_complete = || self.last_complete_read == self.last_read;
        let has_all = match self.source {
            Source::Api => true,
            Source::File | Source::Http | Source::Kubelet => hides_none() && is_complete(),
        };
        self.seen && has_all
    }

    /// How long it waits until it reads or connects again. `None` if it waits for its origin instead.
    #[must_use]
    pub fn until_next_try(&self) -> Option<Duration> {
        self.next_try.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// Writes the status of a source, for those who implement a source of their own. It counts reads and updates, and logs
/// each problem once, when it comes and when it is solved. It has no part in the pods: a status changes none of them.
///
/// A source calls [`read`](Self::read), [`read_incompletely`](Self::read_incompletely) or [`failed`](Self::failed) after each
/// read, [`updated`](Self::updated) before each update that it emits, and [`heard`](Self::heard) when its origin has said
/// something that is no list of pods. Whoever has an [`Updates`](super::Updates) sees the status by
/// [`Updates::status`](super::Updates::status). The list of what a source of your own has to guarantee is in
/// `docs/sources.md`, under "A source of your own".
///
/// # Examples
/// Pods from a program's own inventory, which is read once a minute. They are ordinary pods, so the source has the role of the
/// API server: in the merge, [`Source::File`] and [`Source::Http`] would mark them as static pods.
/// ```
/// use std::sync::Arc;
/// use std::time::{Duration, Instant};
///
/// use futures_util::{StreamExt, stream};
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index_kubelet::sources::{Merge, Problem, ProblemKind, Source, SourceUpdate, StatusWriter, Updates};
/// use tokio::time;
///
/// const PERIOD: Duration = Duration::from_secs(60);
///
/// async fn inventory() -> Result<Vec<Arc<Pod>>, String> {
///     // As a part of the example. A real one asks a database, say.
///     let mut pod = Pod::default();
///     pod.metadata.name = Some("web-0".to_owned());
///     pod.metadata.namespace = Some("shop".to_owned());
///     pod.metadata.uid = Some("4c1f".to_owned());
///     Ok(vec![Arc::new(pod)])
/// }
///
/// fn follow_inventory() -> Updates<Pod> {
///     let status = StatusWriter::new(Source::Api, "inventory");
///     let receiver = status.subscribe();
///     let first = time::Instant::now();
///     let updates = stream::unfold((status, first), async |(status, mut due)| loop {
///         // Before every read, also after one that succeeded: whoever takes an update asks for the next one at once.
///         time::sleep_until(due).await;
///         due = time::Instant::now() + PERIOD;
///         let began = Instant::now();
///         match inventory().await {
///             Ok(pods) => {
///                 status.read(began, Vec::new());
///                 status.updated(pods.len());
///                 return Some((SourceUpdate::Set(pods), (status, due)));
///             }
///             // No update: the last pods stay.
///             Err(message) => {
///                 status.failed(vec![Problem::new(ProblemKind::Request, "inventory", None, None, message)]);
///             }
///         }
///     });
///     Updates::new(updates, receiver)
/// }
///
/// # let mut runtime = tokio::runtime::Builder::new_current_thread();
/// # // The minute passes at once.
/// # runtime.enable_time().start_paused(true).build()?.block_on(async {
/// let mut source = follow_inventory();
/// let status = source.status();
/// let mut merge = Merge::new([Source::Api]);
/// let (mut writer, reader) = pod_index::new::<Pod>();
///
/// let Some(update) = source.next().await else { panic!("a source never ends") };
/// let _ = writer.apply(merge.update(Source::Api, update).into_operations());
/// let pods = reader.load();
/// let pod = pods.pod_by_name("shop", "web-0").expect("it begins with all pods");
/// assert!(!pod_index::is_static_pod(&**pod));
/// assert_eq!(status.borrow().checks, 1);
///
/// let taken = time::Instant::now();
/// let _ = source.next().await; // a minute later
/// assert_eq!(status.borrow().checks, 2);
/// assert!(taken.elapsed() >= PERIOD);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct StatusWriter {
    status: watch::Sender<SourceStatus>,
    /// The problems of single pods. Later reads do not remove them.
    of_pods: Mutex<Vec<Problem>>,
}

/// What a read has found out about the pods.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadOutcome {
    /// Those of this time, all of them.
    All { began: Instant },
    /// Those of this time; there may be more.
    Some { began: Instant },
    /// The origin answers. Nothing about the pods.
    Answer,
    /// Nothing.
    Nothing,
}

impl StatusWriter {
    /// The status of a source that has not read anything yet. `source`: its role in the merge, which decides between two
    /// sources that have the same pod, and whether its pods are static. Without a merge, the role changes no pod: it is only a
    /// name in the status and the log, and decides what [`has_reported_all`](SourceStatus::has_reported_all) asks for.
    /// `origin`: what it reads, for people, such as a path or a URL without a password.
    #[must_use]
    pub fn new(source: Source, origin: impl Into<String>) -> Self {
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
            reported_until: None,
            failing_since: None,
            next_try: None,
            problems: Vec::new(),
        });
        Self { status, of_pods: Mutex::default() }
    }

    /// The status, for [`Updates::new`](super::Updates::new).
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<SourceStatus> {
        self.status.subscribe()
    }

    /// Records a read that began at this time and found all pods. `problems`: all that exist now, such as pods that cannot be
    /// used; those of earlier reads are solved.
    pub fn read(&self, began: Instant, problems: Vec<Problem>) {
        self.record(ReadOutcome::All { began }, problems);
    }

    /// Records a read that began at this time, and may not have found all pods. See [`SourceUpdate::Incomplete`].
    ///
    /// [`SourceUpdate::Incomplete`]: super::SourceUpdate::Incomplete
    pub fn read_incompletely(&self, began: Instant, problems: Vec<Problem>) {
        self.record(ReadOutcome::Some { began }, problems);
    }

    /// Records a read that failed as a whole, so that nothing is known of the pods. Those that were emitted still count.
    pub fn failed(&self, problems: Vec<Problem>) {
        self.record(ReadOutcome::Nothing, problems);
    }

    fn record(&self, outcome: ReadOutcome, mut problems: Vec<Problem>) {
        problems.extend_from_slice(&self.of_pods.lock().unwrap_or_else(PoisonError::into_inner));
        self.status.send_modify(|status| {
            log_changes(status, &problems);
            status.checks += 1;
            status.last_check = Some(SystemTime::now());
            if outcome == ReadOutcome::Nothing {
                status.failed_checks += 1;
                status.failing_since.get_or_insert_with(Instant::now);
            } else {
                status.failing_since = None;
            }
            match outcome {
                ReadOutcome::All { began } => {
                    // After incomplete lists, nothing tells what has come and gone since the last complete one.
                    let was_incomplete = status.last_read != status.last_complete_read;
                    status.relists += u64::from(was_incomplete);
                    status.last_read = Some(began);
                    status.last_complete_read = Some(began);
                    status.reported_until = status.reported_until.max(Some(began));
                    status.last_heard = Some(Instant::now());
                }
                ReadOutcome::Some { began } => {
                    status.last_read = Some(began);
                    status.last_heard = Some(Instant::now());
                }
                ReadOutcome::Answer | ReadOutcome::Nothing => {}
            }
            status.problems = problems;
        });
    }

    /// Records that the source has panicked, and will be read again.
    pub(crate) fn panicked(&self) {
        let origin = self.status.borrow().origin.clone();
        let message = "this program has a defect: it panicked while it read this (see the log). It reads it again after a pause; \
                       the last pods stay";
        self.failed(vec![Problem::new(ProblemKind::Defect, origin, None, None, message)]);
    }

    /// Records when the source reads or connects again; `None`: it does so now. Wakes nobody who waits for a change of the
    /// status.
    pub fn tries_again(&self, at: Option<Instant>) {
        self.status.send_if_modified(|status| {
            status.next_try = at;
            false
        });
    }

    /// Records that the origin has said something, if only that nothing has changed. Wakes nobody who waits for a change of the
    /// status.
    pub fn heard(&self) {
        self.status.send_if_modified(|status| {
            status.last_heard = Some(Instant::now());
            false
        });
    }

    /// Records that every change before this moment has been emitted, also without a read: of a source that follows its origin. Call it
    /// when the next update is asked for, so that the earlier ones have been taken. Wakes nobody who waits for a change of the status.
    pub fn reported(&self, until: Instant) {
        self.status.send_if_modified(|status| {
            status.reported_until = status.reported_until.max(Some(until));
            false
        });
    }

    /// Records that the source is about to emit an update, after which it has this number of pods.
    pub fn updated(&self, pods: usize) {
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

    fn reported(&self, until: Instant) {
        Self::reported(self, until);
    }

    fn pauses(&self, pause: Option<Duration>) {
        self.tries_again(pause.map(|pause| Instant::now() + pause));
    }

    fn watching(&self) {
        self.record(ReadOutcome::Answer, Vec::new());
    }

    fn relisting(&self) {
        self.status.send_modify(|status| status.relists += 1);
    }

    fn failed(&self, failure: &Failure) {
        let origin = self.status.borrow().origin.clone();
        let problem = Problem::new(ProblemKind::Request, origin, None, None, failure.message.clone());
        Self::failed(self, vec![problem]);
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
            let before: HashSet<_> = of_pods.iter().collect();
            let others = status.problems.iter().filter(|problem| !before.contains(problem));
            let all: Vec<_> = others.chain(&problems).cloned().collect();
            log_changes(status, &all);
            status.problems = all;
        });
        *of_pods = problems;
    }
}

/// Logs new problems and solved ones. Continuing problems are logged only once.
fn log_changes(status: &SourceStatus, problems: &[Problem]) {
    let source = status.source.as_str();
    let before: HashSet<_> = status.problems.iter().collect();
    for problem in problems.iter().filter(|problem| !before.contains(problem)) {
        let path = &problem.origin;
        let line = problem.line;
        let field = &problem.field;
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
