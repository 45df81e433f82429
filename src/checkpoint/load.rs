//! The start: opens the directory, reads what is there, and sets aside what cannot be used.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Directory, Disk, WRITING, set_aside};
use super::error::{CheckpointError, CheckpointErrorKind};
use super::format::{self, Unusable};
use super::keep::{Found, Keeper};
use super::thread::Checkpointing;
use super::{LARGEST, RESTORED_ANNOTATION, Which};
use crate::{CONFIG_SOURCE_ANNOTATION, Operation, PodMeta, PodUid, Reader, Snapshot};

/// A directory of checkpoints, open and locked, whose pods have been read.
#[derive(Debug)]
#[must_use = "without `keep`, nothing is written"]
pub struct Checkpoints {
    directory: Directory,
    which: Which,
    found: Found,
}

/// What was read.
#[derive(Debug, Default)]
#[must_use = "the pods are to be put into the index"]
pub struct Restored {
    /// The pods, marked with [`RESTORED_ANNOTATION`], in the order of their files' names.
    pub pods: Vec<Arc<Pod>>,
    /// What could not be used; each has been set aside, or says why not.
    pub errors: Vec<CheckpointError>,
}

impl Checkpoints {
    /// Opens the directory, which is made if it is not there, and reads the checkpoints in it.
    ///
    /// # Errors
    /// If it cannot be made or read, or if another process uses it. One bad file is no such error; see
    /// [`Restored::errors`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use pod_index::checkpoint::{Checkpoints, Which, is_restored};
    ///
    /// let directory = std::env::temp_dir().join(format!("pod-index-doc-{}", std::process::id()));
    /// let mut pod = Pod::default();
    /// pod.metadata.uid = Some("u1".into());
    /// pod.metadata.name = Some("web".into());
    /// pod.metadata.namespace = Some("default".into());
    ///
    /// let (checkpoints, _) = Checkpoints::open(&directory, Which::All)?;
    /// let (mut writer, reader) = pod_index::new();
    /// let checkpointing = checkpoints.keep(reader)?;
    /// writer.add_pod(pod)?;
    /// checkpointing.published();
    /// checkpointing.wait_for(writer.snapshot().generation(), Duration::from_secs(60))?;
    /// # checkpointing.finish(Duration::from_secs(60));
    ///
    /// // Another run.
    /// let (checkpoints, restored) = Checkpoints::open(&directory, Which::All)?;
    /// let (mut writer, reader) = pod_index::new();
    /// let _ = writer.apply(restored.operations());
    /// assert!(is_restored(&**reader.load().pod_by_uid("u1").unwrap()));
    /// # drop(checkpoints);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(directory: impl AsRef<Path>, which: Which) -> Result<(Self, Restored), CheckpointError> {
        let path = directory.as_ref();
        let failed = |error: &io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                CheckpointError::new(CheckpointErrorKind::Locked, path, "another process uses the directory")
            }
            _ => {
                CheckpointError::new(CheckpointErrorKind::Directory, path, format!("cannot be used: {error}"))
            }
        };
        let directory = Directory::open(path).map_err(|error| failed(&error))?;
        let mut loading = Loading { directory, found: Found::default(), restored: Restored::default() };
        loading.run().map_err(|error| failed(&error))?;
        Ok((Self { directory: loading.directory, which, found: loading.found }, loading.restored))
    }

    /// Starts the thread that keeps the files as the index is. **Put the restored pods into the index before**: a file
    /// whose pod is not there goes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn keep(self, reader: Reader<Pod>) -> io::Result<Checkpointing> {
        Checkpointing::start(Keeper::new(self.directory, self.which, self.found), reader)
    }
}

impl Restored {
    /// What puts the pods into an index.
    pub fn operations(&self) -> impl Iterator<Item = Operation<Pod>> {
        self.pods.iter().map(|pod| Operation::Add(Arc::clone(pod)))
    }

    /// The restored pods of which no source has told: those that are in the index still as they were restored. Once all
    /// sources have been seen, they are gone from the cluster and the node, and to be removed.
    ///
    /// A pod is told from one that only says of itself that it was restored: what counts is the very object.
    #[must_use]
    pub fn unclaimed(&self, snapshot: &Snapshot<Pod>) -> Vec<PodUid> {
        self.unclaimed_if(snapshot, |_| true)
    }

    /// Those of them that once came from this source (`file`, `http` or `api`, as their annotation
    /// `kubernetes.io/config.source` has it). They are gone once this source was heard, whatever the others have to say.
    ///
    /// **Heard means more than seen.** A source whose directory is not mounted yet, or that cannot read a part of what it
    /// has, names fewer pods than there are; let its pods go after its first look that nothing was wrong with.
    #[must_use]
    pub fn unclaimed_from(&self, source: &str, snapshot: &Snapshot<Pod>) -> Vec<PodUid> {
        self.unclaimed_if(snapshot, |pod| pod.annotation(CONFIG_SOURCE_ANNOTATION) == Some(source))
    }

    fn unclaimed_if(&self, snapshot: &Snapshot<Pod>, counts: impl Fn(&Pod) -> bool) -> Vec<PodUid> {
        let still = |pod: &&Arc<Pod>| {
            let held = snapshot.pod_by_uid(pod.uid()).or_else(|| snapshot.mirror_pod_by_uid(pod.uid()));
            counts(pod) && held.is_some_and(|held| Arc::ptr_eq(held, pod))
        };
        self.pods.iter().filter(still).map(|pod| PodUid::from(pod.uid())).collect()
    }
}

struct Loading {
    directory: Directory,
    found: Found,
    restored: Restored,
}

impl Loading {
    fn run(&mut self) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.directory.root())? {
            // What is not UTF-8 is not ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        for name in &names {
            if name == WRITING {
                // Of a run that ended while it wrote: nothing of it was acknowledged. If it stays, it is overwritten.
                let _ = self.directory.remove(name);
            } else if format::is_file_name(name) {
                self.load_if_regular(name);
            }
        }
        Ok(())
    }

    /// What is no regular file was put there by somebody else. It is left alone; to open a pipe could take for ever.
    fn load_if_regular(&mut self, name: &str) {
        let path = self.directory.path(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => {
                let message = "it is no regular file; left alone";
                self.restored.errors.push(CheckpointError::new(CheckpointErrorKind::Foreign, &path, message));
            }
            _ => self.load(name),
        }
    }

    fn load(&mut self, name: &str) {
        match self.read(name) {
            Ok((mut pod, hash)) => {
                self.found.files.insert(name.to_owned(), hash);
                let annotations = pod.metadata.annotations.get_or_insert_default();
                annotations.insert(RESTORED_ANNOTATION.to_owned(), "true".to_owned());
                self.restored.pods.push(Arc::new(pod));
            }
            Err(why) => {
                let error = CheckpointError::new(why.kind, &self.directory.path(name), &*why.message);
                let is_unread = why.kind == CheckpointErrorKind::Unreadable;
                let error = match set_aside(&mut self.directory, name) {
                    Ok(aside) => {
                        self.found.set_aside += 1;
                        error.and(&format!("; it is set aside as {aside}"))
                    }
                    Err(failure) => {
                        if is_unread {
                            self.found.unread.insert(name.to_owned());
                        }
                        error.and(&format!("; it cannot be set aside: {failure}"))
                    }
                };
                self.restored.errors.push(error);
            }
        }
    }

    /// The pod in a file, and the hash of its bytes.
    fn read(&self, name: &str) -> Result<(Pod, u64), Unusable> {
        let unreadable = |error: io::Error| Unusable {
            kind: CheckpointErrorKind::Unreadable,
            message: format!("cannot be read: {error}"),
        };
        let mut file = File::open(self.directory.path(name)).map_err(unreadable)?;
        // A larger one is not read to its end to be told that it is too large.
        let mut bytes = Vec::new();
        let most = u64::try_from(LARGEST).unwrap_or(u64::MAX);
        file.by_ref().take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() > LARGEST {
            let message = format!("it is larger than {} MiB", LARGEST >> 20);
            return Err(Unusable { kind: CheckpointErrorKind::Foreign, message });
        }
        format::decode(name, &bytes)
    }
}
