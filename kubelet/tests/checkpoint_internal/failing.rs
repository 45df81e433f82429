//! A disk on which one step fails.

use super::*;

#[test]
fn a_disk_that_fails_once_at_any_step_is_retried_until_all_is_written() {
    for failing in 0..40 {
        let platter = Arc::default();
        let disk =
            FailingOnce { disk: MortalDisk { platter: Arc::clone(&platter), steps: usize::MAX }, failing };
        let mut keeper = Keeper::new(disk, Which::Annotated, Found::default());
        for (snapshot, pods) in history() {
            let errors = keeper.pass(snapshot.clone(), false);
            assert_eq!(errors.is_empty(), !keeper.has_failed());
            for error in errors {
                assert!(matches!(error.kind(), CheckpointErrorKind::Write | CheckpointErrorKind::Remove));
                assert!(error.to_string().starts_with("/disk"), "{error}");
            }
            if keeper.has_failed() {
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
    }
}

/// A disk on which one step fails, as on a disk that is full for a moment.
struct FailingOnce {
    disk: MortalDisk,
    failing: usize,
}

impl FailingOnce {
    fn step(&mut self) -> io::Result<()> {
        let fails = self.failing == 0;
        self.failing = self.failing.wrapping_sub(1);
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk for FailingOnce {
    type File = usize;

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
    }
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<usize> {
        self.step()?;
        self.disk.write(name, bytes)
    }
    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.step()?;
        self.disk.sync(file)
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        self.disk.rename(from, to)
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        // A full disk still allows removing the remains of a failed write.
        if name != WRITING {
            self.step()?;
        }
        self.disk.remove(name)
    }
    fn sync_directory(&mut self) -> io::Result<()> {
        self.step()?;
        self.disk.sync_directory()
    }
    fn path(&self, name: &str) -> PathBuf {
        self.disk.path(name)
    }
}
