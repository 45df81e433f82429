//! Checkpoints in real files: restarts, damaged or foreign files, and a full disk. `checkpoint_internal` has disks that fail
//! at any step, and the tests of `checkpoint::load` files that cannot be read.

use crate::checkpoint_support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use checkpoint_support::{PATIENCE, Place, Run, add, annotate, block_on, kept, pod, refused, unmarked};
use pod_index::{Operation, PodUid};
use pod_index_kubelet::checkpoint::{CheckpointErrorKind, Checkpoints, Which, is_restored};

#[test]
fn only_pods_that_request_it_survive_a_restart() {
    let place = Place::new();
    place.holds([kept("a", 1), pod("b", 2, None), pod("c", 3, Some("false")), kept("odd/uid", 4)]);
    assert_eq!(place.names(), ["Pod_%6f64642f756964.yaml", "Pod_a.yaml"]);
    let expected =
        BTreeMap::from([("a".to_owned(), kept("a", 1)), ("odd/uid".to_owned(), kept("odd/uid", 4))]);
    assert_eq!(place.restored(), expected);
}

#[test]
fn with_the_option_all_pods_and_mirrors_survive() {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::All);
    let mut mirror = pod("m", 1, None);
    annotate(&mut mirror, "kubernetes.io/config.mirror", "h");
    run.keeps([add(pod("a", 1, None)), add(mirror.clone())]);
    run.end();
    let run = Run::start(&place.directory(), Which::All);
    assert!(
        run.writer.current().pod_by_uid("a").is_some()
            && run.writer.current().mirror_pod_by_uid("m").is_some()
    );
    run.end();
    assert_eq!(place.restored()["m"], mirror);
}

#[test]
fn a_restored_pod_is_marked_until_a_source_reports_it_and_removed_otherwise() {
    let place = Place::new();
    place.holds([kept("told", 1), kept("gone", 1), kept("removed", 1)]);

    let mut run = place.run();
    run.acknowledged();
    assert_eq!(place.names().len(), 3, "to be restored costs no file");
    assert_eq!(run.restored.unclaimed(None, run.writer.current()).len(), 3);
    // A pod that carries the annotation itself does not count as restored.
    let mut told = kept("told", 2);
    annotate(&mut told, "pod-index/restored", "true");
    run.apply([add(told), Operation::Remove(PodUid::from("removed"))]);
    assert!(run.writer.current().pod_by_uid("gone").is_some_and(|pod| is_restored(&**pod)));
    let unclaimed = run.restored.unclaimed(None, run.writer.current());
    assert_eq!(unclaimed, [PodUid::from("gone")]);
    run.keeps(unclaimed.into_iter().map(Operation::Remove));
    run.end();
    assert_eq!(place.restored(), BTreeMap::from([("told".to_owned(), kept("told", 2))]));
}

#[test]
fn only_its_own_source_decides_about_a_restored_pod() {
    let place = Place::new();
    let from = |source: Option<&str>, uid: &str| {
        let mut pod = kept(uid, 1);
        if let Some(source) = source {
            annotate(&mut pod, "kubernetes.io/config.source", source);
        }
        pod
    };
    place.holds([
        from(Some("file"), "f1"),
        from(Some("file"), "f2"),
        from(Some("api"), "a1"),
        from(None, "n1"),
    ]);
    let mut run = place.run();
    run.apply([add(from(Some("file"), "f1"))]);
    let unclaimed_from = |run: &Run, source| run.restored.unclaimed(Some(source), run.writer.current());
    assert_eq!(unclaimed_from(&run, "file"), [PodUid::from("f2")]);
    assert_eq!(unclaimed_from(&run, "api"), [PodUid::from("a1")]);
    assert!(unclaimed_from(&run, "http").is_empty());
    assert_eq!(run.restored.unclaimed(None, run.writer.current()).len(), 3);
}

#[test]
fn a_file_whose_pod_was_removed_while_no_agent_ran_is_removed_at_the_start() {
    let place = Place::new();
    place.holds([kept("a", 1), kept("b", 1)]);
    // Restored, but not put into the index.
    let (checkpoints, _restored) = place.open();
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(kept("b", 1)).unwrap();
    let checkpointing = checkpoints.keep(reader).unwrap();
    block_on(checkpointing.wait_for(1, PATIENCE)).unwrap();
    assert_eq!(place.names(), ["Pod_b.yaml"]);
}

#[test]
fn a_bad_file_is_set_aside_by_name_and_affects_no_other() {
    let place = Place::new();
    place.holds(["good", "bad", "other"].map(|uid| kept(uid, 1)));
    let path = place.directory().join("Pod_bad.yaml");
    let whole = fs::read(&path).unwrap();
    let other = fs::read(place.directory().join("Pod_other.yaml")).unwrap();
    let cut = (0..whole.len() - 1).map(|end| whole[..end].to_vec());
    let cases = cut.chain([
        vec![0; 4096],
        b"not a checkpoint".to_vec(),
        br#"{"Data":{},"Checksum":1}"#.to_vec(),
        other,
        b"# pod-index checkpoint 2 0\n{}\n".to_vec(),
        [&whole[..], b"rubbish"].concat(),
    ]);
    for (number, bytes) in cases.enumerate() {
        fs::write(&path, &bytes).unwrap();
        // Left by a run that ended during a write.
        fs::write(place.directory().join(".writing"), &whole[..whole.len() / 2]).unwrap();
        let (_checkpoints, restored) = place.open();
        let [error] = &restored.errors[..] else { panic!("case {number}: {:?}", restored.errors) };
        assert_eq!(error.kind, CheckpointErrorKind::Unusable, "case {number}: {error}");
        assert!(error.path.ends_with("/Pod_bad.yaml"), "{error}");
        assert!(error.to_string().contains("set aside as Pod_bad.yaml.unusable"), "{error}");
        assert_eq!(unmarked(&restored).into_keys().collect::<Vec<_>>(), ["good", "other"]);
        let aside = place.directory().join("Pod_bad.yaml.unusable");
        assert_eq!(fs::read(&aside).unwrap(), bytes, "what is set aside is kept as it was");
        fs::remove_file(aside).unwrap();
        assert_eq!(place.names(), ["Pod_good.yaml", "Pod_other.yaml"]);
    }
}

#[test]
fn files_set_aside_do_not_replace_earlier_ones() {
    let place = Place::new();
    fs::create_dir_all(place.directory()).unwrap();
    for round in 0..3 {
        fs::write(place.directory().join("Pod_a.yaml"), format!("{round}")).unwrap();
        let (_, restored) = place.open();
        assert_eq!(restored.errors.len(), 1);
    }
    assert_eq!(place.names(), ["Pod_a.yaml.unusable", "Pod_a.yaml.unusable.1", "Pod_a.yaml.unusable.2"]);
    for (round, name) in place.names().iter().enumerate() {
        assert_eq!(fs::read_to_string(place.directory().join(name)).unwrap(), round.to_string());
    }
}

#[test]
fn files_that_are_not_checkpoints_by_name_are_left_alone() {
    let place = Place::new();
    fs::create_dir_all(place.directory().join("sub")).unwrap();
    fs::write(place.directory().join("README"), "mine").unwrap();
    fs::write(place.directory().join("pod.yaml"), "mine").unwrap();
    let before = place.names();
    Run::start(&place.directory(), Which::All).end();
    assert_eq!(place.names(), before);
}

#[test]
fn a_directory_in_a_checkpoints_place_is_set_aside_as_it_is_and_delays_nothing() {
    let place = Place::new();
    let directory = place.directory().join("Pod_a.yaml");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("somebodys"), "mine").unwrap();
    let mut run = place.run();
    let [error] = &run.restored.errors[..] else { panic!("{:?}", run.restored.errors) };
    assert_eq!(error.kind, CheckpointErrorKind::Unusable);
    assert!(error.to_string().contains("Pod_a.yaml: it is not a regular file; it is set aside"), "{error}");
    run.keeps([add(kept("a", 1))]);
    let status = run.checkpointing.status().borrow().clone();
    assert_eq!((status.set_aside, status.wrong, status.failures), (1, 0, 0));
    run.end();
    let aside = place.directory().join("Pod_a.yaml.unusable");
    assert_eq!(fs::read_to_string(aside.join("somebodys")).unwrap(), "mine");
    assert_eq!(place.restored().into_keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn only_one_process_at_a_time_can_use_a_directory() {
    let place = Place::new();
    let run = place.run();
    let error = Checkpoints::open(place.directory(), Which::Annotated).unwrap_err();
    assert_eq!(error.kind, CheckpointErrorKind::Locked);
    assert!(error.to_string().ends_with("checkpoints: another process uses the directory"), "{error}");
    run.end();
    let _ = place.open();
}

#[test]
fn an_unusable_directory_is_an_error_that_names_it() {
    let place = Place::new();
    let file = place.0.at("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below"), PathBuf::from("/proc/nowhere/checkpoints")] {
        let error = Checkpoints::open(&path, Which::Annotated).unwrap_err();
        assert_eq!(error.kind, CheckpointErrorKind::Directory);
        assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_failed_write_is_reported_not_acknowledged_and_retried() {
    let place = Place::new();
    let mut run = place.run();
    // A directory in the file's place: no rename can replace it, not even root's.
    let in_the_way = place.directory().join("Pod_a.yaml");
    fs::create_dir(&in_the_way).unwrap();
    run.apply([add(kept("a", 1)), add(kept("b", 1))]);
    let error = refused(&run);
    assert_eq!(error.kind, CheckpointErrorKind::Write);
    assert!(error.path.ends_with("Pod_a.yaml"), "{error}");
    assert_eq!(place.names(), ["Pod_a.yaml", "Pod_b.yaml"], "the other is there, and nothing half done");
    fs::remove_dir(in_the_way).unwrap();
    run.acknowledged();
    assert_eq!(run.checkpointing.status().borrow().errors, []);
    run.end();
    assert_eq!(place.restored().len(), 2);
}

#[test]
fn a_read_only_directory_is_read_and_blocks_nothing() {
    // Not even root can create a file there, and there is no checkpoint.
    let (checkpoints, restored) = Checkpoints::open("/proc/self", Which::All).unwrap();
    assert_eq!((restored.pods.len(), restored.errors.len()), (0, 0));
    let (mut writer, reader) = pod_index::new();
    let checkpointing = checkpoints.keep(reader.clone()).unwrap();
    assert!(writer.set_pods((0..101).map(|number| kept(&format!("a{number}"), 1))).published);
    while checkpointing.status().borrow().errors.is_empty() {
        assert!(block_on(checkpointing.wait_for(1, Duration::from_millis(1))).is_err());
    }
    let status = checkpointing.status().borrow().clone();
    assert_eq!((status.errors[0].kind, status.errors.len()), (CheckpointErrorKind::Write, 100));
    assert_eq!((status.wrong, reader.load().pods().len()), (101, 101));
    // It neither retries for ever nor reports success.
    let late = block_on(checkpointing.finish(PATIENCE)).unwrap_err();
    assert_eq!(late.kind, CheckpointErrorKind::Write, "{late}");
}

/// Runs as a child of the next test, with a limit on file sizes.
#[test]
fn the_child_whose_disk_is_full() {
    let Ok(directory) = std::env::var("POD_INDEX_TEST_FULL_DISK") else { return };
    let mut run = Run::start(Path::new(&directory), Which::Annotated);
    // `large` exceeds the file size limit; `small` is written nevertheless.
    let mut large = kept("large", 1);
    annotate(&mut large, "large", &"x".repeat(100_000));
    run.apply([add(large), add(kept("small", 1))]);
    let error = refused(&run);
    assert!(error.path.ends_with("Pod_large.yaml"), "{error}");
    // Frees space: the pod that did not fit is removed.
    run.keeps([Operation::Remove(PodUid::from("large"))]);
    println!("the disk was full, and nothing was lost");
}

#[test]
fn a_full_disk_loses_no_other_pod_and_is_reported_by_file() {
    let place = Place::new();
    // 32 blocks of 512 bytes. A larger file is an error (EFBIG) if the signal is ignored, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 32; exec \"$0\" --exact checkpoint::the_child_whose_disk_is_full --nocapture";
    let output = Command::new("sh")
        .args(["-c", script, std::env::current_exe().unwrap().to_str().unwrap()])
        .env("POD_INDEX_TEST_FULL_DISK", place.directory())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the disk was full, and nothing was lost"), "{said}");
    assert_eq!(place.restored(), BTreeMap::from([("small".to_owned(), kept("small", 1))]));
    assert_eq!(place.names(), ["Pod_small.yaml"]);
}
