//! Corrects the mirrors, in a loop.
//!
//! This file schedules the attempts. `plan` decides what should exist, `attempt` and the client apply it, and
//! `tries` decides how long a name has to wait.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio::time;

use super::attempt::{Expected, Outcome, attempt};
use super::kube::KubeMirrorClient;
use super::plan::{MirrorState, Planned, plan};
use super::status::{MirrorStatus, MirrorsStatus, WaitsFor};
use super::tries::{Awaited, Tries, Waits};
use crate::HasPod;
use crate::backoff::{Pauses, bounded_pause};
use pod_index::{FullName, PodMeta, Reader, Snapshot};

/// Maximum number of mirrors with an open request.
const CONCURRENCY: usize = 8;

/// Keeps the mirror pods of one node up to date.
///
/// # Examples
/// ```no_run
/// use pod_index_kubelet::mirror::{KubeMirrorClient, Mirrors};
///
/// # async fn run(client: kube::Client, reader: pod_index::Reader<k8s_openapi::api::core::v1::Pod>,
/// #     sources_seen: tokio::sync::watch::Receiver<bool>) {
/// let mirrors = Mirrors::new(KubeMirrorClient::new(client, "node-1"));
/// let status = mirrors.status();
/// mirrors.run(reader, sources_seen).await;
/// # }
/// ```
///
/// Kubelet: `syncPod` and `HandlePodCleanups` (`pkg/kubelet/kubelet.go`, `pkg/kubelet/kubelet_pods.go`).
pub struct Mirrors {
    /// How often to look if nothing changes. 2 s by default.
    ///
    /// Kubelet: `housekeepingPeriod`.
    pub period: Duration,
    /// The waits after failures for one version of one pod: the first, and the longest. 1 s and 60 s by
    /// default.
    pub backoff: Pauses,
    /// The waits for one version of one pod whose mirror was corrected three times and undone each time: the
    /// first, and the longest. 1 s and 5 min by default. Resets after three times the longest wait.
    pub contention: Pauses,
    client: Arc<KubeMirrorClient>,
    tries: HashMap<FullName, Tries>,
    under_way: HashSet<FullName>,
    /// Number of attempts so far.
    attempts: u64,
    status: watch::Sender<MirrorsStatus>,
}

impl Mirrors {
    /// Keeps the mirrors of the static pods of the client's node.
    #[must_use]
    pub fn new(client: KubeMirrorClient) -> Self {
        Self {
            period: Duration::from_secs(2),
            backoff: Pauses::new(Duration::from_secs(1), Duration::from_secs(60)),
            contention: Pauses::new(Duration::from_secs(1), Duration::from_secs(300)),
            client: Arc::new(client),
            tries: HashMap::new(),
            under_way: HashSet::new(),
            attempts: 0,
            status: watch::Sender::new(MirrorsStatus::default()),
        }
    }

    /// The status. The receiver keeps the last one after the mirrors are dropped.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<MirrorsStatus> {
        self.status.subscribe()
    }

    /// Runs the loop: looks once a [`period`](Self#structfield.period), after each publication, and after each answer.
    /// Changes nothing before `sources_seen` is true for the first time. Whenever it becomes false again,
    /// because a source was added that has not been read, no orphan is deleted. Returns only once
    /// `sources_seen` can no longer become true.
    ///
    /// At most one request per pod is under way. A slow request delays other pods only if too many are slow.
    ///
    /// Cancel it by dropping the future; the next run completes the remaining work.
    pub async fn run<P: HasPod>(mut self, reader: Reader<P>, mut sources_seen: watch::Receiver<bool>) {
        if sources_seen.wait_for(|seen| *seen).await.is_err() {
            return;
        }
        let mut changes = reader.changes();
        let mut under_way = FuturesUnordered::new();
        loop {
            // The look covers all publications so far.
            let _ = changes.try_next();
            for planned in self.look_at(&reader, &mut sources_seen) {
                under_way.push(attempt(Arc::clone(&self.client), planned));
            }
            tokio::select! {
                () = time::sleep(bounded_pause(self.period)) => {}
                // Without a writer there are no more changes to wait for; the period continues.
                Some(_) = changes.next() => {}
                Ok(()) = sources_seen.changed() => {}
                Some(outcome) = under_way.next() => self.learn(outcome, Instant::now()),
            }
            while let Some(Some(outcome)) = under_way.next().now_or_never() {
                self.learn(outcome, Instant::now());
            }
        }
    }

    /// What to attempt now. The snapshot is not held while requests are under way.
    fn look_at<P: HasPod>(
        &mut self,
        reader: &Reader<P>,
        sources_seen: &mut watch::Receiver<bool>,
    ) -> Vec<Planned> {
        let were_seen = *sources_seen.borrow_and_update();
        let snapshot = reader.load();
        // True before and after the load: this snapshot contains everything that the sources report.
        let are_seen = were_seen && !sources_seen.has_changed().unwrap_or(false);
        self.look(&snapshot, are_seen, Instant::now())
    }

    /// Compares actual and desired state, publishes the status, and returns what to attempt now.
    ///
    /// Plan and expectations must use the same snapshot: with a newer one, the plan could repeat what was
    /// already done.
    fn look<P: HasPod>(&mut self, snapshot: &Snapshot<P>, sources_seen: bool, now: Instant) -> Vec<Planned> {
        let planned = plan(snapshot, &self.client.node);
        self.settle(snapshot, &planned, now);
        let is_due =
            |planned: &&Planned| is_wanted(planned) && self.waits_for(planned, sources_seen, now).is_none();
        let mut due: Vec<_> = planned.iter().filter(is_due).cloned().collect();
        // Names tried longest ago, or never, come first, so that permanent failures do not starve others.
        due.sort_by_key(|planned| self.tries.get(&planned.full_name).and_then(|tries| tries.last));
        due.truncate(CONCURRENCY.saturating_sub(self.under_way.len()));
        for planned in &due {
            self.under_way.insert(planned.full_name.clone());
            self.attempts += 1;
            let number = self.attempts;
            self.tries_of(planned.full_name.clone(), planned.pod.as_ref()).last = Some(number);
        }
        let pods = planned.into_iter().map(|planned| self.line(planned, sources_seen, now)).collect();
        self.tell(pods);
        due
    }

    /// Removes obsolete names, and expectations that are met or overdue.
    fn settle<P: PodMeta>(&mut self, snapshot: &Snapshot<P>, planned: &[Planned], now: Instant) {
        let planned: HashMap<_, _> = planned.iter().map(|planned| (&planned.full_name, planned)).collect();
        let is_shown = |expected: &Expected| match expected {
            Expected::Mirror(uid) => snapshot.mirror_pod_by_uid(uid).is_some(),
            Expected::Gone(uid) => snapshot.mirror_pod_by_uid(uid).is_none(),
        };
        self.tries.retain(|name, tries| tries.settle(planned.get(name).copied(), is_shown, now));
    }

    fn waits_for(&self, planned: &Planned, sources_seen: bool, now: Instant) -> Option<WaitsFor> {
        if !is_wanted(planned) {
            return None;
        }
        if self.under_way.contains(&planned.full_name) {
            Some(WaitsFor::Answer)
        } else if planned.state == MirrorState::Orphaned && !sources_seen {
            Some(WaitsFor::Sources)
        } else {
            self.tries.get(&planned.full_name)?.waits_for(now)
        }
    }

    fn tries_of(&mut self, full_name: FullName, pod: Option<&Arc<Pod>>) -> &mut Tries {
        let waits = Waits { failure: self.backoff, contention: self.contention };
        self.tries.entry(full_name).or_insert_with(|| Tries::new(pod.cloned(), waits))
    }

    fn learn(&mut self, outcome: Outcome, now: Instant) {
        let Outcome { planned: Planned { full_name, pod, .. }, deleted, created, expected, failure } =
            outcome;
        self.under_way.remove(&full_name);
        // The next look tells.
        self.status.send_if_modified(|status| {
            status.created += u64::from(created);
            status.deleted += u64::from(deleted);
            status.failed += u64::from(failure.is_some());
            false
        });
        let tries = self.tries_of(full_name.clone(), pod.as_ref());
        tries.awaited = expected.map(|change| Awaited { change, since: now });
        if !tries.is_about(pod.as_ref()) {
            // The pod was edited meanwhile.
            return;
        }
        let news = match failure {
            Some(failure) => tries.fail(failure, now),
            None if deleted || created => tries.succeed(now),
            None => None,
        };
        if let Some(failure) = news {
            tracing::warn!(kind = failure.kind.as_str(), "mirror of {:?}: {failure}", full_name.as_str());
        }
    }

    fn tell(&mut self, pods: Vec<MirrorStatus>) {
        let unseen =
            |(name, tries): &(&FullName, &Tries)| tries.awaited.is_some() && !self.under_way.contains(*name);
        let pending = self.under_way.len() + self.tries.iter().filter(unseen).count();
        self.status.send_modify(|status| {
            status.passes += 1;
            status.pending = pending;
            status.pods = pods;
        });
    }

    fn line(&self, planned: Planned, sources_seen: bool, now: Instant) -> MirrorStatus {
        let uid = |pod: Arc<Pod>| pod.uid().to_owned();
        let tries = self.tries.get(&planned.full_name);
        // A due name that was not started lacks a free slot.
        let waits_for = self.waits_for(&planned, sources_seen, now);
        let waits_for = waits_for.or(is_wanted(&planned).then_some(WaitsFor::Turn));
        MirrorStatus {
            full_name: planned.full_name.as_str().to_owned(),
            pod_uid: planned.pod.map(uid),
            mirror_uid: planned.mirror.map(uid),
            state: planned.state,
            waits_for,
            last_failure: tries.and_then(|tries| tries.failure.clone()),
        }
    }
}

/// Whether there is something to do.
fn is_wanted(planned: &Planned) -> bool {
    !matches!(planned.state, MirrorState::InSync | MirrorState::Finished)
}

impl_debug!(Mirrors, period);
