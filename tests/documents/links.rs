//! Relative links, headings, and files named as `code` exist, and a release knows the pages with such links.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{between, block, files, included, prose, read, root, spans};

/// First components of paths in this repository.
const ROOTS: [&str; 12] = [
    ".ci/",
    "agent/",
    "benches/",
    "deploy/",
    "docs/",
    "examples/",
    "fuzz/",
    "kubelet/",
    "loom-tests/",
    "src/",
    "test-support/",
    "tests/",
];

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let title = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn every_relative_link_leads_to_an_existing_file_and_heading() {
    let (mut links, mut broken) = (0, Vec::new());
    for document in files(root(), "md") {
        let text = fs::read_to_string(&document).unwrap();
        for link in prose(&text).flat_map(|line| between(line, "](", ')')) {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (path, anchor) =
                link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target =
                if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let is_there = match anchor {
                None => target.exists(),
                Some(anchor) => fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !is_there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
    assert!(links > 20, "only {links} links were looked at");
}

/// Where a registry or rustdoc shows a page, nothing is beside it to which a relative link could lead. And the image is built with the
/// pages that rustdoc shows, because the code includes them.
#[test]
fn a_release_changes_the_links_of_each_page_that_a_package_shows_and_the_image_is_built_with_it() {
    let manifest = read("Cargo.toml");
    // The change log is only read in the package's files.
    let pages = included(&manifest).filter(|path| is_page(path) && *path != "/CHANGELOG.md");
    let of_the_index: BTreeSet<&str> = pages.map(|path| path.trim_start_matches('/')).collect();
    let of_all: BTreeSet<&str> =
        of_the_index.iter().copied().chain(["kubelet/README.md", "agent/README.md"]).collect();

    let script = read("deploy/release.sh");
    let changed: BTreeSet<&str> = block(&script, "\nfor page in ", "; do").split(' ').collect();
    assert_eq!(
        changed, of_all,
        "left: the pages that deploy/release.sh changes; right: those of the packages"
    );

    let context = read("deploy/Dockerfile.dockerignore");
    let copied = context.lines().filter_map(|line| line.strip_prefix('!'));
    let copied: BTreeSet<&str> = copied.filter(|path| is_page(path)).collect();
    assert_eq!(
        copied, of_the_index,
        "left: the pages in deploy/Dockerfile.dockerignore; right: those of the index"
    );
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|of| of == "md")
}

/// Whoever runs `--test index documents::figures::the_…` with a former name runs no test, and sees that nothing failed.
#[test]
fn every_named_test_of_the_documents_exists() {
    let mut named = 0;
    let mut missing = Vec::new();
    for document in files(root(), "md") {
        let text = fs::read_to_string(&document).unwrap();
        for name in prose(&text).flat_map(spans).filter_map(|span| span.strip_prefix("documents::")) {
            if name.is_empty() {
                continue;
            }
            named += 1;
            let exists = name.split_once("::").is_some_and(|(module, test)| {
                let file = root().join("tests/documents").join(module).with_extension("rs");
                let function = format!("\nfn {}", test.trim_end_matches('…'));
                fs::read_to_string(file).is_ok_and(|code| code.contains(&function))
            });
            if !exists {
                missing.push(format!("{}: documents::{name}", document.display()));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    assert!(named > 3, "only {named} names were looked at");
}

#[test]
fn every_named_file_exists() {
    let (mut names, mut missing) = (0, Vec::new());
    let documents = files(root(), "md").into_iter().chain(files(root(), "rs"));
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let is_code = document.extension().is_some_and(|of| of == "rs");
        for line in prose(&text).filter(|line| !is_code || line.trim_start().starts_with("//")) {
            for name in line.split('`').skip(1).step_by(2) {
                let is_path = ROOTS.iter().any(|root| name.starts_with(root));
                if !is_path || name.contains([' ', '*', '{', '<', '…', '(']) {
                    continue;
                }
                names += 1;
                if !root().join(name).exists() {
                    missing.push(format!("{}: {name}", document.display()));
                }
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    assert!(names > 50, "only {names} names were looked at");
}
