//! Corrects the mirrors, in a loop.
//!
//! This file schedules the attempts. `plan` decides what should exist, `attempt` and the client apply it, and
//! `tries` decides how long a name has to wait.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio::time;

use super::attempt::{Expected, Outcome, attempt};
use super::client::MirrorErrorKind;
use super::kube::KubeMirrorClient;
use super::plan::{MirrorState, Planned, plan};
use super::status::{MirrorFailure, MirrorStatus, MirrorsStatus, WaitsFor};
use super::tries::{Tries, Waits};
use pod_index::{FullName, PodMeta, Reader, Snapshot};

/// Time between two comparisons if nothing changes: the kubelet's housekeeping period.
const PERIOD: Duration = Duration::from_secs(2);
/// Maximum number of mirrors with an open request.
const CONCURRENCY: usize = 8;
const WAITS: Waits = Waits {
    failure: (Duration::from_secs(1), Duration::from_secs(60)),
    contention: (Duration::from_secs(1), Duration::from_secs(300)),
};
const CONTENDED: &str = "something keeps undoing the correction; does a kubelet, or another agent with other manifests, \
                         also manage the mirror pods of this node?";

/// Keeps the mirror pods of one node up to date.
///
/// # Examples
/// ```no_run
/// use pod_index_kubelet::mirror::{KubeMirrorClient, Mirrors};
///
/// # async fn run(client: kube::Client, reader: pod_index::Reader<k8s_openapi::api::core::v1::Pod>,
/// #     sources_seen: tokio::sync::watch::Receiver<bool>) {
/// let mirrors = Mirrors::new(KubeMirrorClient::new(client, "node-1"), "node-1");
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
    pub backoff: (Duration, Duration),
    /// The waits for one version of one pod whose mirror was corrected three times and undone each time: the
    /// first, and the longest. 1 s and 5 min by default. Resets after three times the longest wait.
    pub contention: (Duration, Duration),
    client: KubeMirrorClient,
    book: Book,
}

/// All state besides the index.
struct Book {
    node: String,
    waits: Waits,
    tries: HashMap<FullName, Tries>,
    under_way: HashSet<FullName>,
    /// Number of attempts so far.
    attempts: u64,
    status: watch::Sender<MirrorsStatus>,
}

impl Mirrors {
    /// Keeps the mirrors of the static pods of `node`.
    #[must_use]
    pub fn new(client: KubeMirrorClient, node: &str) -> Self {
        let book = Book {
            node: node.to_owned(),
            waits: WAITS,
            tries: HashMap::new(),
            under_way: HashSet::new(),
            attempts: 0,
            status: watch::Sender::new(MirrorsStatus::default()),
        };
        let Waits { failure: backoff, contention } = WAITS;
        Self { period: PERIOD, backoff, contention, client, book }
    }

    /// The status. The receiver keeps the last one after the mirrors are dropped.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<MirrorsStatus> {
        self.book.status.subscribe()
    }

    /// Runs the loop: looks once a [`period`](Self#structfield.period), after each publication, and after each answer.
    /// Changes nothing before `sources_seen` is true for the first time. Whenever it becomes false again,
    /// because a source was added that has not been read, no orphan is deleted. Returns only once
    /// `sources_seen` can no longer become true.
    ///
    /// At most one request per pod is under way. A slow request delays other pods only if too many are slow.
    ///
    /// Cancel it by dropping the future; the next run completes the remaining work.
    pub async fn run(self, reader: Reader<Pod>, mut sources_seen: watch::Receiver<bool>) {
        if sources_seen.wait_for(|seen| *seen).await.is_err() {
            return;
        }
        let mut changes = reader.changes();
        let Self { period, backoff: failure, contention, client, mut book } = self;
        book.waits = Waits { failure, contention };
        let mut under_way = FuturesUnordered::new();
        loop {
            // The look covers all publications so far.
            let _ = changes.try_next();
            let planned = look(&mut book, &reader, &mut sources_seen);
            for planned in planned {
                under_way.push(attempt(&client, planned));
            }
            tokio::select! {
                () = time::sleep(period.max(Duration::from_millis(1))) => {}
                // Without a writer there are no more changes to wait for; the period continues.
                Some(_) = changes.next() => {}
                Ok(()) = sources_seen.changed() => {}
                Some(outcome) = under_way.next() => book.learn(outcome, Instant::now()),
            }
            while let Some(Some(outcome)) = under_way.next().now_or_never() {
                book.learn(outcome, Instant::now());
            }
        }
    }
}

/// What to attempt now. The snapshot is not held while requests are under way.
fn look(book: &mut Book, reader: &Reader<Pod>, sources_seen: &mut watch::Receiver<bool>) -> Vec<Planned> {
    let were_seen = *sources_seen.borrow_and_update();
    let snapshot = reader.load();
    // True before and after the load: this snapshot contains everything that the sources report.
    let are_seen = were_seen && !sources_seen.has_changed().unwrap_or(false);
    book.look(&snapshot, are_seen, Instant::now())
}

impl Book {
    /// Compares actual and desired state, publishes the status, and returns what to attempt now.
    ///
    /// Plan and expectations must use the same snapshot: with a newer one, the plan could repeat what was
    /// already done.
    fn look(&mut self, snapshot: &Snapshot<Pod>, sources_seen: bool, now: Instant) -> Vec<Planned> {
        let planned = plan(snapshot, &self.node);
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
    fn settle(&mut self, snapshot: &Snapshot<Pod>, planned: &[Planned], now: Instant) {
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
        match self.tries.entry(full_name) {
            Entry::Occupied(tries) => tries.into_mut(),
            Entry::Vacant(tries) => tries.insert(Tries::new(pod.cloned(), self.waits)),
        }
    }

    fn learn(&mut self, outcome: Outcome, now: Instant) {
        self.under_way.remove(&outcome.full_name);
        // The next look tells.
        self.status.send_if_modified(|status| {
            status.created += u64::from(outcome.created);
            status.deleted += u64::from(outcome.deleted);
            status.failed += u64::from(outcome.error.is_some());
            false
        });
        let time = SystemTime::now();
        let is_success = outcome.is_success();
        let tries = self.tries_of(outcome.full_name.clone(), outcome.pod.as_ref());
        tries.expect(outcome.expected, now);
        if !tries.is_about(outcome.pod.as_ref()) {
            // The pod was edited meanwhile.
            return;
        }
        if let Some(error) = outcome.error {
            let (kind, message) = (error.kind(), error.to_string());
            if tries.fail(MirrorFailure { kind, message: message.clone(), time }, now) {
                tracing::warn!(kind = kind.as_str(), "{message}");
            }
        } else if is_success {
            let kind = MirrorErrorKind::Contended;
            let message = format!("mirror of {:?}: {CONTENDED}", outcome.full_name.as_str());
            if tries.succeed(now, || MirrorFailure { kind, message: message.clone(), time }) {
                tracing::warn!(kind = kind.as_str(), "{message}");
            }
        }
    }

    fn tell(&mut self, pods: Vec<MirrorStatus>) {
        let unseen =
            |(name, tries): &(&FullName, &Tries)| tries.awaits_index() && !self.under_way.contains(*name);
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
        let is_timed = matches!(waits_for, Some(WaitsFor::BackOff | WaitsFor::Contention));
        let next_try = tries.and_then(Tries::next_try).filter(|_| is_timed);
        MirrorStatus {
            full_name: planned.full_name.as_str().to_owned(),
            pod_uid: planned.pod.map(uid),
            mirror_uid: planned.mirror.map(uid),
            state: planned.state,
            waits_for,
            next_try: next_try.map(|next_try| SystemTime::now() + next_try.saturating_duration_since(now)),
            last_failure: tries.and_then(Tries::last_failure).cloned(),
        }
    }
}

/// Whether there is something to do.
fn is_wanted(planned: &Planned) -> bool {
    !matches!(planned.state, MirrorState::InSync | MirrorState::Finished)
}

impl_debug!(Mirrors, period);
