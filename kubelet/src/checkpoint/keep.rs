//! One pass of the checkpoint thread: updates the files to match a snapshot.
//!
//! A static pod that is edited gets another UID, and so another file. Until the new file is on disk, the old one is all
//! that a restart would find. So a pass first writes files, makes sure that they are on disk, and only then removes files.
//!
//! If the new file cannot be written, the old one stays, through any number of passes and further edits. To decide that, the
//! keeper knows the name of the pod in each file, and asks the index which pod has that name now. It removes the file once
//! that pod has its own file or needs none. If no pod has the name any more, the file goes at once, also from a full disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Disk, WRITING, set_aside};
use super::{CheckpointError, CheckpointErrorKind, CheckpointStatus, Which, format};
use crate::HasPod;
use pod_index::{FullName, OwnedSnapshot, PodMeta, PodUid, Snapshot, is_mirror_pod};

/// Maximum number of errors reported at once. If the disk is gone, every pod has one.
pub(super) const MOST_ERRORS: usize = 100;

/// How many files are checked between two passes.
const CHECKED_AT_ONCE: usize = 100;

/// What is on disk, as far as known, and what remains to be written.
pub(super) struct Keeper<D, P = Pod> {
    pub(super) disk: D,
    which: Which,
    /// What each file holds, by the file's name.
    pub(super) files: HashMap<String, Content>,
    pub(super) fingerprints: Fingerprints,
    /// Files that could not be read and whose pods no source has reported yet. The first pass leaves them
    /// alone: their pods are missing from the index because they could not be restored.
    pub(super) unread: BTreeSet<String>,
    /// Files that the start left to the thread: those that it has not read, and those that are still to be set aside.
    pub(super) unchecked: BTreeSet<String>,
    /// The snapshot last compared with the files.
    seen: Option<OwnedSnapshot<P>>,
    /// Files that stay because a newer one of the same pod is not on disk. Each pass decides anew.
    held: BTreeSet<String>,
    /// Files that could not be written or removed, with their pods and the errors.
    failed: BTreeMap<String, (Option<PodUid>, CheckpointError)>,
    pub(super) status: CheckpointStatus,
}

/// What a file holds, as far as known. The file itself may be missing.
#[derive(Default)]
pub(super) struct Content {
    /// Its pod. `None`: unknown.
    pub(super) pod: Option<PodName>,
    /// `None`: the bytes are unknown.
    pub(super) fingerprint: Option<Fingerprint>,
}

/// What a static pod or a mirror pod keeps when an edit gives it another UID.
pub(super) struct PodName {
    namespace: String,
    name: String,
    /// A static pod and its mirror pod have one name and a file each.
    is_mirror: bool,
}

impl PodName {
    pub(super) fn of(pod: &Pod) -> Self {
        let namespace = pod.namespace().to_owned();
        let name = pod.name().to_owned();
        Self { namespace, name, is_mirror: is_mirror_pod(pod) }
    }

    /// The pod that has this name now.
    fn holder<'a, P: PodMeta>(&self, snapshot: &'a Snapshot<P>) -> Option<&'a Arc<P>> {
        if self.is_mirror {
            return snapshot.mirror_pod_by_full_name(FullName::new(&self.namespace, &self.name).ok()?);
        }
        snapshot.pod_by_name(&self.namespace, &self.name)
    }
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
            held: BTreeSet::new(),
            failed: BTreeMap::new(),
            status: CheckpointStatus::default(),
        }
    }

    /// The same files, for an index that stores something else. Its first pass compares every file.
    pub(super) fn of<Q>(self) -> Keeper<D, Q> {
        let Self { disk, which, files, fingerprints, unread, unchecked, seen: _, held, failed, status } =
            self;
        Keeper { disk, which, files, fingerprints, unread, unchecked, seen: None, held, failed, status }
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
        let usable = match self.disk.read(&name) {
            Ok(bytes) => {
                let pod = format::decode(&name, &bytes).map(|(pod, _)| PodName::of(&pod));
                pod.ok().map(|pod| Content { pod: Some(pod), fingerprint: None })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(_) => Some(Content::default()),
        };
        if let Some(content) = usable {
            self.files.insert(name.clone(), content);
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
                to_remove.push(Removed { name, uid });
            }
        }
        // From here on, the disk may hang: the snapshot before is not held meanwhile, because it may keep much memory.
        self.seen = None;
        self.write_all(to_write);
        self.remove_all(to_remove, &now);
        self.seen = Some(now);
        self.errors()
    }

    /// Writes these files. After that, each of them is on disk or among those that failed.
    fn write_all(&mut self, files: Vec<Written<'_>>) {
        let mut written = Vec::new();
        for Written { name, uid, pod } in files {
            match self.write(&name, pod) {
                Ok(is_new) => {
                    self.failed.remove(&name);
                    if is_new {
                        written.push(Written { name, uid, pod });
                    }
                }
                Err(error) => self.fail(name, uid, error),
            }
        }
        if !written.is_empty()
            && let Err(error) = self.disk.sync_directory()
        {
            let error = self.error(CheckpointErrorKind::Write, "", &error);
            for Written { name, uid, .. } in written {
                self.unsynced(name, uid, &error);
            }
        }
    }

    /// Removes these files, except those that are needed until a newer one of the same pod is on disk.
    fn remove_all(&mut self, files: Vec<Removed>, now: &Snapshot<P>) {
        self.held.clear();
        let mut removed = Vec::new();
        for Removed { name, uid } in files {
            if self.newer_is_missing(&name, now) {
                self.failed.remove(&name);
                self.held.insert(name);
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
        self.files.entry(name.clone()).or_default().fingerprint = None;
        self.fail(name, uid, error.clone());
    }

    /// Whether the pod that has the name of this file's pod now is to have a file that is not known to be on disk.
    fn newer_is_missing(&self, name: &str, now: &Snapshot<P>) -> bool {
        let pod = self.files.get(name).and_then(|content| content.pod.as_ref());
        let holder = pod.and_then(|pod| pod.holder(now)).filter(|holder| self.which.keeps(&***holder));
        holder.is_some_and(|holder| self.failed.contains_key(&format::file_name(holder.uid())))
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
        for name in &self.held {
            touched.entry(name.clone()).or_default();
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
        let files = self.files.values().filter(|content| content.fingerprint.is_some()).count();
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
        let fingerprint = Some(self.fingerprints.of(&json));
        if self.files.get(name).is_some_and(|content| content.fingerprint == fingerprint) {
            return Ok(false);
        }
        self.check_first(name);
        let file = self.disk.write(WRITING, &format::sealed(&json))?;
        self.disk.sync(file)?;
        // From here on, the file may hold the old or the new content.
        self.files.entry(name.to_owned()).or_default().fingerprint = None;
        self.disk.rename(WRITING, name)?;
        self.files.insert(name.to_owned(), Content { pod: Some(PodName::of(pod)), fingerprint });
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
