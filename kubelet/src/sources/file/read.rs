//! Reads one file without blocking.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Size limit of a manifest in bytes.
///
/// Kubelet: `maxConfigLength` (`pkg/kubelet/config/common.go`).
pub(super) const LARGEST_MANIFEST: u64 = 10 * 1024 * 1024;

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

/// The content of a regular file. Follows symbolic links.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    check(&std::fs::metadata(path)?)?;
    // The name may refer to another file by now, but the open file cannot change: check it again.
    // Opening a FIFO without a writer would block; a terminal could become this process's controlling
    // terminal.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check(&file.metadata()?)?;
    let mut bytes = Vec::new();
    // The file may grow during the read.
    file.take(LARGEST_MANIFEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_MANIFEST {
        return Err(ReadError::TooLarge);
    }
    Ok(bytes)
}

fn check(metadata: &Metadata) -> Result<(), ReadError> {
    let kind = metadata.file_type();
    Err(ReadError::NotRegular(match () {
        () if kind.is_file() && metadata.len() > LARGEST_MANIFEST => return Err(ReadError::TooLarge),
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }))
}
