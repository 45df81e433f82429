//! Disk operations, step by step, behind a trait: tests simulate a power loss between any two steps.

use std::cmp::Reverse;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Temporary name of a checkpoint while it is written. There is one writer, so one name is enough.
pub(super) const WRITING: &str = ".writing";

/// Size limit of a checkpoint in bytes. No source accepts a larger pod.
const LARGEST: u64 = 64 << 20;

/// A directory of checkpoints.
pub(super) trait Disk: Send + 'static {
    /// A file that has been written and may not be on disk yet.
    type File;

    /// Reads the file. Errors do not quote its content. One of the kind `InvalidData` is not about the disk: what has this
    /// name can be no checkpoint.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Creates or replaces the file.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<Self::File>;
    /// Returns once the file's content is on disk.
    fn sync(&mut self, file: Self::File) -> io::Result<()>;
    /// Renames the file in one step, replacing any file of the new name.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes the file. A missing file is not an error.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Returns once renames and removals are on disk.
    fn sync_directory(&mut self) -> io::Result<()>;
    /// The file's path, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// Renames the file to an unused name that is never read. A power loss may undo it. Then the next start does it again.
pub(super) fn set_aside(disk: &mut impl Disk, name: &str) -> io::Result<String> {
    let numbered = (1..100).map(|number| format!("{name}.unusable.{number}"));
    for aside in std::iter::once(format!("{name}.unusable")).chain(numbered) {
        if disk.read(&aside).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            disk.rename(name, &aside)?;
            return Ok(aside);
        }
    }
    Err(io::Error::other("too many files are set aside already"))
}

/// Reads a file. An error of the kind `InvalidData` is not about the disk.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe could block forever.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    // Do not read a large file to its end only to reject it.
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    check_size(&bytes)?;
    Ok(bytes)
}

/// Refuses the content of a file that would not be read again.
pub(super) fn check_size(bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > LARGEST {
        let message = format!("it is larger than {} MiB", LARGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(())
}

/// Creates or replaces a file.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // For the owner alone: environment variables in pods may be confidential.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// A locked directory of the file system.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Also holds the lock.
    handle: File,
}

impl Directory {
    /// Opens and locks the directory, and creates it if necessary.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            let new: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            // Sync each new directory's parent as well: otherwise a power loss could remove the directory
            // with acknowledged files.
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
            // Some network file systems cannot lock directories. Checkpoints are kept there without a lock.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(Self { path: path.to_owned(), handle }),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// The names in the directory, sorted. Names that are not UTF-8 are never checkpoints.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Puts files first that were written later. The order of others, and of files that are gone, stays.
    pub(super) fn newest_first(&self, names: &mut [String]) {
        names.sort_by_cached_key(|name| {
            Reverse(fs::symlink_metadata(self.path.join(name)).and_then(|file| file.modified()).ok())
        });
    }
}

impl Disk for Directory {
    type File = File;

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        read(&self.path.join(name))
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<File> {
        write(&self.path.join(name), bytes)
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

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}
