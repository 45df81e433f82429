//! A static pod that is edited: it gets another UID, and so another file. A kill or a power loss at any step leaves one of
//! the two.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::CheckpointError;
use super::*;
use pod_index::{CONFIG_MIRROR_ANNOTATION, Reader, Writer};

/// The pod `web` with this UID and version.
fn web(uid: &str, version: u64) -> Arc<Pod> {
    let mut pod = Arc::unwrap_or_clone(pod(uid, version, true));
    pod.metadata.name = Some("web".to_owned());
    Arc::new(pod)
}

/// Snapshots in which `web` is edited again and again. Its file names sort up and down.
fn edits() -> Vec<OwnedSnapshot<Pod>> {
    let (mut writer, reader) = pod_index::new();
    let uids = ["m", "a", "z", "b", "y"];
    writer.upsert_pod(web(uids[0], 1)).unwrap();
    let mut snapshots = vec![reader.snapshot()];
    for (edit, (old, new)) in uids.iter().zip(&uids[1..]).enumerate() {
        let operations =
            [Operation::Remove(PodUid::from(*old)), Operation::Upsert(web(new, edit as u64 + 2))];
        assert_eq!(writer.apply(operations).refused, []);
        snapshots.push(reader.snapshot());
    }
    snapshots
}

/// The number of usable files of `web`.
fn files_of_web(directory: &BTreeMap<String, Vec<u8>>) -> usize {
    let files = directory.iter().filter(|(name, _)| format::is_file_name(name));
    files
        .filter(|(name, bytes)| format::decode(name, bytes).is_ok_and(|(pod, _)| pod.name() == "web"))
        .count()
}

#[test]
fn an_edited_static_pod_has_a_file_after_a_kill_or_a_power_loss_at_any_step() {
    let edits = edits();
    for steps in 0.. {
        let platter = Arc::default();
        let mut left = 0..steps;
        let killed = || io::Error::other("killed");
        let disk = FakeDisk::new(&platter, move |_| left.next().map(drop).ok_or_else(killed));
        let mut keeper = Keeper::new(disk, Which::Annotated);
        let mut acknowledged = 0;
        for edit in &edits {
            if !keeper.pass(edit.clone(), true).is_empty() {
                break;
            }
            acknowledged += 1;
        }
        let platter = platter.lock().unwrap();
        let mut directories = platter.after_a_loss_of_power();
        directories.push(platter.after_a_kill());
        for directory in directories.iter().filter(|_| acknowledged > 0) {
            assert!(files_of_web(directory) > 0, "lost after {steps} steps: {:?}", directory.keys());
        }
        if acknowledged == edits.len() {
            assert_eq!(files_of_web(directories.last().unwrap()), 1, "and no old file stays");
            return;
        }
    }
}

/// A place with a disk that is full while `is_full` says so: no file can be written, but files can be removed.
struct Site {
    platter: Arc<Mutex<Platter>>,
    is_full: Arc<AtomicBool>,
    keeper: Keeper<FakeDisk>,
    writer: Writer<Pod>,
    reader: Reader<Pod>,
}

impl Site {
    fn new() -> Self {
        let platter = Arc::default();
        let is_full = Arc::new(AtomicBool::new(false));
        let keeper = Keeper::new(Self::disk(&platter, &is_full), Which::Annotated);
        let (writer, reader) = pod_index::new();
        Self { platter, is_full, keeper, writer, reader }
    }

    fn disk(platter: &Arc<Mutex<Platter>>, is_full: &Arc<AtomicBool>) -> FakeDisk {
        let is_full = Arc::clone(is_full);
        FakeDisk::new(platter, move |step| match step {
            Step::Write if is_full.load(Ordering::Relaxed) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        })
    }

    fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    fn remove(&mut self, uid: &str) {
        self.writer.remove_pod_by_uid(uid).unwrap();
    }

    /// In one publication, as a manifest that is edited.
    fn edit(&mut self, old: &str, new: &str, version: u64) {
        let operations = [Operation::Remove(PodUid::from(old)), Operation::Upsert(web(new, version))];
        assert_eq!(self.writer.apply(operations).refused, []);
    }

    fn pass(&mut self, retry: bool) -> Vec<CheckpointError> {
        self.keeper.pass(self.reader.snapshot(), retry)
    }

    fn names(&self) -> Vec<String> {
        self.platter.lock().unwrap().now().into_keys().collect()
    }
}

#[test]
fn a_new_file_that_cannot_be_written_keeps_the_old_one_of_the_same_name_and_no_other() {
    let mut site = Site::new();
    site.writer.upsert_pod(web("old", 1)).unwrap();
    site.writer.upsert_pod(pod("gone", 1, true)).unwrap();
    assert_eq!(site.pass(false), []);
    site.set_full(true);
    site.edit("old", "new", 2);
    site.remove("gone");
    assert_eq!(site.pass(false).len(), 1);
    assert_eq!((site.names(), site.keeper.status().wrong), (vec!["Pod_old.yaml".to_owned()], 1));
    site.set_full(false);
    assert_eq!(site.pass(true), []);
    assert_eq!((site.names(), site.keeper.status().wrong), (vec!["Pod_new.yaml".to_owned()], 0));
}

#[test]
fn while_the_disk_is_full_retries_and_more_edits_keep_the_last_file_that_was_written() {
    let mut site = Site::new();
    site.writer.upsert_pod(web("old", 1)).unwrap();
    assert_eq!(site.pass(false), []);
    site.set_full(true);
    site.edit("old", "second", 2);
    for retry in [false, true, true, false] {
        assert_eq!(site.pass(retry).len(), 1);
        assert_eq!(site.names(), ["Pod_old.yaml"]);
    }
    site.edit("second", "third", 3);
    for retry in [false, true, true] {
        assert_eq!(site.pass(retry).len(), 1);
        assert_eq!((site.names(), site.keeper.status().wrong), (vec!["Pod_old.yaml".to_owned()], 1));
    }
    site.set_full(false);
    assert_eq!(site.pass(true), []);
    assert_eq!((site.names(), site.keeper.status().wrong), (vec!["Pod_third.yaml".to_owned()], 0));
}

/// It has its old UID again.
#[test]
fn an_edit_that_is_taken_back_while_the_disk_is_full_keeps_the_file() {
    let mut site = Site::new();
    site.writer.upsert_pod(web("old", 1)).unwrap();
    assert_eq!(site.pass(false), []);
    site.set_full(true);
    site.edit("old", "new", 2);
    assert_eq!(site.pass(false).len(), 1);
    site.edit("new", "old", 1);
    for retry in [false, true] {
        assert_eq!(site.pass(retry), []);
        assert_eq!((site.names(), site.keeper.status().wrong), (vec!["Pod_old.yaml".to_owned()], 0));
    }
}

/// So do a restored pod and the one of its manifest: the second publication removes the former.
#[test]
fn a_pod_that_is_removed_after_its_successor_has_come_keeps_its_file_while_the_disk_is_full() {
    let mut site = Site::new();
    site.writer.upsert_pod(web("old", 1)).unwrap();
    assert_eq!(site.pass(false), []);
    site.set_full(true);
    site.writer.upsert_pod(web("new", 2)).unwrap();
    assert_eq!(site.pass(false).len(), 1);
    site.remove("old");
    for retry in [false, true] {
        assert_eq!(site.pass(retry).len(), 1);
        assert_eq!(site.names(), ["Pod_old.yaml"]);
    }
    site.set_full(false);
    assert_eq!(site.pass(true), []);
    assert_eq!(site.names(), ["Pod_new.yaml"]);
}

#[test]
fn a_pod_that_is_edited_and_then_deleted_while_the_disk_is_full_has_no_file() {
    let mut site = Site::new();
    site.writer.upsert_pod(web("old", 1)).unwrap();
    assert_eq!(site.pass(false), []);
    site.set_full(true);
    site.edit("old", "new", 2);
    assert_eq!(site.pass(false).len(), 1);
    site.remove("new");
    assert_eq!(site.pass(false), []);
    assert_eq!((site.names(), site.keeper.status().wrong), (vec![], 0));

    // Its name comes back.
    site.writer.upsert_pod(web("again", 3)).unwrap();
    assert_eq!(site.pass(false).len(), 1);
    site.set_full(false);
    assert_eq!(site.pass(true), []);
    assert_eq!(site.names(), ["Pod_again.yaml"]);
}

/// The API server may be away, so that the mirror pod cannot be deleted.
#[test]
fn a_static_pod_that_is_deleted_while_the_disk_is_full_has_no_file_although_its_mirror_pod_is_there() {
    let mirror = |version| {
        let mut mirror = Arc::unwrap_or_clone(web("mirror", version));
        let annotations = mirror.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), "static".to_owned());
        mirror
    };
    let mut site = Site::new();
    site.writer.upsert_pod(web("static", 1)).unwrap();
    site.writer.upsert_pod(mirror(1)).unwrap();
    assert_eq!(site.pass(false), []);
    site.set_full(true);
    site.writer.upsert_pod(mirror(2)).unwrap();
    assert_eq!(site.pass(false).len(), 1);
    site.remove("static");
    assert_eq!(site.pass(true).len(), 1);
    assert_eq!(site.names(), ["Pod_mirror.yaml"]);
}

/// It does not ask for a checkpoint any more, so no file of it will ever be written.
#[test]
fn a_pod_that_is_edited_to_have_no_checkpoint_has_no_file() {
    let mut site = Site::new();
    site.writer.upsert_pod(web("old", 1)).unwrap();
    assert_eq!(site.pass(false), []);
    site.set_full(true);
    let mut unkept = Arc::unwrap_or_clone(web("new", 2));
    unkept.metadata.annotations = None;
    let operations = [Operation::Remove(PodUid::from("old")), Operation::Upsert(Arc::new(unkept))];
    assert_eq!(site.writer.apply(operations).refused, []);
    assert_eq!(site.pass(false), []);
    assert_eq!(site.names(), [""; 0]);
}

#[tokio::test]
async fn a_shutdown_while_the_disk_is_full_keeps_the_last_file_that_was_written() {
    let Site { platter, is_full, keeper, mut writer, reader } = Site::new();
    writer.upsert_pod(web("old", 1)).unwrap();
    let checkpointing = Checkpointing::start(keeper, reader).unwrap();
    checkpointing.wait_for(1, PATIENCE).await.unwrap();
    is_full.store(true, Ordering::Relaxed);
    let operations = [Operation::Remove(PodUid::from("old")), Operation::Upsert(web("new", 2))];
    assert_eq!(writer.apply(operations).refused, []);
    // The last pass is a retry.
    let mut status = checkpointing.status();
    tokio::time::timeout(PATIENCE, status.wait_for(|status| status.wrong > 0)).await.unwrap().unwrap();
    let unwritten = checkpointing.finish(PATIENCE).await.unwrap_err();
    assert_eq!(unwritten.kind, CheckpointErrorKind::Write);
    assert_eq!(platter.lock().unwrap().now().into_keys().collect::<Vec<_>>(), ["Pod_old.yaml"]);
}
