//! The pods of a path's files. Unchanged files are not decoded again.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::read::{LARGEST_MANIFEST, ReadError, read};
use crate::sources::manifest::{self, Origin};
use crate::sources::{NodeName, Problem, ProblemKind, pod};
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
/// assert_eq!(listing.problems[0].kind(), ProblemKind::Missing);
/// ```
///
/// Kubelet: `listConfig` (`pkg/kubelet/config/file.go`).
#[doc(alias = "listConfig")]
#[doc(alias = "extractFromDir")]
#[must_use]
pub fn list(path: impl AsRef<Path>, node: &NodeName) -> Listing {
    let mut files = Files::new(path.as_ref(), node.clone(), |_| {});
    let names = files.reading.names();
    for path in files.named(names) {
        let look = files.reading.look(&path, None);
        files.found(&path, look);
    }
    files.listing()
}

/// The files of a path, as far as they were read.
pub(super) struct Files {
    pub(super) reading: Arc<Reading>,
    /// Sorted by name.
    by_path: BTreeMap<PathBuf, Arc<FileState>>,
    /// A problem with the path itself.
    pub(super) problem: Option<Problem>,
}

/// What is needed to read a file.
pub(super) struct Reading {
    pub(super) path: PathBuf,
    node: NodeName,
    transform: fn(&mut Pod),
    hasher: RandomState,
}

/// State of one file.
#[derive(Default)]
pub(super) struct FileState {
    /// A hash of what was decoded.
    content: Option<u64>,
    /// Its pods. While the file is invalid, the pods of its last valid version.
    pods: Vec<Arc<Pod>>,
    problems: Vec<Problem>,
}

impl Files {
    /// `transform` changes each pod before it is stored.
    pub(super) fn new(path: &Path, node: NodeName, transform: fn(&mut Pod)) -> Self {
        // Without a trailing separator, so that `manifests` and `manifests/` give the same UIDs.
        let path = path.components().collect();
        let reading = Arc::new(Reading { path, node, transform, hasher: RandomState::new() });
        Self { reading, by_path: BTreeMap::new(), problem: None }
    }

    /// Takes the names of the files that exist now, or why they cannot be listed. Returns the files to read.
    pub(super) fn named(&mut self, names: io::Result<Vec<PathBuf>>) -> Vec<PathBuf> {
        self.problem = None;
        match names {
            Ok(names) => {
                let present: HashSet<_> = names.iter().collect();
                self.by_path.retain(|path, _| present.contains(path));
                return names;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.problem = Some(self.path_problem(ProblemKind::Missing, "does not exist"));
                self.by_path.clear();
            }
            // The pods may still exist; they stay.
            Err(error) => {
                let message = format!("cannot be listed: {error}");
                self.problem = Some(self.path_problem(ProblemKind::Unreadable, &message));
            }
        }
        Vec::new()
    }

    /// The pods and problems now.
    pub(super) fn listing(&self) -> Listing {
        let mut problems: Vec<Problem> = self.problem.iter().cloned().collect();
        let mut taken = Taken::default();
        // In reverse, because the last of several files wins.
        let mut pods = Vec::new();
        let mut duplicates = Vec::new();
        for (path, file) in self.by_path.iter().rev() {
            for pod in file.pods.iter().rev() {
                match taken.take(pod, path) {
                    Ok(()) => pods.push(Arc::clone(pod)),
                    Err(problem) => duplicates.push(problem),
                }
            }
        }
        pods.reverse();
        problems.extend(self.by_path.values().flat_map(|file| &file.problems).cloned());
        problems.extend(duplicates.into_iter().rev());
        Listing { pods, problems }
    }

    /// What is known of a file.
    pub(super) fn file(&self, path: &Path) -> Option<Arc<FileState>> {
        self.by_path.get(path).cloned()
    }

    /// `None`: it is gone.
    pub(super) fn found(&mut self, path: &Path, file: Option<Arc<FileState>>) {
        match file {
            Some(file) => drop(self.by_path.insert(path.to_owned(), file)),
            None => drop(self.by_path.remove(path)),
        }
    }

    /// A file that could not be read keeps its pods.
    pub(super) fn unread(&mut self, path: &Path, message: &str) {
        let file = FileState::skipped(ProblemKind::Unreadable, path, message);
        self.found(path, Some(file.keeping_the_last_good(self.by_path.get(path))));
    }

    pub(super) fn path_problem(&self, kind: ProblemKind, message: &str) -> Problem {
        problem(kind, &self.reading.path, message)
    }
}

impl Reading {
    /// The files to read: the path itself, or the directory's entries.
    pub(super) fn names(&self) -> io::Result<Vec<PathBuf>> {
        if !std::fs::metadata(&self.path)?.is_dir() {
            return Ok(vec![self.path.clone()]);
        }
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                names.push(entry.path());
            }
        }
        // A file that is renamed meanwhile may come twice.
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Reads a file. `None` if it is gone.
    pub(super) fn look(&self, path: &Path, before: Option<&Arc<FileState>>) -> Option<Arc<FileState>> {
        // The path itself is never skipped, whatever its name.
        if path != self.path && is_leftover(path) {
            let message = "skipped: its name is that of an editor's or a package manager's backup";
            return Some(FileState::skipped(ProblemKind::Skipped, path, message).into());
        }
        let (kind, message) = match read(path) {
            Ok(bytes) => return Some(self.decode(path, &bytes, before)),
            Err(ReadError::Gone) if std::fs::symlink_metadata(path).is_ok() => {
                let message = "a symbolic link to nothing";
                return Some(FileState::skipped(ProblemKind::Unreadable, path, message).into());
            }
            Err(ReadError::Gone) => return None,
            Err(ReadError::NotRegular(what)) => {
                (ProblemKind::Skipped, format!("skipped, because it is {what}"))
            }
            Err(ReadError::TooLarge) => {
                (ProblemKind::TooLarge, format!("larger than the limit of {LARGEST_MANIFEST} bytes"))
            }
            Err(ReadError::Io(error)) => (ProblemKind::Unreadable, format!("cannot be read: {error}")),
        };
        Some(FileState::skipped(kind, path, &message).keeping_the_last_good(before))
    }

    fn decode(&self, path: &Path, bytes: &[u8], before: Option<&Arc<FileState>>) -> Arc<FileState> {
        let content = Some(self.hasher.hash_one(bytes));
        if let Some(same) = before.filter(|before| before.content == content) {
            return Arc::clone(same);
        }
        let mut decoded = manifest::decode(bytes, Origin::File(path), &self.node);
        decoded.pods.iter_mut().for_each(self.transform);
        let seen_before = before.map(|file| &file.pods[..]).unwrap_or_default();
        let pods = pod::as_first_seen(decoded.pods, seen_before);
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
        if self.problems.iter().any(|problem| problem.kind().is_grave()) {
            let full_name = |pod: &Arc<Pod>| (pod.name().to_owned(), pod.namespace().to_owned());
            let names: HashSet<_> = self.pods.iter().map(full_name).collect();
            let good = self.pods.len();
            let kept = before.into_iter().flat_map(|file| &file.pods);
            self.pods.extend(kept.filter(|pod| !names.contains(&full_name(pod))).cloned());
            if self.pods.len() > good {
                self.problems = self.problems.into_iter().map(|problem| problem.and(KEPT)).collect();
            }
        }
        Arc::new(self)
    }
}

fn problem(kind: ProblemKind, path: &Path, message: &str) -> Problem {
    Problem::new(kind, path.display().to_string(), None, None, message)
}

/// Names and UIDs in use, and by which file.
#[derive(Default)]
struct Taken<'a> {
    names: HashMap<(&'a str, &'a str), &'a Path>,
    uids: HashMap<&'a str, &'a Path>,
}

impl<'a> Taken<'a> {
    fn take(&mut self, pod: &'a Pod, path: &'a Path) -> Result<(), Problem> {
        let duplicate = |field: &str, winner: &Path| {
            let message =
                format!("the pod {}/{} in {} counts instead", pod.namespace(), pod.name(), winner.display());
            let (origin, field) = (path.display().to_string(), Some(field.to_owned()));
            Problem::new(ProblemKind::Duplicate, origin, None, field, message)
        };
        if let Some(winner) = self.uids.get(pod.uid()) {
            return Err(duplicate("metadata.uid", winner));
        }
        match self.names.entry((pod.name(), pod.namespace())) {
            Entry::Occupied(winner) => return Err(duplicate("metadata.name", winner.get())),
            Entry::Vacant(free) => free.insert(path),
        };
        self.uids.insert(pod.uid(), path);
        Ok(())
    }
}

/// Suffixes of files that editors and package managers leave behind.
const LEFTOVERS: &str = "~ # .swp .swo .swx .bak .backup .old .orig .rej .save .tmp .rpmsave .rpmnew .rpmorig .dpkg-old \
                         .dpkg-dist .dpkg-new";

fn is_leftover(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    LEFTOVERS.split_whitespace().any(|end| name.ends_with(end.as_bytes()))
}
