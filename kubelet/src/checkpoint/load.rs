//! The start: opens the directory, reads the checkpoints, and sets unusable files aside. Files that cannot be
//! read stay in place, since their content is unknown.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::disk::{Directory, Disk, WRITING, set_aside};
use super::error::{CheckpointError, CheckpointErrorKind};
use super::format;
use super::keep::{Content, Keeper, MOST_ERRORS, PodName};
use super::thread::Checkpointing;
use super::{RESTORED_ANNOTATION, Which};
use crate::HasPod;
use pod_index::{CONFIG_SOURCE_ANNOTATION, Operation, PodMeta, PodUid, Reader, Snapshot};

/// A locked directory of checkpoints whose pods have been read.
#[must_use = "without `keep`, nothing is written"]
pub struct Checkpoints {
    keeper: Keeper<Directory>,
}

impl_debug!(Checkpoints);

/// The pods and errors found by [`Checkpoints::open`].
#[derive(Debug, Default)]
#[must_use = "the pods are to be put into the index"]
pub struct Restored {
    /// The pods, marked with [`RESTORED_ANNOTATION`], sorted by file name.
    pub pods: Vec<Arc<Pod>>,
    /// The files that could not be used, sorted by name. Each was set aside, or its error says why not. At most 100.
    pub errors: Vec<CheckpointError>,
    /// Number of files that could not be used beside those in `errors`. Those that are unusable are set aside by the thread of
    /// [`keep`](Checkpoints::keep), so that a directory full of them does not delay the start.
    pub more_errors: usize,
    /// Number of files that were not read, because there are more than 10,000, and these are the oldest. The thread of
    /// [`keep`](Checkpoints::keep) sets the unusable ones aside, and leaves the others for the next start.
    pub not_read: usize,
}

impl Checkpoints {
    /// Opens the directory, creating it if necessary, and reads its checkpoints.
    ///
    /// # Complexity
    /// At most 10,000 files are read, the newest, however many there are: far more than a node has pods.
    ///
    /// # Errors
    /// If the directory cannot be created or listed, or if another process uses it. A bad file is not an
    /// error here; see [`Restored::errors`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use pod_index_kubelet::checkpoint::{Checkpoints, Which, is_restored};
    ///
    /// let directory = std::env::temp_dir().join(format!("pod-index-doc-{}", std::process::id()));
    /// let mut pod = Pod::default();
    /// pod.metadata.uid = Some("u1".into());
    /// pod.metadata.name = Some("web".into());
    /// pod.metadata.namespace = Some("default".into());
    ///
    /// let (checkpoints, _) = Checkpoints::open(&directory, Which::All)?;
    /// let (mut writer, reader) = pod_index::new::<Pod>();
    /// let checkpointing = checkpoints.keep(reader)?;
    /// writer.upsert_pod(pod)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// checkpointing.wait_for(writer.current().generation(), Duration::from_secs(60)).await?;
    /// # checkpointing.finish(Duration::from_secs(60)).await })?;
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
        let failed = |error: io::Error| {
            let (kind, message) = match error.kind() {
                io::ErrorKind::WouldBlock => {
                    (CheckpointErrorKind::Locked, "another process uses the directory".to_owned())
                }
                _ => (CheckpointErrorKind::Directory, format!("cannot be used: {error}")),
            };
            CheckpointError::new(kind, path, message)
        };
        let directory = Directory::open(path).map_err(failed)?;
        let names = directory.names().map_err(failed)?;
        let names = Names::of(names, MOST_READ, |names| directory.newest_first(names));
        let mut keeper = Keeper::new(directory, which);
        let restored = load(&mut keeper, names);
        Ok((Self { keeper }, restored))
    }

    /// Starts the thread that updates the files whenever the index changes. **Put the restored pods into the
    /// index first**: the thread removes the files of pods that are not in it.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn keep<P>(self, reader: Reader<P>) -> io::Result<Checkpointing>
    where
        P: HasPod + Send + Sync + 'static,
    {
        Checkpointing::start(self.keeper.of(), reader)
    }
}

impl Restored {
    fn fail(&mut self, kind: CheckpointErrorKind, path: &Path, message: String) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(CheckpointError::new(kind, path, message));
        } else {
            self.more_errors += 1;
        }
    }

    /// Operations that put the pods into an index.
    pub fn operations(&self) -> impl Iterator<Item = Operation<Pod>> {
        self.pods.iter().map(|pod| Operation::Upsert(Arc::clone(pod)))
    }

    /// Restored pods that no source has reported: they are still in the index as restored. With a `source` (`file`,
    /// `http` or `api`, as in the annotation `kubernetes.io/config.source`), only those that came from it. Remove these
    /// once that source has been read, and all once all sources have been read: they no longer exist.
    ///
    /// **Wait for a complete read.** A source whose directory is not mounted yet, or that can read only a
    /// part, reports fewer pods than exist. Remove its pods only after its first read without an error.
    ///
    /// Pods are compared by object identity. A pod that merely carries the annotation is not included.
    #[must_use]
    pub fn unclaimed<P: HasPod>(&self, source: Option<&str>, snapshot: &Snapshot<P>) -> Vec<PodUid> {
        let still = |pod: &&Arc<Pod>| {
            let held = snapshot.pod_by_uid(pod.uid()).or_else(|| snapshot.mirror_pod_by_uid(pod.uid()));
            held.is_some_and(|held| Arc::ptr_eq(P::pod(held), pod))
                && (source.is_none() || pod.annotation(CONFIG_SOURCE_ANNOTATION) == source)
        };
        self.pods.iter().filter(still).map(|pod| PodUid::from(pod.uid())).collect()
    }
}

/// How many files the start reads. What has to be done before the agent serves must not depend on how many files there are.
const MOST_READ: usize = 10_000;

/// The names in a directory.
struct Names {
    /// Of the checkpoints that are read at the start, sorted.
    now: Vec<String>,
    /// Of the other checkpoints.
    later: BTreeSet<String>,
    /// Whether there is a file that was being written.
    has_unfinished: bool,
}

impl Names {
    /// Divides these names. The agent replaces the file of a pod that changes, and removes that of one that is gone: so if there
    /// are more files than pods, the newest are most likely those of pods.
    fn of(mut names: Vec<String>, most: usize, newest_first: impl FnOnce(&mut [String])) -> Self {
        let has_unfinished = names.iter().any(|name| name == WRITING);
        names.retain(|name| format::is_file_name(name));
        if names.len() > most {
            newest_first(&mut names);
        }
        let later = names.split_off(names.len().min(most)).into_iter().collect();
        names.sort_unstable();
        Self { now: names, later, has_unfinished }
    }
}

/// Reads the files that are to be read at the start.
fn load(keeper: &mut Keeper<impl Disk>, names: Names) -> Restored {
    let disk = &mut keeper.disk;
    let mut restored = Restored { not_read: names.later.len(), ..Restored::default() };
    keeper.unchecked = names.later;
    if names.has_unfinished {
        // Left by a process that ended during a write. It was never acknowledged. If removal fails, the
        // next write overwrites it.
        let _ = disk.remove(WRITING);
    }
    for name in &names.now {
        let decoded = match disk.read(name) {
            Ok(bytes) => {
                let decoded = format::decode(name, &bytes);
                decoded.map(|(pod, json)| (pod, keeper.fingerprints.of(&json)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
            Err(error) => {
                // The content is unknown, so the file is neither damaged nor obsolete.
                let message = format!("cannot be read: {error}; it is left in place");
                restored.fail(CheckpointErrorKind::Unreadable, &disk.path(name), message);
                keeper.files.insert(name.clone(), Content::default());
                keeper.unread.insert(name.clone());
                continue;
            }
        };
        match decoded {
            Ok((mut pod, fingerprint)) => {
                let content = Content { pod: Some(PodName::of(&pod)), fingerprint: Some(fingerprint) };
                keeper.files.insert(name.clone(), content);
                let annotations = pod.metadata.annotations.get_or_insert_default();
                annotations.insert(RESTORED_ANNOTATION.to_owned(), "true".to_owned());
                restored.pods.push(Arc::new(pod));
            }
            Err(_) if restored.errors.len() >= MOST_ERRORS => {
                restored.more_errors += 1;
                keeper.unchecked.insert(name.clone());
            }
            Err(why) => {
                let aside = set_aside(disk, name);
                keeper.status.set_aside += usize::from(aside.is_ok());
                let message = match aside {
                    Ok(aside) => format!("{why}; it is set aside as {aside}"),
                    Err(failure) => format!("{why}; it cannot be set aside: {failure}"),
                };
                restored.fail(CheckpointErrorKind::Unusable, &disk.path(name), message);
            }
        }
    }
    if keeper.status.set_aside > 0 {
        // Once for all: a sync takes milliseconds.
        let _ = disk.sync_directory();
    }
    restored
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, SystemTime};

    use super::super::disks::{FakeDisk, Platter, Step, pod};
    use super::*;

    #[test]
    fn a_missing_file_is_removed_without_an_error_and_a_directory_is_not() {
        let place = pod_index_test_support::files::Directory::new();
        std::fs::create_dir(place.at("directory")).unwrap();
        let mut directory = Directory::open(place.path()).unwrap();
        directory.remove("missing").unwrap();
        directory.remove("directory").unwrap_err();
    }

    /// A disk with checkpoints of `a`, `b` and `c`.
    fn platter() -> Arc<Mutex<Platter>> {
        let platter = Arc::default();
        let mut disk = FakeDisk::new(&platter, |_| Ok(()));
        for uid in ["a", "b", "c"] {
            let bytes = format::sealed(&format::json(&pod(uid, 1, true)).unwrap());
            disk.write(&format::file_name(uid), &bytes).unwrap();
        }
        platter
    }

    fn names(platter: &Mutex<Platter>) -> Vec<String> {
        platter.lock().unwrap().now().into_keys().collect()
    }

    /// `b` cannot be read, unless `code` is 0.
    fn load(platter: &Arc<Mutex<Platter>>, names: &[String], code: i32) -> (Keeper<FakeDisk>, Restored) {
        load_some(platter, names, MOST_READ, code)
    }

    /// The same if at most so many are read: those whose names come last.
    fn load_some(
        platter: &Arc<Mutex<Platter>>,
        names: &[String],
        most: usize,
        code: i32,
    ) -> (Keeper<FakeDisk>, Restored) {
        let mut disk = FakeDisk::new(platter, |_| Ok(()));
        disk.unreadable = (code != 0).then_some(("Pod_b.yaml", code));
        let mut keeper = Keeper::new(disk, Which::Annotated);
        let names = Names::of(names.to_vec(), most, <[String]>::reverse);
        let restored = super::load(&mut keeper, names);
        (keeper, restored)
    }

    fn uids(restored: &Restored) -> Vec<&str> {
        restored.pods.iter().map(|pod| pod.uid()).collect()
    }

    // EIO, ENOMEM, EACCES, ENFILE, EMFILE.
    const CODES: [i32; 5] = [5, 12, 13, 23, 24];

    #[test]
    fn an_unreadable_file_stays_while_other_pods_change_and_is_read_at_the_next_start() {
        for code in CODES {
            let platter = platter();
            let (mut keeper, restored) = load(&platter, &names(&platter), code);
            assert_eq!(uids(&restored), ["a", "c"]);
            let [error] = &restored.errors[..] else { panic!("{:?}", restored.errors) };
            assert_eq!(error.kind, CheckpointErrorKind::Unreadable);
            assert!(error.to_string().contains("Pod_b.yaml: cannot be read: "), "{error}");
            assert!(error.to_string().ends_with("; it is left in place"), "{error}");

            let (mut writer, reader) = pod_index::new();
            let _ = writer.apply(restored.operations());
            assert_eq!(keeper.pass(reader.snapshot(), false), []);
            writer.remove_pod_by_uid("c");
            writer.upsert_pod(pod("d", 1, true)).unwrap();
            assert_eq!(keeper.pass(reader.snapshot(), true), []);
            assert_eq!(keeper.status().wrong, 0, "no wait includes it");
            assert_eq!((keeper.status().files, keeper.status().unread), (2, 1));
            assert_eq!(names(&platter), ["Pod_a.yaml", "Pod_b.yaml", "Pod_d.yaml"]);

            let (_, restored) = load(&platter, &names(&platter), 0);
            assert_eq!((uids(&restored), &*restored.errors), (vec!["a", "b", "d"], &[][..]));
        }
    }

    #[test]
    fn an_unreadable_file_is_replaced_or_removed_once_its_pod_is_reported() {
        for (kept, files) in
            [(true, &["Pod_a.yaml", "Pod_b.yaml", "Pod_c.yaml"][..]), (false, &["Pod_a.yaml", "Pod_c.yaml"])]
        {
            let platter = platter();
            let (mut keeper, restored) = load(&platter, &names(&platter), CODES[0]);
            let (mut writer, reader) = pod_index::new();
            let _ = writer.apply(restored.operations());
            writer.upsert_pod(pod("b", 2, kept)).unwrap();
            assert_eq!(keeper.pass(reader.snapshot(), false), []);
            assert_eq!(names(&platter), files);
            assert_eq!((keeper.status().files, keeper.status().unread), (files.len(), 0));
        }
    }

    /// A disk that is full of them must not keep the agent from serving.
    #[test]
    fn a_start_sets_a_hundred_unusable_files_aside_and_the_thread_the_others() {
        let platter = platter();
        let mut disk = FakeDisk::new(&platter, |_| Ok(()));
        for number in 0..300 {
            disk.write(&format::file_name(&format!("damaged-{number:03}")), b"garbage").unwrap();
        }
        let aside = || names(&platter).iter().filter(|name| name.ends_with(".unusable")).count();
        let (mut keeper, restored) = load(&platter, &names(&platter), 0);
        assert_eq!(
            (uids(&restored), restored.errors.len(), restored.more_errors),
            (vec!["a", "b", "c"], 100, 200)
        );
        assert_eq!((aside(), keeper.status().set_aside), (100, 100));

        // One of the others is written before its turn.
        let (mut writer, reader) = pod_index::new();
        let _ = writer.apply(restored.operations());
        writer.upsert_pod(pod("damaged-299", 1, true)).unwrap();
        assert_eq!(keeper.pass(reader.snapshot(), false), []);
        let mut turns = 1;
        while keeper.check_some() {
            turns += 1;
        }
        assert_eq!((turns, aside(), keeper.status().set_aside), (2, 300, 300));
        assert_eq!(keeper.pass(reader.snapshot(), true), []);
        let (_, restored) = load(&platter, &names(&platter), 0);
        assert_eq!((uids(&restored), restored.errors.len()), (vec!["a", "b", "c", "damaged-299"], 0));
    }

    /// What the start has to do does not grow with the number of files.
    #[test]
    fn a_start_reads_the_newest_files_and_the_thread_looks_at_the_others_beside_serving() {
        let platter = platter();
        let mut disk = FakeDisk::new(&platter, |_| Ok(()));
        for number in 0..300 {
            disk.write(&format::file_name(&format!("A-{number:03}")), b"garbage").unwrap();
        }
        let listed = names(&platter);
        let (mut keeper, restored) = load_some(&platter, &listed, 2, 0);
        assert_eq!((uids(&restored), restored.errors.len(), restored.not_read), (vec!["b", "c"], 0, 301));
        assert_eq!((names(&platter).len(), keeper.status().unread), (303, 301));

        // The pod of a file that was not read is reported, and so is one whose file is unusable.
        let (mut writer, reader) = pod_index::new();
        let _ = writer.apply(restored.operations());
        writer.upsert_pod(pod("A-299", 1, true)).unwrap();
        assert_eq!(keeper.pass(reader.snapshot(), false), []);
        while keeper.check_some() {}
        assert_eq!((keeper.status().set_aside, keeper.status().unread), (300, 1));
        writer.upsert_pod(pod("a", 2, true)).unwrap();
        writer.remove_pod_by_uid("b");
        assert_eq!(keeper.pass(reader.snapshot(), false), []);
        assert_eq!((keeper.status().files, keeper.status().unread), (3, 0));
        let (_, restored) = load(&platter, &names(&platter), 0);
        assert_eq!((uids(&restored), restored.errors.len()), (vec!["A-299", "a", "c"], 0));
    }

    #[test]
    fn a_file_that_was_not_read_is_removed_with_its_pod_and_otherwise_read_at_the_next_start() {
        let platter = platter();
        let (mut keeper, restored) = load_some(&platter, &names(&platter), 1, 0);
        assert_eq!((uids(&restored), restored.not_read), (vec!["c"], 2));
        let (mut writer, reader) = pod_index::new();
        let _ = writer.apply(restored.operations());
        // It does not ask for a checkpoint any more.
        writer.upsert_pod(pod("a", 2, false)).unwrap();
        assert_eq!(keeper.pass(reader.snapshot(), false), []);
        while keeper.check_some() {}
        assert_eq!(names(&platter), ["Pod_b.yaml", "Pod_c.yaml"]);
        let (_, restored) = load(&platter, &names(&platter), 0);
        assert_eq!(uids(&restored), ["b", "c"]);
    }

    #[test]
    fn of_more_files_than_are_read_the_newest_are_read() {
        let place = pod_index_test_support::files::Directory::new();
        let start = SystemTime::now();
        for (age, name) in ["Pod_b.yaml", "Pod_c.yaml", "Pod_a.yaml", "other"].iter().enumerate() {
            std::fs::write(place.at(name), "").unwrap();
            let file = std::fs::File::options().write(true).open(place.at(name)).unwrap();
            file.set_modified(start - Duration::from_secs(60 * age as u64)).unwrap();
        }
        let directory = Directory::open(place.path()).unwrap();
        let divided =
            |most| Names::of(directory.names().unwrap(), most, |names| directory.newest_first(names));
        assert_eq!(divided(2).now, ["Pod_b.yaml", "Pod_c.yaml"]);
        assert_eq!(divided(2).later.len(), 1);
        assert_eq!(divided(3).now, ["Pod_a.yaml", "Pod_b.yaml", "Pod_c.yaml"]);
    }

    #[test]
    fn a_file_removed_between_listing_and_reading_is_no_error() {
        let platter = platter();
        let listed = names(&platter);
        FakeDisk::new(&platter, |_| Ok(())).remove("Pod_b.yaml").unwrap();
        let (keeper, restored) = load(&platter, &listed, 0);
        assert_eq!((uids(&restored), restored.errors.len(), keeper.unread.len()), (vec!["a", "c"], 0, 0));
    }

    fn full_disk(platter: &Arc<Mutex<Platter>>) -> FakeDisk {
        FakeDisk::new(platter, |step| match step {
            Step::Write => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        })
    }

    /// Another pod of this name.
    fn edited(name: &str) -> Arc<Pod> {
        let mut edited = Arc::unwrap_or_clone(pod("edited", 3, true));
        edited.metadata.name = Some(name.to_owned());
        Arc::new(edited)
    }

    /// The thread may see the index for the first time when a source has already replaced restored pods.
    #[test]
    fn a_start_on_a_full_disk_keeps_the_file_of_a_pod_that_was_edited_before_the_first_pass() {
        let platter = platter();
        let (mut keeper, restored) = load(&platter, &names(&platter), 0);
        keeper.disk = full_disk(&platter);
        let mut keeper = keeper.of::<Pod>();
        let (mut writer, reader) = pod_index::new();
        let _ = writer.apply(restored.operations());
        let operations = ["b", "c"].map(|uid| Operation::Remove(PodUid::from(uid)));
        assert_eq!(writer.apply(operations).refused, []);
        writer.upsert_pod(edited("b")).unwrap();
        for retry in [false, true, true] {
            assert_eq!(keeper.pass(reader.snapshot(), retry).len(), 1);
            assert_eq!(names(&platter), ["Pod_a.yaml", "Pod_b.yaml"]);
        }
        keeper.disk = FakeDisk::new(&platter, |_| Ok(()));
        assert_eq!(keeper.pass(reader.snapshot(), true), []);
        assert_eq!(names(&platter), ["Pod_a.yaml", "Pod_edited.yaml"]);
    }

    #[test]
    fn a_file_that_was_not_read_stays_on_a_full_disk_when_its_pod_is_edited() {
        let platter = platter();
        let (mut keeper, restored) = load_some(&platter, &names(&platter), 1, 0);
        assert_eq!(uids(&restored), ["c"]);
        keeper.disk = full_disk(&platter);
        let (mut writer, reader) = pod_index::new();
        let _ = writer.apply(restored.operations());
        writer.upsert_pod(pod("a", 2, true)).unwrap();
        assert_eq!(keeper.pass(reader.snapshot(), false).len(), 1);
        let operations = [Operation::Remove(PodUid::from("a")), Operation::Upsert(edited("a"))];
        assert_eq!(writer.apply(operations).refused, []);
        assert_eq!(keeper.pass(reader.snapshot(), true).len(), 1);
        assert_eq!(names(&platter), ["Pod_a.yaml", "Pod_b.yaml", "Pod_c.yaml"]);
    }
}
