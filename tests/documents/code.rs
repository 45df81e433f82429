//! What pages say about the code is so: its modules and what they may use, the functions of a walk, its words, its tables and
//! its kinds of keys.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{OF_THE_CODE, assert_says, block, files, read, root, spans};

#[test]
fn every_module_uses_only_the_modules_that_the_page_of_the_code_allows_it() {
    let page = read(OF_THE_CODE);
    let tables: Vec<&str> = page.split("| your change is about | module | it may use |").skip(1).collect();
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
            assert!(is_known, "{OF_THE_CODE} does not say what the module {package}/{module} is for");
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

/// The modules in a table of the page of the code, and what each may use.
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

/// A walk that names a function which was moved or renamed sends its reader to the wrong file.
#[test]
fn each_function_of_a_walk_is_in_a_file_of_its_row() {
    // The walks of a page: from this heading to the next one of its level.
    let walks = [
        (OF_THE_CODE, "## From the API server to an answer\n", "\n## "),
        ("src/docs/performance.md", "# A lookup, load by load\n", "\n# "),
        ("src/docs/table.md", "## What happens when, and on which thread\n", "\n## "),
    ];
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut functions, mut missing) = (0, Vec::new());
    for (page, heading, end) in walks {
        let text = read(page);
        let walk = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}")).1;
        let walk = walk.split(end).next().unwrap();
        let mut code = String::new();
        for row in walk.lines().filter(|line| line.starts_with('|')) {
            let files: Vec<&str> =
                spans(row).filter(|span| Path::new(span).extension().is_some_and(|of| of == "rs")).collect();
            // A row without a file goes on in those of the row before.
            if !files.is_empty() {
                code = files.into_iter().map(read).collect();
            }
            let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
            // In the other walks, functions without a type are in sentences, as other code is.
            let has_column = page == OF_THE_CODE;
            let named = if has_column { cells[cells.len() - 2] } else { row };
            for name in spans(named) {
                let (of, function) = name.rsplit_once("::").unwrap_or(("", name));
                let is_method =
                    of.starts_with(char::is_uppercase) && function.starts_with(char::is_lowercase);
                let is_function = has_column && of.is_empty();
                if !is_method && !is_function {
                    continue;
                }
                functions += 1;
                let has_function = ["(", "<"].iter().any(|end| code.contains(&format!("fn {function}{end}")));
                let mut blocks = code.lines().filter(|line| line.trim_start().starts_with("impl"));
                let has_type =
                    of.is_empty() || blocks.any(|line| line.split(|c| !is_part(c)).any(|word| word == of));
                if !has_function || !has_type {
                    missing.push(format!("{page}: {name}"));
                }
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    assert!(functions > 60, "only {functions} functions were looked at");
}

/// A word that the code no longer has misleads, and a list that grows without bound is none that a newcomer reads.
#[test]
fn the_words_of_the_index_are_thirty_at_most_and_the_code_has_each() {
    let page = read(OF_THE_CODE);
    let (_, of_the_index) = page.split_once("These are the index's words").expect("the index's words");
    let chapter = read("src/docs/table.md");
    let (_, of_the_tables) = chapter.split_once("# The words").expect("the tables' words");
    // A comment may still have a word that the code itself has no longer.
    let without_comments = |text: &str| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n") + "\n"
    };
    let sources = |directory: &str| -> String {
        let files = files(&root().join(directory), "rs");
        files.iter().map(|file| without_comments(&fs::read_to_string(file).unwrap())).collect()
    };
    for (words, code) in [(of_the_index, sources("src")), (of_the_tables, sources("src/table"))] {
        let rows: Vec<&str> = words
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'))
            .collect();
        let rows = &rows[2..];
        assert!((10..=30).contains(&rows.len()), "{} words", rows.len());
        for row in rows {
            let code_cell = row.rsplit('|').nth(1).unwrap_or_default();
            let names: Vec<&str> = code_cell.split('`').skip(1).step_by(2).collect();
            assert!(!names.is_empty(), "{row}");
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            for part in names.iter().flat_map(|name| name.split("::")) {
                assert!(code.split(|c| !is_part(c)).any(|word| word == part), "no {part} in the code: {row}");
            }
        }
    }
}

/// How many tables `tables!` declares, in words.
fn number_of_tables() -> &'static str {
    let source = read("src/pods/tables.rs");
    let (_, declared) = source.split_once("tables! {").unwrap();
    let (declared, _) = declared.split_once("\n}\n").unwrap();
    let tables =
        declared.lines().filter(|line| !line.trim_start().starts_with("//") && line.contains(" => "));
    ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"][tables.count()]
}

#[test]
fn documents_count_the_tables_of_the_index_rightly() {
    let number = number_of_tables();
    for (file, sentence) in [
        ("README.md", "pod-index keeps NUMBER tables"),
        ("benches/report/section.rs", "pod-index keeps NUMBER tables"),
        ("benches/report/page.rs", "The index has NUMBER tables"),
        ("docs/performance/README.md", "The index has NUMBER tables"),
        ("src/docs/internals.md", "A snapshot has NUMBER tables of one shape"),
    ] {
        assert_says(file, &sentence.replace("NUMBER", number));
    }
}

/// The kinds of keys, in words: `HostName` is "host name". Text is none, because it is parsed as one of the others.
fn kinds_of_keys() -> Vec<String> {
    let in_words = |variant: &str| {
        variant.chars().fold(String::new(), |mut words, letter| {
            if letter.is_uppercase() && !words.is_empty() {
                words.push(' ');
            }
            words.push(letter.to_ascii_lowercase());
            words
        })
    };
    let source = read("src/pods/found.rs");
    let lines = block(&source, "pub enum Key<'a> {\n", "\n}\n").lines();
    let variants = lines
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(char::is_uppercase));
    let names = variants.filter_map(|variant| variant.split(['(', ' ', ',']).next());
    names.filter(|name| *name != "Text").map(in_words).collect()
}

/// Who adds a kind of key is told of these by nothing else.
#[test]
fn each_kind_of_key_stands_in_the_lists_of_kinds() {
    let kinds = kinds_of_keys();
    assert!(kinds.len() >= 5, "{kinds:?}");
    let mut missing = Vec::new();
    // What a list begins with, and what it ends with.
    for (file, first, last) in [
        ("src/lib.rs", "//! | a UID, a namespace and name", "[`Snapshot::get`]"),
        ("src/lib.rs", "//! A snapshot holds all indices of one moment", "the translation"),
        ("src/pods/found.rs", "/// | from | is |\n", "\n///\n"),
        ("src/docs/internals.md", "tables of one shape", "\n\n"),
        (OF_THE_CODE, "| key | by what a user looks a pod up", "| `Key` |"),
    ] {
        let text = read(file);
        let list = format!("{first}{}", block(&text, first, last)).to_lowercase();
        missing
            .extend(kinds.iter().filter(|kind| !list.contains(*kind)).map(|kind| format!("{file}: {kind}")));
    }
    assert_eq!(missing, [""; 0]);
}
