//! Each package says whether its own tests compile without the rest of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{all_files, between, files, files_of, included, read, root};

/// What a manifest says of its package if they do not.
const NOT_ALONE: &str = "`cargo test` does not compile in the package alone";

/// The package's files: of the index those that `include` names, of the others all that `exclude` does not.
fn packaged(package: &str) -> BTreeSet<PathBuf> {
    let directory = root().join(package);
    let files: Vec<PathBuf> = if package == "." {
        included(&read("Cargo.toml")).flat_map(files_of).collect()
    } else {
        let all = all_files(&directory).into_iter();
        all.filter(|path| !path.starts_with(directory.join("tests"))).collect()
    };
    files.into_iter().map(|file| file.canonicalize().unwrap()).collect()
}

/// The files that a source includes as a module or as data.
fn included_by(source: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(source).unwrap();
    let macros = ["#[path = \"", "include!(\"", "include_str!(\"", "include_bytes!(\""];
    let names = macros.into_iter().flat_map(|before| between(&text, before, '"'));
    let beside = source.parent().unwrap();
    names.map(|name| beside.join(name).canonicalize().unwrap()).collect()
}

/// Who has a package from a registry, such as a distribution, tests it before he builds it. And a test that needs one file more
/// compiles in the repository all the same, so nothing reminds its author.
#[test]
fn a_manifest_says_whether_tests_of_its_package_need_the_repository() {
    let of_loom = root().join("loom-tests").canonicalize().unwrap();
    let mut wrong = Vec::new();
    for package in [".", "kubelet", "agent"] {
        let packaged = packaged(package);
        let mut outside = BTreeSet::new();
        for source in files(&root().join(package).join("src"), "rs") {
            let included = included_by(&source).into_iter();
            // Only `loom-tests` sets the `cfg` with which the index includes its files.
            outside.extend(included.filter(|file| !packaged.contains(file) && !file.starts_with(&of_loom)));
        }
        let says_so = read(&format!("{package}/Cargo.toml")).contains(NOT_ALONE);
        if says_so == outside.is_empty() {
            wrong.push(format!("{package}/Cargo.toml says so: {says_so}; files outside: {outside:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}
