//! Reads one file without blocking.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::sources::ProblemKind;

/// Size limit of a manifest in bytes.
///
/// Kubelet: `maxConfigLength` (`pkg/kubelet/config/common.go`).
const LARGEST_MANIFEST: u64 = 10 * 1024 * 1024;

/// Why a file is not read.
type Refusal = (ProblemKind, String);

/// The content of a regular file. Follows symbolic links.
pub(super) fn read(path: &Path) -> io::Result<Result<Vec<u8>, Refusal>> {
    if let Err(refusal) = check(&std::fs::metadata(path)?) {
        return Ok(Err(refusal));
    }
    // The name may refer to another file by now, but the open file cannot change: check it again.
    // Opening a FIFO without a writer would block; a terminal could become this process's controlling
    // terminal.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if let Err(refusal) = check(&file.metadata()?) {
        return Ok(Err(refusal));
    }
    let mut bytes = Vec::new();
    // The file may grow during the read.
    file.take(LARGEST_MANIFEST + 1).read_to_end(&mut bytes)?;
    Ok(check_size(bytes.len() as u64).map(|()| bytes))
}

fn check(metadata: &Metadata) -> Result<(), Refusal> {
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() => return check_size(metadata.len()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err((ProblemKind::Skipped, format!("skipped, because it is {what}")))
}

fn check_size(bytes: u64) -> Result<(), Refusal> {
    if bytes <= LARGEST_MANIFEST {
        return Ok(());
    }
    Err((ProblemKind::TooLarge, format!("larger than the limit of {LARGEST_MANIFEST} bytes")))
}
