//! A list of other objects than pods in one file, in the format of the pods' files.

use std::path::Path;
use std::time::SystemTime;
use std::{fs, io};

use super::{disk, format};

/// The JSON in the file, and when it was written. `None` if there is no such file.
///
/// # Errors
/// If the file cannot be read, or is not as [`write_list`] wrote it.
pub fn read_list(path: &Path) -> io::Result<Option<(Vec<u8>, SystemTime)>> {
    let bytes = match disk::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let json = format::unsealed(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    Ok(Some((json.to_vec(), fs::metadata(path)?.modified()?)))
}

/// Replaces the file in one step. A crash leaves the old list or the new one.
///
/// # Errors
/// If the disk refuses it, or [`read_list`] would: it is larger than 64 MiB.
pub fn write_list(path: &Path, json: &[u8]) -> io::Result<()> {
    let sealed = format::sealed(json);
    disk::check_size(&sealed)?;
    let new = path.with_extension("new");
    let written = disk::write(&new, &sealed).and_then(|file| file.sync_all());
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        // Free the space on a full disk.
        let _ = fs::remove_file(&new);
    })
}
