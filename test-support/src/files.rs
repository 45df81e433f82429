//! The text files of one directory, to copy or to compare.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// File names and content.
pub type Files = BTreeMap<String, String>;

pub fn read(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

/// Writes the files to a directory that exists.
pub fn write(directory: &Path, files: &Files) {
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
}
