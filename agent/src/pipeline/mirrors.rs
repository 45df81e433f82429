//! Manages the node's mirror pods, if configured, and reports their state in any case.
//!
//! This module decides when to start and when to stop. `pod_index_kubelet::mirror` decides what a mirror is and creates it.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time;

use super::readiness::Readiness;
use super::writer::Command;
use crate::api::mirrors::{Mirrors as Shown, Pair};
use crate::config::failure::Failure;
use pod_index::{Reader, Snapshot};
use pod_index_kubelet::Pauses;
use pod_index_kubelet::backoff::Backoff;
use pod_index_kubelet::mirror::{KubeMirrorClient, Kubelet, KubeletWatch, Mirrors, MirrorsStatus, plan};
use pod_index_kubelet::records::Record;
use pod_index_kubelet::sources::NodeName;
use pod_index_kubelet::text::api_causes;

/// Interval between kubelet checks while mirror pods are managed.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
/// Shortest and longest pause after a failed kubelet check before that.
const WAITS: Pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(60));

/// What the management needs.
pub(super) struct Work {
    /// The setting that asks for it, as the user wrote it.
    pub(super) asked_by: String,
    pub(super) client: Client,
    pub(super) reader: Reader<Record>,
    pub(super) writer: Sender<Command>,
}

/// The mirror pods of this node and the state of their management.
#[derive(Debug)]
pub(crate) struct MirrorKeeper {
    pub(crate) node: NodeName,
    pub(crate) is_asked_to_keep: bool,
    /// Nothing is changed before every source was read.
    readiness: Arc<Readiness>,
    stage: Mutex<Stage>,
    /// Failed reads of the node's lease. Meanwhile a new kubelet would go unnoticed.
    pub(crate) unread_leases: AtomicU64,
}

#[derive(Debug, Default)]
struct Stage {
    /// The state of the mirrors, once they are managed. Before that, the agent has to rule out a kubelet on the node.
    keeping: Option<watch::Receiver<MirrorsStatus>>,
    /// The error of the kubelet check, or what the check waits for, or the kubelet because of which the agent has stopped.
    problem: Option<String>,
    /// A kubelet came while mirror pods were managed. It manages them from then on.
    has_stood_down: bool,
}

impl MirrorKeeper {
    pub(crate) fn new(node: NodeName, is_asked_to_keep: bool, readiness: Arc<Readiness>) -> Self {
        Self { node, is_asked_to_keep, readiness, stage: Mutex::default(), unread_leases: AtomicU64::new(0) }
    }

    /// The result of the last comparison. Empty before the first.
    pub(crate) fn status(&self) -> MirrorsStatus {
        self.lock().keeping.as_ref().map(|status| status.borrow().clone()).unwrap_or_default()
    }

    /// Whether mirror pods are managed: no kubelet runs on the node, and every source was read.
    pub(crate) fn keeps(&self) -> bool {
        self.status().passes > 0 && !self.lock().has_stood_down
    }

    /// Manages the mirror pods. Returns only if a kubelet runs on the node at the start.
    ///
    /// If a kubelet comes later, it takes over: the agent stops managing them and asks for the static pods that are derived
    /// from them. It does not begin again, because a kubelet that is restarted or upgraded comes back.
    pub(super) async fn keep(&self, Work { asked_by, client, reader, writer }: Work) -> Failure {
        let mut watch = KubeletWatch::new(client.clone(), self.node.as_str());
        if let Some(lease) = self.kubelet(&mut watch, false).await {
            return Failure::Kubelet(format!(
                "{asked_by}: {}; two managers would replace each other's mirror pods",
                self.describe(&lease),
            ));
        }
        tracing::info!(node = self.node.as_str(), "managing the mirror pods of this node");
        let mirrors = Mirrors::new(KubeMirrorClient::new(client, self.node.as_str()));
        self.lock().keeping = Some(mirrors.status());
        // A task of its own, so that a panic ends the agent with an error. What started the agent starts it again.
        let mut managing = JoinSet::from_iter([mirrors.run(reader, self.readiness.seen())]);
        let lease = tokio::select! {
            _ = managing.join_next() => {
                return Failure::Unable("the manager of mirror pods has ended; see the log".to_owned());
            }
            Some(lease) = self.kubelet(&mut watch, true) => lease,
        };
        managing.abort_all();
        self.lock().has_stood_down = true;
        self.warn(format!(
            "{}; it manages them from now on, and this agent shows the static pods that it mirrors. To manage them again \
             once the kubelet is gone, restart the agent",
            self.describe(&lease),
        ));
        // Fails if the writer thread has ended, and then the agent ends.
        let _ = writer.send(Command::DeriveOwn);
        pending().await
    }

    /// Looks for a kubelet: before mirror pods are managed, until it is certain that there is none; while they are, for ever.
    /// Returns the lease of one that runs. Errors are retried.
    async fn kubelet(&self, watch: &mut KubeletWatch, is_managing: bool) -> Option<Box<Lease>> {
        let mut backoff = Backoff::new(WAITS.first, WAITS.longest);
        let mut pause = if is_managing { LOOK_AGAIN } else { Duration::ZERO };
        loop {
            time::sleep(pause).await;
            let problem = match watch.look().await {
                Ok(Kubelet::Live(lease)) => return Some(lease),
                Ok(Kubelet::Unclear(until_expiry)) if !is_managing => {
                    pause = until_expiry;
                    "the node has a lease; waiting to see whether it is renewed before it expires".to_owned()
                }
                Ok(_) => {
                    self.lock().problem = None;
                    if !is_managing {
                        return None;
                    }
                    pause = LOOK_AGAIN;
                    continue;
                }
                Err(error) => {
                    pause = if is_managing { LOOK_AGAIN } else { backoff.wait(Instant::now()) };
                    self.unread_leases.fetch_add(1, Ordering::Relaxed);
                    format!("its lease in kube-node-lease cannot be read: {}", api_causes(&error))
                }
            };
            self.warn(if is_managing {
                format!("mirror pods are managed, but a kubelet on this node would go unnoticed: {problem}")
            } else {
                format!("mirror pods are not managed yet, because a kubelet may run on this node: {problem}")
            });
        }
    }

    /// Logs a problem once and shows it while it lasts.
    fn warn(&self, problem: String) {
        let mut stage = self.lock();
        if stage.problem.as_ref() != Some(&problem) {
            tracing::warn!("{problem}");
            stage.problem = Some(problem);
        }
    }

    /// The kubelet that renews the lease.
    fn describe(&self, lease: &Lease) -> String {
        let spec = lease.spec.clone().unwrap_or_default();
        let renewed = spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        format!(
            "a kubelet runs on the node {:?}: {holder:?} has renewed its lease in kube-node-lease while this agent watched, \
             at {renewed} by its clock",
            self.node.as_str(),
        )
    }

    /// The sources that mirror pods wait for.
    fn unread_sources(&self) -> Option<String> {
        let sources = self.readiness.missing();
        (!sources.is_empty()).then(|| {
            let sources = sources.join("; ");
            format!("no mirror pod is changed yet, because not every source has been read: {sources}")
        })
    }

    /// All static pods and all orphaned mirrors in `snapshot`, with their state.
    pub(crate) fn view(&self, snapshot: &Snapshot<Record>) -> Shown {
        let (managed, problem) = {
            let stage = self.lock();
            (self.is_asked_to_keep && !stage.has_stood_down, stage.problem.clone())
        };
        let unread = managed.then(|| self.unread_sources()).flatten();
        let problems: Vec<_> = problem.into_iter().chain(unread).collect();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        let status = self.status();
        let known: HashMap<&str, _> = status.pods.iter().map(|pod| (pod.full_name.as_str(), pod)).collect();
        let lines = plan(snapshot, self.node.as_str()).into_iter().map(|planned| {
            if !managed {
                return Pair::of(&planned);
            }
            // A result for another state is outdated.
            let known = known.get(planned.full_name.as_str()).filter(|known| known.state == planned.state);
            Pair::managed(&planned, known.copied())
        });
        let (pods, orphans) = lines.partition(|pair: &Pair| pair.pod_uid.is_some());
        Shown {
            managed,
            problem,
            passes: status.passes,
            created: status.created,
            deleted: status.deleted,
            failed: status.failed,
            pods,
            orphans,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
