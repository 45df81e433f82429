//! The state of each source, and readiness: the agent is ready once the pods of all sources are in the index.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use pod_index_kubelet::sources::{Nudge, Problem, ProblemKind, Source, SourceStatus};

/// Maximum number of remembered conflicts for a source that never reports a full set.
const PASSED_OVER: usize = 100;

/// The configured sources.
#[derive(Debug)]
pub(crate) struct Readiness {
    lines: Mutex<Vec<Line>>,
    /// Changes only under the lock of `lines`.
    ready: watch::Sender<bool>,
    /// Every source configured at the start has reported.
    merged: AtomicBool,
    /// The index has the pods of the last run.
    restored: AtomicBool,
    /// How often a source joined or left.
    moves: AtomicU64,
    /// By source. A restarted source has the same one.
    nudges: BTreeMap<Source, Nudge>,
}

#[derive(Debug)]
struct Line {
    source: Source,
    status: watch::Receiver<SourceStatus>,
    /// Its pods that the merge rejected.
    passed_over: Vec<Problem>,
    /// Its mirror pods from which no static pod is derived.
    refused_claims: Vec<Problem>,
    indexed: bool,
}

impl Readiness {
    /// Without sources; [`join`](Self::join) adds them.
    pub(crate) fn new() -> Self {
        Self {
            lines: Mutex::default(),
            ready: watch::Sender::new(false),
            merged: AtomicBool::new(false),
            restored: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            nudges: Source::ALL.map(|source| (source, Nudge::default())).into(),
        }
    }

    /// Makes this source read at once.
    pub(crate) fn nudge(&self, source: Source) -> Nudge {
        self.nudges.get(&source).cloned().unwrap_or_default()
    }

    /// Adds a source. The agent is not ready before it has reported. A restarted source replaces its old entry.
    pub(crate) fn join(&self, source: Source, status: watch::Receiver<SourceStatus>) {
        let mut lines = self.lock();
        self.moves.fetch_add(1, Ordering::Relaxed);
        match lines.iter_mut().find(|line| line.source == source) {
            Some(line) => line.status = status,
            None => lines.push(Line {
                source,
                status,
                passed_over: Vec::new(),
                refused_claims: Vec::new(),
                indexed: false,
            }),
        }
        self.judge(&lines);
    }

    /// Removes a source that is no longer configured. The agent no longer waits for it.
    pub(crate) fn leave(&self, source: Source) {
        let mut lines = self.lock();
        self.moves.fetch_add(1, Ordering::Relaxed);
        lines.retain(|line| line.source != source);
        self.judge(&lines);
    }

    /// Records why the merge rejected pods of this source. With `whole`, they replace the earlier problems.
    /// Returns the new ones.
    pub(crate) fn passed_over(&self, source: Source, whole: bool, problems: Vec<Problem>) -> Vec<Problem> {
        let mut lines = self.lock();
        let Some(line) = lines.iter_mut().find(|line| line.source == source) else { return problems };
        let mut before = std::mem::take(&mut line.passed_over);
        let new = added(&problems, &before);
        line.passed_over = if whole {
            problems
        } else {
            before.extend_from_slice(&new);
            before.split_off(before.len().saturating_sub(PASSED_OVER))
        };
        new
    }

    /// Records from which mirror pods of the API server no static pod is derived, and why. Returns the new ones.
    pub(crate) fn refused_claims(&self, problems: Vec<Problem>) -> Vec<Problem> {
        let mut lines = self.lock();
        let Some(line) = lines.iter_mut().find(|line| line.source == Source::Api) else { return problems };
        let new = added(&problems, &line.refused_claims);
        line.refused_claims = problems;
        new
    }

    /// The reports of these sources have been published.
    pub(crate) fn indexed(&self, sources: impl IntoIterator<Item = Source>) {
        let mut lines = self.lock();
        for source in sources {
            lines.iter_mut().filter(|line| line.source == source).for_each(|line| line.indexed = true);
        }
        self.judge(&lines);
    }

    /// The reports of all sources configured at the start have been published.
    pub(crate) fn all_indexed(&self) {
        let lines = self.lock();
        self.merged.store(true, Ordering::Relaxed);
        self.judge(&lines);
    }

    /// Whether the first set of every source is in the index.
    pub(crate) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// The pods of the last run are in the index.
    pub(crate) fn restored(&self) {
        self.restored.store(true, Ordering::Relaxed);
    }

    /// Whether the index has the pods of every source or, until then, those of the last run.
    pub(crate) fn has_pods(&self) -> bool {
        self.is_ready() || self.restored.load(Ordering::Relaxed)
    }

    /// Readiness, to wait for. It becomes `false` for a while if a source is configured later.
    pub(crate) fn seen(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Sends "not ready" before any pod is removed, because a new source joins before another one leaves.
    fn judge(&self, lines: &[Line]) {
        let ready = self.merged.load(Ordering::Relaxed) && lines.iter().all(|line| line.indexed);
        self.ready.send_if_modified(|before| std::mem::replace(before, ready) != ready);
    }

    /// Waits until the first set of every source is in the index.
    pub(crate) async fn ready(&self) {
        // Fails only if the sender is gone, but `self` holds it.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// The current state of the sources. `seen` applies to those whose pods are in the index.
    pub(crate) fn sources(&self) -> Vec<SourceStatus> {
        let status = |line: &Line| {
            let mut status = line.status.borrow().clone();
            status.seen = line.indexed;
            status.problems.extend_from_slice(&line.passed_over);
            status.problems.extend_from_slice(&line.refused_claims);
            status
        };
        self.lock().iter().map(status).collect()
    }

    /// How long ago all that the sources knew was in the index, or on its way there. `None`: it never was.
    pub(crate) fn age(&self) -> Option<Duration> {
        let age = |line: &Line| {
            let status = line.status.borrow();
            // A file event tells of a change at once. Without them, only a reading does.
            let is_told =
                |problem: &Problem| !problem.kind().is_grave() && problem.kind() != ProblemKind::Unhinted;
            let age = match status.source {
                Source::File if status.problems.iter().all(is_told) => {
                    status.last_read.map(|_| Duration::ZERO)?
                }
                Source::File | Source::Http | Source::Kubelet => status.last_read?.elapsed(),
                Source::Api => status.silence()?,
            };
            line.indexed.then_some(age)
        };
        let ages: Vec<_> = self.lock().iter().map(age).collect();
        ages.into_iter().reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Changes whenever pods may have come and gone unseen: how often a source joined or left, and how often those of now
    /// have listed all their pods anew.
    pub(crate) fn gaps(&self) -> (u64, u64) {
        let lines = self.lock();
        let relists = lines.iter().map(|line| line.status.borrow().relists).sum();
        (self.moves.load(Ordering::Relaxed), relists)
    }

    /// What keeps the agent from being ready: each source that is not in the index, and its problem.
    pub(crate) fn missing(&self) -> Vec<String> {
        let describe = |status: SourceStatus| {
            let problem = status.problems.iter().find(|problem| problem.kind().is_grave());
            let problem = problem.map(|problem| format!(": {}", problem.message())).unwrap_or_default();
            format!("{} ({}){problem}", status.source, status.origin)
        };
        self.sources().into_iter().filter(|status| !status.seen).map(describe).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those of the problems that are not among those `before`.
fn added(problems: &[Problem], before: &[Problem]) -> Vec<Problem> {
    let known: HashSet<_> = before.iter().collect();
    problems.iter().filter(|problem| !known.contains(problem)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_index_kubelet::sources::{NodeName, file};

    #[test]
    fn rejected_pods_are_problems_of_their_source_and_reported_once() {
        let problem = |name: &str| Problem::new(ProblemKind::Duplicate, "http", None, None, name);
        let readiness = Readiness::new();
        readiness.join(Source::Http, file::follow("/nonexistent", NodeName::new("n")).status());
        let shown =
            || readiness.sources()[0].problems.iter().map(|p| p.message().to_owned()).collect::<String>();
        assert_eq!(readiness.passed_over(Source::Http, true, vec![problem("a"), problem("b")]).len(), 2);
        assert_eq!(
            readiness.passed_over(Source::Http, true, vec![problem("b"), problem("c")]),
            [problem("c")]
        );
        assert_eq!(shown(), "bc");
        assert_eq!(
            readiness.passed_over(Source::Http, false, vec![problem("c"), problem("d")]),
            [problem("d")]
        );
        assert_eq!(shown(), "bcd");
        let many = (0..1_000).map(|i| problem(&i.to_string())).collect();
        assert_eq!(readiness.passed_over(Source::Http, false, many).len(), 1_000);
        assert_eq!(
            readiness.sources()[0].problems.len(),
            PASSED_OVER,
            "an endless series of problems does not fill the memory"
        );
        assert_eq!(readiness.passed_over(Source::Http, true, Vec::new()), []);
        assert_eq!(shown(), "");
    }

    #[test]
    fn a_restarted_source_is_still_in_the_index() {
        let status = || file::follow("/nonexistent", NodeName::new("n")).status();
        let readiness = Readiness::new();
        readiness.join(Source::File, status());
        readiness.join(Source::Http, status());
        readiness.indexed([Source::File]);
        readiness.join(Source::File, status());
        assert_eq!(readiness.sources().iter().map(|status| status.seen).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn the_agent_waits_for_an_added_source_until_it_is_read_or_removed() {
        let status = || file::follow("/nonexistent", NodeName::new("n")).status();
        let readiness = Readiness::new();
        let seen = readiness.seen();
        readiness.join(Source::File, status());
        readiness.indexed([Source::File]);
        assert!(!*seen.borrow(), "the merge still has restored pods");
        readiness.all_indexed();
        assert!(*seen.borrow());
        for read in [true, false] {
            readiness.join(Source::Http, status());
            assert!(!*seen.borrow(), "before any source has reported");
            readiness.indexed([Source::File]);
            readiness.all_indexed();
            assert_eq!(
                (*seen.borrow(), readiness.is_ready()),
                (false, false),
                "another source speaks, not this one"
            );
            if read {
                readiness.indexed([Source::Http]);
                assert!(*seen.borrow());
            }
            readiness.leave(Source::Http);
            assert!(*seen.borrow());
        }
    }
}
