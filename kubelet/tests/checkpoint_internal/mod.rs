//! The checkpoint thread on disks that lose power at any step, fail once or again and again, are full, or hang.
//!
//! These tests replace the disk, which is private to the crate, so that crate includes them as a module.

mod edited;
mod failing;
mod hanging;
mod joined;
mod power;
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Disk, WRITING};
use super::keep::{Fingerprints, Keeper};
use super::thread::Checkpointing;
use super::{CHECKPOINT_ANNOTATION, CheckpointErrorKind, Which, format};
use pod_index::{Operation, OwnedSnapshot, PodMeta, PodUid};

const PATIENCE: Duration = Duration::from_secs(300);

/// A version of a pod that does or does not request a checkpoint.
pub(super) fn pod(uid: &str, version: u64, kept: bool) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name = Some(uid.to_owned());
    pod.metadata.namespace = Some("ns".to_owned());
    pod.metadata.resource_version = Some(version.to_string());
    let annotation = (CHECKPOINT_ANNOTATION.to_owned(), kept.to_string());
    pod.metadata.annotations = Some([annotation].into());
    Arc::new(pod)
}

fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

/// Which version of which pod.
type Pods = BTreeMap<String, u64>;

/// What is on disk, and what is not synced yet.
#[derive(Clone, Default)]
pub(super) struct Platter {
    /// Each file's bytes, and whether they were synced.
    files: Vec<(Vec<u8>, bool)>,
    /// The names as of the last sync of the directory.
    names: BTreeMap<String, usize>,
    /// Changes of names since then.
    since: Vec<Renamed>,
}

/// A name that refers to a file from now on, or to none.
#[derive(Clone)]
pub(super) struct Renamed(Vec<(String, Option<usize>)>);

impl Platter {
    pub(super) fn now(&self) -> BTreeMap<String, usize> {
        self.after(self.since.iter())
    }

    fn after<'a>(&self, since: impl Iterator<Item = &'a Renamed>) -> BTreeMap<String, usize> {
        let mut names = self.names.clone();
        for (name, file) in since.flat_map(|renamed| &renamed.0) {
            match file {
                Some(file) => names.insert(name.clone(), *file),
                None => names.remove(name),
            };
        }
        names
    }

    /// The directory that a kill leaves.
    fn after_a_kill(&self) -> BTreeMap<String, Vec<u8>> {
        self.now().into_iter().map(|(name, file)| (name, self.files[file].0.clone())).collect()
    }

    /// Every directory that a power loss may leave: the steps since the last sync up to any one, or all but
    /// one. Unsynced data is missing, partial or garbage.
    fn after_a_loss_of_power(&self) -> Vec<BTreeMap<String, Vec<u8>>> {
        let steps = &self.since;
        let up_to = (0..=steps.len()).map(|end| self.after(steps[..end].iter()));
        let but_one = (0..steps.len()).map(|lost| {
            self.after(steps.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, step)| step))
        });
        let names: BTreeSet<_> = up_to.chain(but_one).collect();
        let damages: [Damage; 4] = [
            <[u8]>::to_vec,
            |_| Vec::new(),
            |bytes| bytes[..bytes.len() / 2].to_vec(),
            |bytes| vec![0; bytes.len()],
        ];
        let mut states = Vec::new();
        for names in names {
            for damage in damages {
                let bytes = |file: &usize| {
                    let (bytes, synced) = &self.files[*file];
                    if *synced { bytes.clone() } else { damage(bytes) }
                };
                states.push(names.iter().map(|(name, file)| (name.clone(), bytes(file))).collect());
            }
        }
        states
    }
}

type Damage = fn(&[u8]) -> Vec<u8>;

/// A step that changes the disk.
pub(super) enum Step<'a> {
    Write,
    Remove(&'a str),
    Other,
}

/// A disk on which each step first does something, and may fail.
pub(super) struct FakeDisk {
    platter: Arc<Mutex<Platter>>,
    /// A file that cannot be read, and what the system says.
    pub(super) unreadable: Option<(&'static str, i32)>,
    before: Box<dyn FnMut(Step<'_>) -> io::Result<()> + Send>,
}

impl FakeDisk {
    pub(super) fn new(
        platter: &Arc<Mutex<Platter>>,
        before: impl FnMut(Step<'_>) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self { platter: Arc::clone(platter), unreadable: None, before: Box::new(before) }
    }

    fn step(&mut self, step: Step<'_>) -> io::Result<std::sync::MutexGuard<'_, Platter>> {
        (self.before)(step)?;
        Ok(self.platter.lock().unwrap())
    }
}

impl Disk for FakeDisk {
    type File = usize;

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        if let Some((_, code)) = self.unreadable.filter(|(unreadable, _)| *unreadable == name) {
            return Err(io::Error::from_raw_os_error(code));
        }
        let platter = self.platter.lock().unwrap();
        let bytes = platter.now().get(name).map(|file| platter.files[*file].0.clone());
        bytes.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<usize> {
        let mut platter = self.step(Step::Write)?;
        platter.files.push((bytes.to_vec(), false));
        let file = platter.files.len() - 1;
        platter.since.push(Renamed(vec![(name.to_owned(), Some(file))]));
        Ok(file)
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.step(Step::Other)?.files[file].1 = true;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut platter = self.step(Step::Other)?;
        let file = *platter.now().get(from).ok_or(io::ErrorKind::NotFound)?;
        platter.since.push(Renamed(vec![(from.to_owned(), None), (to.to_owned(), Some(file))]));
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut platter = self.step(Step::Remove(name))?;
        if platter.now().contains_key(name) {
            platter.since.push(Renamed(vec![(name.to_owned(), None)]));
        }
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let mut platter = self.step(Step::Other)?;
        platter.names = platter.now();
        platter.since.clear();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/disk").join(name)
    }
}

/// A sequence of index states in which pods are added, changed and removed, and change whether they request a
/// checkpoint.
fn history() -> Vec<(OwnedSnapshot<Pod>, Pods)> {
    let (mut writer, reader) = pod_index::new();
    let steps: [&[(&str, u64, bool)]; 8] = [
        &[("a", 1, true), ("b", 2, true), ("c", 3, false)],
        &[("a", 4, true), ("c", 5, true)],
        &[("b", 0, true), ("d", 6, true)],
        &[("c", 7, false), ("b", 8, true)],
        &[("a", 9, true), ("a", 10, true), ("d", 0, true)],
        &[("b", 0, true), ("a", 11, true), ("e", 12, true)],
        &[("c", 13, true), ("d", 14, true), ("e", 0, true)],
        &[("a", 0, true), ("b", 15, true), ("d", 16, true)],
    ];
    let mut states = Vec::new();
    for step in steps {
        let operations = step.iter().map(|(uid, version, kept)| match version {
            0 => Operation::Remove(PodUid::from(*uid)),
            version => Operation::Upsert(pod(uid, *version, *kept)),
        });
        assert_eq!(writer.apply(operations).refused, []);
        let snapshot = reader.snapshot();
        let kept = snapshot.pods().filter(|pod| pod.annotation(CHECKPOINT_ANNOTATION) == Some("true"));
        let kept = kept.map(|pod| (pod.uid().to_owned(), version(pod))).collect();
        states.push((snapshot, kept));
    }
    states
}

/// What the next start would find.
fn found(directory: &BTreeMap<String, Vec<u8>>) -> Pods {
    let files = directory.iter().filter(|(name, _)| format::is_file_name(name));
    let pods = files.filter_map(|(name, bytes)| Some(format::decode(name, bytes).ok()?.0));
    pods.map(|pod| (pod.uid().to_owned(), version(&pod))).collect()
}
