//! Tests on disks that lose power at any step, that are full, and that hang.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Disk, Seen, WRITING};
use super::keep::{Found, Keeper};
use super::thread::Checkpointing;
use super::{CHECKPOINT_ANNOTATION, CheckpointErrorKind, Which, format};
use pod_index::{Operation, PodMeta, PodUid, Snapshot};

const PATIENCE: Duration = Duration::from_secs(60);

/// A version of a pod that asks to be kept, or does not.
fn pod(uid: &str, version: u64, kept: bool) -> Arc<Pod> {
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

/// What is on the platter, and what is on its way there.
#[derive(Clone, Default)]
struct Platter {
    /// Each file's bytes, and whether they were synced.
    files: Vec<(Vec<u8>, bool)>,
    /// The names as they were when the directory was synced last.
    names: BTreeMap<String, usize>,
    /// What happened to the names since.
    since: Vec<Renamed>,
}

/// A name that stands for a file from now on, or for none.
#[derive(Clone)]
struct Renamed(Vec<(String, Option<usize>)>);

impl Platter {
    fn now(&self) -> BTreeMap<String, usize> {
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

    /// Every directory that a loss of power may leave: the steps since the last sync up to any one, or all but one; and in
    /// what was not synced nothing, a part, or rubbish.
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

/// A disk that works for so many steps, and then never again.
struct MortalDisk {
    platter: Arc<Mutex<Platter>>,
    steps: usize,
}

impl MortalDisk {
    fn step(&mut self) -> io::Result<std::sync::MutexGuard<'_, Platter>> {
        self.steps = self.steps.checked_sub(1).ok_or_else(|| io::Error::other("no power"))?;
        Ok(self.platter.lock().unwrap())
    }
}

impl Disk for MortalDisk {
    type File = usize;

    fn read(&self, name: &str, most: usize) -> io::Result<Seen> {
        let platter = self.platter.lock().unwrap();
        let bytes = platter.now().get(name).map(|file| platter.files[*file].0.clone());
        Ok(bytes.map_or(
            Seen::Nothing,
            |bytes| if bytes.len() > most { Seen::Larger } else { Seen::Bytes(bytes) },
        ))
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<usize> {
        let mut platter = self.step()?;
        platter.files.push((bytes.to_vec(), false));
        let file = platter.files.len() - 1;
        platter.since.push(Renamed(vec![(name.to_owned(), Some(file))]));
        Ok(file)
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.step()?.files[file].1 = true;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut platter = self.step()?;
        let file = *platter.now().get(from).ok_or(io::ErrorKind::NotFound)?;
        platter.since.push(Renamed(vec![(from.to_owned(), None), (to.to_owned(), Some(file))]));
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut platter = self.step()?;
        if platter.now().contains_key(name) {
            platter.since.push(Renamed(vec![(name.to_owned(), None)]));
        }
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let mut platter = self.step()?;
        platter.names = platter.now();
        platter.since.clear();
        Ok(())
    }

    fn is_free(&self, name: &str) -> io::Result<bool> {
        Ok(!self.platter.lock().unwrap().now().contains_key(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/disk").join(name)
    }
}

/// States of an index one after the other, in which pods come, change, go, and change their minds.
fn history() -> Vec<(Arc<Snapshot<Pod>>, Pods)> {
    let (mut writer, reader) = pod_index::new();
    let steps: [&[(&str, u64, bool)]; 6] = [
        &[("a", 1, true), ("b", 2, true), ("c", 3, false)],
        &[("a", 4, true), ("c", 5, true)],
        &[("b", 0, true), ("d", 6, true)],
        &[("c", 7, false), ("b", 8, true)],
        &[("a", 9, true), ("a", 10, true), ("d", 0, true)],
        &[("b", 0, true), ("a", 11, true), ("e", 12, true)],
    ];
    let mut states = Vec::new();
    for step in steps {
        let operations = step.iter().map(|(uid, version, kept)| match version {
            0 => Operation::Remove(PodUid::from(*uid)),
            version => Operation::Update(pod(uid, *version, *kept)),
        });
        assert_eq!(writer.apply(operations).refused, []);
        let snapshot = reader.snapshot();
        let kept = snapshot.pods().iter().filter(|pod| pod.annotation(CHECKPOINT_ANNOTATION) == Some("true"));
        let kept = kept.map(|pod| (pod.uid().to_owned(), version(pod))).collect();
        states.push((snapshot, kept));
    }
    states
}

/// What a start would find.
fn found(directory: &BTreeMap<String, Vec<u8>>) -> Pods {
    let files = directory.iter().filter(|(name, _)| format::is_file_name(name));
    let pods = files.filter_map(|(name, bytes)| Some(format::decode(name, bytes).ok()?.0));
    pods.map(|pod| (pod.uid().to_owned(), version(&pod))).collect()
}

#[test]
fn a_loss_of_power_at_any_step_takes_nothing_that_was_acknowledged_and_brings_nothing_back() {
    let history = history();
    let mut tried = 0;
    for steps in 0.. {
        let platter = Arc::default();
        let disk = MortalDisk { platter: Arc::clone(&platter), steps };
        let mut keeper = Keeper::new(disk, Which::Annotated, Found::default());
        let nothing = Pods::new();
        // What was acknowledged last, and what may have been begun since.
        let mut acknowledged = &nothing;
        let mut begun: Vec<&Pods> = Vec::new();
        for (snapshot, pods) in &history {
            begun.push(pods);
            if !keeper.pass(Arc::clone(snapshot), true).is_empty() {
                break;
            }
            assert!(!keeper.has_failed());
            acknowledged = pods;
            begun.clear();
        }
        let uids: BTreeSet<_> = history.iter().flat_map(|(_, pods)| pods.keys()).collect();
        let platter = platter.lock().unwrap();
        for directory in platter.after_a_loss_of_power() {
            let found = found(&directory);
            for uid in &uids {
                let allowed: Vec<_> = [acknowledged]
                    .into_iter()
                    .chain(begun.iter().copied())
                    .map(|pods| pods.get(*uid))
                    .collect();
                assert!(
                    allowed.contains(&found.get(*uid)),
                    "{uid} after {steps} steps: {:?}, not of {allowed:?}",
                    found.get(*uid)
                );
            }
            tried += 1;
        }
        if begun.is_empty() {
            assert!(tried > 500, "{tried} states in {steps} steps");
            return;
        }
    }
}

#[test]
fn a_disk_that_fails_once_at_any_step_is_tried_again_until_all_is_there() {
    for failing in 0..40 {
        let platter = Arc::default();
        let disk =
            FailingOnce { disk: MortalDisk { platter: Arc::clone(&platter), steps: usize::MAX }, failing };
        let mut keeper = Keeper::new(disk, Which::Annotated, Found::default());
        for (snapshot, pods) in history() {
            let errors = keeper.pass(Arc::clone(&snapshot), false);
            assert_eq!(errors.is_empty(), !keeper.has_failed());
            for error in errors {
                assert!(matches!(error.kind(), CheckpointErrorKind::Write | CheckpointErrorKind::Remove));
                assert!(error.to_string().starts_with("/disk"), "{error}");
            }
            if keeper.has_failed() {
                assert_eq!(keeper.pass(snapshot, true), []);
            }
            let platter = platter.lock().unwrap();
            assert!(platter.since.is_empty(), "acknowledged, and not synced");
            let names =
                platter.names.iter().map(|(name, file)| (name.clone(), platter.files[*file].0.clone()));
            let directory: BTreeMap<_, _> = names.collect();
            assert_eq!(found(&directory), pods, "the step {failing} failed");
            assert!(!directory.contains_key(WRITING));
        }
    }
}

/// A disk of which one step fails: it is full, for a moment.
struct FailingOnce {
    disk: MortalDisk,
    failing: usize,
}

impl FailingOnce {
    fn step(&mut self) -> io::Result<()> {
        let fails = self.failing == 0;
        self.failing = self.failing.wrapping_sub(1);
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk for FailingOnce {
    type File = usize;

    fn read(&self, name: &str, most: usize) -> io::Result<Seen> {
        self.disk.read(name, most)
    }
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<usize> {
        self.step()?;
        self.disk.write(name, bytes)
    }
    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.step()?;
        self.disk.sync(file)
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        self.disk.rename(from, to)
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        // What is left of a write that failed can be removed from a full disk.
        if name != WRITING {
            self.step()?;
        }
        self.disk.remove(name)
    }
    fn sync_directory(&mut self) -> io::Result<()> {
        self.step()?;
        self.disk.sync_directory()
    }
    fn is_free(&self, name: &str) -> io::Result<bool> {
        self.disk.is_free(name)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }
}

#[test]
fn what_has_not_changed_is_not_written_again() {
    let platter = Arc::default();
    let disk = MortalDisk { platter: Arc::clone(&platter), steps: usize::MAX };
    let (mut writer, reader) = pod_index::new();
    let mut keeper = Keeper::new(disk, Which::Annotated, Found::default());
    writer.add_pod(pod("a", 1, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    // Another object that says the same, as after a relist.
    writer.update_pod(pod("a", 1, true)).unwrap();
    writer.add_pod(pod("not-kept", 1, false)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    assert_eq!(platter.lock().unwrap().files.len(), 1);
}

#[test]
fn a_pod_too_large_for_a_checkpoint_is_told_keeps_nobody_waiting_and_leaves_no_older_version() {
    let platter = Arc::default();
    let disk = MortalDisk { platter: Arc::clone(&platter), steps: usize::MAX };
    let (mut writer, reader) = pod_index::new();
    let mut keeper = Keeper::new(disk, Which::Annotated, Found::default());
    writer.add_pod(pod("grows", 1, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), false), []);
    let mut grown = Pod::clone(&pod("grows", 2, true));
    grown.metadata.annotations.as_mut().unwrap().insert("large".to_owned(), "x".repeat(super::LARGEST));
    writer.update_pod(grown).unwrap();
    writer.add_pod(pod("other", 1, true)).unwrap();
    let errors = keeper.pass(reader.snapshot(), false);
    assert_eq!(
        errors.iter().map(super::CheckpointError::kind).collect::<Vec<_>>(),
        [CheckpointErrorKind::TooLarge]
    );
    assert!(errors[0].to_string().contains("Pod_grows.yaml: cannot be written: the pod ns/grows is larger"));
    assert!(!keeper.has_failed(), "nobody is to wait for what never comes");
    let names = |platter: &Platter| platter.names.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&platter.lock().unwrap()), ["Pod_other.yaml"]);
    writer.update_pod(pod("grows", 3, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), false), []);
    assert_eq!(names(&platter.lock().unwrap()), ["Pod_grows.yaml", "Pod_other.yaml"]);
}

/// A disk that hangs in each write until it is let go on.
struct HangingDisk {
    disk: MortalDisk,
    hangs: SyncSender<()>,
    go_on: Receiver<()>,
}

impl Disk for HangingDisk {
    type File = usize;

    fn read(&self, name: &str, most: usize) -> io::Result<Seen> {
        self.disk.read(name, most)
    }
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<usize> {
        // Both fail when the test is over.
        let _ = self.hangs.send(());
        let _ = self.go_on.recv();
        self.disk.write(name, bytes)
    }
    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.disk.sync(file)
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_directory(&mut self) -> io::Result<()> {
        self.disk.sync_directory()
    }
    fn is_free(&self, name: &str) -> io::Result<bool> {
        self.disk.is_free(name)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }
}

#[test]
fn a_disk_that_hangs_keeps_no_publication_waiting_and_what_gathers_is_written_once() {
    let platter = Arc::default();
    let (hangs, hanging) = sync_channel(0);
    let (resume, go_on) = sync_channel(0);
    let disk = MortalDisk { platter: Arc::clone(&platter), steps: usize::MAX };
    let (mut writer, reader) = pod_index::new();
    let keeper = Keeper::new(HangingDisk { disk, hangs, go_on }, Which::Annotated, Found::default());
    let checkpointing = Checkpointing::start(keeper, reader.clone()).unwrap();
    checkpointing.wait_for(0, PATIENCE).unwrap();

    writer.add_pod(pod("a", 1, true)).unwrap();
    checkpointing.published();
    hanging.recv_timeout(PATIENCE).unwrap();
    // The thread hangs, and will for as long as this test wants. All of this is published none the less.
    for version in 2..=1000 {
        writer.update_pod(pod("a", version, true)).unwrap();
        checkpointing.published();
        assert_eq!(reader.load().pod_by_uid("a").map(|pod| self::version(pod)), Some(version));
    }
    let late = checkpointing.wait_for(1, Duration::ZERO).unwrap_err();
    assert_eq!(late.to_string(), "generation 1 is not known to be on disk");
    resume.send(()).unwrap();
    hanging.recv_timeout(PATIENCE).unwrap();
    resume.send(()).unwrap();
    checkpointing.wait_for(1000, PATIENCE).unwrap();
    assert_eq!(platter.lock().unwrap().files.len(), 2, "the first version and the last");

    writer.update_pod(pod("a", 1001, true)).unwrap();
    checkpointing.published();
    hanging.recv_timeout(PATIENCE).unwrap();
    let late = checkpointing.finish(Duration::ZERO).unwrap_err();
    assert_eq!(
        late.to_string(),
        "generation 1001 is not known to be on disk",
        "a disk that hangs is not waited for"
    );
}
