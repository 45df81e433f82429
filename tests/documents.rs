//! Documents and comments refer to existing things: relative links, headings, and files named as `code`.
//! Operators' docs list every status word of the agent. Modules use only what CONTRIBUTING.md allows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `directory` with this extension, except build output and hidden files.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "corpus"].contains(&&*name) {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
    found
}

/// The lines of a document that are not in a code block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

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

/// All texts between `open` and `close`.
fn between<'a>(line: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    line.split(open).skip(1).filter_map(move |rest| rest.split_once(close).map(|(inside, _)| inside))
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

/// The variants of an enum, in the agent's spelling.
fn words(file: &str, name: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let head = format!("pub enum {name} {{");
    let body = between(&text, &head, '}').next().unwrap_or_else(|| panic!("no {name} in {file}"));
    let names = body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['/', '#']));
    names
        .map(|name| {
            let (first, rest) = name.split([',', ' ']).next().unwrap().split_at(1);
            format!("`{}{rest}`", first.to_lowercase())
        })
        .collect()
}

#[test]
fn operators_docs_list_every_state_and_every_kind_of_problem() {
    let documents = ["docs/reference.md", "docs/mirror-pods.md"];
    let text = documents.map(|path| fs::read_to_string(root().join(path)).unwrap()).concat();
    let mut untold = Vec::new();
    for (file, name) in [
        ("kubelet/src/mirror/plan.rs", "MirrorState"),
        ("kubelet/src/mirror/client.rs", "MirrorErrorKind"),
        ("kubelet/src/sources/problem.rs", "ProblemKind"),
    ] {
        let words = words(file, name);
        assert!(words.len() > 4, "{name}: {words:?}");
        untold.extend(
            words.into_iter().filter(|word| !text.contains(word)).map(|word| format!("{name}: {word}")),
        );
    }
    assert_eq!(untold, [""; 0]);
}

#[test]
fn every_module_uses_only_the_modules_that_contributing_allows_it() {
    let contributing = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let tables: Vec<&str> =
        contributing.split("| your change is about | module | it may use |").skip(1).collect();
    let packages = ["src", "kubelet/src", "agent/src"];
    assert_eq!(tables.len(), packages.len());
    let mut forbidden = Vec::new();
    for (package, table) in packages.into_iter().zip(tables) {
        let modules = modules(table);
        for entry in fs::read_dir(root().join(package)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let module = name.trim_end_matches(".rs");
            let is_known =
                ["lib", "main"].contains(&module) || modules.iter().any(|(known, _)| *known == module);
            assert!(is_known, "CONTRIBUTING.md does not say what the module {package}/{module} is for");
        }
        for (module, may_use) in &modules {
            let directory = root().join(package).join(module);
            let file = directory.with_extension("rs");
            let mut sources = if directory.is_dir() { files(&directory, "rs") } else { Vec::new() };
            sources.extend(file.exists().then_some(file));
            assert!(!sources.is_empty(), "there is no module {package}/{module}");
            for source in sources {
                let text = fs::read_to_string(&source).unwrap();
                for used in text.split("crate::").skip(1) {
                    let used = used
                        .split(|c: char| !(c.is_ascii_lowercase() || c == '_'))
                        .next()
                        .unwrap_or_default();
                    let is_module = modules.iter().any(|(module, _)| *module == used);
                    if is_module && used != *module && !may_use.contains(used) {
                        forbidden.push(format!("{}: {used}", source.display()));
                    }
                }
            }
        }
    }
    assert_eq!(forbidden, [""; 0]);
}

/// The modules in a table of CONTRIBUTING.md, and what each may use.
fn modules(table: &str) -> Vec<(&str, BTreeSet<&str>)> {
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut modules: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let mut may_use: BTreeSet<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        if cells[3].contains("the modules above") {
            may_use.extend(modules.iter().map(|(module, _)| *module));
        }
        modules.push((cells[2].trim_matches('`'), may_use));
    }
    modules
}
