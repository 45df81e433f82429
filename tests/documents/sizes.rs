//! No page, and no file of the index's package, is so large that a reader loses his way in it.
//!
//! The step `packaged` of `.ci/run` refuses a package with a larger file, too, but it has to build the package first.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{all_files, files, included, read, root};

/// In bytes. A page that grows beyond it needs to be split into pages that answer one question each.
const LARGEST: u64 = 100_000;

/// The files that one entry of `include` names. A `*` is in the last part of its path, if it has one.
fn files_of(entry: &str) -> Vec<PathBuf> {
    let path = root().join(entry.trim_start_matches('/'));
    let name = path.file_name().unwrap().to_string_lossy();
    let Some((begin, end)) = name.split_once('*') else {
        return if path.is_dir() { all_files(&path) } else { vec![path] };
    };
    let matches = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    };
    let beside = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    beside.filter(|path| matches(path)).collect()
}

#[test]
fn no_page_and_no_file_of_the_package_is_larger_than_100_kilobytes() {
    let mut checked = BTreeSet::from_iter(files(root(), "md"));
    for entry in included(&read("Cargo.toml")) {
        let named = files_of(entry);
        assert!(!named.is_empty(), "`include` in Cargo.toml: {entry} names no file");
        checked.extend(named);
    }
    let mut too_large = Vec::new();
    for path in checked {
        let size = fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).len();
        if size > LARGEST {
            too_large.push(format!("{}: {size} bytes", path.display()));
        }
    }
    assert_eq!(too_large, [""; 0], "split these: each page answers one question");
}
