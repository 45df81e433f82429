//! The file source: lists a path periodically, and after file events.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::stream::unfold;
use k8s_openapi::api::core::v1::Pod;
use notify::RecommendedWatcher;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time;

use super::hints::watch;
use super::list::{FileState, Files};
use crate::sources::status::StatusWriter;
use crate::sources::{NodeName, Nudge, ProblemKind, Source, SourceUpdate, Updates};

/// Default time between two listings.
///
/// Kubelet: `fileCheckFrequency`.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(20);

/// The pause after a hint: a burst of events (an editor's save, an unpacked archive) causes one listing, and
/// a file that is being written is more likely to be complete.
const BURST: Duration = Duration::from_millis(50);

/// The longest such pause: a listing during which the machine was suspended must not delay the next one for long.
const LONGEST_BURST: Duration = Duration::from_secs(1);

/// A file that takes longer is reported, and read in the background.
const FILE_PATIENCE: Duration = Duration::from_secs(5);

/// Limit of threads that read late files.
const MOST_LATE: usize = 8;

/// A listing that takes longer is reported: the file system hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Follows the pods that a manifest directory or file holds for `node`. Lists it every [`DEFAULT_PERIOD`] and after file
/// events.
///
/// The first item comes at once, whatever the path holds; then the source counts as seen. Later items come
/// when the pods have changed. Each is a [`SourceUpdate::Set`] of all pods, in which unchanged pods are the
/// same [`Arc`]s as before.
///
/// Files are read on threads of their own, so that a file system that hangs stops nothing else.
///
/// # Examples
/// ```
/// use futures_util::StreamExt;
/// use pod_index_kubelet::sources::{NodeName, SourceUpdate, file};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let mut source = file::follow("/nonexistent/manifests", NodeName::new("node-1"));
/// let Some(SourceUpdate::Set(pods)) = source.next().await else { panic!("a source starts with a set") };
/// assert!(pods.is_empty());
/// assert_eq!(source.status().borrow().problems[0].message(), "does not exist");
/// # });
/// ```
///
/// Kubelet: `NewSourceFile` (`pkg/kubelet/config/file.go`).
#[doc(alias = "NewSourceFile")]
pub fn follow(path: impl AsRef<Path>, node: NodeName) -> Updates<Pod> {
    follow_with(path, node, DEFAULT_PERIOD, |_| {}, Nudge::default())
}

/// Like [`follow`], with another time between two listings, and with a function that changes each pod before it is stored,
/// such as [`redact_env`](super::super::redact_env). A period of zero counts as a millisecond. UIDs are derived from the manifest,
/// before the change. Also lists the path whenever `nudge` is used.
pub fn follow_with(
    path: impl AsRef<Path>,
    node: NodeName,
    period: Duration,
    transform: fn(&mut Pod),
    nudge: Nudge,
) -> Updates<Pod> {
    let path = path.as_ref();
    let status = StatusWriter::new(Source::File, path.display().to_string());
    let receiver = status.subscribe();
    let following = Following {
        files: Files::new(path, node, transform),
        late: BTreeMap::new(),
        period: period.max(Duration::from_millis(1)),
        nudge,
        hint: Arc::default(),
        watcher: None,
        status,
        said: None,
        cost: None,
    };
    let updates = unfold(following, async |mut following| {
        let update = following.next().await;
        Some((update, following))
    });
    Updates::new(updates, receiver)
}

/// The state between two updates.
struct Following {
    files: Files,
    /// The files that did not come in time, and their readers.
    late: BTreeMap<PathBuf, Reader>,
    period: Duration,
    nudge: Nudge,
    hint: Arc<Notify>,
    /// Of the last listing.
    watcher: Option<RecommendedWatcher>,
    status: StatusWriter,
    said: Option<Vec<Arc<Pod>>>,
    /// How long the last listing took; `None` before the first one, which does not wait.
    cost: Option<Duration>,
}

/// A thread that reads files in turn.
struct Reader {
    /// What it found, in the order of the files. `None`: the file is gone.
    looks: mpsc::UnboundedReceiver<Option<Arc<FileState>>>,
    /// It ends after the file that it reads now, or one more: another reader has the next ones.
    is_left: Arc<AtomicBool>,
}

impl Following {
    /// The next set that differs from the last one.
    async fn next(&mut self) -> SourceUpdate<Pod> {
        loop {
            self.wait().await;
            let began = Instant::now();
            self.cost.get_or_insert_default();
            let Some((watcher, names)) = self.names().await else { continue };
            let names = self.files.named(names);
            // Without a listing, files that hang keep their threads.
            if self.files.problem.is_none() {
                self.read(names).await;
            }
            let mut listing = self.files.listing();
            let problem = self.files.problem.as_ref();
            // Whether there may be pods that it could not see, besides those seen before.
            let hides = problem.is_some_and(|problem| problem.kind() != ProblemKind::Missing);
            let failed = problem.is_some();
            match watcher {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(error) => {
                    let message = format!("no file events, so the path is only listed periodically: {error}");
                    listing.problems.push(self.files.path_problem(ProblemKind::Unhinted, &message));
                }
            }
            self.cost = Some(began.elapsed());
            self.status.read(began, listing.problems, failed);
            // Before the first listing, an empty set would mean that all pods are gone.
            if self.said.is_none() && hides {
                continue;
            }
            if let Some(update) = self.status.news(&mut self.said, listing.pods) {
                return update;
            }
        }
    }

    async fn wait(&mut self) {
        let Some(cost) = self.cost else { return };
        tokio::select! {
            () = time::sleep(self.period) => {}
            () = self.hint.notified() => {}
            () = self.nudge.nudged() => {}
        }
        time::sleep(burst(cost).min(self.period)).await;
    }

    /// Watches the path, and lists it, on a thread of its own. On a file system that hangs, this thread waits, and
    /// neither the runtime nor its end does. `None` if there is no answer: the last set stays.
    async fn names(&mut self) -> Option<(notify::Result<RecommendedWatcher>, io::Result<Vec<PathBuf>>)> {
        let (reading, hint) = (Arc::clone(&self.files.reading), Arc::clone(&self.hint));
        self.watcher = None;
        let listed = on_thread(move || (watch(&reading.path, hint), reading.names()));
        let mut listed = listed.map_err(|error| self.failed(&format!("cannot be listed: {error}"))).ok()?;
        loop {
            match time::timeout(PATIENCE, &mut listed).await {
                Ok(Ok(listed)) => return Some(listed),
                Ok(Err(_)) => {
                    self.failed("the listing failed: it panicked");
                    return None;
                }
                Err(_) => self.failed("has not been listed for 10 s: its file system hangs"),
            }
        }
    }

    /// Reads the files. One that hangs or takes long keeps its thread, and holds up the others only once.
    async fn read(&mut self, names: Vec<PathBuf>) {
        // A thread that hangs counts even if its file is gone.
        self.late.retain(|path, reader| {
            names.contains(path) || matches!(reader.looks.try_recv(), Err(mpsc::error::TryRecvError::Empty))
        });
        let mut current = None;
        for (at, path) in names.iter().enumerate() {
            let (mut reader, patience) = match self.late.remove(path) {
                Some(reader) => (reader, Duration::ZERO),
                None => match current.take().map_or_else(|| self.reader(&names[at..]), Ok) {
                    Ok(reader) => (reader, FILE_PATIENCE),
                    Err(message) => {
                        self.files.unread(path, &message);
                        continue;
                    }
                },
            };
            match time::timeout(patience, reader.looks.recv()).await {
                Ok(Some(look)) => {
                    self.files.found(path, look);
                    if patience.is_zero() {
                        // It may be older than the event that led here.
                        self.hint.notify_one();
                    } else {
                        current = Some(reader);
                    }
                }
                Ok(None) => self.files.unread(path, "reading it failed: it panicked"),
                Err(_) => {
                    let message = format!(
                        "not read within {FILE_PATIENCE:?}: its file system hangs, or it is too large"
                    );
                    self.files.unread(path, &message);
                    reader.is_left.store(true, Ordering::Relaxed);
                    self.late.insert(path.clone(), reader);
                }
            }
        }
    }

    /// Starts a thread that reads these files one by one, without the late ones.
    fn reader(&self, names: &[PathBuf]) -> Result<Reader, String> {
        if self.late.len() >= MOST_LATE {
            return Err(format!("not read, because {MOST_LATE} other files hang"));
        }
        let names = names.iter().filter(|path| !self.late.contains_key(*path));
        let files: Vec<_> = names.map(|path| (path.clone(), self.files.file(path))).collect();
        let reading = Arc::clone(&self.files.reading);
        let (sender, looks) = mpsc::unbounded_channel();
        let reader = Reader { looks, is_left: Arc::default() };
        let is_left = Arc::clone(&reader.is_left);
        let work = move || {
            for (path, before) in files {
                let sent = sender.send(reading.look(&path, before.as_ref()));
                if sent.is_err() || is_left.load(Ordering::Relaxed) {
                    return;
                }
            }
        };
        on_thread(work).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(reader)
    }

    fn failed(&self, message: &str) {
        let problem = self.files.path_problem(ProblemKind::Unreadable, message);
        self.status.read(None, vec![problem], true);
    }
}

/// The pause after a hint, if the last listing took `cost`: in a directory that always changes, listing takes at most a
/// third of one core, unless it takes longer than half a second.
fn burst(cost: Duration) -> Duration {
    (cost * 2).clamp(BURST, LONGEST_BURST)
}

/// Starts the work on a thread of its own. The runtime's threads for blocking work are few.
fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (sender, receiver) = oneshot::channel();
    // Nobody may wait for it.
    let thread = move || drop(sender.send(work()));
    thread::Builder::new().name("manifests".to_owned()).spawn(thread)?;
    Ok(receiver)
}

// Other systems do not report that a file was opened.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::sync::atomic::AtomicUsize;

    use notify::event::{AccessKind, EventKind};
    use notify::{RecursiveMode, Watcher};

    use futures_util::StreamExt;

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

        let mut source =
            follow_with(&directory, NodeName::new("n1"), Duration::from_secs(3600), |_| {}, Nudge::default());
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

    #[test]
    fn a_listing_during_which_the_machine_was_suspended_delays_the_next_one_by_a_second_at_most() {
        let [no, some, long] = [0, 200, 60_000].map(Duration::from_millis);
        assert_eq!([no, some, long].map(burst), [BURST, 2 * some, Duration::from_secs(1)]);
    }

    static IS_RELEASED: AtomicBool = AtomicBool::new(false);
    /// How often the file that hangs was read.
    static READS: AtomicUsize = AtomicUsize::new(0);

    /// A file that hangs neither delays the others nor loses its pod, and takes one thread.
    #[tokio::test]
    async fn a_file_that_hangs_delays_no_other_and_is_read_once_it_can_be() {
        let directory = pod_index_test_support::files::Directory::new();
        for name in ["a", "slow", "z"] {
            directory.write(&format!("{name}.yaml"), manifest(name));
        }
        let hang = |pod: &mut Pod| {
            READS.fetch_add(usize::from(pod.name() == "slow-n1"), Ordering::Relaxed);
            while pod.name() == "slow-n1" && !IS_RELEASED.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(10));
            }
        };
        let (node, period) = (NodeName::new("n1"), Duration::from_millis(100));
        let mut source = follow_with(directory.path(), node, period, hang, Nudge::default());
        let mut next = async || {
            let Some(SourceUpdate::Set(pods)) = source.next().await else { panic!("a set") };
            let names: Vec<_> = pods.iter().map(|pod| pod.name().to_owned()).collect();
            (names.join(" "), source.status().borrow().problems.clone())
        };
        let (names, problems) = next().await;
        assert_eq!(names, "a-n1 z-n1");
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(
            problem.origin().ends_with("slow.yaml") && problem.message().contains("within 5s"),
            "{problem}"
        );
        // While it hangs, the others are followed.
        directory.write("b.yaml", manifest("b"));
        assert_eq!(next().await.0, "a-n1 b-n1 z-n1");
        IS_RELEASED.store(true, Ordering::Relaxed);
        assert_eq!(next().await, ("a-n1 b-n1 slow-n1 z-n1".to_owned(), Vec::new()));
        assert_eq!(READS.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_file_on_which_the_reader_panics_costs_no_other() {
        let directory = pod_index_test_support::files::Directory::new();
        for name in ["a", "bad", "z"] {
            directory.write(&format!("{name}.yaml"), manifest(name));
        }
        let transform = |pod: &mut Pod| assert_ne!(pod.name(), "bad-n1", "the test's panic");
        let (node, period) = (NodeName::new("n1"), Duration::from_secs(3600));
        let mut source = follow_with(directory.path(), node, period, transform, Nudge::default());
        let Some(SourceUpdate::Set(pods)) = source.next().await else { panic!("a set") };
        assert_eq!(pods.iter().map(PodMeta::name).collect::<Vec<_>>(), ["a-n1", "z-n1"]);
        let [problem] = &source.status().borrow().problems.clone()[..] else { panic!("one problem") };
        assert!(
            problem.origin().ends_with("bad.yaml") && problem.message().contains("panicked"),
            "{problem}"
        );
    }
}
