//! Which pods are written.

use super::*;

#[test]
fn unchanged_pods_are_not_written_again() {
    let platter = Arc::default();
    let disk = FakeDisk::new(&platter, |_| Ok(()));
    let (mut writer, reader) = pod_index::new();
    let mut keeper = Keeper::new(disk, Which::Annotated);
    writer.add_pod(pod("a", 1, true)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    // Another object with the same content, as after a relist.
    writer.update_pod(pod("a", 1, true)).unwrap();
    writer.add_pod(pod("not-kept", 1, false)).unwrap();
    assert_eq!(keeper.pass(reader.snapshot(), true), []);
    assert_eq!(platter.lock().unwrap().files.len(), 1);
}
