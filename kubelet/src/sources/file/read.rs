//! Reads one file without blocking, and only if it may have changed.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Size limit of a manifest in bytes.
///
/// Kubelet: `maxConfigLength` (`pkg/kubelet/config/common.go`).
pub(super) const LARGEST_MANIFEST: u64 = 10 * 1024 * 1024;

/// How long a file must be unchanged before its stamp identifies its content.
///
/// A file system's clock tick is a few milliseconds on today's Linux and up to two seconds on others (FAT,
/// old NFS). A second write within the same tick does not change the stamp. So a file that was read this soon
/// after a change is read again at the next listing, as git does with its index.
const SETTLED: Duration = Duration::from_secs(3);

/// Identifies a file's content without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
    /// Device, inode, and the time of the last change of any kind, which `touch` cannot set back.
    identity: (u64, u64, i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let identity = (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
        Self { size: metadata.len(), modified: metadata.modified().ok(), identity }
    }

    /// Whether a later change of a file with this stamp must change the stamp.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let (_, _, seconds, nanoseconds) = self.identity;
        let changed = u64::try_from(seconds)
            .ok()
            .zip(u32::try_from(nanoseconds).ok())
            .map(|(seconds, nanoseconds)| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds));
        // A time in the future, for example from a server's clock, is not reliable.
        let left_alone = |time: SystemTime| now.duration_since(time).is_ok_and(|age| age >= SETTLED);
        self.modified.is_some_and(left_alone) && changed.is_some_and(left_alone)
    }
}

/// Why a file could not be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The file no longer exists.
    Gone,
    /// It is not a regular file; holds what it is.
    NotRegular(&'static str),
    /// It is larger than [`LARGEST_MANIFEST`].
    TooLarge,
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            _ => Self::Io(error),
        }
    }
}

/// The stamp of a regular file. Follows symbolic links.
pub(super) fn stamp(path: &Path) -> Result<Stamp, ReadError> {
    regular(&std::fs::metadata(path)?)
}

/// The content of a regular file, and its stamp before the read.
pub(super) fn read(path: &Path) -> Result<(Stamp, Vec<u8>), ReadError> {
    // The name may refer to another file by now, but the open file cannot change: check it again.
    // Opening a FIFO without a writer would block; a terminal could become this process's controlling
    // terminal.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let stamp = regular(&file.metadata()?)?;
    if stamp.size > LARGEST_MANIFEST {
        return Err(ReadError::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or_default());
    // The file may grow during the read.
    file.take(LARGEST_MANIFEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_MANIFEST {
        return Err(ReadError::TooLarge);
    }
    Ok((stamp, bytes))
}

fn regular(metadata: &Metadata) -> Result<Stamp, ReadError> {
    let kind = metadata.file_type();
    Err(ReadError::NotRegular(match () {
        () if kind.is_file() => return Ok(Stamp::of(metadata)),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }))
}
