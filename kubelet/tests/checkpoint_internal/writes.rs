//! Which pods are written.

use super::*;

#[test]
fn unchanged_pods_are_not_written_again() {
    let platter = Arc::default();
    let disk = MortalDisk { platter: Arc::clone(&platter), steps: usize::MAX };
    let (mut writer, reader) = pod_index::new();
    let mut keeper = Keeper::new(disk, Which::Annotated, Found::default());
    writer.add_pod(pod("a", 1, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    // Another object with the same content, as after a relist.
    writer.update_pod(pod("a", 1, true)).unwrap();
    writer.add_pod(pod("not-kept", 1, false)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    assert_eq!(platter.lock().unwrap().files.len(), 1);
}

#[test]
fn a_pod_too_large_for_a_checkpoint_is_reported_delays_nothing_and_leaves_no_old_file() {
    let platter = Arc::default();
    let disk = MortalDisk { platter: Arc::clone(&platter), steps: usize::MAX };
    let (mut writer, reader) = pod_index::new();
    let mut keeper = Keeper::new(disk, Which::Annotated, Found::default());
    writer.add_pod(pod("grows", 1, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), false), []);
    let mut grown = Pod::clone(&pod("grows", 2, true));
    grown
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("large".to_owned(), "x".repeat(super::super::LARGEST));
    writer.update_pod(grown).unwrap();
    writer.add_pod(pod("other", 1, true)).unwrap();
    let errors = keeper.pass(reader.snapshot(), false);
    assert_eq!(
        errors.iter().map(super::super::CheckpointError::kind).collect::<Vec<_>>(),
        [CheckpointErrorKind::TooLarge]
    );
    assert!(errors[0].to_string().contains("Pod_grows.yaml: cannot be written: the pod ns/grows is larger"));
    assert!(!keeper.has_failed(), "no wait includes a pod without a checkpoint");
    let names = |platter: &Platter| platter.names.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&platter.lock().unwrap()), ["Pod_other.yaml"]);
    writer.update_pod(pod("grows", 3, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), false), []);
    assert_eq!(names(&platter.lock().unwrap()), ["Pod_grows.yaml", "Pod_other.yaml"]);
}
