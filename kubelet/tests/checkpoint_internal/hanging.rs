//! A disk that hangs in each write until it is released.

use super::*;

/// The state that is being written has to stay. The one before it, with which it was compared, would be a second one in memory
/// for as long as the disk hangs.
#[tokio::test]
async fn a_disk_that_hangs_holds_the_snapshot_that_is_written_and_no_other() {
    let (hangs, hanging) = sync_channel(0);
    let (resume, go_on) = sync_channel(0);
    let disk = FakeDisk::new(&Arc::default(), move |step| {
        if matches!(step, Step::Write) {
            // Both fail when the test is over.
            let _ = hangs.send(());
            let _ = go_on.recv();
        }
        Ok(())
    });
    let (mut writer, reader) = pod_index::new::<Pod>();
    let checkpointing = Checkpointing::start(Keeper::new(disk, Which::Annotated), reader).unwrap();
    writer.upsert_pod(pod("a", 1, true)).unwrap();
    hanging.recv_timeout(PATIENCE).unwrap();
    resume.send(()).unwrap();
    checkpointing.wait_for(1, PATIENCE).await.unwrap();

    writer.upsert_pod(pod("a", 2, true)).unwrap();
    hanging.recv_timeout(PATIENCE).unwrap();
    for version in 3..=10 {
        writer.upsert_pod(pod("a", version, true)).unwrap();
    }
    assert_eq!(writer.reclaim(), 1);
    assert_eq!(writer.oldest_retired(), Some(2));
}

#[tokio::test]
async fn a_disk_that_hangs_keeps_no_publication_waiting_and_what_gathers_is_written_once() {
    let platter = Arc::default();
    let (hangs, hanging) = sync_channel(0);
    let (resume, go_on) = sync_channel(0);
    let disk = FakeDisk::new(&platter, move |step| {
        if matches!(step, Step::Write) {
            // Both fail when the test is over.
            let _ = hangs.send(());
            let _ = go_on.recv();
        }
        Ok(())
    });
    let (mut writer, reader) = pod_index::new();
    let keeper = Keeper::new(disk, Which::Annotated);
    let checkpointing = Checkpointing::start(keeper, reader.clone()).unwrap();
    checkpointing.wait_for(0, PATIENCE).await.unwrap();

    writer.upsert_pod(pod("a", 1, true)).unwrap();
    hanging.recv_timeout(PATIENCE).unwrap();
    // The thread hangs until the test releases it. All of this is published nevertheless.
    for version in 2..=1000 {
        writer.upsert_pod(pod("a", version, true)).unwrap();
        assert_eq!(reader.load().pod_by_uid("a").map(|pod| self::version(pod)), Some(version));
    }
    let late = checkpointing.wait_for(1, Duration::ZERO).await.unwrap_err();
    assert!(late.to_string().ends_with(": generation 1 is not known to be on disk"), "{late}");
    resume.send(()).unwrap();
    hanging.recv_timeout(PATIENCE).unwrap();
    resume.send(()).unwrap();
    checkpointing.wait_for(1000, PATIENCE).await.unwrap();
    assert_eq!(platter.lock().unwrap().files.len(), 2, "the first version and the last");

    writer.upsert_pod(pod("a", 1001, true)).unwrap();
    hanging.recv_timeout(PATIENCE).unwrap();
    let late = checkpointing.finish(Duration::ZERO).await.unwrap_err();
    assert_eq!(late.kind, CheckpointErrorKind::Late, "a disk that hangs is not waited for");
}
