//! Makes the mirrors what they should be, over and over.
//!
//! This file knows when to try, and when to leave be. What should be is `plan`'s, how to do it the client's.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use futures_util::stream::{self, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio::time;

use super::client::{MirrorClient, MirrorError, Mirrored};
use super::plan::{MirrorState, Planned, plan};
use super::status::{MirrorStatus, MirrorsStatus};
use crate::backoff::Backoff;
use crate::{FullName, MirrorPodUid, PodMeta, Reader, Snapshot};

/// Between two looks, if nothing changes: the kubelet's housekeeping period.
const PERIOD: Duration = Duration::from_secs(2);
/// How many requests may be under way.
const CONCURRENCY: usize = 8;
const LEAST_WAIT: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_secs(60);
/// How long the index may take to show what was done, before it is done again.
const EXPECTATION: Duration = Duration::from_secs(30);

/// Keeps the mirror pods of one node.
///
/// # Examples
/// ```no_run
/// use pod_index::mirror::{KubeMirrorClient, Mirrors};
///
/// # async fn run(client: kube::Client, reader: pod_index::Reader<k8s_openapi::api::core::v1::Pod>,
/// #     sources_seen: tokio::sync::watch::Receiver<bool>, changes: futures_util::stream::Pending<()>) {
/// let mirrors = Mirrors::new(KubeMirrorClient::new(client, "node-1"), "node-1");
/// let status = mirrors.status();
/// mirrors.run(reader, sources_seen, changes).await;
/// # }
/// ```
///
/// Kubelet: `syncPod` and `HandlePodCleanups` (`pkg/kubelet/kubelet.go`, `pkg/kubelet/kubelet_pods.go`).
pub struct Mirrors<C> {
    client: C,
    node: String,
    waits: (Duration, Duration),
    is_ending: Box<dyn Fn(&FullName) -> bool + Send + Sync>,
    tries: HashMap<FullName, Tries>,
    status: watch::Sender<MirrorsStatus>,
}

/// What is remembered of one name.
struct Tries {
    backoff: Backoff,
    not_before: Option<Instant>,
    /// What the index has yet to show.
    expected: Option<(Expected, Instant)>,
    last_error: Option<String>,
}

enum Expected {
    Mirror(MirrorPodUid),
    Gone(MirrorPodUid),
}

/// What came of one attempt.
struct Outcome {
    full_name: FullName,
    deleted: bool,
    created: bool,
    expected: Option<Expected>,
    error: Option<MirrorError>,
}

impl<C: MirrorClient> Mirrors<C> {
    /// The mirrors of the static pods of `node`.
    pub fn new(client: C, node: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
            waits: (LEAST_WAIT, MOST_WAIT),
            is_ending: Box::new(|_| false),
            tries: HashMap::new(),
            status: watch::Sender::new(MirrorsStatus::default()),
        }
    }

    /// The waits after failures for one pod: the first, and the longest. 1 s and 60 s if nothing is said.
    #[must_use]
    pub fn backoff(mut self, least: Duration, most: Duration) -> Self {
        self.waits = (least, most);
        self
    }

    /// Which static pods, gone from the sources, are still ending: their mirrors stay until they have ended, so that
    /// their last status can be told.
    #[must_use]
    pub fn keep_while(mut self, is_ending: impl Fn(&FullName) -> bool + Send + Sync + 'static) -> Self {
        self.is_ending = Box::new(is_ending);
        self
    }

    /// How the mirrors are doing. The receiver keeps the last status when they are dropped.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<MirrorsStatus> {
        self.status.subscribe()
    }

    /// Keeps them, for ever: looks every two seconds, and whenever `changes` says that the index has changed, once all
    /// sources have been seen. Never returns while `sources_seen` can still become true.
    ///
    /// Cancel it by dropping the future; what it was about to do, another run does.
    pub async fn run(
        mut self,
        reader: Reader<Pod>,
        mut sources_seen: watch::Receiver<bool>,
        changes: impl Stream<Item = ()>,
    ) {
        if sources_seen.wait_for(|seen| *seen).await.is_err() {
            return;
        }
        // An end of changes leaves the period.
        let mut changes = std::pin::pin!(changes.chain(stream::pending()));
        loop {
            // The snapshot is not held while the API server is waited for.
            let planned = plan(&reader.load(), &self.node);
            self.pass(planned, &reader).await;
            tokio::select! {
                () = time::sleep(PERIOD) => {}
                _ = changes.next() => {}
            }
        }
    }

    /// One look: what should be done and may be tried, is tried.
    async fn pass(&mut self, planned: Vec<Planned>, reader: &Reader<Pod>) {
        let now = Instant::now();
        self.settle(&reader.load(), &planned, now);
        let due = planned.iter().filter(|planned| self.is_due(planned, now)).cloned();
        let client = &self.client;
        let outcomes = stream::iter(due.collect::<Vec<_>>()).map(|planned| attempt(client, planned));
        let outcomes: Vec<_> = outcomes.buffer_unordered(CONCURRENCY).collect().await;
        let now = Instant::now();
        let (mut created, mut deleted, mut failed) = (0, 0, 0);
        for outcome in outcomes {
            created += u64::from(outcome.created);
            deleted += u64::from(outcome.deleted);
            failed += u64::from(outcome.error.is_some());
            self.learn(outcome, now);
        }
        let pods = planned.iter().map(|planned| self.tell(planned)).collect();
        self.status.send_modify(|status| {
            status.passes += 1;
            status.created += created;
            status.deleted += deleted;
            status.failed += failed;
            status.pods = pods;
        });
    }

    /// Forgets names that are no more, and expectations that are met or overdue.
    fn settle(&mut self, snapshot: &Snapshot<Pod>, planned: &[Planned], now: Instant) {
        let names: HashSet<_> = planned.iter().map(|planned| &planned.full_name).collect();
        self.tries.retain(|name, tries| {
            let open = tries.expected.as_ref().is_some_and(|(expected, since)| {
                let met = match expected {
                    Expected::Mirror(uid) => snapshot.mirror_pod_by_uid(uid).is_some(),
                    Expected::Gone(uid) => snapshot.mirror_pod_by_uid(uid).is_none(),
                };
                !met && now.saturating_duration_since(*since) < EXPECTATION
            });
            if !open {
                tries.expected = None;
            }
            open || names.contains(name)
        });
        for planned in planned.iter().filter(|planned| planned.state == MirrorState::InSync) {
            self.tries.remove(&planned.full_name);
        }
    }

    fn is_due(&self, planned: &Planned, now: Instant) -> bool {
        let wanted = match planned.state {
            MirrorState::InSync | MirrorState::Finished => false,
            MirrorState::Orphaned => !(self.is_ending)(&planned.full_name),
            MirrorState::Missing | MirrorState::WrongHash | MirrorState::Terminating => true,
        };
        wanted
            && self.tries.get(&planned.full_name).is_none_or(|tries| {
                tries.expected.is_none() && tries.not_before.is_none_or(|not_before| not_before <= now)
            })
    }

    fn learn(&mut self, outcome: Outcome, now: Instant) {
        let (least, most) = self.waits;
        let tries = self.tries.entry(outcome.full_name).or_insert_with(|| Tries {
            backoff: Backoff::new(least, most),
            not_before: None,
            expected: None,
            last_error: None,
        });
        tries.expected = outcome.expected.map(|expected| (expected, now));
        if let Some(error) = outcome.error {
            let text = error.to_string();
            if tries.last_error.as_ref() != Some(&text) {
                tracing::warn!(kind = error.kind().as_str(), "{text}");
            }
            tries.last_error = Some(text);
            tries.not_before = Some(now + tries.backoff.wait(now));
        } else {
            tries.last_error = None;
        }
    }

    fn tell(&self, planned: &Planned) -> MirrorStatus {
        let uid = |pod: &std::sync::Arc<Pod>| pod.uid().to_owned();
        MirrorStatus {
            full_name: planned.full_name.as_str().to_owned(),
            pod_uid: planned.pod.as_ref().map(uid),
            mirror_uid: planned.mirror.as_ref().map(uid),
            state: planned.state,
            last_error: self.tries.get(&planned.full_name).and_then(|tries| tries.last_error.clone()),
        }
    }
}

/// Deletes the mirror, if there is one, and creates one, if there should be.
async fn attempt(client: &impl MirrorClient, planned: Planned) -> Outcome {
    let mut outcome =
        Outcome { full_name: planned.full_name, deleted: false, created: false, expected: None, error: None };
    if let Some(mirror) = &planned.mirror {
        let uid = MirrorPodUid::from(mirror.uid());
        match client.delete_mirror_pod(outcome.full_name.as_str(), Some(&uid)).await {
            Ok(deleted) => outcome.deleted = deleted,
            Err(error) => {
                outcome.error = Some(error);
                return outcome;
            }
        }
        // Gone by another hand, or not the one that was seen: either way the index has yet to tell, and until it does,
        // there is nothing to be done.
        outcome.expected = Some(Expected::Gone(uid));
        if !outcome.deleted {
            return outcome;
        }
    }
    let Some(pod) = &planned.pod else { return outcome };
    match client.create_mirror_pod(pod).await {
        Ok(Mirrored::Created(uid)) => {
            outcome.created = true;
            outcome.expected = Some(Expected::Mirror(uid));
        }
        Ok(Mirrored::Existed(uid)) => outcome.expected = Some(Expected::Mirror(uid)),
        Ok(Mirrored::Nowhere) => {}
        Err(error) => outcome.error = Some(error),
    }
    outcome
}

impl<C> fmt::Debug for Mirrors<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirrors").field("node", &self.node).finish_non_exhaustive()
    }
}
