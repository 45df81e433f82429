//! The writer thread, `index`: takes the waiting reports, merges them, joins the pods with what else is told, publishes once (and once
//! more if restored pods go), frees snapshots that readers have released.
//!
//! This module knows the channels, the merge, the join and the writer. It must not know what sources read or who queries.

use std::collections::HashMap;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, at, bounded, never, select, tick, unbounded};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use super::listening::{Listening, Look};
use super::readiness::Readiness;
use super::records::Joining;
use super::removed::KeptRemoved;
use crate::metrics::{Metrics, Writing, number};
use crate::tasks;
use crate::vitals::Heartbeat;
use pod_index::{Moment, Operation, PodMeta, PodUid, Time, Writer};
use pod_index_kubelet::checkpoint::{Restored, Unclaimed};
use pod_index_kubelet::records::{Change, Join, Record};
use pod_index_kubelet::sources::static_pods::OwnNode;
use pod_index_kubelet::sources::{Merge, Merged, Problem, ProblemKind, Source, SourceUpdate};

/// Maximum number of queued reports. A source that is faster than the writer waits. Its next report then covers all
/// changes in the meantime.
const WAITING: usize = 64;

/// Time between two tries to free snapshots that a reader held. A publication tries, too.
const RECLAIM_PAUSE: Duration = Duration::from_millis(200);

/// A report of a source.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) source: Source,
    /// `None` if the pods have not changed.
    pub(crate) update: Option<SourceUpdate<Pod>>,
    /// Whether the last check found no problem, so that a pod it did not name does not exist.
    pub(crate) sound: bool,
    /// When the source's last good read began.
    pub(crate) read: Option<Instant>,
}

/// What the writer thread is told besides reports.
#[derive(Debug)]
pub(crate) enum Command {
    /// To derive the static pods of this node from their mirror pods from now on: the agent managed these, and no longer
    /// does.
    DeriveOwn,
    /// This node's Node object; `None` if it cannot be read.
    OwnNode(Option<OwnNode>),
    /// To end after the current batch.
    Stop,
}

/// What the writer thread works with.
pub(crate) struct Setup {
    pub(crate) writer: Writer<Record>,
    pub(crate) joining: Joining,
    pub(crate) merge: Merge,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) kept_removed: KeptRemoved,
}

/// The writer thread, before it runs.
pub(crate) struct WriterThread {
    pub(crate) work: tasks::Work,
    /// Where the sources send their reports.
    pub(crate) reports: Sender<Report>,
    pub(crate) commands: Sender<Command>,
    /// Whether this node's Node object has to be read.
    pub(crate) needs_own_node: watch::Receiver<bool>,
}

impl WriterThread {
    /// The restored pods are in the index when this returns.
    pub(crate) fn build(
        setup: Setup,
        restored: Option<Restored>,
        sources: &[Source],
        metrics: &mut Metrics,
    ) -> Self {
        let (reports, received) = bounded(WAITING);
        let counts = Writing::register(metrics.ours());
        let queue = reports.clone();
        metrics.collect(move |to| {
            to.gauge("channel_depth", "Updates queued for the writer thread.", number(queue.len()));
            let help = "Maximum number of queued updates; beyond it, sources wait.";
            to.gauge("channel_capacity", help, number(WAITING));
        });
        // At most one command in ten seconds.
        let (commands, commanded) = unbounded();
        let (node_is_needed, needs_own_node) = watch::channel(false);
        let restored = restored.map(|pods| Unclaimed::new(pods, sources.iter().copied()));
        let told = setup.joining.told.clone();
        let work = Work::new(setup, restored, counts, node_is_needed);
        let work = Box::new(move || work.follow(&commanded, &received, told));
        Self { work, reports, commands, needs_own_node }
    }
}

/// What the reports of one turn say.
#[derive(Default)]
struct TakenIn {
    merged: Vec<Merged>,
    /// The sources that have listed all pods that they have.
    listed: Vec<Source>,
    /// The sources whose last check found no problem.
    sound: Vec<Source>,
}

/// The thread's state.
struct Work {
    writer: Writer<Record>,
    join: Join,
    merge: Merge,
    readiness: Arc<Readiness>,
    heartbeat: Heartbeat,
    kept_removed: KeptRemoved,
    counts: Writing,
    /// The restored pods, until their sources have reported.
    restored: Option<Unclaimed>,
    /// Whether this node's Node object has to be read.
    needs_own_node: watch::Sender<bool>,
    listening: Listening,
}

impl Work {
    /// With the restored pods in the index.
    fn new(
        setup: Setup,
        restored: Option<Unclaimed>,
        counts: Writing,
        needs_own_node: watch::Sender<bool>,
    ) -> Self {
        let Setup { writer, joining: Joining { join, .. }, merge, readiness, heartbeat, kept_removed } =
            setup;
        let listening = Listening::new(Moment::now());
        let mut work = Self {
            writer,
            join,
            merge,
            readiness,
            heartbeat,
            kept_removed,
            counts,
            restored,
            needs_own_node,
            listening,
        };
        work.restore();
        work
    }

    /// `told`: of the Namespaces, Nodes and owners of the pods.
    fn follow(
        mut self,
        commands: &Receiver<Command>,
        reports: &Receiver<Report>,
        mut told: Receiver<Change>,
    ) {
        // Not after each turn: reports that change nothing may come faster than the pause is long.
        let reclaiming = tick(RECLAIM_PAUSE);
        let nothing = never();
        loop {
            self.heartbeat.beat();
            let reclaim = if self.writer.retired_snapshots() > 0 { &reclaiming } else { &nothing };
            let expiry = self.merge.next_deadline().map_or_else(never, at);
            let listening = at(self.listening.next_look());
            let forgetting = self.writer.next_deadline().map_or_else(never, at);
            select! {
                recv(reports) -> report => match report {
                    Ok(report) => {
                        let reports = iter::once(report).chain(reports.try_iter()).take(WAITING);
                        self.publish(Merged::default(), reports);
                    }
                    Err(_) => return,
                },
                recv(commands) -> command => match command {
                    Ok(Command::Stop) | Err(_) => return,
                    Ok(Command::DeriveOwn) => {
                        let derived = self.merge.manage_own_mirror_pods(false);
                        self.publish(derived, iter::empty());
                    }
                    Ok(Command::OwnNode(node)) => {
                        let checked = self.merge.own_node(node);
                        self.publish(checked, iter::empty());
                    }
                },
                recv(told) -> change => match change {
                    Ok(change) => {
                        let changes = iter::once(change).chain(told.try_iter()).take(WAITING);
                        self.join_again(changes);
                    }
                    // Nobody follows them.
                    Err(_) => told = never(),
                },
                recv(expiry) -> _ => self.publish(Merged::default(), iter::empty()),
                recv(forgetting) -> _ => { self.writer.advance(Moment::now()); }
                recv(listening) -> _ => {}
                recv(reclaim) -> _ => { self.writer.reclaim(); }
            }
            self.listen(Moment::now(), reports);
            self.count();
        }
    }

    /// Counts what the writer has met since the last time.
    fn count(&mut self) {
        self.counts.retired(self.writer.retired_snapshots(), self.writer.oldest_retired());
        if self.counts.stepped(self.writer.clock_steps()) {
            self.readiness.clock_was_set(Time::now());
            tracing::warn!("the wall clock was set: whois --at knows nothing of the time before");
        }
    }

    /// Publishes the changes, the reports and expired entries together.
    fn publish(&mut self, changes: Merged, reports: impl Iterator<Item = Report>) {
        let now = Moment::now();
        let expired = self.merge.expire(now.instant);
        let TakenIn { merged, listed, sound } = self.take_in(reports);
        let merged: Vec<_> = [changes, expired].into_iter().chain(merged).collect();
        let claims_changed = merged.iter().any(|merged| merged.claims_changed);
        let mut operations: Vec<_> = merged.into_iter().flat_map(Merged::into_operations).collect();
        if let Some(restored) = &mut self.restored {
            for source in sound {
                restored.reported_all(source);
            }
            operations = restored.hold_back(operations, self.writer.current());
        }
        if claims_changed {
            self.report_refused_claims();
        }
        self.ask_for_own_node();
        self.apply(operations, now);
        // Remove these pods before announcing the source: a client must not find pods that the source did not name.
        self.remove_restored();
        self.readiness.indexed(&listed);
    }

    /// Merges the reports.
    fn take_in(&mut self, reports: impl Iterator<Item = Report>) -> TakenIn {
        let mut taken_in = TakenIn::default();
        for Report { source, update, sound, read } in reports {
            if sound {
                taken_in.sound.push(source);
            }
            if let Some(update) = update {
                let is_list = matches!(update, SourceUpdate::Set(_) | SourceUpdate::Incomplete(_));
                if is_list {
                    taken_in.listed.push(source);
                }
                let mut merged = self.merge.update(source, update);
                merged.due.iter().for_each(|due| self.readiness.nudge(*due));
                self.report_problems(source, is_list, mem::take(&mut merged.problems));
                taken_in.merged.push(merged);
            }
            if let Some(began) = read {
                taken_in.merged.push(self.merge.read(source, began, sound));
            }
        }
        taken_in
    }

    /// Counts and logs the pods of an update that the merge has skipped, if they are not known yet.
    fn report_problems(&self, source: Source, is_list: bool, problems: Vec<Problem>) {
        for problem in self.readiness.passed_over(source, is_list, problems) {
            self.counts.refused(problem.kind == ProblemKind::Invalid);
            warn_of(source, &problem);
        }
    }

    fn report_refused_claims(&self) {
        let refused = self.merge.refused_claims().cloned().collect();
        for problem in self.readiness.refused_claims(refused) {
            warn_of(Source::Api, &problem);
        }
    }

    /// Says whether this node's Node object has to be read, if that has changed.
    fn ask_for_own_node(&self) {
        let needed = self.merge.needs_own_node();
        self.needs_own_node.send_if_modified(|before| mem::replace(before, needed) != needed);
    }

    /// Writes the operations to the index, in one publication.
    fn apply(&mut self, operations: Vec<Operation<Pod>>, now: Moment) {
        let started = now.instant;
        let count = operations.len();
        let operations = self.in_bounds(operations, started);
        let records = self.join.apply(operations.into_iter().map(Change::Pod));
        let applied = self.writer.apply_at(now, records);
        // The merge has refused what the index would refuse.
        self.counts.applied(count, started.elapsed());
        if applied.published {
            let pods = self.writer.current().pods().len();
            tracing::debug!(generation = applied.generation, operations = count, pods, "published");
        }
    }

    /// Publishes the pods whose Namespaces, Nodes or owners have changed.
    fn join_again(&mut self, changes: impl Iterator<Item = Change>) {
        let records = self.join.apply(changes);
        let operations = records.len();
        let applied = self.writer.apply_at(Moment::now(), records);
        if applied.published {
            tracing::debug!(
                generation = applied.generation,
                operations,
                "published what pods are joined with"
            );
        }
    }

    /// Says of which times everything is known, once a second, if no report waits.
    fn listen(&mut self, now: Moment, reports: &Receiver<Report>) {
        if !self.listening.is_due(now.instant, reports.len()) {
            return;
        }
        let covered = self.listening.covered(now);
        if let Some(since) = self.listening.since_step(&covered) {
            self.readiness.told_after_clock_was_set(since);
        }
        self.writer.advance(covered);
        let age = self.readiness.age();
        let relists = self.readiness.relists();
        let all_told = self.merge.all_sources_seen() && self.restored.is_none();
        self.listening.look(now, &Look { age, relists, all_told });
    }

    /// Publishes the restored pods before any source has reported.
    fn restore(&mut self) {
        let Some(restored) = &self.restored else { return };
        let pods = restored.operations().map(Change::Pod);
        for refused in self.join.write(&mut self.writer, pods).refused {
            tracing::warn!("a restored pod is skipped: {}", refused.error);
        }
    }

    /// The operations, so that the removed pods that the index keeps do not take too much memory: a pod for which there is no
    /// room is replaced by a smaller form first. No snapshot has that as a current pod.
    fn in_bounds(&mut self, operations: Vec<Operation<Pod>>, now: Instant) -> Vec<Operation<Pod>> {
        if !operations.iter().any(|operation| matches!(operation, Operation::Remove(_))) {
            return operations;
        }
        let mut all = Vec::with_capacity(operations.len());
        // What the index will have of a pod when the next operation comes, if it is not what it has now.
        let mut stored: HashMap<PodUid, Arc<Pod>> = HashMap::new();
        for operation in operations {
            match &operation {
                Operation::Upsert(pod) => {
                    stored.insert(PodUid::from(pod.uid()), Arc::clone(pod));
                }
                Operation::Remove(uid) => {
                    let pod = stored.remove(uid).or_else(|| self.in_index(uid));
                    let smaller = pod.and_then(|pod| self.kept_removed.instead(&pod, now));
                    all.extend(smaller.map(|pod| Operation::Upsert(Arc::new(pod))));
                }
                // The merge makes none.
                Operation::Set(_) => {}
            }
            all.push(operation);
        }
        all
    }

    /// The pod or mirror pod that the index has under this UID.
    fn in_index(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        let snapshot = self.writer.current();
        let record = snapshot.pod_by_uid(uid).or_else(|| snapshot.mirror_pod_by_uid(uid))?;
        Some(Arc::clone(record.pod()))
    }

    /// Removes restored pods that a source did not name.
    fn remove_restored(&mut self) {
        let Some(restored) = &self.restored else { return };
        let gone = restored.gone(self.writer.current());
        for uid in &gone {
            tracing::debug!(%uid, "a restored pod is removed: its source does not name it");
        }
        if !gone.is_empty() {
            tracing::info!(pods = gone.len(), "restored pods are removed: their sources do not name them");
        }
        // A removal is never refused.
        let gone = self.in_bounds(gone.into_iter().map(Operation::Remove).collect(), Instant::now());
        let _ = self.join.write(&mut self.writer, gone.into_iter().map(Change::Pod));
        self.restored.take_if(|restored| restored.is_over());
    }
}

fn warn_of(source: Source, problem: &Problem) {
    let field = problem.field.as_deref();
    tracing::warn!(source = source.as_str(), path = problem.origin, field, "{}", problem.message);
}

#[cfg(test)]
mod tests;
