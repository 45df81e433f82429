//! One pass of the checkpoint thread: updates the files to match a snapshot.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Disk, WRITING, set_aside};
use super::{CheckpointError, CheckpointErrorKind, CheckpointStatus, LARGEST, Which, format};
use pod_index::{OwnedSnapshot, PodMeta, PodUid, Snapshot};

/// Maximum number of errors reported at once. If the disk is gone, every pod has one.
const MOST_ERRORS: usize = 100;

/// The files found at the start.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Hash of the content, by file name.
    pub(super) files: HashMap<String, u64>,
    /// Files that could not be read. They stay until a source reports their pods.
    pub(super) unread: BTreeSet<String>,
    /// Number of files that were set aside.
    pub(super) set_aside: usize,
}

/// What is on disk, as far as known, and what remains to be written.
pub(super) struct Keeper<D> {
    disk: D,
    which: Which,
    /// Hash of the content, by file name. `None`: the file may exist, with unknown content.
    files: HashMap<String, Option<u64>>,
    /// Files that could not be read and whose pods no source has reported yet. The first pass leaves them
    /// alone: their pods are missing from the index because they could not be restored.
    unread: BTreeSet<String>,
    /// The snapshot last compared with the files.
    seen: Option<OwnedSnapshot<Pod>>,
    /// Files that could not be written or removed, with their pods and the errors.
    failed: BTreeMap<String, (Option<PodUid>, CheckpointError)>,
    /// Pods without a file because they are too large to be read back.
    refused: BTreeMap<String, CheckpointError>,
    status: CheckpointStatus,
}

impl<D: Disk> Keeper<D> {
    pub(super) fn new(disk: D, which: Which, found: Found) -> Self {
        let Found { files, unread, set_aside } = found;
        let status = CheckpointStatus { files: files.len(), set_aside, ..CheckpointStatus::default() };
        let known = files.into_iter().map(|(name, hash)| (name, Some(hash)));
        let files = known.chain(unread.iter().map(|name| (name.clone(), None))).collect();
        let (failed, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { disk, which, files, unread, seen: None, failed, refused, status }
    }

    /// Updates the files to match the snapshot, and returns all current errors. With `retry`, it also repeats
    /// what failed before.
    pub(super) fn pass(&mut self, now: OwnedSnapshot<Pod>, retry: bool) -> Vec<CheckpointError> {
        let touched = self.touched(&now, retry);
        let mut done = BTreeMap::new();
        for (name, uid) in touched {
            let pod = uid.as_ref().and_then(|uid| now.pod_by_uid(uid).or_else(|| now.mirror_pod_by_uid(uid)));
            self.refused.remove(&name);
            let kept = match pod.filter(|pod| self.which.keeps(&***pod)) {
                Some(pod) => self.write(&name, pod),
                None => self.remove(&name),
            };
            match kept {
                Ok(acted) => {
                    self.failed.remove(&name);
                    if acted {
                        done.insert(name, uid);
                    }
                }
                Err(error) => self.fail(name, uid, error),
            }
        }
        if !done.is_empty()
            && let Err(error) = self.disk.sync_directory()
        {
            let error = self.error(CheckpointErrorKind::Write, "", &error);
            // A later successful sync may not cover writes that this one failed to sync, so all are repeated.
            for (name, uid) in done {
                self.note(&name, None);
                self.fail(name, uid, error.clone());
            }
        }
        self.seen = Some(now);
        self.errors()
    }

    /// The files to check, with their pods as far as known.
    fn touched(&mut self, now: &Snapshot<Pod>, retry: bool) -> BTreeMap<String, Option<PodUid>> {
        let mut touched = BTreeMap::new();
        if retry {
            touched.extend(self.failed.iter().map(|(name, (uid, _))| (name.clone(), uid.clone())));
        }
        let mut touch = |pod: &Pod| {
            touched.insert(format::file_name(pod.uid()), Some(PodUid::from(pod.uid())));
        };
        if let Some(before) = &self.seen {
            now.changes_since(before).into_iter().for_each(|change| touch(change.pod()));
        } else {
            now.pods().chain(now.mirror_pods()).for_each(|pod| touch(pod));
            // Includes files whose pods were removed while no agent ran.
            for name in self.files.keys().filter(|name| !self.unread.contains(*name)) {
                touched.entry(name.clone()).or_default();
            }
        }
        touched
    }

    /// Whether anything still has to be written or removed.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Current errors, at most `MOST_ERRORS`.
    fn errors(&self) -> Vec<CheckpointError> {
        let errors = self.failed.values().map(|(_, error)| error).chain(self.refused.values());
        // A failed directory sync is one error, however many files it affects.
        let mut said = HashSet::new();
        errors.filter(|error| said.insert(*error)).take(MOST_ERRORS).cloned().collect()
    }

    /// The status, without its errors.
    pub(super) fn status(&self) -> CheckpointStatus {
        let wrong = self.failed.len() + self.refused.len();
        CheckpointStatus { wrong, unread: self.unread.len(), ..self.status.clone() }
    }

    fn note(&mut self, name: &str, hash: Option<u64>) {
        let was = self.files.insert(name.to_owned(), hash);
        self.status.files += usize::from(hash.is_some());
        self.status.files -= usize::from(matches!(was, Some(Some(_))));
    }

    /// Writes a pod's checkpoint unless the file already matches. Returns whether it wrote.
    fn write(&mut self, name: &str, pod: &Pod) -> Result<bool, CheckpointError> {
        let written = format::encode(pod).map_err(io::Error::from).and_then(|(bytes, hash)| {
            if self.files.get(name) == Some(&Some(hash)) {
                return Ok(Some(false));
            }
            if bytes.len() > LARGEST {
                return Ok(None);
            }
            let file = self.past_a_directory(WRITING, |disk| disk.write(WRITING, &bytes))?;
            self.disk.sync(file)?;
            // From here on, the file may hold the old or the new content.
            self.note(name, None);
            self.past_a_directory(name, |disk| disk.rename(WRITING, name))?;
            self.note(name, Some(hash));
            self.unread.remove(name);
            self.status.written += 1;
            Ok(Some(true))
        });
        match written {
            Ok(Some(acted)) => Ok(acted),
            // It will never be written, so no wait includes it. An existing file is of another version.
            Ok(None) => {
                let (namespace, pod_name) = (pod.namespace(), pod.name());
                let why = format!("the pod {namespace}/{pod_name} is larger than {} MiB", LARGEST >> 20);
                let error = self.error(CheckpointErrorKind::TooLarge, name, &io::Error::other(why));
                self.refused.insert(name.to_owned(), error);
                self.note_failure();
                self.remove(name)
            }
            Err(error) => {
                // Free the space on a full disk. If that fails, the next write overwrites the file.
                let _ = self.disk.remove(WRITING);
                Err(self.error(CheckpointErrorKind::Write, name, &error))
            }
        }
    }

    fn remove(&mut self, name: &str) -> Result<bool, CheckpointError> {
        if !self.files.contains_key(name) {
            return Ok(false);
        }
        let removed = self.past_a_directory(name, |disk| disk.remove(name));
        removed.map_err(|error| self.error(CheckpointErrorKind::Remove, name, &error))?;
        self.unread.remove(name);
        let was = self.files.remove(name);
        self.status.files -= usize::from(matches!(was, Some(Some(_))));
        self.status.removed += 1;
        Ok(true)
    }

    /// Runs `act`. If it fails because a directory has the file's name, sets that directory aside and tries
    /// again.
    fn past_a_directory<T>(&mut self, name: &str, act: impl Fn(&mut D) -> io::Result<T>) -> io::Result<T> {
        match act(&mut self.disk) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                let aside = set_aside(&mut self.disk, name).map_err(|failure| {
                    io::Error::new(failure.kind(), format!("{error}; it cannot be set aside: {failure}"))
                })?;
                self.status.set_aside += 1;
                let path = self.disk.path(name);
                tracing::warn!(path = %path.display(), "a directory was in a checkpoint's place; it is set aside as {aside}");
                act(&mut self.disk)
            }
            done => done,
        }
    }

    fn fail(&mut self, name: String, uid: Option<PodUid>, error: CheckpointError) {
        self.failed.insert(name, (uid, error));
        self.note_failure();
    }

    fn note_failure(&mut self) {
        self.status.failures += 1;
        self.status.last_failure = Some(SystemTime::now());
    }

    fn error(&self, kind: CheckpointErrorKind, name: &str, error: &io::Error) -> CheckpointError {
        let what =
            if kind == CheckpointErrorKind::Remove { "cannot be removed" } else { "cannot be written" };
        CheckpointError::new(kind, &self.disk.path(name), format!("{what}: {error}"))
    }
}
