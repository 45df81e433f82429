//! What pages say about the code is so: its modules and what they may use, the functions of a walk, its words, its tables and
//! its kinds of keys. And their examples do what a reader may copy.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

/// The name of a variant in words: `HostName` is "host name".
fn in_words(variant: &str) -> String {
    variant.chars().fold(String::new(), |mut words, letter| {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
        words
    })
}

/// The kinds of keys, in words. Text is none, because it is parsed as one of the others.
fn kinds_of_keys() -> Vec<String> {
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
    // What a list begins with, what it ends with, and the kinds that are none of it.
    let no_additional_keys = ["uid", "name"];
    for (file, first, last, others) in [
        ("src/lib.rs", "//! | a UID, a namespace and name", "[`Snapshot::get`]", &[][..]),
        ("src/lib.rs", "//! A snapshot holds all indices of one moment", "the translation", &[]),
        ("src/lib.rs", "// By what else it is found: ", "\n", &no_additional_keys),
        ("src/pods/found.rs", "/// | from | is |\n", "\n///\n", &[]),
        ("src/pod/mod.rs", "To find pods by container ID", "also implement", &no_additional_keys),
        ("src/pod/keys.rs", "A kind of custom keys, such as", "need none", &["uid", "custom"]),
        (
            "src/update.rs",
            "`keys` decides which pod gets an additional key",
            "`removals`",
            &no_additional_keys,
        ),
        ("src/docs/internals.md", "tables of one shape", "\n\n", &[]),
        ("src/docs/internals.md", "When the holder drops a key", "a function of", &no_additional_keys),
        ("src/docs/performance.md", "| key | differs |\n", "\n\n", &["ip"]),
        (OF_THE_CODE, "| key | by what a user looks a pod up", "| `Key` |", &[]),
        (OF_THE_CODE, "| additional key |", "| `PodMeta`", &no_additional_keys),
        ("docs/contributing/checks.md", "| a lookup by IP", ";", &no_additional_keys),
        ("docs/comparison.md", "persistent tables, one published snapshot", "|\n", &["custom"]),
        ("docs/lookups.md", "### What each key costs", "a cgroup ID, a process ID", &["custom"]),
        ("CHANGELOG.md", "- Finds pods by UID", "from any number of threads", &[]),
    ] {
        let text = read(file);
        // A list may go on in the next line.
        let list = joined(&words_of(&format!("{first}{}", block(&text, first, last))));
        let untold = kinds.iter().filter(|kind| !others.contains(&&***kind) && !list.contains(*kind));
        missing.extend(untold.map(|kind| format!("{file}, {first:?}: {kind}")));
    }
    assert_eq!(missing, [""; 0]);
}

/// The kinds of keys of which a text can be one, and which can be another pod's later, such as an IP. In words.
fn reusable_kinds_of_texts() -> Vec<String> {
    let claimed = read("src/pod/claimed_key.rs");
    let identity = read("src/identity/mod.rs");
    let texts = block(&identity, "pub enum Identity<'a> {\n", "\n}\n");
    let mut kinds = Vec::new();
    let mut variants = Vec::new();
    for arm in block(&claimed, "fn tenure(&self)", "\n    }\n").split("Self::").skip(1) {
        variants.push(arm.split(['(', ' ']).next().unwrap_or_default());
        if !arm.contains("=>") {
            continue;
        }
        let of_arm = std::mem::take(&mut variants).into_iter();
        let is_text =
            |variant: &&str| [" {", "("].iter().any(|open| texts.contains(&format!("\n    {variant}{open}")));
        if !arm.contains("Forever") {
            kinds.extend(of_arm.filter(is_text).map(in_words));
        }
    }
    kinds
}

/// A word of a page or of a file of code, in small letters. A comma and the end of a cell are words, too.
struct Word {
    line: usize,
    text: String,
}

/// The words of a text, without marks of comments and of Markdown.
fn words_of(text: &str) -> Vec<Word> {
    let is_mark = |c: char| "[]()*`\"\\".contains(c);
    let mut words = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start().trim_start_matches(['/', '!']).replace(is_mark, " ");
        let line = line.replace(',', " , ").replace('|', " | ").to_lowercase();
        words.extend(line.split_whitespace().map(|word| Word { line: at + 1, text: word.to_owned() }));
    }
    words
}

fn joined(words: &[Word]) -> String {
    words.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ")
}

/// The lists of these kinds, such as "an IP or a name": where the first kind stands, and what follows the last one. Of a kind of
/// several words, as "custom key", the last word is looked for.
fn lists_of(kinds: &[String], words: &[Word]) -> Vec<std::ops::Range<usize>> {
    let is_kind = |word: &Word| {
        let word = word.text.trim_end_matches(['.', ':', ';', '?']);
        let word = word.strip_suffix('s').unwrap_or(word);
        kinds.iter().any(|kind| kind.ends_with(word) && kind.rsplit(' ').next() == Some(word))
    };
    let is_comma_or_conjunction = |word: &&Word| [",", "or", "and"].contains(&&*word.text);
    let first_words: Vec<_> =
        kinds.iter().filter_map(|kind| kind.split_once(' ')).map(|(first, _)| first).collect();
    let is_before_a_kind =
        |word: &&Word| ["a", "an", "the", "its"].contains(&&*word.text) || first_words.contains(&&*word.text);
    let mut lists = Vec::new();
    let mut end = 0;
    for (start, word) in words.iter().enumerate() {
        if start < end || !is_kind(word) {
            continue;
        }
        end = start + 1;
        loop {
            let rest = &words[end..];
            let joining = rest.iter().take_while(is_comma_or_conjunction).count();
            let kind = joining + rest[joining..].iter().take_while(is_before_a_kind).count();
            if joining == 0 || !rest.get(kind).is_some_and(is_kind) {
                break;
            }
            end += kind + 1;
        }
        lists.push(start..end);
    }
    lists
}

/// A sentence about "an IP or a name" is about what can be another pod's later. With one more such kind, it is false or lacks
/// it, however it is worded.
#[test]
fn a_sentence_that_lists_reusable_keys_says_something_of_each_kind() {
    /// Within so many words of the list, a remark may say what is true of another kind.
    const NEAR: usize = 30;
    let kinds = reusable_kinds_of_texts();
    assert!(["ip", "name"].iter().all(|kind| kinds.iter().any(|of| of == kind)), "{kinds:?}");
    let code = ["src", "agent/src", "kubelet/src"].map(|directory| files(&root().join(directory), "rs"));
    let all_files = files(root(), "md").into_iter().chain(code.into_iter().flatten());
    // Custom keys are reusable, too, but no text is one.
    let custom = "custom key".to_owned();
    let in_lists: Vec<String> = kinds.iter().cloned().chain([custom]).collect();
    let mut found = 0;
    let mut wrong = Vec::new();
    // What the change log says of former versions stays true.
    for file in all_files.filter(|file| !file.ends_with("CHANGELOG.md")) {
        let words = words_of(&fs::read_to_string(&file).unwrap());
        for list in lists_of(&in_lists, &words) {
            let line = words[list.start].line;
            let listed = joined(&words[list.clone()]);
            if !["ip", "name"].iter().all(|kind| listed.contains(kind)) {
                continue;
            }
            found += 1;
            let near = joined(&words[list.start.saturating_sub(NEAR)..(list.end + NEAR).min(words.len())]);
            let untold = kinds.iter().filter(|kind| !near.contains(&***kind));
            let place = file.strip_prefix(root()).unwrap().display();
            wrong.extend(untold.map(|kind| format!("{place}:{line}: {listed:?}, and {kind}?")));
        }
    }
    assert!(found > 30, "only {found} lists were found");
    assert!(wrong.is_empty(), "these say nothing of a kind of key:\n{}", wrong.join("\n"));
}

/// The error of a text that is no identity lists all forms, and the page about `whois` shows it.
#[test]
fn the_page_shows_the_error_of_a_text_that_is_no_identity_as_it_is() {
    let source = read("src/identity/error.rs");
    let error = block(&source, "Self::Unknown => {", "}\n").trim().trim_matches('"');
    // In JSON, it is escaped as in Rust.
    let answer = format!("\"error\":\"{error}\"");
    assert!(read("docs/whois.md").contains(&answer), "docs/whois.md lacks {answer}");
}

/// The lines of a document that are in a code block.
fn code_blocks(text: &str) -> String {
    let mut in_code = false;
    let mut code = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if in_code {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// The doc comments of a file of code.
fn doc_comments(text: &str) -> String {
    let lines = text.lines().map(str::trim_start);
    let comments = lines.filter_map(|line| line.strip_prefix("//!").or_else(|| line.strip_prefix("///")));
    comments.flat_map(|line| [line, "\n"]).collect()
}

/// Code that a reader may copy.
struct Example {
    file: PathBuf,
    code: String,
}

/// The code of pages and of doc comments, and the programs that are examples.
fn examples() -> Vec<Example> {
    let mut examples = Vec::new();
    let mut add = |files: Vec<PathBuf>, code_of: fn(&str) -> String| {
        for file in files {
            let code = code_of(&fs::read_to_string(&file).unwrap());
            examples.push(Example { file, code });
        }
    };
    add(files(root(), "md"), code_blocks);
    for directory in ["src", "kubelet/src", "agent/src"] {
        add(files(&root().join(directory), "rs"), |text| code_blocks(&doc_comments(text)));
    }
    for directory in ["examples", "kubelet/examples"] {
        add(files(&root().join(directory), "rs"), str::to_owned);
    }
    examples
}

/// What follows each call of these functions in a text, from behind its closing parenthesis.
fn after_calls<'a>(code: &'a str, functions: &[&str]) -> Vec<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut followers = Vec::new();
    for (open, _) in code.match_indices('(') {
        let name = code[..open].rsplit(|c| !is_part(c)).next().unwrap_or_default();
        if !functions.contains(&name) {
            continue;
        }
        let mut depth = 0;
        let close = code[open..].find(|c| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        followers.push(close.map_or("", |close| code[open + close + 1..].trim_start()));
    }
    followers
}

/// Without `default_backoff`, kube's watcher tries again at once after each error: a reader who copies such an example sends
/// hundreds of requests a second to an API server that is in trouble.
#[test]
fn each_watcher_of_kube_in_an_example_waits_after_an_error() {
    let mut calls = 0;
    let mut impatient = Vec::new();
    for example in examples() {
        for follower in after_calls(&example.code, &["watcher", "metadata_watcher"]) {
            calls += 1;
            if !follower.starts_with(".default_backoff()") {
                impatient.push(example.file.display().to_string());
            }
        }
    }
    assert!(
        impatient.is_empty(),
        "`.default_backoff()` does not follow a call of `watcher` in {impatient:?}"
    );
    assert!(calls >= 2, "only {calls} calls were looked at");
}
