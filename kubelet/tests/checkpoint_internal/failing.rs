//! A disk on which one step fails, or none.

use super::*;

#[test]
fn a_disk_that_fails_once_at_any_step_is_retried_until_all_is_written() {
    let mut failures = 0;
    for failing in 0..40 {
        let platter = Arc::default();
        let mut steps = 0..;
        // A full disk still allows removing the remains of a failed write.
        let disk = FakeDisk::new(&platter, move |step| match step {
            Step::Remove(WRITING) => Ok(()),
            _ if steps.next() == Some(failing) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        });
        let mut keeper = Keeper::new(disk, Which::Annotated);
        for (snapshot, pods) in history() {
            let errors = keeper.pass(snapshot.clone(), false);
            assert_eq!(errors.is_empty(), keeper.status().wrong == 0);
            for error in errors {
                assert!(matches!(error.kind, CheckpointErrorKind::Write | CheckpointErrorKind::Remove));
                assert!(error.to_string().starts_with("/disk"), "{error}");
            }
            if keeper.status().wrong > 0 {
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
        let status = keeper.status();
        assert!(status.written > 0, "{status:?}");
        failures += status.failures;
    }
    assert!(failures > 0);
}

/// The checksum in the files is FNV-64, whose collisions can be computed. It must not decide whether a pod has changed.
#[test]
fn contents_of_the_same_checksum_have_other_fingerprints_and_in_each_process_others() {
    let [one, other] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"].map(str::as_bytes);
    let checksum = |json: &[u8]| format::sealed(json).split(|byte| *byte == b'\n').next().unwrap().to_vec();
    assert_eq!(checksum(one), checksum(other), "they collide");
    let fingerprints = [Fingerprints::default(), Fingerprints::default()];
    assert_ne!(fingerprints[0].of(one), fingerprints[0].of(other));
    assert_eq!(fingerprints[0].of(one), fingerprints[0].of(one));
    assert_ne!(fingerprints[0].of(one), fingerprints[1].of(one));
}

#[test]
fn unchanged_pods_are_not_written_again() {
    let platter = Arc::default();
    let disk = FakeDisk::new(&platter, |_| Ok(()));
    let (mut writer, reader) = pod_index::new::<Pod>();
    let mut keeper = Keeper::new(disk, Which::Annotated);
    writer.upsert_pod(pod("a", 1, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    // Another object with the same content, as after a relist.
    writer.upsert_pod(pod("a", 1, true)).unwrap();
    writer.upsert_pod(pod("not-kept", 1, false)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    assert_eq!(platter.lock().unwrap().files.len(), 1);
}
