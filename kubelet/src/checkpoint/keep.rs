//! One pass of the checkpoint thread: updates the files to match a snapshot.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Disk, WRITING};
use super::{CheckpointError, CheckpointErrorKind, CheckpointStatus, Which, format};
use pod_index::{OwnedSnapshot, PodMeta, PodUid, Snapshot};

/// Maximum number of errors reported at once. If the disk is gone, every pod has one.
const MOST_ERRORS: usize = 100;

/// What is on disk, as far as known, and what remains to be written.
pub(super) struct Keeper<D> {
    pub(super) disk: D,
    which: Which,
    /// Hash of the content, by file name. `None`: the file may exist, with unknown content.
    pub(super) files: HashMap<String, Option<u64>>,
    /// Files that could not be read and whose pods no source has reported yet. The first pass leaves them
    /// alone: their pods are missing from the index because they could not be restored.
    pub(super) unread: BTreeSet<String>,
    /// The snapshot last compared with the files.
    seen: Option<OwnedSnapshot<Pod>>,
    /// Files that could not be written or removed, with their pods and the errors.
    failed: BTreeMap<String, (Option<PodUid>, CheckpointError)>,
    pub(super) status: CheckpointStatus,
}

impl<D: Disk> Keeper<D> {
    /// Knows no file yet.
    pub(super) fn new(disk: D, which: Which) -> Self {
        let (files, unread, failed) = (HashMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { disk, which, files, unread, seen: None, failed, status: CheckpointStatus::default() }
    }

    /// Updates the files to match the snapshot, and returns all current errors. With `retry`, it also repeats
    /// what failed before.
    pub(super) fn pass(&mut self, now: OwnedSnapshot<Pod>, retry: bool) -> Vec<CheckpointError> {
        let touched = self.touched(&now, retry);
        let mut done = BTreeMap::new();
        for (name, uid) in touched {
            let pod = uid.as_ref().and_then(|uid| now.pod_by_uid(uid).or_else(|| now.mirror_pod_by_uid(uid)));
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
                self.files.insert(name.clone(), None);
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

    /// Current errors, at most `MOST_ERRORS`.
    fn errors(&self) -> Vec<CheckpointError> {
        let errors = self.failed.values().map(|(_, error)| error);
        // A failed directory sync is one error, however many files it affects.
        let mut said = HashSet::new();
        errors.filter(|error| said.insert(*error)).take(MOST_ERRORS).cloned().collect()
    }

    /// The status, without its errors.
    pub(super) fn status(&self) -> CheckpointStatus {
        let files = self.files.values().flatten().count();
        let (wrong, unread) = (self.failed.len(), self.unread.len());
        CheckpointStatus { files, wrong, unread, ..self.status.clone() }
    }

    /// Writes a pod's checkpoint unless the file already matches. Returns whether it wrote.
    fn write(&mut self, name: &str, pod: &Pod) -> Result<bool, CheckpointError> {
        self.try_to_write(name, pod).map_err(|error| {
            // Free the space on a full disk. If that fails, the next write overwrites the file.
            let _ = self.disk.remove(WRITING);
            self.error(CheckpointErrorKind::Write, name, &error)
        })
    }

    fn try_to_write(&mut self, name: &str, pod: &Pod) -> io::Result<bool> {
        let (bytes, hash) = format::encode(pod)?;
        if self.files.get(name) == Some(&Some(hash)) {
            return Ok(false);
        }
        let file = self.disk.write(WRITING, &bytes)?;
        self.disk.sync(file)?;
        // From here on, the file may hold the old or the new content.
        self.files.insert(name.to_owned(), None);
        self.disk.rename(WRITING, name)?;
        self.files.insert(name.to_owned(), Some(hash));
        self.unread.remove(name);
        self.status.written += 1;
        Ok(true)
    }

    fn remove(&mut self, name: &str) -> Result<bool, CheckpointError> {
        if !self.files.contains_key(name) {
            return Ok(false);
        }
        let removed = self.disk.remove(name);
        removed.map_err(|error| self.error(CheckpointErrorKind::Remove, name, &error))?;
        self.unread.remove(name);
        self.files.remove(name);
        Ok(true)
    }

    fn fail(&mut self, name: String, uid: Option<PodUid>, error: CheckpointError) {
        self.failed.insert(name, (uid, error));
        self.status.failures += 1;
    }

    fn error(&self, kind: CheckpointErrorKind, name: &str, error: &io::Error) -> CheckpointError {
        let what =
            if kind == CheckpointErrorKind::Remove { "cannot be removed" } else { "cannot be written" };
        CheckpointError::new(kind, self.disk.path(name), format!("{what}: {error}"))
    }
}
