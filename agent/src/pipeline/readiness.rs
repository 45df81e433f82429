//! The state of each source, and readiness: the agent is ready once the pods of all sources are in the index.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::api::types::waits_for;
use pod_index::Time;
use pod_index_kubelet::sources::{Nudge, Problem, ProblemKind, Source, SourceStatus};

/// Maximum number of remembered conflicts for a source that never reports a full set.
const PASSED_OVER: usize = 100;

/// A source that has failed for this long is an outage: `/readyz`, `doctor` and the alert `PodIndexSourceFails` name it.
pub(crate) const FAILING_AFTER: Duration = Duration::from_secs(120);

/// The configured sources.
#[derive(Debug)]
pub(crate) struct Readiness {
    lines: Mutex<Vec<Line>>,
    ready: watch::Sender<bool>,
    /// Whether the index has the pods of the last run.
    is_restored: bool,
    /// When it was last noticed that the wall clock was set, or when the sources had told all anew after it, in nanoseconds by
    /// the new time. The first time, if it never was.
    clock_set: AtomicI64,
}

#[derive(Debug)]
struct Line {
    source: Source,
    status: watch::Receiver<SourceStatus>,
    nudge: Nudge,
    /// Its pods that the merge rejected.
    passed_over: Vec<Problem>,
    /// Its mirror pods from which no static pod is derived.
    refused_claims: Vec<Problem>,
    indexed: bool,
}

impl Readiness {
    /// None of the sources has reported yet.
    pub(crate) fn new(
        sources: impl IntoIterator<Item = (watch::Receiver<SourceStatus>, Nudge)>,
        is_restored: bool,
    ) -> Self {
        let lines = sources.into_iter().map(|(status, nudge)| {
            let source = status.borrow().source;
            Line {
                source,
                status,
                nudge,
                passed_over: Vec::new(),
                refused_claims: Vec::new(),
                indexed: false,
            }
        });
        Self {
            lines: Mutex::new(lines.collect()),
            ready: watch::Sender::new(false),
            is_restored,
            clock_set: AtomicI64::new(i64::MIN),
        }
    }

    /// The wall clock was set before this time, and the index knows nothing of the past of the old one.
    pub(crate) fn clock_was_set(&self, by: Time) {
        self.clock_set.store(by.as_nanos(), Ordering::Relaxed);
    }

    /// After that, all is known since this time: only what the sources told after a step forward counts.
    pub(crate) fn told_after_clock_was_set(&self, since: Time) {
        self.clock_set.fetch_max(since.as_nanos(), Ordering::Relaxed);
    }

    /// Whether the past that the index knows begins at this time because the wall clock was set then.
    pub(crate) fn began_with_the_clock(&self, since: Time) -> bool {
        since.as_nanos() <= self.clock_set.load(Ordering::Relaxed)
    }

    /// Makes this source read at once.
    pub(crate) fn nudge(&self, source: Source) {
        self.lock().iter().filter(|line| line.source == source).for_each(|line| line.nudge.notify_one());
    }

    /// Records why the merge rejected pods of this source. With `whole`, they replace the earlier problems.
    /// Returns the new ones.
    pub(crate) fn passed_over(&self, source: Source, whole: bool, problems: Vec<Problem>) -> Vec<Problem> {
        self.record(source, |line| &mut line.passed_over, whole, problems)
    }

    /// Records from which mirror pods of the API server no static pod is derived, and why. Returns the new ones.
    pub(crate) fn refused_claims(&self, problems: Vec<Problem>) -> Vec<Problem> {
        self.record(Source::Api, |line| &mut line.refused_claims, true, problems)
    }

    fn record(
        &self,
        source: Source,
        list: fn(&mut Line) -> &mut Vec<Problem>,
        whole: bool,
        problems: Vec<Problem>,
    ) -> Vec<Problem> {
        let mut lines = self.lock();
        let Some(before) = lines.iter_mut().find(|line| line.source == source).map(list) else {
            return problems;
        };
        let known: HashSet<_> = before.iter().collect();
        let new: Vec<_> = problems.iter().filter(|problem| !known.contains(problem)).cloned().collect();
        if whole {
            *before = problems;
        } else {
            before.extend_from_slice(&new);
            before.drain(..before.len().saturating_sub(PASSED_OVER));
        }
        new
    }

    /// The reports of these sources have been published.
    pub(crate) fn indexed(&self, sources: &[Source]) {
        let mut lines = self.lock();
        lines.iter_mut().for_each(|line| line.indexed |= sources.contains(&line.source));
        let ready = lines.iter().all(|line| line.indexed);
        self.ready.send_if_modified(|before| std::mem::replace(before, ready) != ready);
    }

    /// Whether the first set of every source is in the index.
    pub(crate) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Whether the index has the pods of every source or, until then, those of the last run.
    pub(crate) fn has_pods(&self) -> bool {
        self.is_restored || self.is_ready()
    }

    /// Readiness, to wait for.
    pub(crate) fn seen(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
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
                |problem: &Problem| !problem.kind.is_grave() && problem.kind != ProblemKind::Unhinted;
            let age = match status.source {
                Source::File if status.problems.iter().all(is_told) => {
                    status.last_read.map(|_| Duration::ZERO)?
                }
                Source::File | Source::Http | Source::Kubelet => status.last_complete_read?.elapsed(),
                Source::Api => status.reported_until?.elapsed(),
            };
            line.indexed.then_some(age)
        };
        let ages: Vec<_> = self.lock().iter().map(age).collect();
        ages.into_iter().reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// How often the sources have listed all their pods anew. In between, pods may have come and gone unseen.
    pub(crate) fn relists(&self) -> u64 {
        self.lock().iter().map(|line| line.status.borrow().relists).sum()
    }

    /// What keeps the agent from being ready: each source that is not in the index, and its problem.
    pub(crate) fn missing(&self) -> Vec<String> {
        // Without copies: probes ask, and a source may have thousands of problems.
        let describe = |line: &Line| {
            let status = line.status.borrow();
            let mut problems = status.problems.iter().chain(&line.passed_over).chain(&line.refused_claims);
            let problem = problems.find(|problem| problem.kind.is_grave());
            let problem = problem.map(|problem| format!(": {}", problem.message)).unwrap_or_default();
            format!("{} ({}){problem}; it waits for {}", status.source, status.origin, waits_for(&status))
        };
        self.lock().iter().filter(|line| !line.indexed).map(describe).collect()
    }

    /// What goes wrong although the agent may be ready: each source that has failed for long, and a list of the kubelet that
    /// may be incomplete. Their pods are served as last seen.
    pub(crate) fn outages(&self) -> Vec<String> {
        let describe = |status: SourceStatus| {
            let failing = status.failing().filter(|failing| *failing >= FAILING_AFTER);
            let is_meant = |problem: &&Problem| match failing {
                Some(_) => problem.kind.is_grave(),
                None => problem.kind == ProblemKind::Incomplete,
            };
            let problem = status.problems.iter().find(is_meant);
            let source = format!("{} ({})", status.source, status.origin);
            let why = problem.map(|problem| format!(": {}", problem.message)).unwrap_or_default();
            match (failing, problem) {
                (Some(failing), _) => Some(format!("failing for {} s: {source}{why}", failing.as_secs())),
                (None, Some(_)) => Some(format!("incomplete: {source}{why}")),
                (None, None) => None,
            }
        };
        self.sources().into_iter().filter_map(describe).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use pod_index_kubelet::sources::http::HttpConfig;
    use pod_index_kubelet::sources::{NodeName, file, http};

    /// The readiness of a directory and a URL.
    fn of_two_sources() -> Readiness {
        let node = NodeName::new("n");
        let url = HttpConfig::new("http://localhost:1/").unwrap();
        let sources = [file::follow("/nonexistent", node.clone()), http::follow(url, node).unwrap()];
        Readiness::new(sources.map(|source| (source.status(), Nudge::default())), false)
    }

    #[test]
    fn the_oldest_source_and_all_lists_count() {
        let read = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let sources = of_two_sources().sources().into_iter().zip([2, 3]).map(|(mut status, relists)| {
            status.relists = relists;
            status.last_read = Some(read);
            status.last_complete_read = Some(read);
            (watch::channel(status).1, Nudge::default())
        });
        let readiness = Readiness::new(sources, false);
        assert_eq!((readiness.relists(), readiness.age()), (5, None));
        readiness.indexed(&[Source::File]);
        assert_eq!(readiness.age(), None, "the other one is not in the index");
        readiness.indexed(&[Source::Http]);
        let age = readiness.age().unwrap();
        assert!((60..120).contains(&age.as_secs()), "{age:?}");
    }

    /// A directory that cannot be watched, or a file that cannot be read, may have changed since.
    #[test]
    fn files_are_current_while_their_changes_are_told_and_all_of_them_could_be_read() {
        let before = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        for (kind, is_current) in [
            (None, true),
            (Some(ProblemKind::Warning), true),
            (Some(ProblemKind::Unhinted), false),
            (Some(ProblemKind::Syntax), false),
        ] {
            let mut status = of_two_sources().sources().remove(0);
            (status.last_read, status.last_complete_read) = (before(10), before(60));
            status.problems.extend(kind.map(|kind| Problem::new(kind, "a.yaml", None, None, "")));
            let readiness = Readiness::new([(watch::channel(status).1, Nudge::default())], false);
            readiness.indexed(&[Source::File]);
            let age = readiness.age().unwrap();
            assert_eq!(age.is_zero(), is_current, "{kind:?}");
            assert!(is_current || age.as_secs() >= 60, "{kind:?} {age:?}");
        }
    }

    #[test]
    fn mirror_pods_whose_claim_is_refused_are_problems_of_the_api_server() {
        let mut status = of_two_sources().sources().remove(0);
        status.source = Source::Api;
        let readiness = Readiness::new([(watch::channel(status).1, Nudge::default())], false);
        let refused = || Problem::new(ProblemKind::Duplicate, "kube-system/web-n", None, None, "forged");
        assert_eq!(readiness.refused_claims(vec![refused()]), [refused()]);
        assert_eq!(readiness.refused_claims(vec![refused()]), [], "it was reported");
        assert_eq!(readiness.sources()[0].problems, [refused()]);
        assert_eq!(readiness.refused_claims(Vec::new()), []);
        assert_eq!(readiness.sources()[0].problems, []);
    }

    #[test]
    fn restored_pods_are_served_before_the_agent_is_ready() {
        for is_restored in [false, true] {
            let readiness = Readiness::new([], is_restored);
            assert_eq!((readiness.has_pods(), readiness.is_ready()), (is_restored, false));
            readiness.indexed(&[]);
            assert!(readiness.has_pods() && readiness.is_ready());
        }
    }

    #[test]
    fn a_source_that_has_failed_for_long_is_an_outage_and_so_is_an_incomplete_list() {
        let failing = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        let request = Problem::new(ProblemKind::Request, "u", None, None, "refused");
        let incomplete = Problem::new(ProblemKind::Incomplete, "u", None, None, "not all");
        for (failing_since, problem, expected) in [
            (failing(60), &request, ""),
            (failing(130), &request, "failing for … s: file (/nonexistent): refused"),
            (None, &request, ""),
            (None, &incomplete, "incomplete: file (/nonexistent): not all"),
        ] {
            let mut status = of_two_sources().sources().remove(0);
            (status.failing_since, status.problems) = (failing_since, vec![problem.clone()]);
            let readiness = Readiness::new([(watch::channel(status).1, Nudge::default())], false);
            let outages = readiness.outages().join("\n");
            // Seconds go by on a busy machine.
            let seconds: Vec<_> = (130..200).map(|seconds| format!(" {seconds} s")).collect();
            let outages =
                seconds.iter().fold(outages, |text, seconds| text.replace(seconds.as_str(), " … s"));
            assert_eq!(outages, expected);
        }
    }

    #[test]
    fn rejected_pods_are_problems_of_their_source_and_reported_once() {
        let problem = |name: &str| Problem::new(ProblemKind::Duplicate, "http", None, None, name);
        let readiness = of_two_sources();
        let shown = || readiness.sources()[1].problems.iter().map(|p| p.message.clone()).collect::<String>();
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
            readiness.sources()[1].problems.len(),
            PASSED_OVER,
            "an endless series of problems does not fill the memory"
        );
        assert_eq!(readiness.passed_over(Source::Http, true, Vec::new()), []);
        assert_eq!(shown(), "");
    }

    #[test]
    fn the_agent_is_ready_once_every_source_is_in_the_index() {
        let readiness = of_two_sources();
        let seen = readiness.seen();
        for (indexed, missing) in [(&[][..], 2), (&[Source::Http], 1), (&[Source::Http], 1)] {
            readiness.indexed(indexed);
            assert_eq!((*seen.borrow(), readiness.missing().len()), (false, missing));
            assert!(!readiness.is_ready() && !seen.has_changed().unwrap());
        }
        readiness.indexed(&[Source::File]);
        assert!(seen.has_changed().unwrap() && *seen.borrow() && readiness.is_ready());
        assert_eq!(readiness.missing(), [""; 0]);
    }
}
