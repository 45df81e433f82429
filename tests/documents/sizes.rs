//! No page, and no file of the index's package, is so large that a reader loses his way in it.
//!
//! The step `packaged` of `.ci/run` refuses a package with a larger file, too, but it has to build the package first.

use std::collections::BTreeSet;
use std::fs;

use super::{files, files_of, included, read, root};

/// In bytes. A page that grows beyond it needs to be split into pages that answer one question each.
const LARGEST: u64 = 100_000;

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
