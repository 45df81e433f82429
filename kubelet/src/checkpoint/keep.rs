//! One pass: makes the files what a snapshot says they should be.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Disk, WRITING, set_aside};
use super::{CheckpointError, CheckpointErrorKind, LARGEST, Which, format};
use pod_index::{OwnedSnapshot, PodMeta, PodUid, Snapshot};

/// How many errors are told at once. On a disk that is gone, there is one for each pod.
const MOST_ERRORS: usize = 100;

/// The files that a start found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By name, and the hash of what is in each.
    pub(super) files: HashMap<String, u64>,
    /// Those that could not be read. They stay until something is heard of their pods.
    pub(super) unread: BTreeSet<String>,
    /// How many were set aside.
    pub(super) set_aside: usize,
}

/// What is on disk, as far as is known, and what has yet to get there.
pub(super) struct Keeper<D> {
    disk: D,
    which: Which,
    /// The files by name, and the hash of what is in each; nothing: it may be there, and hold anything.
    files: HashMap<String, Option<u64>>,
    /// How many of them are known to be there.
    whole: usize,
    /// Those of them that nobody could read, of whose pods nothing was heard yet. The first pass leaves them alone: that
    /// their pods are not in the index says nothing, as they could not be restored.
    unread: BTreeSet<String>,
    /// The snapshot that the files were compared with last.
    seen: Option<OwnedSnapshot<Pod>>,
    /// The files that are not as they should be, whose pods they are, and why.
    failed: BTreeMap<String, (Option<PodUid>, CheckpointError)>,
    /// The files that are not there because no start would read them.
    refused: BTreeMap<String, CheckpointError>,
    done: Done,
}

/// What a keeper has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) written: u64,
    pub(super) removed: u64,
    pub(super) failures: u64,
    pub(super) last_failure: Option<SystemTime>,
    pub(super) set_aside: usize,
}

impl<D: Disk> Keeper<D> {
    pub(super) fn new(disk: D, which: Which, found: Found) -> Self {
        let Found { files, unread, set_aside } = found;
        let whole = files.len();
        let known = files.into_iter().map(|(name, hash)| (name, Some(hash)));
        let files = known.chain(unread.iter().map(|name| (name.clone(), None))).collect();
        let (failed, refused) = (BTreeMap::new(), BTreeMap::new());
        let done = Done { set_aside, ..Done::default() };
        Self { disk, which, files, whole, unread, seen: None, failed, refused, done }
    }

    /// Brings the files from what they are to what the snapshot says, and returns all that is wrong now. What could not
    /// be done is tried again by the next pass, if that is to `retry`.
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
            // Whether a later sync would cover what this one failed to is not promised, so all is done once more.
            for (name, uid) in done {
                self.note(&name, None);
                self.fail(name, uid, error.clone());
            }
        }
        self.seen = Some(now);
        self.errors()
    }

    /// The files to look at, and the pods that they are of, as far as that is known.
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
            now.pods().iter().chain(now.mirror_pods().iter()).for_each(|pod| touch(pod));
            // A file may be of a pod that went while nobody kept it.
            for name in self.files.keys().filter(|name| !self.unread.contains(*name)) {
                touched.entry(name.clone()).or_default();
            }
        }
        touched
    }

    /// Whether something is not on disk yet as it should be.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// What is wrong now, as much of it as anybody reads.
    fn errors(&self) -> Vec<CheckpointError> {
        let errors = self.failed.values().map(|(_, error)| error).chain(self.refused.values());
        // A directory that cannot be synced is one error, however many files wait for it.
        let mut said = HashSet::new();
        errors.filter(|error| said.insert(*error)).take(MOST_ERRORS).cloned().collect()
    }

    /// How many files are not as they should be.
    pub(super) fn wrong(&self) -> usize {
        self.failed.len() + self.refused.len()
    }

    /// How many checkpoints there are.
    pub(super) fn files(&self) -> usize {
        self.whole
    }

    /// How many files are there that nobody could read.
    pub(super) fn unread(&self) -> usize {
        self.unread.len()
    }

    fn note(&mut self, name: &str, hash: Option<u64>) {
        let was = self.files.insert(name.to_owned(), hash);
        self.whole += usize::from(hash.is_some());
        self.whole -= usize::from(matches!(was, Some(Some(_))));
    }

    pub(super) fn done(&self) -> Done {
        self.done
    }

    /// Writes a pod, unless it is on disk as it is; says whether it wrote.
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
            // From here on, it is uncertain which of the two the name stands for.
            self.note(name, None);
            self.past_a_directory(name, |disk| disk.rename(WRITING, name))?;
            self.note(name, Some(hash));
            self.unread.remove(name);
            self.done.written += 1;
            Ok(Some(true))
        });
        match written {
            Ok(Some(acted)) => Ok(acted),
            // It will never be there, so nobody is to wait for it; and what was there is of another version.
            Ok(None) => {
                let (namespace, pod_name) = (pod.namespace(), pod.name());
                let why = format!("the pod {namespace}/{pod_name} is larger than {} MiB", LARGEST >> 20);
                let error = self.error(CheckpointErrorKind::TooLarge, name, &io::Error::other(why));
                self.refused.insert(name.to_owned(), error);
                self.note_failure();
                self.remove(name)
            }
            Err(error) => {
                // A full disk is not to be kept full. Failing that, it is overwritten by the next.
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
        self.whole -= usize::from(matches!(was, Some(Some(_))));
        self.done.removed += 1;
        Ok(true)
    }

    /// Does what a directory of this name may be in the way of, which no file can replace; then that is set aside.
    fn past_a_directory<T>(&mut self, name: &str, act: impl Fn(&mut D) -> io::Result<T>) -> io::Result<T> {
        match act(&mut self.disk) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                let aside = set_aside(&mut self.disk, name).map_err(|failure| {
                    io::Error::new(failure.kind(), format!("{error}; it cannot be set aside: {failure}"))
                })?;
                self.done.set_aside += 1;
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
        self.done.failures += 1;
        self.done.last_failure = Some(SystemTime::now());
    }

    fn error(&self, kind: CheckpointErrorKind, name: &str, error: &io::Error) -> CheckpointError {
        let what =
            if kind == CheckpointErrorKind::Remove { "cannot be removed" } else { "cannot be written" };
        CheckpointError::new(kind, &self.disk.path(name), format!("{what}: {error}"))
    }
}
