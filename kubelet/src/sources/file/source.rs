//! The file source: lists a path periodically, and after file events.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;

use super::hints::Hints;
use super::list::{Contents, Files, problem};
use crate::blocking::{Job, OneThread};
use crate::sources::skeleton::{Pace, Read, Reading, poll};
use crate::sources::status::StatusWriter;
use crate::sources::{NodeName, Nudge, ProblemKind, Source, Updates};

/// Default time between two listings.
///
/// Kubelet: `fileCheckFrequency`.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(20);

/// The pause after a hint: a burst of events (an editor's save, an unpacked archive) causes one listing, and
/// a file that is being written is more likely to be complete.
const BURST: Duration = Duration::from_millis(50);

/// The longest such pause: a listing during which the machine was suspended must not delay the next one for long.
const LONGEST_BURST: Duration = Duration::from_secs(1);

/// A listing that takes longer is reported: the file system hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Follows the pods that a manifest directory or file holds for `node`. Lists it every [`DEFAULT_PERIOD`] and after file
/// events.
///
/// The first item comes at once, whatever the path holds; then the source counts as seen. Later items come
/// when the pods have changed. Each is a [`SourceUpdate::Set`](crate::sources::SourceUpdate::Set) of all pods, in which unchanged pods are the
/// same [`Arc`]s as before.
///
/// The path is listed, and its files are read, on a thread of its own, so that a file system that hangs stops nothing
/// else. Until it answers, the last pods stay, and the status has a problem.
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
/// assert_eq!(source.status().borrow().problems[0].message, "does not exist");
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
    // Without a trailing separator, so that `manifests` and `manifests/` give the same UIDs.
    let path: PathBuf = path.as_ref().components().collect();
    let status = StatusWriter::new(Source::File, path.display().to_string());
    let hint = Nudge::default();
    let files = Files::new(&path, node, transform);
    let reading = Arc::clone(&files.reading);
    let look = Look { hints: Hints::new(&path, Arc::clone(&hint)), files };
    let reader = Manifests { path, look: Arc::new(Mutex::new(look)), reading, listing: None };
    let pace = Pace { period, nudge, hint, settle: burst, apart: Duration::ZERO, repeats: false };
    poll(reader, pace, "source-file", status)
}

/// Lists the path, and reads its files.
struct Manifests {
    path: PathBuf,
    look: Arc<Mutex<Look>>,
    /// The file that the listing is reading.
    reading: Arc<Mutex<Option<PathBuf>>>,
    /// A listing that has not ended.
    listing: Option<Job<Listed>>,
}

/// What a thread needs to list the path.
struct Look {
    hints: Hints,
    files: Files,
}

/// What a listing has found.
struct Listed {
    /// Whether file events will be reported.
    watched: notify::Result<()>,
    contents: Contents,
    /// Why the path could not be listed.
    failure: Option<ProblemKind>,
}

impl Look {
    /// Watches the path, lists it and reads its files.
    fn list(&mut self) -> Listed {
        let watched = self.hints.watch();
        let failure = self.files.read();
        Listed { watched, contents: self.files.contents(), failure }
    }
}

impl Read for Manifests {
    async fn read(&mut self, thread: &OneThread) -> Reading {
        let mut job = if let Some(job) = self.listing.take() {
            job
        } else {
            let look = Arc::clone(&self.look);
            let list = move || look.lock().unwrap_or_else(PoisonError::into_inner).list();
            match thread.start(list) {
                Ok(job) => job,
                Err(unfinished) => return self.failed(&format!("cannot be listed: {unfinished}")),
            }
        };
        if let Ok(listed) = job.within(PATIENCE).await {
            return self.reading(job.started, listed);
        }
        self.listing = Some(job);
        let failed = match self.reading.lock().unwrap_or_else(PoisonError::into_inner).as_deref() {
            Some(file) => self.failed(&format!("has not been read for 10 s: {} hangs", file.display())),
            None => self.failed("has not been listed for 10 s: its file system hangs"),
        };
        Reading { again_within: Some(Duration::ZERO), ..failed }
    }

    /// The files that were read before count on: each is replaced as a whole.
    fn begin_anew(&mut self) {
        self.listing = None;
    }
}

impl Manifests {
    fn reading(&self, began: Instant, Listed { watched, contents, failure }: Listed) -> Reading {
        let Contents { pods, mut problems } = contents;
        if let Err(error) = watched {
            let message = format!("no file events, so the path is only listed periodically: {error}");
            problems.push(problem(ProblemKind::Unhinted, &self.path, &message));
        }
        match failure {
            None => Reading::complete(began, Some(pods), problems),
            // It has no pods, which is known for sure.
            Some(ProblemKind::Missing) => Reading { pods: Some(pods), ..Reading::failed(began, problems) },
            Some(_) => Reading::failed(began, problems),
        }
    }

    fn failed(&self, message: &str) -> Reading {
        Reading::failed(Instant::now(), vec![problem(ProblemKind::Unreadable, &self.path, message)])
    }
}

/// The pause after a hint, if the last listing took `cost`: in a directory that always changes, listing takes at most a
/// third of one core, unless it takes longer than half a second.
fn burst(cost: Duration) -> Duration {
    (cost * 2).clamp(BURST, LONGEST_BURST)
}

// Other systems do not report that a file was opened.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use notify::event::{AccessKind, EventKind};
    use notify::{RecursiveMode, Watcher};

    use std::thread;

    use futures_util::StreamExt;
    use pod_index::PodMeta;
    use tokio::time;

    use super::*;
    use crate::sources::{SourceStatus, SourceUpdate};

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

    /// The clock stands still and moves on whenever the runtime has nothing to do.
    #[tokio::test(start_paused = true)]
    async fn while_a_file_hangs_the_last_pods_stay_and_it_is_read_once_it_can_be() {
        let directory = pod_index_test_support::files::Directory::new();
        directory.write("a.yaml", manifest("a"));
        let hang = |pod: &mut Pod| {
            READS.fetch_add(usize::from(pod.name() == "slow-n1"), Ordering::Relaxed);
            while pod.name() == "slow-n1" && !IS_RELEASED.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(10));
            }
        };
        let node = NodeName::new("n1");
        let period = Duration::from_millis(100);
        let mut source = follow_with(directory.path(), node, period, hang, Nudge::default());
        let mut status = source.status();
        let mut next = async || {
            let Some(SourceUpdate::Set(pods)) = source.next().await else { panic!("a set") };
            pods.iter().map(|pod| pod.name().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(next().await, "a-n1");
        directory.write("slow.yaml", manifest("slow"));
        let is_reported = |status: &SourceStatus| {
            status.problems.iter().any(|problem| problem.message.ends_with("slow.yaml hangs"))
                && READS.load(Ordering::Relaxed) == 1
        };
        tokio::select! {
            names = next() => panic!("the last pods stay, not {names}"),
            reported = status.wait_for(is_reported) => assert_eq!(reported.unwrap().pods, 1),
        }
        IS_RELEASED.store(true, Ordering::Relaxed);
        assert_eq!(next().await, "a-n1 slow-n1");
        assert_eq!(READS.load(Ordering::Relaxed), 1);
    }

    /// How often the manifest on which the reader panics was decoded.
    static PANICS: AtomicUsize = AtomicUsize::new(0);

    #[tokio::test]
    async fn a_file_on_which_the_reader_panics_costs_no_other_and_is_not_decoded_again_until_it_changes() {
        let directory = pod_index_test_support::files::Directory::new();
        for name in ["a", "bad", "z"] {
            directory.write(&format!("{name}.yaml"), manifest(name));
        }
        let transform = |pod: &mut Pod| {
            if pod.name() == "bad-n1" {
                PANICS.fetch_add(1, Ordering::Relaxed);
                panic!("the test's panic");
            }
        };
        let nudge = Nudge::default();
        let hour = Duration::from_secs(3600);
        let mut source =
            follow_with(directory.path(), NodeName::new("n1"), hour, transform, Arc::clone(&nudge));
        let mut status = source.status();
        let Some(SourceUpdate::Set(pods)) = source.next().await else { panic!("a set") };
        assert_eq!(pods.iter().map(|pod| pod.name()).collect::<Vec<_>>(), ["a-n1", "z-n1"]);
        {
            let status = status.borrow();
            let [problem] = &status.problems[..] else { panic!("one problem, not {:?}", status.problems) };
            assert_eq!(problem.kind, ProblemKind::Defect, "{problem}");
            assert!(problem.origin.ends_with("bad.yaml"), "{problem}");
        }
        // More listings of the same file.
        for listing in 2..4 {
            nudge.notify_one();
            tokio::select! {
                _ = source.next() => panic!("nothing has changed"),
                listed = status.wait_for(|status| status.checks >= listing) => drop(listed.unwrap()),
            }
        }
        assert_eq!(PANICS.load(Ordering::Relaxed), 1);
        directory.write("bad.yaml", manifest("good"));
        let Some(SourceUpdate::Set(pods)) = source.next().await else { panic!("a set") };
        assert_eq!(pods.len(), 3);
        assert_eq!(status.borrow().problems, []);
    }
}
