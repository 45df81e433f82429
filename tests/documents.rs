//! Documents and comments refer to existing things: relative links, headings, and files named as `code`.
//! Operators' docs list every status word of the agent, and name no flag, metric or alert that does not exist. A figure that
//! stands on two pages is the same on both. Modules use only what `docs/contributing/code.md` allows.

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

/// The code spans of a text.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
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

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The page with the tables of modules, and with the glossary.
const OF_THE_CODE: &str = "docs/contributing/code.md";

/// What operators read. The reference itself is compared with the program.
const OF_THE_AGENT: [&str; 14] = [
    "CHANGELOG.md",
    "deploy/README.md",
    "docs/compatibility.md",
    "docs/disputed-answer.md",
    "docs/languages.md",
    "docs/mirror-pods.md",
    "docs/operators.md",
    "docs/pod-api.md",
    "docs/security.md",
    "docs/sizing.md",
    "docs/sources.md",
    "docs/what-if-it-fails.md",
    "docs/whois.md",
    "docs/why.md",
];

/// The words of a text that begin so, and go on with letters, digits or these characters.
fn words_with<'a>(text: &'a str, prefix: &'a str, also: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(prefix).map(move |(at, _)| {
        let rest = &text[at..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
        let end = rest[prefix.len()..].find(|c| !is_part(c)).map_or(rest.len(), |end| prefix.len() + end);
        &rest[..end]
    })
}

/// The flags that a document gives to `pod-index`, or names by themselves.
fn flags(text: &str) -> BTreeSet<&str> {
    let commands = text.split(['\n', '`']).filter(|part| {
        let command = part.trim_start_matches(['$', ' ']);
        command.starts_with("--") || command.starts_with("pod-index ") || command.contains(" /pod-index ")
    });
    let own = commands.map(|command| command.split([';', '|', '#']).next().unwrap_or_default());
    let words = own.flat_map(|command| command.split([' ', '=']));
    words.filter(|word| word.starts_with("--") && word.len() > 2).collect()
}

#[test]
fn documents_name_only_flags_metrics_and_alerts_that_exist() {
    let reference = read("docs/reference.md");
    let rules = read("deploy/prometheus/rules.yaml");
    // Of kubectl and curl, in spans or lines that begin with them.
    let foreign = ["--server", "--unix-socket", "--connect-to", "--all-features"];
    let (mut names, mut unknown) = (0, Vec::new());
    for document in OF_THE_AGENT {
        let text = read(document);
        let mut check = |name: &str, is_known: bool| {
            names += 1;
            if !is_known {
                unknown.push(format!("{document}: {name}"));
            }
        };
        for flag in flags(&text).difference(&foreign.into()) {
            // Followed by something that is no part of a flag.
            let is_known = words_with(&reference, flag, "-").any(|word| word == *flag);
            check(flag, is_known || flag.contains("kubelet-insecure"));
        }
        for metric in words_with(&text, "pod_index_", "_") {
            let family =
                ["_total", "_bucket", "_sum", "_count"].iter().find_map(|end| metric.strip_suffix(end));
            // The library.
            let is_crate = metric.starts_with("pod_index_kubelet");
            check(metric, is_crate || reference.contains(&format!("| `{}`", family.unwrap_or(metric))));
        }
        for alert in words_with(&text, "`PodIndex", "") {
            let alert = alert.trim_start_matches('`');
            check(alert, rules.contains(&format!("alert: {alert}\n")));
        }
    }
    assert_eq!(unknown, [""; 0]);
    assert!(names > 80, "only {names} names were looked at");
}

/// The rows of a table, by their first cell.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let table = text.split(heading).nth(1).unwrap_or_else(|| panic!("no table {heading}"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn the_memory_of_the_agent_is_the_same_on_each_page() {
    let (sizing, reference) = (read("docs/sizing.md"), read("docs/reference.md"));
    let heading = "| pods on the node | at the start | with a full history of changes |";
    let measured: Vec<_> = rows(&sizing, heading)
        .into_iter()
        .filter(|row| !row.iter().any(|cell| cell.contains("about")))
        .collect();
    assert!(measured.len() >= 4, "{measured:?}");
    let others = rows(&reference, "| pods of the API server | at the start | with changes |");
    for row in &measured {
        assert!(others.contains(row), "docs/reference.md does not have {row:?}");
    }
    let at = |pods: &str, column: usize| measured.iter().find(|row| row[0] == pods).unwrap()[column];
    // "About 25 MiB" for 110 pods.
    let start: f64 = at("110", 1).trim_end_matches(" MB").parse().unwrap();
    assert!((start * 1e6 / f64::from(1 << 20) - 25.0).abs() < 1.0, "{start} MB");
    for page in ["README.md", "docs/why.md"] {
        assert!(read(page).contains("about 25 MiB of memory"), "{page}");
    }
    let full: f64 = at("110", 2).trim_end_matches(" MB").parse().unwrap();
    let in_mebibytes = full * 1e6 / f64::from(1 << 20);
    assert!((in_mebibytes - 68.0).abs() < 1.0, "{full} MB");
    assert_says("README.md", "68 MiB with a full history");
    for page in ["README.md", "docs/why.md", "docs/sizing.md", "docs/reference.md"] {
        assert_says(page, "less than 0.1 % of a core");
    }
    let at_rest = table(&sizing, "| at rest | is | measured by |");
    let cpu = at_rest("CPU time, beside compilers and tests (a load of 4 to 20 on two cores)", 1);
    let share: f64 = between(cpu, "which is ", ' ').next().unwrap().parse().unwrap();
    assert!(share < 0.1, "{cpu}");
    assert!(read("deploy/kubernetes/base/daemonset.yaml").contains(at("110", 2)));
}

/// The guide has four of the six columns.
#[test]
fn the_guide_says_as_the_report_how_many_lookups_several_threads_make() {
    let report = read("docs/performance/README.md");
    let guide = read("docs/embedders.md");
    let of_report = rows(
        &report,
        "| threads | 1,000 pods: no writer | 1,000 updates/s | a writer at full speed | 100,000 pods: no writer | 1,000 updates/s | a writer at full speed |",
    );
    let told = rows(
        &guide,
        "| threads | 1,000 pods: no writer | 1,000 updates/s | 100,000 pods: no writer | 1,000 updates/s |",
    );
    let measured: Vec<_> =
        of_report.iter().map(|row| [0, 1, 2, 4, 5].map(|column| row[column]).to_vec()).collect();
    assert_eq!((told.len(), &told), (4, &measured));
}

#[test]
fn the_guides_figures_are_those_of_the_reports() {
    let report = read("docs/performance/README.md");
    // Of which 1,000 pods and 100,000.
    let report = rows(&report, "| pods | 1,000 | 100,000 | 1,000,000 |");
    let figure = |design: &str| {
        let row = report.iter().find(|row| row[0] == design).unwrap();
        let rounded = |cell: &str| {
            let figure: f64 = cell.split(' ').next().unwrap().parse().unwrap();
            if figure < 10.0 { format!("{figure:.1}") } else { format!("{figure:.0}") }
        };
        format!("{} · {} ns", rounded(row[1]), rounded(row[2]))
    };
    let guide = read("docs/embedders.md");
    for (handle, design) in [
        ("`Reader::cached()`", "pod-index, cached"),
        ("`cached.load().pod_by_uid(&uid)`", "pod-index, cached, parsed UID"),
        ("`Reader::load()`", "pod-index, load()"),
    ] {
        let row = guide.lines().find(|line| line.starts_with('|') && line.contains(handle)).unwrap();
        assert!(row.contains(&figure(design)), "{}: {row}", figure(design));
    }

    // By each key, of 1,000 pods and of 100,000.
    let page = read("docs/performance/README.md");
    let by_key = table(&page, "| key, pods | 200 | 1,000 | 10,000 | 100,000 |");
    let nanoseconds = |key: &str| {
        [2, 4].map(|column| {
            let figure = by_key(key, column).split(" · ").next().unwrap();
            format!("{:.1}", figure.parse::<f64>().unwrap())
        })
    };
    let [few, many] = nanoseconds("IP");
    assert_says("docs/embedders.md", &format!("by IP {few} ns with 1,000 pods, {many} ns with 100,000"));
    let told = rows(&guide, "| your event carries | call | instructions | ns, at 1,000 · 100,000 pods |");
    for (call, bench, key) in [
        ("pods.load().pod_by_ip(ip)", "ip_hit", Some("IP")),
        ("pods.get(id)", "container_id_hit", Some("container ID")),
        ("pods.load().pod_by_container_id(text)", "container_text_hit", Some("container ID, text")),
        ("pods.load().pod_by_uid(&uid)", "parsed_uid_hit", None),
        ("pods.load().pod_by_uid(text)", "uid_hit", Some("UID")),
        ("pods.load().pod_by_name(namespace, name)", "name_hit", Some("name")),
        ("pods.load().pod_by_full_name(text)", "full_name_hit", None),
    ] {
        let row =
            told.iter().find(|row| row[1] == format!("`{call}`")).unwrap_or_else(|| panic!("no row {call}"));
        let measured = key.map(|key| nanoseconds(key).join(" · ")).unwrap_or_default();
        assert_eq!((row[2], row[3]), (&*instructions(bench).to_string(), &*measured), "{call}");
    }
    assert_says("docs/embedders.md", &format!("by IP it takes {} instructions", instructions("ip_get")));
    let load = instructions("uid_hit_by_load") - instructions("uid_hit");
    assert_says("docs/embedders.md", &format!("`Reader::load()` adds {load} instructions"));

    // What an update costs, with 1,000 pods and with 100,000.
    let [most, least] = [" ns with 1,000 pods, ", " ns with 100,000 pods, "].map(|pods| {
        let rest = flowing("docs/performance/README.md");
        let times = rest.split(pods).nth(1).unwrap().split(" times as long").next().unwrap();
        times.parse::<f64>().unwrap()
    });
    assert_says("README.md", &format!("An update costs {least:.0} to {most:.0} times as much"));

    // What an update costs, with 100,000 pods.
    let page = read("docs/performance/README.md");
    let updates = rows(&page, "|  | one pod | in a batch of 1,000 | replacing all pods |");
    let update = updates.iter().find(|row| row[0] == "pod-index, cached").unwrap();
    let [alone, batch] = [update[1], update[2]].map(|cell| {
        let nanoseconds = cell.split(" · ").nth(1).unwrap().replace(',', "");
        format!("{:.2} µs", nanoseconds.parse::<f64>().unwrap() / 1e3)
    });
    let sentence = format!("an update takes {alone} alone and {batch} in a batch of 1,000");
    assert!(guide.contains(&sentence), "docs/embedders.md: {sentence}");

    // How long a lookup waits for a writer with a lock.
    let figures = read("docs/performance/figures.tsv");
    let longest = |what: &str| {
        let name = format!("latency\t100000\t{what}\tkubelet's maps, parking_lot RwLock\t");
        let rest = figures.split(&*name).nth(1).unwrap_or_else(|| panic!("no {name}"));
        let figure = rest.split('\t').next().unwrap();
        figure.replace(',', "").parse::<f64>().unwrap()
    };
    let sentence = format!(
        "{:.0} ms (the 99.9th percentile: {:.1} µs)",
        longest("d p100") / 1e6,
        longest("d p99.9") / 1e3
    );
    assert!(read("docs/comparison.md").contains(&sentence), "docs/comparison.md: {sentence}");

    // Which answers become right.
    let report = read("docs/performance/at-a-time.md");
    let report = rows(&report, "| | right | ambiguous | unknown | confidently wrong |");
    let percent = |cell: &str| cell.trim_end_matches(" %").parse::<f64>().unwrap();
    let why = read("docs/why.md");
    let told = rows(&why, r#"| | right | "I am not certain" | confidently wrong |"#);
    assert!(told.len() >= 3, "{told:?}");
    for row in told {
        let system = row[0].split('\'').next().unwrap();
        let measured = report.iter().find(|row| row[0] == system).unwrap();
        let uncertain = percent(measured[2]) + percent(measured[3]);
        for (told, measured) in [
            (percent(row[1]), percent(measured[1])),
            (percent(row[2]), uncertain),
            (percent(row[3]), percent(measured[4])),
        ] {
            assert!((told - measured).abs() < 0.11, "{system}: {told} is not {measured}");
        }
    }
}

#[test]
fn the_guide_has_the_percentiles_of_single_lookups() {
    let guide = read("docs/embedders.md");
    let figures = read("docs/performance/figures.tsv");
    let percentile = |pods: &str, situation: &str, percentile: &str| {
        let name = format!("latency\t{pods}\t{situation} {percentile}\tpod-index, cached\t");
        let rest = figures.split(&*name).nth(1).unwrap_or_else(|| panic!("no {name}"));
        rest.split('\t').next().unwrap().trim_end_matches(".0").to_owned()
    };
    let told = rows(&guide, "| pods | beside it | half within | 99 % within | 99.9 % within |");
    for (row, (pods, situation)) in
        told.iter().zip([("1000", "a"), ("1000", "b"), ("100000", "a"), ("100000", "b")])
    {
        let measured = ["p50", "p99", "p99.9"].map(|of| percentile(pods, situation, of));
        assert_eq!(row[2..], measured, "{row:?}");
    }
    assert_eq!(told.len(), 4);
    let [half, most] = ["p50", "p99.9"].map(|of| percentile("100000", "b", of));
    let sentence = format!("with 100,000 pods: half within {half} ns, 99.9 % within {most} ns");
    assert_says("docs/embedders.md", &sentence);
}

/// The recorded count of a bench, for one lookup or one pod.
fn instructions(bench: &str) -> u64 {
    let benches = read("benches/instructions.rs");
    let before = benches.split(&format!("\nfn {bench}(")).next().unwrap();
    assert_ne!(before, benches, "no bench {bench}");
    let counted = before.rsplit("recorded(").next().unwrap().split(')').next().unwrap();
    let counted: u64 = counted.replace('_', "").parse().unwrap();
    (counted + 500) / 1_000
}

#[test]
fn the_chapter_on_performance_has_the_counts_of_the_benches() {
    let grouped = |count: u64| match count / 1_000 {
        0 => count.to_string(),
        thousands => format!("{thousands},{:03}", count % 1_000),
    };
    for (sentence, bench) in [
        ("COUNT instructions for a lookup by UID", "uid_hit"),
        ("COUNT with a parsed UID", "parsed_uid_hit"),
        ("COUNT by IP", "ip_hit"),
        ("COUNT by a parsed container ID", "container_id_hit"),
        ("COUNT by its text", "container_text_hit"),
        ("COUNT by namespace and name", "name_hit"),
        ("COUNT for an update of a pod that has neither", "update"),
        ("COUNT for each of a batch of 64", "update_in_batches"),
        ("COUNT with an IP and two containers", "update_with_keys"),
    ] {
        assert_says("src/docs/performance.md", &sentence.replace("COUNT", &grouped(instructions(bench))));
    }
}

/// A table with its rows by their first cell.
fn table<'a>(text: &'a str, heading: &str) -> impl Fn(&str, usize) -> &'a str {
    let rows = rows(text, heading);
    move |first, column| {
        let row = rows.iter().find(|row| row[0] == first);
        row.unwrap_or_else(|| panic!("no row {first:?} in {rows:?}"))[column]
    }
}

/// Without the ends of its lines, which may be anywhere in a sentence.
fn flowing(page: &str) -> String {
    read(page).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_says(page: &str, sentence: &str) {
    assert!(flowing(page).contains(sentence), "{page} does not say: {sentence}");
}

/// `12345` as `12,345`.
fn thousands(number: u32) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

#[test]
fn connections_and_watches_of_two_thousand_nodes_are_multiplied_rightly() {
    let why = read("docs/why.md");
    let told = table(&why, "| agents on each node | without pod-index | with pod-index |");
    let held = |nodes: u32, connections: u32, watches: u32| {
        format!("{} connections, {} watches", thousands(nodes * connections), thousands(nodes * watches))
    };
    for agents in [1, 4, 8] {
        let first = agents.to_string();
        assert_eq!(told(&first, 1), held(2000, agents, 3 * agents), "{agents} agents without pod-index");
        assert_eq!(told(&first, 2), held(2000, 2, 3), "{agents} agents with pod-index");
    }
    let readme = read("README.md");
    let readme = table(&readme, "| | without | with pod-index |");
    let of_four = |each: u32| thousands(2000 * 4 * each);
    let row = "connections to the API server, 2,000 nodes with 4 agents each";
    assert_eq!([readme(row, 1), readme(row, 2)], [&*of_four(1), "4,000"]);
    assert_eq!([readme("watches there", 1), readme("watches there", 2)], [&*of_four(3), "6,000"]);

    // Of `client-reviews`: a token once a minute, a right every two and a half.
    let asked = 2000 / 60 + 2000 / 150 + 1; // rounded
    assert_says("docs/sizing.md", &format!("2,000 / 60 + 2,000 / 150, or about {asked} small requests"));
}

/// `.ci/run features_alone` counts the crates.
#[test]
fn the_guide_counts_the_crates_of_a_feature_as_the_library_does() {
    let library = read("kubelet/README.md");
    let counted = rows(&library, "| feature | module | crates |");
    let guide = read("docs/embedders.md");
    let told = rows(&guide, "| your program | features of `pod-index-kubelet` | crates |");
    let mut compared = 0;
    for row in told {
        let feature = row[1].split([' ', ',']).next().unwrap();
        // The first row is about `pod-index` alone.
        let Some(of_library) = counted.iter().find(|counted| counted[0] == feature) else { continue };
        assert_eq!(row[2], of_library[2], "{feature}");
        compared += 1;
    }
    assert!(compared >= 8, "only {compared} features");
    let all = counted.iter().find(|row| row[0] == "the default").unwrap()[2];
    assert_says("docs/embedders.md", &format!("With everything, `pod-index-kubelet` brings {all} crates"));
}

#[test]
fn whois_lists_each_field_that_rules_may_name() {
    let code = read("kubelet/src/records/extract/fields.rs");
    let fields = code.split("const FIELDS:").nth(1).unwrap().split("\n];").next().unwrap();
    let page = read("docs/whois.md");
    let told = rows(&page, "| key of `extract` | values |");
    let told: Vec<&str> = told.iter().flat_map(|row| row[1].split('`').skip(1).step_by(2)).collect();
    let mut untold: Vec<&str> = between(fields, "(\"", '"').collect();
    assert!(untold.len() > 30, "{untold:?}");
    untold.retain(|field| !told.contains(field));
    assert_eq!(untold, [""; 0]);

    let objects = read("kubelet/src/records/extract/objects.rs");
    let kinds = objects.split("const NAMES:").nth(1).unwrap().split("\n    ];").next().unwrap();
    let kinds: Vec<&str> = between(kinds, "(\"", '"').collect();
    assert!(kinds.len() > 8 && kinds.iter().all(|kind| told.contains(kind)), "{kinds:?}");
}

/// The fields of an answer stand in places that no compiler connects: what the agent writes, what `--fields` takes and when it
/// asks for details, and two pages.
#[test]
fn each_field_of_whois_can_be_chosen_and_is_described() {
    let matched = read("agent/src/whois/matched.rs");
    let written_by = |function: &str| -> BTreeSet<String> {
        let body =
            matched.split(&format!("fn {function}(")).nth(1).and_then(|rest| rest.split("\n    }\n").next());
        let names = between(body.unwrap_or_else(|| panic!("no {function}")), "line.put(\"", '"');
        names.map(str::to_owned).collect()
    };
    let cli = read("agent/src/cli/mod.rs");
    let fields = cli.split("const FIELDS: &str = \"").nth(1).unwrap().split("\";").next().unwrap();
    let fields: Vec<String> =
        fields.split(',').map(|field| field.trim_matches([' ', '\\', '\n']).to_owned()).collect();
    let details: usize = between(&cli, "const DETAILS: usize = ", ';').next().unwrap().parse().unwrap();

    let written = written_by("write_details");
    let asked: BTreeSet<String> = fields[fields.len() - details..].iter().cloned().collect();
    assert_eq!(
        asked, written,
        "left: the last DETAILS of FIELDS in agent/src/cli/mod.rs, for which whois sends details=true; right: what write_details writes"
    );
    let reference = read("docs/reference.md");
    let row = reference.lines().find(|line| line.starts_with("| `details=true`")).unwrap();
    for detail in &written {
        assert!(
            row.contains(&format!("`{detail}`")),
            "the row details=true of docs/reference.md lacks {detail}"
        );
    }

    // The command shows these in other words, beside the table.
    let elsewhere = ["contested", "contradiction", "from", "until"];
    let page = read("docs/whois.md");
    let writing = ["write_how", "write_pod", "write_workload", "write_labels", "write_details"];
    for field in writing.into_iter().flat_map(written_by) {
        let is_chosen = fields.contains(&field) || elsewhere.contains(&&*field);
        assert!(is_chosen, "--fields={field} is refused: FIELDS in agent/src/cli/mod.rs lacks it");
        assert!(page.contains(&format!("`{field}`")), "docs/whois.md does not explain {field}");
    }
}

/// The examples of answers are copies. Their fields and errors must be those that the program writes, and the table of fields
/// must have each of them.
#[test]
fn whois_shows_only_fields_and_errors_that_the_program_writes() {
    let page = read("docs/whois.md");
    let of_whois = ["answer", "at_a_time", "find", "matched", "search", "sought", "unknown"];
    let of_whois = of_whois.map(|module| read(&format!("agent/src/whois/{module}.rs"))).concat();
    let code = of_whois + &read("src/identity/error.rs");
    let blocks = page.split("```json\n").skip(1).map(|block| block.split("```").next().unwrap());
    let answers: Vec<_> =
        blocks.flat_map(str::lines).filter(|line| line.starts_with(r#"{"found""#)).collect();
    assert!(answers.len() >= 10, "only {} examples", answers.len());
    for answer in answers {
        let (has_error, has_retry) = (answer.contains(r#""error":"#), answer.contains(r#""retry":"#));
        assert_eq!(has_error, has_retry, "each error has a retry: {answer}");
        let error = between(answer, r#""error":""#, '"').next().unwrap_or_default().trim_end_matches('\\');
        // Of one that names pods or a time, the beginning.
        let is_built = |start: &&str| error.starts_with(start);
        let built = [
            "perhaps ",
            "one of ",
            "not recognised; ",
            "the time is before what the agent knows, which is since ",
        ];
        let constant = built.iter().find(|start| is_built(start)).copied().unwrap_or(error);
        assert!(code.contains(constant), "no such error: {error}");
        // The names of labels and attributes are not ours.
        let own: String = answer
            .split('{')
            .filter(|object| !object.contains("k8s.") && !object.starts_with(r#""app""#))
            .collect();
        let fields = own.split(['{', '}', ',', '[', ']']).filter_map(|part| part.split_once("\":"));
        for (field, _) in fields.map(|(field, rest)| (field.trim_start_matches('"'), rest)) {
            let is_written =
                code.contains(&format!("\"{field}\"")) || code.contains(&format!("pub(super) {field}: "));
            assert!(is_written, "the program writes no field {field}: {answer}");
            assert!(page.contains(&format!("`{field}`")), "docs/whois.md does not explain {field}");
        }
    }
}

/// No test can measure these, because they need a cluster. So they are on one page, and the others agree with it.
#[test]
fn what_was_measured_beside_a_cluster_is_told_alike_on_each_page() {
    let measured = read("docs/performance/agent.md");

    let traffic = table(&measured, "| agents | without pod-index | with pod-index |");
    let [one, four, eight] = ["1", "4", "8"].map(|agents| traffic(agents, 1));
    let sentence = format!(
        "one agent received {one} from the API server, four received {four}, and eight received {eight}."
    );
    assert_says("docs/why.md", &sentence);
    for agents in ["1", "4", "8"] {
        assert_says("docs/why.md", &format!("Through `pod-index` it was {}", traffic(agents, 2)));
    }

    let heading = "| | pod-index, `--serve-resources=owners,nodes,namespaces` | eight informers |";
    let owners = rows(&measured, heading);
    assert_eq!(owners, rows(&read("docs/sizing.md"), "| | pod-index | eight informers |"));
    let bytes = table(&measured, heading);
    let [ours, theirs] =
        [1, 2].map(|column| bytes("at the start: bytes", column).split(" in ").next().unwrap());
    let sentence = format!("eight informers received {theirs} at their start, and `pod-index` {ours};");
    assert_says("docs/why.md", &sentence);

    let outage = table(&measured, "| measured | figure |");
    let figure =
        |row: &str| outage(row, 1).split(" s ").next().unwrap().trim_start_matches("after ").to_owned();
    let agent = figure("the agent is up to date after an outage of 30 s");
    let informers = figure("client-go's informers, the same outage");
    assert_says(
        "docs/what-if-it-fails.md",
        &format!(
            "the agent was up to date {agent} s after the server was back; client-go's informers needed {informers} s"
        ),
    );
    let row = "after an outage of 30 s, up to date again";
    let readme = read("README.md");
    let readme = table(&readme, "| | without | with pod-index |");
    assert_eq!(readme(row, 1), format!("after {informers} s (client-go's informers)"));
    assert_eq!(readme(row, 2), format!("after {agent} s"));

    let half = outage("of these, half were found within", 1).split(" of ").next().unwrap();
    let most = outage("of these, 99 % were found within", 1).split(" of ").next().unwrap();
    let all =
        outage("containers that restarted in an outage of ten minutes, found with the kubelet's socket", 1);
    let all = all.split(" of ").next().unwrap();
    assert_says("docs/what-if-it-fails.md", &format!("and {all} containers restarted."));
    assert_says("docs/what-if-it-fails.md", &format!("half of them within {half} and 99 % within {most}"));
    assert_says("docs/why.md", &format!("it found all {all} of them, half of them within {half}"));

    let rotated = table(&measured, "| replaced | the agent follows the new one |");
    for row in ["both, and the server restarts", "the server first, the authority's file a minute later"] {
        assert_says("docs/what-if-it-fails.md", rotated(row, 1));
    }
}

#[test]
fn the_simulations_figures_are_the_same_on_each_page() {
    let page = read("docs/performance/at-a-time.md");
    let wrong = table(&page, "| | right | ambiguous | unknown | confidently wrong |");
    let percent = |cell: &str| cell.trim_end_matches(" %").parse::<f64>().unwrap();
    let rules = ["k8sattributes", "Pixie", "Tetragon", "Vector"].map(|agent| percent(wrong(agent, 4)));
    let least = rules.into_iter().fold(f64::MAX, f64::min);
    let most = rules.into_iter().fold(0.0, f64::max);
    let uncertain = percent(wrong("pod-index", 2)) + percent(wrong("pod-index", 3));
    let readme = read("README.md");
    let row = readme.lines().find(|line| line.contains("events attributed to the wrong pod")).unwrap();
    assert!(row.contains(&format!("| {least:.0} % to {most:.0} % by the rules of four agents |")), "{row}");
    assert!(row.contains(&format!("| 0, and {uncertain:.1} % \"not certain\" |")), "{row}");
    let first =
        page.split("Of the ambiguous answers of pod-index, ").nth(1).unwrap().split('%').next().unwrap();
    assert_says("docs/why.md", &format!("In {:.0} % of the uncertain answers", percent(first.trim())));
}

#[test]
fn requests_and_limits_follow_from_what_was_measured() {
    let sizing = read("docs/sizing.md");
    let daemon_set = read("deploy/kubernetes/base/daemonset.yaml");
    let told = rows(&sizing, "| | the DaemonSet has | it is enough for |");
    for row in told {
        let resource = format!("{}s:", row[0]);
        let line = daemon_set.lines().find(|line| line.trim_start().starts_with(&resource)).unwrap();
        let memory = format!("memory: {}}}", row[1].replace(" MiB", "Mi"));
        assert!(line.contains(&memory), "{line}: {memory}");
    }
    // The example: 1,500 pods, 10,000 Namespaces.
    let memory = table(&sizing, "| pods on the node | at the start | with a full history of changes |");
    let of_1000: u32 = memory("1,000", 2).trim_end_matches(" MB").parse().unwrap();
    let request = of_1000 + 500 * 40 / 1000 + 25;
    assert_says("docs/sizing.md", &format!("{of_1000} MB + 500 × 40 kB + 25 MB, which is {request} MB"));

    let protobuf = read("docs/performance/protobuf.md");
    let list = table(&protobuf, "| | JSON | protobuf | |");
    let [json, binary] = [1, 2].map(|column| list("API server: CPU for a list of 110 pods", column));
    let megabytes = |column| {
        let bytes: f64 = list("bytes of a list of 110 pods", column).replace(',', "").parse().unwrap();
        format!("{:.1} MB", bytes / 1e6)
    };
    assert_says(
        "docs/sizing.md",
        &format!("{binary} of CPU and {}, in JSON {json} and {}", megabytes(2), megabytes(1)),
    );

    // What a pod may take: the code, and each page that says it.
    let memory = read("kubelet/src/memory/mod.rs");
    let limit = memory.split("const LIMIT: usize = ").nth(1).unwrap().split(" << 10;").next().unwrap();
    for page in
        ["docs/operators.md", "docs/sizing.md", "docs/security.md", "docs/sources.md", "docs/reference.md"]
    {
        assert_says(page, &format!("{limit} KiB"));
    }
    let load = read("kubelet/src/checkpoint/load.rs");
    let read_first = load.split("const MOST_READ: usize = ").nth(1).unwrap().split(';').next().unwrap();
    let read_first = read_first.replace('_', ",");
    assert_says(
        "docs/what-if-it-fails.md",
        &format!("reads at most the newest {read_first} files before it serves"),
    );
    assert_says("docs/operators.md", &format!("reads the newest {read_first} before it serves"));
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

/// What stands between two texts.
fn block<'a>(text: &'a str, first: &str, last: &str) -> &'a str {
    let (_, rest) = text.split_once(first).unwrap_or_else(|| panic!("no {first:?}"));
    rest.split_once(last).unwrap_or_else(|| panic!("no {last:?} after {first:?}")).0
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

/// The words of `foundBy` and `kind` in an answer of `whois` come from two packages, and three places know them again.
#[test]
fn each_word_by_which_whois_says_what_it_found_by_is_printed_and_described() {
    let found = read("src/pods/found.rs");
    let of_keys: Vec<_> =
        between(block(&found, "pub const fn as_str(self)", "\n    }\n"), "=> \"", '"').collect();
    let sought = read("agent/src/whois/sought.rs");
    let of_queries: Vec<_> = between(block(&sought, "fn taken_for(&self)", "};"), "(\"", '"').collect();
    assert!(of_keys.len() > 6 && of_queries.len() > 8, "{of_keys:?} {of_queries:?}");
    // A pod of Kubernetes is found by no custom key, and an agent calls "other" what it does not know yet.
    let words_of_both: BTreeSet<_> =
        of_keys.iter().chain(&of_queries).filter(|word| !["custom", "other"].contains(*word)).collect();

    let page = read("agent/src/http/serve/page/ask.js");
    let of_the_page = block(&page, "const WORDS = {", "};");
    let printer = read("agent/src/cli/whois/printer.rs");
    let of_the_printer = block(&printer, "fn words(name: &str)", "other => other");
    let mut wrong = Vec::new();
    let text_after = |text: &str, mark: String| between(text, &mark, '"').next().map(str::to_owned);
    for word in words_of_both {
        let of_the_page = text_after(of_the_page, format!(" {word}: \""));
        let of_the_printer = text_after(of_the_printer, format!("\"{word}\" => \""));
        // The command prints a word of which it knows no other form as it is.
        if of_the_page.as_deref() != Some(of_the_printer.as_deref().unwrap_or(word)) {
            wrong.push(format!("{word}: the page has {of_the_page:?}, the command {of_the_printer:?}"));
        }
    }
    let whois = read("docs/whois.md");
    for (field, words) in [("foundBy", of_keys), ("kind", of_queries)] {
        let row = block(&whois, &format!("\n| `{field}` |"), "\n");
        let untold = words
            .iter()
            .filter(|word| !["custom", "other"].contains(*word) && !row.contains(&format!("`{word}`")));
        wrong.extend(untold.map(|word| format!("docs/whois.md, {field}: {word}")));
    }
    assert_eq!(wrong, [""; 0]);
}

/// Users plan by these numbers. Another value in the code? Then change the pages, and the value here.
#[test]
fn the_limits_of_whois_are_those_of_the_code() {
    let whois = "agent/src/whois";
    let mut wrong = Vec::new();
    for (file, constant, pages, sentence) in [
        ("routes.rs", "IN_A_GET: usize = 100;", &["docs/reference.md"][..], "| queries in a GET | 100 |"),
        ("routes.rs", "IN_A_GET: usize = 100;", &["docs/whois.md"], "no `q`, or more than 100."),
        (
            "routes.rs",
            "FEW: usize = 4;",
            &["docs/reference.md", "docs/whois.md"],
            "a GET of up to four queries",
        ),
        ("routes.rs", "FEW: usize = 4;", &["docs/languages.md"], "One to four queries: add `wait=2s`"),
        (
            "body.rs",
            "BODY: usize = 128 << 10;",
            &["docs/reference.md"],
            "| body of a POST | 128 KiB, else 413;",
        ),
        (
            "body.rs",
            "TIMEOUT: Duration = Duration::from_secs(10);",
            &["docs/reference.md"],
            "received within 10 s, else 408",
        ),
        (
            "batch.rs",
            "ANSWERS: usize = 64 << 20;",
            &["docs/reference.md"],
            "| answers to one request | 64 MiB;",
        ),
        ("batch.rs", "ECHO: usize = 4096;", &["docs/reference.md"], "repeats at most 4,096 bytes of it"),
        ("processes.rs", "READERS: usize = 2;", &["docs/reference.md"], "two threads read `/proc`"),
        (
            "processes.rs",
            "PATIENCE: Duration = Duration::from_secs(5);",
            &["docs/reference.md"],
            "has not shown within 5 s",
        ),
        (
            "request.rs",
            "LONGEST_WAIT: Duration = Duration::from_secs(10);",
            &["docs/reference.md", "docs/whois.md"],
            "at most 10 s",
        ),
        (
            "search_budget.rs",
            "RENEWED_AFTER: usize = 256;",
            &["docs/reference.md"],
            "in each 256 queries of a request",
        ),
        (
            "search_budget.rs",
            "VISITED: usize = 20_000;",
            &["docs/reference.md"],
            "20,000 divided by the number of pods",
        ),
    ] {
        if !read(&format!("{whois}/{file}")).contains(&format!("const {constant}")) {
            wrong.push(format!("{file} has no longer {constant} Correct: {pages:?}, {sentence}"));
        }
        wrong.extend(
            pages
                .iter()
                .filter(|page| !read(page).contains(sentence))
                .map(|page| format!("{page}: {sentence}")),
        );
    }
    assert_eq!(wrong, [""; 0]);
}
