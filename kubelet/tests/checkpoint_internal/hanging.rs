//! A disk that hangs.

use super::*;

/// A disk that hangs in each write until it is released.
struct HangingDisk {
    disk: MortalDisk,
    hangs: SyncSender<()>,
    go_on: Receiver<()>,
}

impl Disk for HangingDisk {
    type File = usize;

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
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
    hanging.recv_timeout(PATIENCE).unwrap();
    // The thread hangs until the test releases it. All of this is published nevertheless.
    for version in 2..=1000 {
        writer.update_pod(pod("a", version, true)).unwrap();
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
    hanging.recv_timeout(PATIENCE).unwrap();
    let late = checkpointing.finish(Duration::ZERO).unwrap_err();
    assert_eq!(
        late.to_string(),
        "generation 1001 is not known to be on disk",
        "a disk that hangs is not waited for"
    );
}
