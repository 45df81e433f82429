//! Relative links, headings, and files named as `code` exist, also those of a release.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The repository of a release.
const REPOSITORY: &str = "https://host.example/owner/pod-index";

/// The manifests of the packages that users get.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "kubelet/Cargo.toml", "agent/Cargo.toml"];

/// The pages of the packages that users get.
fn packaged_pages() -> BTreeSet<String> {
    let manifest = read("Cargo.toml");
    let listed = included(&manifest).filter(|path| is_page(path)).map(|path| root().join(&path[1..]));
    let in_directories = ["src", "kubelet", "agent"].into_iter().flat_map(|of| files(&root().join(of), "md"));
    let all = listed.chain(in_directories);
    all.map(|page| page.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()).collect()
}

/// The pages and manifests of the packages as a release has them, in a directory of their own.
struct Released {
    directory: PathBuf,
}

impl Released {
    fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("pod-index-{test}-{}", std::process::id()));
        let released = Self { directory };
        for file in packaged_pages().iter().map(String::as_str).chain(MANIFESTS) {
            let copy = released.directory.join(file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(root().join(file), copy).unwrap();
        }
        let script = root().join("deploy/release-sources.sh");
        let status = Command::new(script).arg(REPOSITORY).arg(&released.directory).status().unwrap();
        assert!(status.success(), "{status}");
        released
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.directory.join(file)).unwrap()
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        // What is left lies in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn in_a_release_each_package_names_the_repository() {
    let released = Released::new("manifests");
    for manifest in MANIFESTS {
        let text = released.read(manifest);
        let package = block(&text, "[package]\n", "\n[");
        let line = format!("repository = \"{REPOSITORY}\"");
        assert!(package.lines().any(|of| of == line), "{manifest} of a release lacks {line}");
    }
}

/// Where a registry or rustdoc shows a page, nothing is beside it to which a relative link could lead.
#[test]
fn in_a_release_each_link_of_a_packages_page_leads_to_a_file_of_the_repository() {
    let manifest = read("Cargo.toml");
    let version = block(&manifest, "\nversion = \"", "\"");
    let released = Released::new("pages");
    let (mut links, mut dead) = (0, Vec::new());
    for page in packaged_pages() {
        let directory = match Path::new(&page).parent().unwrap().to_str().unwrap() {
            "" => ".",
            directory => directory,
        };
        let address = format!("{REPOSITORY}/blob/v{version}/{directory}/");
        let text = released.read(&page);
        // In the whole text, because the text of a link may break over two lines.
        for link in between(&text, "](", ')') {
            let is_of_another_site = link.contains("://") && !link.starts_with(REPOSITORY);
            if is_of_another_site || link.starts_with('#') {
                continue;
            }
            links += 1;
            let path = link.strip_prefix(&address).and_then(|path| path.split(['#', '?']).next());
            if !path.is_some_and(|path| root().join(directory).join(path).exists()) {
                dead.push(format!("{page}: {link}"));
            }
        }
        let with_former_links = text.replace(&address, "").replace("?raw=true)", ")");
        assert!(with_former_links == read(&page), "a release changes more of {page} than its links");
    }
    assert_eq!(dead, [""; 0]);
    assert!(links > 200, "only {links} links were looked at");
}

/// The image is built with the pages that rustdoc shows, because the code includes them.
#[test]
fn the_image_is_built_with_each_page_that_rustdoc_shows() {
    let manifest = read("Cargo.toml");
    // No code includes the change log.
    let shown = included(&manifest).filter(|path| is_page(path) && *path != "/CHANGELOG.md");
    let shown: BTreeSet<&str> = shown.map(|path| path.trim_start_matches('/')).collect();
    let context = read("deploy/Dockerfile.dockerignore");
    let copied = context.lines().filter_map(|line| line.strip_prefix('!'));
    let copied: BTreeSet<&str> = copied.filter(|path| is_page(path)).collect();
    assert_eq!(
        copied, shown,
        "left: the pages in deploy/Dockerfile.dockerignore; right: those of the package"
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
