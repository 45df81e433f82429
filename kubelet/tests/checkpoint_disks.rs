//! Checkpoints on disks that are full, read-only, or partly owned by another user.

mod checkpoint_support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use checkpoint_support::{Place, Run, add, kept, pod, refused, restored};
use pod_index::{Operation, PodUid};
use pod_index_kubelet::checkpoint::{CheckpointError, CheckpointErrorKind, Which};
use pod_index_test_support::skipped;

/// Runs as a child of the next test, with a limit on file sizes.
#[test]
fn the_child_whose_disk_is_full() {
    let Ok(directory) = std::env::var("POD_INDEX_TEST_FULL_DISK") else { return };
    let mut run = Run::start(Path::new(&directory), Which::Annotated);
    // `large` exceeds the file size limit; `small` is written nevertheless.
    let mut large = kept("large", 1);
    large.metadata.annotations.as_mut().unwrap().insert("large".to_owned(), "x".repeat(100_000));
    run.apply([add(large), add(kept("small", 1))]);
    let error = refused(&run);
    assert!(error.path().ends_with("Pod_large.yaml"), "{error}");
    // Frees space: the pod that did not fit is removed.
    run.apply([Operation::Remove(PodUid::from("large"))]);
    run.acknowledged();
    println!("the disk was full, and nothing was lost");
}

#[test]
fn a_full_disk_loses_no_other_pod_and_is_reported_by_file() {
    let place = Place::new();
    // 32 blocks of 512 bytes. A larger file is an error (EFBIG) if the signal is ignored, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 32; exec \"$0\" --exact the_child_whose_disk_is_full --nocapture";
    let output = Command::new("sh")
        .args(["-c", script, std::env::current_exe().unwrap().to_str().unwrap()])
        .env("POD_INDEX_TEST_FULL_DISK", place.directory())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the disk was full, and nothing was lost"), "{said}");
    assert_eq!(restored(&place.directory()), BTreeMap::from([("small".to_owned(), kept("small", 1))]));
    assert_eq!(place.names(), ["Pod_small.yaml"]);
}

// ------------------------------------------------------------------------------------------------- real
// disks with errors

/// The child's arguments: the kind of disk, and its path.
const DISK: &str = "POD_INDEX_TEST_DISK";
const NOBODY: u32 = 65534;

/// Runs this test binary as a child in a shell that prepared its disk (`$D` is the directory) in a mount
/// namespace. Returns `false` if that is not permitted here.
fn in_own_mounts(prepare: &str, disk: &str, directory: &Path) -> bool {
    let may =
        Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"]).output();
    match may {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            skipped(disk, String::from_utf8_lossy(&output.stderr));
            return false;
        }
        Err(error) => {
            skipped(disk, error);
            return false;
        }
    }
    let script = format!("{prepare} && exec \"$0\" --exact the_child_with_a_failing_disk --nocapture");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script, std::env::current_exe().unwrap().to_str().unwrap()])
        .env("D", directory)
        .env(DISK, format!("{disk}\n{}", directory.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(&format!("came through: {disk}")), "{said}");
    true
}

/// Runs as a child of the tests below.
#[test]
fn the_child_with_a_failing_disk() {
    let Ok(arguments) = std::env::var(DISK) else { return };
    let (disk, directory) = arguments.split_once('\n').unwrap();
    let directory = Path::new(directory);
    match disk {
        "read-only" => on_a_read_only_disk(directory),
        "full" => on_a_full_disk(directory),
        "forbidden" => on_a_disk_of_another_user(directory),
        "unreadable" => beside_a_file_of_another_user(directory),
        _ => panic!("{disk}"),
    }
    println!("\ncame through: {disk}");
}

fn on_a_read_only_disk(directory: &Path) {
    let mut run = Run::start(directory, Which::Annotated);
    assert!(run.writer.current().pod_by_uid("old").is_some(), "what was there is restored");
    run.apply([add(kept("new", 1)), Operation::Remove(PodUid::from("old"))]);
    let error = refused(&run);
    assert!(error.to_string().contains("Read-only file system"), "{error}");
    let mut kinds: Vec<_> = run.checkpointing.status().errors.iter().map(CheckpointError::kind).collect();
    kinds.sort_unstable_by_key(|kind| kind.as_str());
    assert_eq!(kinds, [CheckpointErrorKind::Remove, CheckpointErrorKind::Write]);
    let remount = Command::new("mount").args(["-o", "remount,rw,bind"]).arg(directory).status().unwrap();
    assert!(remount.success());
    run.acknowledged();
    run.end();
    assert_eq!(restored(directory).into_keys().collect::<Vec<_>>(), ["new"]);
}

fn on_a_full_disk(directory: &Path) {
    let mut run = Run::start(directory, Which::Annotated);
    run.apply([add(kept("a", 1)), add(kept("b", 1))]);
    run.acknowledged();
    let before = fs::read(directory.join("Pod_a.yaml")).unwrap();
    let mut filler = fs::File::create(directory.join("filler")).unwrap();
    while filler.write_all(&[1; 512]).is_ok() {}
    run.apply([add(kept("a", 2))]);
    let error = refused(&run);
    assert_eq!(error.kind(), CheckpointErrorKind::Write);
    assert!(error.path().ends_with("Pod_a.yaml"), "{error}");
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert_eq!(fs::read(directory.join("Pod_a.yaml")).unwrap(), before, "the older version is there, whole");
    assert!(!directory.join(".writing").exists());
    // Removing one frees space, so the other may be written now.
    run.apply([Operation::Remove(PodUid::from("b"))]);
    fs::remove_file(directory.join("filler")).unwrap();
    run.acknowledged();
    run.end();
    assert_eq!(restored(directory), BTreeMap::from([("a".to_owned(), kept("a", 2))]));
}

/// It may be read, except for one file, but not written; later it may.
fn on_a_disk_of_another_user(directory: &Path) {
    let mut run = Run::start(directory, Which::Annotated);
    let [error] = &run.restored.errors[..] else { panic!("{:?}", run.restored.errors) };
    assert_eq!(error.kind(), CheckpointErrorKind::Unreadable);
    assert!(error.to_string().contains("Pod_bad.yaml: cannot be read: Permission denied"), "{error}");
    assert!(error.to_string().ends_with("it is left in place"), "{error}");
    assert!(run.writer.current().pod_by_uid("good").is_some());
    run.acknowledged();
    // Its source reports the pod, which no longer requests a checkpoint.
    run.apply([add(pod("bad", 2, None)), add(kept("new", 1))]);
    refused(&run);
    let status = run.checkpointing.status();
    assert_eq!((status.errors.len(), status.wrong, status.written), (2, 2, 0));
    assert!(status.failures >= 2 && status.last_failure.is_some());
    for error in status.errors {
        assert!(error.to_string().ends_with("Permission denied (os error 13)"), "{error}");
    }
    println!("\nrefused");
    run.acknowledged();
    run.end();
}

/// The child owns the directory but not a file in it.
fn beside_a_file_of_another_user(directory: &Path) {
    let run = Run::start(directory, Which::Annotated);
    let [error] = &run.restored.errors[..] else { panic!("{:?}", run.restored.errors) };
    assert_eq!(error.kind(), CheckpointErrorKind::Unreadable);
    assert!(error.to_string().contains("Pod_bad.yaml: cannot be read: Permission denied"), "{error}");
    assert!(error.to_string().ends_with("it is left in place"), "{error}");
    run.acknowledged();
    let status = run.checkpointing.status();
    assert_eq!((status.unread, status.set_aside, status.wrong), (1, 0, 0));
    run.end();
}

/// Checkpoints of these pods.
fn with_checkpoints(uids: &[&str]) -> Place {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply(uids.iter().map(|uid| add(kept(uid, 1))));
    run.acknowledged();
    run.end();
    place
}

#[test]
fn a_read_only_file_system_is_read_and_written_once_it_is_writable() {
    let place = with_checkpoints(&["old"]);
    let prepare = "mount --bind \"$D\" \"$D\" && mount -o remount,ro,bind \"$D\"";
    if in_own_mounts(prepare, "read-only", &place.directory()) {
        assert_eq!(place.names(), ["Pod_new.yaml"]);
    }
}

#[test]
fn a_full_file_system_keeps_its_files_and_is_written_once_there_is_space() {
    let place = with_checkpoints(&[]);
    in_own_mounts("mount -t tmpfs -o size=64k none \"$D\"", "full", &place.directory());
}

/// Whether this is root, who can act as two users.
#[cfg(unix)]
fn is_root(disk: &str, place: &Place) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_root = fs::metadata(&place.0).unwrap().uid() == 0;
    if !is_root {
        skipped(disk, "only root can be two users");
    }
    is_root
}

/// Starts the child as a user other than root. `None` if that user cannot run this binary.
#[cfg(unix)]
fn as_nobody(disk: &str, directory: &Path) -> Option<Child> {
    use std::os::unix::process::CommandExt;
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child_with_a_failing_disk", "--nocapture"])
        .env(DISK, format!("{disk}\n{}", directory.display()))
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    child.map_err(|error| skipped(disk, error)).ok()
}

#[cfg(unix)]
fn set(path: &Path, owner: u32, mode: u32) {
    use std::os::unix::fs::{PermissionsExt, chown};
    chown(path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(unix)]
#[test]
fn an_unreadable_file_stays_and_its_pod_is_restored_once_it_is_readable() {
    let place = with_checkpoints(&["bad", "good"]);
    if !is_root("unreadable", &place) {
        return;
    }
    set(&place.directory(), NOBODY, 0o700);
    set(&place.directory().join("Pod_good.yaml"), NOBODY, 0o600);
    let Some(child) = as_nobody("unreadable", &place.directory()) else { return };
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(place.names(), ["Pod_bad.yaml", "Pod_good.yaml"]);
    assert_eq!(restored(&place.directory()).into_keys().collect::<Vec<_>>(), ["bad", "good"]);
}

#[cfg(unix)]
#[test]
fn a_file_neither_readable_nor_removable_is_removed_with_its_pod_once_it_can_be() {
    let place = with_checkpoints(&["bad", "good"]);
    if !is_root("forbidden", &place) {
        return;
    }
    set(&place.directory(), 0, 0o755);
    set(&place.directory().join("Pod_good.yaml"), 0, 0o644);
    let Some(mut child) = as_nobody("forbidden", &place.directory()) else { return };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said: Vec<_> = lines.by_ref().map(Result::unwrap).take_while(|line| line != "refused").collect();
    assert_eq!(place.names(), ["Pod_bad.yaml", "Pod_good.yaml"], "{said:?}");
    set(&place.directory(), NOBODY, 0o755);
    let said: Vec<_> = said.into_iter().chain(lines.map(Result::unwrap)).collect();
    assert!(child.wait().unwrap().success(), "{said:?}");
    assert_eq!(restored(&place.directory()).into_keys().collect::<Vec<_>>(), ["good", "new"]);
    assert_eq!(place.names(), ["Pod_good.yaml", "Pod_new.yaml"]);
}
