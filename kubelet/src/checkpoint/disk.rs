//! What is done to the disk, step by step: a seam, so that tests can lose power between any two steps.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The name under which a checkpoint is written before it gets its own. There is one writer, so one name will do.
pub(super) const WRITING: &str = ".writing";

/// What there is under a name.
pub(super) enum Seen {
    Nothing,
    /// No regular file. It was not opened: to open a pipe could take for ever.
    Other,
    /// A file of more bytes than were asked for.
    Larger,
    Bytes(Vec<u8>),
}

/// A directory of checkpoints.
pub(super) trait Disk: Send + 'static {
    /// A file that has been written and may not be on disk yet.
    type File;

    /// What there is, if that is a file of at most so many bytes. An error says nothing of what is in it.
    fn read(&self, name: &str, most: usize) -> io::Result<Seen>;
    /// Makes the file, in place of one of this name.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<Self::File>;
    /// What was written to the file is on disk when this returns.
    fn sync(&mut self, file: Self::File) -> io::Result<()>;
    /// Gives the file another name, in place of one that has it, in one step.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes the file. That there is none is no error.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// What was renamed and removed is on disk when this returns.
    fn sync_directory(&mut self) -> io::Result<()>;
    /// Whether there is nothing of this name.
    fn is_free(&self, name: &str) -> io::Result<bool>;
    /// Where a file of this name is, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// Gives what is there a name that is not looked at again, and that nothing else has.
pub(super) fn set_aside(disk: &mut impl Disk, name: &str) -> io::Result<String> {
    let numbered = (1..100).map(|number| format!("{name}.unusable.{number}"));
    for aside in std::iter::once(format!("{name}.unusable")).chain(numbered) {
        if disk.is_free(&aside)? {
            disk.rename(name, &aside)?;
            disk.sync_directory()?;
            return Ok(aside);
        }
    }
    Err(io::Error::other("too many are there already"))
}

/// A directory of a file system, locked.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Held for its lock as well.
    handle: File,
}

impl Directory {
    /// Opens and locks the directory; it is made if it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            let new: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
            make(path)?;
            // A directory is on disk when the one it is in is: what is acknowledged in it must not go with it.
            for parent in new.into_iter().filter_map(Path::parent) {
                let here = parent.as_os_str().is_empty();
                File::open(if here { Path::new(".") } else { parent })?.sync_all()?;
            }
        }
        let handle = File::open(path)?;
        if !handle.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        match handle.try_lock() {
            // Some network file systems cannot lock a directory. That is no reason to do without checkpoints.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(Self { path: path.to_owned(), handle }),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// The names of what is there, in order. What is not UTF-8 is not ours.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }
}

impl Disk for Directory {
    type File = File;

    fn read(&self, name: &str, most: usize) -> io::Result<Seen> {
        let path = self.path.join(name);
        let read = || -> io::Result<Seen> {
            if !fs::symlink_metadata(&path)?.is_file() {
                return Ok(Seen::Other);
            }
            // A larger one is not read to its end to be told that it is too large.
            let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
            let mut bytes = Vec::new();
            File::open(&path)?.take(limit).read_to_end(&mut bytes)?;
            Ok(if bytes.len() > most { Seen::Larger } else { Seen::Bytes(bytes) })
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Seen::Nothing),
            seen => seen,
        }
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        for_the_owner_alone(&mut options);
        let mut file = options.open(self.path.join(name))?;
        file.write_all(bytes)?;
        Ok(file)
    }

    fn sync(&mut self, file: File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn is_free(&self, name: &str) -> io::Result<bool> {
        match fs::symlink_metadata(self.path.join(name)) {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Environments may hold what is nobody else's business.
#[cfg(unix)]
fn for_the_owner_alone(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

#[cfg(not(unix))]
fn for_the_owner_alone(_: &mut OpenOptions) {}

#[cfg(unix)]
fn make(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn make(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}
