//! The pods of a path's files. Unchanged files are not decoded again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;

use super::read::read;
use crate::sources::manifest::{self, Origin};
use crate::sources::skeleton::{Admission, Admitted, as_first_seen, objects};
use crate::sources::{NodeName, Problem, ProblemKind, Source};
use crate::text::PANICKED;
use pod_index::PodMeta;

/// The pods and problems of a path at one moment.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The pods, ordered by file; no two have the same full name or UID.
    pub pods: Vec<Arc<Pod>>,
    /// What could not be used, and why.
    pub problems: Vec<Problem>,
}

/// Lists a manifest directory, or one manifest file, once.
///
/// Returns the pods as the kubelet of `node` would run them, and all problems. It never fails: a path that
/// does not exist holds no pods and is a problem.
///
/// # Complexity
/// Reads and decodes every file. To follow a path, use a source, which decodes only changed files.
///
/// # Examples
/// ```
/// use pod_index_kubelet::sources::{NodeName, ProblemKind, file};
///
/// let listing = file::list("/nonexistent/manifests", &NodeName::new("node-1"));
/// assert!(listing.pods.is_empty());
/// assert_eq!(listing.problems[0].kind, ProblemKind::Missing);
/// ```
///
/// Kubelet: `listConfig` (`pkg/kubelet/config/file.go`).
#[doc(alias = "listConfig")]
#[doc(alias = "extractFromDir")]
#[must_use]
pub fn list(path: impl AsRef<Path>, node: &NodeName) -> Listing {
    let path: PathBuf = path.as_ref().components().collect();
    let mut files = Files::new(&path, node.clone(), |_| {});
    files.read();
    let Contents { pods, problems } = files.contents();
    Listing { pods: objects(&pods), problems }
}

/// The files of a path, as last read.
pub(super) struct Files {
    path: PathBuf,
    node: NodeName,
    admission: Admission,
    hasher: RandomState,
    /// Sorted by name.
    by_path: BTreeMap<PathBuf, Arc<FileState>>,
    /// A problem with the path itself.
    problem: Option<Problem>,
    /// The file that is being read. Another thread asks for it when the reading takes too long.
    pub(super) reading: Arc<Mutex<Option<PathBuf>>>,
}

/// State of one file.
#[derive(Default)]
struct FileState {
    /// A hash of what was decoded.
    content: Option<u64>,
    /// Its pods. While the file is invalid, the pods of its last valid version.
    pods: Vec<Admitted>,
    problems: Vec<Problem>,
}

/// The pods and problems of all files.
pub(super) struct Contents {
    pub(super) pods: Vec<Admitted>,
    pub(super) problems: Vec<Problem>,
}

impl Files {
    pub(super) fn new(path: &Path, node: NodeName, transform: fn(&mut Pod)) -> Self {
        Self {
            path: path.to_owned(),
            node,
            admission: Admission { role: Source::File, transform },
            hasher: RandomState::new(),
            by_path: BTreeMap::new(),
            problem: None,
            reading: Arc::default(),
        }
    }

    /// Reads all files. Returns why the path could not be listed.
    pub(super) fn read(&mut self) -> Option<ProblemKind> {
        *self.reading() = None;
        let failure = match self.names() {
            Ok(names) => {
                let look = |path: PathBuf| {
                    *self.reading() = Some(path.clone());
                    let file = self.look(&path, self.by_path.get(&path))?;
                    Some((path, file))
                };
                self.by_path = names.into_iter().filter_map(look).collect();
                *self.reading() = None;
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.by_path.clear();
                Some((ProblemKind::Missing, "does not exist".to_owned()))
            }
            // The pods may still exist; they stay.
            Err(error) => Some((ProblemKind::Unreadable, format!("cannot be listed: {error}"))),
        };
        self.problem = failure.map(|(kind, message)| problem(kind, &self.path, &message));
        self.problem.as_ref().map(|problem| problem.kind)
    }

    fn reading(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pods and problems now.
    pub(super) fn contents(&self) -> Contents {
        let mut problems: Vec<Problem> = self.problem.iter().cloned().collect();
        // Names and UIDs in use, and by which file. No namespace is empty.
        let mut taken: HashMap<(&str, &str), &PathBuf> = HashMap::new();
        // In reverse, because the last of several files wins.
        let mut pods = Vec::new();
        let mut duplicates = Vec::new();
        for (path, file) in self.by_path.iter().rev() {
            for pod in file.pods.iter().rev() {
                let keys =
                    [("metadata.uid", ("", pod.uid())), ("metadata.name", (pod.namespace(), pod.name()))];
                if let Some((field, winner)) =
                    keys.iter().find_map(|(field, key)| Some((field, taken.get(key)?)))
                {
                    duplicates.push(duplicate(pod, path, field, winner));
                    continue;
                }
                taken.extend(keys.map(|(_, key)| (key, path)));
                pods.push(pod.clone());
            }
        }
        pods.reverse();
        problems.extend(self.by_path.values().flat_map(|file| &file.problems).cloned());
        problems.extend(duplicates.into_iter().rev());
        Contents { pods, problems }
    }

    /// The files to read: the path itself, or the directory's entries.
    fn names(&self) -> io::Result<BTreeSet<PathBuf>> {
        if !std::fs::metadata(&self.path)?.is_dir() {
            return Ok([self.path.clone()].into());
        }
        // A set, because a file that is renamed meanwhile may come twice.
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                names.insert(entry.path());
            }
        }
        Ok(names)
    }

    /// Reads a file. `None` if it is gone.
    fn look(&self, path: &Path, before: Option<&Arc<FileState>>) -> Option<Arc<FileState>> {
        let skipped = |kind, message: &str| FileState::skipped(kind, path, message);
        // The path itself is never skipped, whatever its name.
        if path != self.path && is_leftover(path) {
            let message = "skipped: its name is that of an editor's or a package manager's backup";
            return Some(skipped(ProblemKind::Skipped, message).into());
        }
        let (kind, message) = match read(path) {
            Ok(Ok(bytes)) => return Some(self.decode(path, &bytes, before)),
            Ok(Err(refused)) => refused,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::symlink_metadata(path).ok()?;
                return Some(skipped(ProblemKind::Unreadable, "a symbolic link to nothing").into());
            }
            Err(error) => (ProblemKind::Unreadable, format!("cannot be read: {error}")),
        };
        Some(skipped(kind, &message).keeping_the_last_good(before))
    }

    fn decode(&self, path: &Path, bytes: &[u8], before: Option<&Arc<FileState>>) -> Arc<FileState> {
        let content = Some(self.hasher.hash_one(bytes));
        if let Some(same) = before.filter(|before| before.content == content) {
            return Arc::clone(same);
        }
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            let manifest::Decoded { pods, problems } =
                manifest::decode(bytes, Origin::File(path), &self.node);
            // Its decoder refuses mirror pods.
            let admitted = pods.into_iter().filter_map(|pod| self.admission.admit(pod, false).ok());
            Contents { pods: admitted.collect(), problems }
        }));
        // A defect of the decoder costs one file, which is not decoded again before it has changed.
        let decoded = decoded.unwrap_or_else(|_panic| Contents {
            pods: Vec::new(),
            problems: vec![problem(ProblemKind::Defect, path, PANICKED)],
        });
        let seen_before = before.map(|file| &file.pods[..]).unwrap_or_default();
        let pods = as_first_seen(decoded.pods, seen_before);
        FileState { content, pods, problems: decoded.problems }.keeping_the_last_good(before)
    }
}

/// Added to the problem of an invalid file whose last valid pods stay.
const KEPT: &str = "; the last good version stays";

impl FileState {
    fn skipped(kind: ProblemKind, path: &Path, message: &str) -> Self {
        Self { problems: vec![problem(kind, path, message)], ..Self::default() }
    }

    /// While a file has problems, its previous pods stay.
    fn keeping_the_last_good(mut self, before: Option<&Arc<Self>>) -> Arc<Self> {
        if self.problems.iter().any(|problem| problem.kind.is_grave()) {
            let full_name = |pod: &Admitted| (pod.name().to_owned(), pod.namespace().to_owned());
            let names: HashSet<_> = self.pods.iter().map(full_name).collect();
            let good = self.pods.len();
            let kept = before.into_iter().flat_map(|file| &file.pods);
            self.pods.extend(kept.filter(|pod| !names.contains(&full_name(pod))).cloned());
            if self.pods.len() > good {
                self.problems.iter_mut().for_each(|problem| problem.message.push_str(KEPT));
            }
        }
        Arc::new(self)
    }
}

pub(super) fn problem(kind: ProblemKind, path: &Path, message: &str) -> Problem {
    Problem::new(kind, path.display().to_string(), None, None, message)
}

/// The problem of a pod in a file, of which another file has the name or the UID.
fn duplicate(pod: &Pod, path: &Path, field: &str, winner: &Path) -> Problem {
    let message =
        format!("the pod {}/{} in {} counts instead", pod.namespace(), pod.name(), winner.display());
    Problem::new(ProblemKind::Duplicate, path.display().to_string(), None, Some(field.to_owned()), message)
}

/// Suffixes of files that editors and package managers leave behind.
const LEFTOVERS: &str = "~ # .swp .swo .swx .bak .backup .old .orig .rej .save .tmp .rpmsave .rpmnew .rpmorig .dpkg-old \
                         .dpkg-dist .dpkg-new";

fn is_leftover(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    LEFTOVERS.split_whitespace().any(|end| name.ends_with(end.as_bytes()))
}
