//! A static pod that is edited: it gets another UID, and so another file. A kill or a power loss at any step leaves one of
//! the two.

use super::*;

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
        let after_a_kill =
            platter.now().into_iter().map(|(name, file)| (name, platter.files[file].0.clone()));
        let mut directories = platter.after_a_loss_of_power();
        directories.push(after_a_kill.collect());
        for directory in directories.iter().filter(|_| acknowledged > 0) {
            assert!(files_of_web(directory) > 0, "lost after {steps} steps: {:?}", directory.keys());
        }
        if acknowledged == edits.len() {
            assert_eq!(files_of_web(directories.last().unwrap()), 1, "and no old file stays");
            return;
        }
    }
}

#[test]
fn a_new_file_that_cannot_be_written_keeps_the_old_one_of_the_same_name_and_no_other() {
    let platter = Arc::default();
    let is_full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let full = Arc::clone(&is_full);
    let disk = FakeDisk::new(&platter, move |step| match step {
        Step::Write if full.load(std::sync::atomic::Ordering::Relaxed) => {
            Err(io::ErrorKind::StorageFull.into())
        }
        _ => Ok(()),
    });
    let mut keeper = Keeper::new(disk, Which::Annotated);
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(web("old", 1)).unwrap();
    writer.upsert_pod(pod("gone", 1, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), false), []);
    is_full.store(true, std::sync::atomic::Ordering::Relaxed);
    let operations = [
        Operation::Remove(PodUid::from("old")),
        Operation::Remove(PodUid::from("gone")),
        Operation::Upsert(web("new", 2)),
    ];
    assert_eq!(writer.apply(operations).refused, []);
    assert_eq!(keeper.pass(reader.snapshot(), false).len(), 1, "one error, which the kept file shares");
    let names = || platter.lock().unwrap().now().into_keys().collect::<Vec<_>>();
    assert_eq!(names(), ["Pod_old.yaml"]);
    is_full.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    assert_eq!((names(), keeper.status().wrong), (vec!["Pod_new.yaml".to_owned()], 0));
}
