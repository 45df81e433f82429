//! The file source: lists a path periodically, and after file events.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::stream::{BoxStream, StreamExt, unfold};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{oneshot, watch};
use tokio::time;

use super::hints::{Hints, Signal};
use super::list::{Lister, Listing};
use crate::sources::status::{SourceStatus, StatusWriter};
use crate::sources::{NodeName, Nudge, Problem, ProblemKind, Source, SourceUpdate, pod};

/// Default time between two listings.
///
/// Kubelet: `fileCheckFrequency`.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(20);

/// The pause after a hint: a burst of events (an editor's save, an unpacked archive) causes one listing, and
/// a file that is being written is more likely to be complete.
const BURST: Duration = Duration::from_millis(50);

/// A file that takes longer is reported, and read in the background.
const FILE_PATIENCE: Duration = Duration::from_secs(5);

/// A listing that takes longer is reported: the file system hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pods of a manifest directory or file, as a stream that never ends.
///
/// The first item comes at once, whatever the path holds; then the source counts as seen. Later items come
/// when the pods have changed. Each is a [`SourceUpdate::Set`] of all pods, in which unchanged pods are the
/// same [`Arc`]s as before.
///
/// Nothing happens unless polled: a slow consumer gets fewer, newer sets, not a queue of old ones. Poll the
/// stream inside a tokio runtime with time enabled; files are read on threads of their own, so that a file system
/// that hangs stops nothing else.
///
/// # Examples
/// ```
/// use futures_util::StreamExt;
/// use pod_index_kubelet::sources::{NodeName, SourceUpdate, file::FileSource};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let mut source = FileSource::new("/nonexistent/manifests", NodeName::new("node-1"));
/// let Some(SourceUpdate::Set(pods)) = source.next().await else { panic!("a source starts with a set") };
/// assert!(pods.is_empty());
/// assert_eq!(source.status().borrow().problems[0].message(), "does not exist");
/// # });
/// ```
///
/// Kubelet: `NewSourceFile` (`pkg/kubelet/config/file.go`).
#[doc(alias = "NewSourceFile")]
#[must_use = "a stream does nothing unless polled"]
pub struct FileSource {
    updates: BoxStream<'static, SourceUpdate<Pod>>,
    status: watch::Receiver<SourceStatus>,
}

impl FileSource {
    /// The pods that `path` holds for `node`, listed every [`DEFAULT_PERIOD`] and after file events.
    pub fn new(path: impl AsRef<Path>, node: NodeName) -> Self {
        Self::with_period(path, node, DEFAULT_PERIOD)
    }

    /// Like [`new`](Self::new), with another time between two listings. Zero counts as a millisecond.
    pub fn with_period(path: impl AsRef<Path>, node: NodeName, period: Duration) -> Self {
        Self::with_nudge(path, node, period, |_| {}, Nudge::default())
    }

    /// Like [`with_period`](Self::with_period), with a function that changes each pod before it is stored,
    /// such as [`redact_env`](super::super::redact_env). UIDs are derived from the manifest, before the
    /// change. Also lists the path whenever `nudge` is used.
    pub fn with_nudge(
        path: impl AsRef<Path>,
        node: NodeName,
        period: Duration,
        transform: fn(&mut Pod),
        nudge: Nudge,
    ) -> Self {
        let path = path.as_ref();
        let status = StatusWriter::new(Source::File, path.display().to_string());
        let receiver = status.subscribe();
        let following = Following {
            path: path.to_owned(),
            node,
            period: period.max(Duration::from_millis(1)),
            transform,
            nudge,
            worker: None,
            signal: None,
            status,
            said: None,
            cost: Duration::ZERO,
        };
        let updates = unfold(following, async |mut following| {
            let update = following.next().await;
            Some((update, following))
        });
        Self { updates: updates.boxed(), status: receiver }
    }
}

source!(FileSource, Pod);

/// The state between two updates.
struct Following {
    path: PathBuf,
    node: NodeName,
    period: Duration,
    transform: fn(&mut Pod),
    nudge: Nudge,
    /// `None` while it works on its thread, or if it was lost there.
    worker: Option<Worker>,
    /// The worker's hints; `None` before the first listing, which does not wait.
    signal: Option<Arc<Signal>>,
    status: StatusWriter,
    said: Option<Vec<Arc<Pod>>>,
    /// How long the last listing took.
    cost: Duration,
}

/// The part that runs on a thread of its own.
struct Worker {
    lister: Lister,
    hints: Hints,
}

/// The worker's result.
struct Report {
    worker: Worker,
    listing: Listing,
    failed: bool,
    /// Whether there may be pods that it could not see, besides those seen before.
    hides: bool,
    cost: Duration,
}

impl Worker {
    fn work(mut self) -> Report {
        let start = Instant::now();
        let unhinted = self.hints.arm().err();
        let failed = self.lister.list();
        let mut listing = self.lister.listing();
        let hides = failed && listing.problems.iter().all(|problem| problem.kind() != ProblemKind::Missing);
        if let Some(error) = unhinted {
            let message = format!("no file events, so the path is only listed periodically: {error}");
            listing.problems.push(self.lister.path_problem(ProblemKind::Unhinted, &message));
        }
        Report { worker: self, listing, failed, hides, cost: start.elapsed() }
    }
}

impl Following {
    /// The next set that differs from the last one.
    async fn next(&mut self) -> SourceUpdate<Pod> {
        loop {
            self.wait().await;
            let began = Instant::now();
            let worker = self.worker.take().unwrap_or_else(|| Worker {
                lister: Lister::new(&self.path, self.node.clone(), self.transform, FILE_PATIENCE),
                hints: Hints::new(&self.path),
            });
            self.signal = Some(worker.hints.signal());
            let Some(report) = self.report(worker).await else { continue };
            self.cost = report.cost;
            self.worker = Some(report.worker);
            self.status.read(began, report.listing.problems, report.failed);
            // Before the first listing, an empty set would mean that all pods are gone.
            if self.said.is_none() && report.hides {
                continue;
            }
            let pods = report.listing.pods;
            if self.said.as_ref().is_some_and(|said| pod::same(said, &pods)) {
                continue;
            }
            self.status.updated(pods.len());
            self.said = Some(pods.clone());
            return SourceUpdate::Set(pods);
        }
    }

    async fn wait(&mut self) {
        let Some(signal) = &self.signal else { return };
        tokio::select! {
            () = time::sleep(self.period) => {}
            () = signal.hint() => {}
            () = self.nudge.nudged() => {}
        }
        // In a directory that always changes, listing takes at most a third of one core.
        time::sleep(BURST.max(self.cost * 2).min(self.period)).await;
    }

    /// Lists on a thread of its own. On a file system that hangs, this thread waits, and neither the runtime nor its end
    /// does. `None` if the thread panicked: the last set stays, and the next listing starts from scratch.
    async fn report(&mut self, worker: Worker) -> Option<Report> {
        let (sender, mut report) = oneshot::channel();
        let thread = thread::Builder::new().name("manifests".to_owned());
        // The receiver is gone if the source was dropped.
        if let Err(error) = thread.spawn(move || drop(sender.send(worker.work()))) {
            self.failed(&format!("cannot be listed: {error}"));
            return None;
        }
        loop {
            match time::timeout(PATIENCE, &mut report).await {
                Ok(Ok(report)) => return Some(report),
                Ok(Err(_)) => {
                    self.failed("the listing failed: it panicked");
                    return None;
                }
                Err(_) => {
                    self.failed("has not been listed for 10 s: its file system hangs");
                }
            }
        }
    }

    fn failed(&self, message: &str) {
        let path = self.path.display().to_string();
        self.status.read(None, vec![Problem::new(ProblemKind::Unreadable, path, None, None, message)], true);
    }
}

// Other systems do not report that a file was opened.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use notify::event::{AccessKind, EventKind};
    use notify::{RecursiveMode, Watcher};

    use super::*;
    use pod_index::PodMeta;

    fn manifest(name: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}]}}}}"
        )
    }

    /// A change during a listing causes a hint only if the watcher was armed before the listing. The next
    /// periodic listing is an hour away.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn changes_during_the_first_listing_are_not_missed() {
        let directory = std::env::temp_dir().join(format!("pod-index-armed-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for number in 0..100 {
            fs::write(directory.join(format!("p{number}.yaml")), manifest(&format!("p{number}"))).unwrap();
        }
        // The first file in order. It is replaced as soon as the listing opens it, while most files are still
        // to be read.
        let first = directory.join("a.yaml");
        let beside = directory.join(".a.yaml");
        fs::write(&first, manifest("before")).unwrap();
        fs::write(&beside, manifest("after")).unwrap();
        let mut watcher = notify::recommended_watcher({
            let first = first.clone();
            move |event: notify::Result<notify::Event>| {
                if matches!(event.map(|event| event.kind), Ok(EventKind::Access(AccessKind::Open(_)))) {
                    let _ = fs::rename(&beside, &first);
                }
            }
        })
        .unwrap();
        watcher.watch(&first, RecursiveMode::NonRecursive).unwrap();

        let mut source = FileSource::with_period(&directory, NodeName::new("n1"), Duration::from_secs(3600));
        let followed = async {
            while let Some(SourceUpdate::Set(pods)) = source.next().await {
                if pods.iter().any(|pod| pod.name() == "after-n1") {
                    return;
                }
            }
        };
        let followed = time::timeout(Duration::from_secs(60), followed).await;
        let _ = fs::remove_dir_all(&directory);
        assert!(followed.is_ok(), "a change during the listing went unseen");
    }
}
