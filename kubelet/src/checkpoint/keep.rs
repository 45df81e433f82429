//! One pass of the checkpoint thread: updates the files to match a snapshot.
//!
//! A static pod that is edited gets another UID, and so another file. Until the new file is on disk, the old one is all
//! that a restart would find. So a pass first writes files, makes sure that they are on disk, and only then removes files.
//! If a file cannot be written, the files of pods of the same name stay.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Disk, WRITING, set_aside};
use super::{CheckpointError, CheckpointErrorKind, CheckpointStatus, Which, format};
use crate::HasPod;
use pod_index::{OwnedSnapshot, PodMeta, PodUid, Snapshot};

/// Maximum number of errors reported at once. If the disk is gone, every pod has one.
pub(super) const MOST_ERRORS: usize = 100;

/// How many files are checked between two passes.
const CHECKED_AT_ONCE: usize = 100;

/// What is on disk, as far as known, and what remains to be written.
pub(super) struct Keeper<D, P = Pod> {
    pub(super) disk: D,
    which: Which,
    /// What each file holds, by its name. `None`: the file may exist, with unknown content.
    pub(super) files: HashMap<String, Option<Fingerprint>>,
    pub(super) fingerprints: Fingerprints,
    /// Files that could not be read and whose pods no source has reported yet. The first pass leaves them
    /// alone: their pods are missing from the index because they could not be restored.
    pub(super) unread: BTreeSet<String>,
    /// Files that the start left to the thread: those that it has not read, and those that are still to be set aside.
    pub(super) unchecked: BTreeSet<String>,
    /// The snapshot last compared with the files.
    seen: Option<OwnedSnapshot<P>>,
    /// Files that could not be written or removed, with their pods and the errors.
    failed: BTreeMap<String, (Option<PodUid>, CheckpointError)>,
    pub(super) status: CheckpointStatus,
}

/// A hash of a file's content, by which an unchanged pod is not written again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fingerprint(u64);

/// Computes fingerprints with a key of this process, so that nobody can compute a change of a pod that would go unnoticed.
/// The checksum in the file has no key.
#[derive(Debug, Default)]
pub(super) struct Fingerprints(RandomState);

impl Fingerprints {
    pub(super) fn of(&self, json: &[u8]) -> Fingerprint {
        Fingerprint(self.0.hash_one(json))
    }
}

/// A file to write.
struct Written<'a> {
    name: String,
    uid: Option<PodUid>,
    pod: &'a Pod,
}

/// A file to remove.
struct Removed {
    name: String,
    uid: Option<PodUid>,
    /// Its pod, if that is known.
    pod: Option<PodName>,
}

/// The namespace and the name of a pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PodName {
    namespace: String,
    name: String,
}

impl PodName {
    fn of(pod: &Pod) -> Self {
        Self { namespace: pod.namespace().to_owned(), name: pod.name().to_owned() }
    }
}

impl<D: Disk, P: HasPod> Keeper<D, P> {
    /// Knows no file yet.
    pub(super) fn new(disk: D, which: Which) -> Self {
        Self {
            disk,
            which,
            files: HashMap::new(),
            fingerprints: Fingerprints::default(),
            unread: BTreeSet::new(),
            unchecked: BTreeSet::new(),
            seen: None,
            failed: BTreeMap::new(),
            status: CheckpointStatus::default(),
        }
    }

    /// The same files, for an index that stores something else. Its first pass compares every file.
    pub(super) fn of<Q>(self) -> Keeper<D, Q> {
        let Self { disk, which, files, fingerprints, unread, unchecked, seen: _, failed, status } = self;
        Keeper { disk, which, files, fingerprints, unread, unchecked, seen: None, failed, status }
    }

    /// Checks some of the files that the start left. Returns whether there are more.
    pub(super) fn check_some(&mut self) -> bool {
        for _ in 0..CHECKED_AT_ONCE {
            let Some(name) = self.unchecked.pop_first() else { break };
            self.check(name);
        }
        !self.unchecked.is_empty()
    }

    /// Sets this file aside if it is unusable. Otherwise it is one whose pod was not restored, as those that could not be read.
    fn check(&mut self, name: String) {
        let is_unusable = match self.disk.read(&name) {
            Ok(bytes) => format::decode(&name, &bytes).is_err(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => error.kind() == io::ErrorKind::InvalidData,
        };
        if !is_unusable {
            self.files.insert(name.clone(), None);
            self.unread.insert(name);
            return;
        }
        match set_aside(&mut self.disk, &name) {
            Ok(_) => self.status.set_aside += 1,
            // The start has told of the files. One that stays is found again by the next start.
            Err(error) => {
                let path = self.disk.path(&name);
                tracing::debug!(path = %path.display(), "cannot be set aside: {error}");
            }
        }
    }

    /// Checks this file now if that is still to be done: its pod was reported.
    fn check_first(&mut self, name: &str) {
        if let Some(name) = self.unchecked.take(name) {
            self.check(name);
        }
    }

    /// Updates the files to match the snapshot, and returns all current errors. With `retry`, it also repeats
    /// what failed before.
    pub(super) fn pass(&mut self, now: OwnedSnapshot<P>, retry: bool) -> Vec<CheckpointError> {
        let touched = self.touched(&now, retry);
        let mut to_write = Vec::new();
        let mut to_remove = Vec::new();
        for (name, uid) in touched {
            let pod = uid.as_ref().and_then(|uid| of_uid(&now, uid)).map(P::pod);
            let pod = pod.filter(|pod| self.which.keeps(&***pod));
            if let Some(pod) = pod {
                to_write.push(Written { name, uid, pod });
            } else {
                let pod = uid.as_ref().and_then(|uid| self.name_before(uid));
                to_remove.push(Removed { name, uid, pod });
            }
        }
        // From here on, the disk may hang: the snapshot before is not held meanwhile, because it may keep much memory.
        self.seen = None;
        let unwritten = self.write_all(to_write);
        self.remove_all(to_remove, &unwritten);
        self.seen = Some(now);
        self.errors()
    }

    /// Writes these files. Returns the pods whose files are not known to be on disk, by namespace and name, and why.
    fn write_all(&mut self, files: Vec<Written<'_>>) -> BTreeMap<PodName, CheckpointError> {
        let mut written = Vec::new();
        let mut unwritten = BTreeMap::new();
        for Written { name, uid, pod } in files {
            match self.write(&name, pod) {
                Ok(is_new) => {
                    self.failed.remove(&name);
                    if is_new {
                        written.push(Written { name, uid, pod });
                    }
                }
                Err(error) => {
                    unwritten.insert(PodName::of(pod), error.clone());
                    self.fail(name, uid, error);
                }
            }
        }
        if !written.is_empty()
            && let Err(error) = self.disk.sync_directory()
        {
            let error = self.error(CheckpointErrorKind::Write, "", &error);
            for Written { name, uid, pod } in written {
                unwritten.insert(PodName::of(pod), error.clone());
                self.unsynced(name, uid, &error);
            }
        }
        unwritten
    }

    /// Removes these files, except those of pods that have a new file which could not be written.
    fn remove_all(&mut self, files: Vec<Removed>, unwritten: &BTreeMap<PodName, CheckpointError>) {
        let mut removed = Vec::new();
        for Removed { name, uid, pod } in files {
            let error = pod.and_then(|pod| unwritten.get(&pod));
            if let Some(error) = error.filter(|_| self.files.contains_key(&name)) {
                self.fail(name, uid, error.clone());
                continue;
            }
            match self.remove(&name) {
                Ok(was_there) => {
                    self.failed.remove(&name);
                    if was_there {
                        removed.push((name, uid));
                    }
                }
                Err(error) => self.fail(name, uid, error),
            }
        }
        if !removed.is_empty()
            && let Err(error) = self.disk.sync_directory()
        {
            let error = self.error(CheckpointErrorKind::Write, "", &error);
            for (name, uid) in removed {
                self.unsynced(name, uid, &error);
            }
        }
    }

    /// The directory could not be synced. A later successful sync may not cover what this one failed to sync, so it is
    /// repeated.
    fn unsynced(&mut self, name: String, uid: Option<PodUid>, error: &CheckpointError) {
        self.files.insert(name.clone(), None);
        self.fail(name, uid, error.clone());
    }

    /// The namespace and the name that a pod had when its file was last compared.
    fn name_before(&self, uid: &PodUid) -> Option<PodName> {
        of_uid(self.seen.as_ref()?, uid).map(|stored| PodName::of(P::pod(stored)))
    }

    /// The files to check, with their pods as far as known.
    pub(super) fn touched(&mut self, now: &Snapshot<P>, retry: bool) -> BTreeMap<String, Option<PodUid>> {
        let mut touched = BTreeMap::new();
        if retry {
            touched.extend(self.failed.iter().map(|(name, (uid, _))| (name.clone(), uid.clone())));
        }
        let mut touch = |stored: &P| {
            touched.insert(format::file_name(stored.uid()), Some(PodUid::from(stored.uid())));
        };
        if let Some(before) = &self.seen {
            let changes = now.changes_since(before).into_iter().filter(P::is_of_pod);
            changes.for_each(|change| touch(change.pod()));
        } else {
            now.pods().chain(now.mirror_pods()).for_each(|stored| touch(stored));
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
        let wrong = self.failed.len();
        let unread = self.unread.len() + self.unchecked.len();
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
        let json = format::json(pod)?;
        let content = self.fingerprints.of(&json);
        if self.files.get(name) == Some(&Some(content)) {
            return Ok(false);
        }
        self.check_first(name);
        let file = self.disk.write(WRITING, &format::sealed(&json))?;
        self.disk.sync(file)?;
        // From here on, the file may hold the old or the new content.
        self.files.insert(name.to_owned(), None);
        self.disk.rename(WRITING, name)?;
        self.files.insert(name.to_owned(), Some(content));
        self.unread.remove(name);
        self.status.written += 1;
        Ok(true)
    }

    fn remove(&mut self, name: &str) -> Result<bool, CheckpointError> {
        self.check_first(name);
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

/// The pod or mirror pod with this UID.
fn of_uid<'a, P: PodMeta>(snapshot: &'a Snapshot<P>, uid: &PodUid) -> Option<&'a Arc<P>> {
    snapshot.pod_by_uid(uid).or_else(|| snapshot.mirror_pod_by_uid(uid))
}
