//! The names that the agent shows are those that its pages give: states, problems, flags, metrics, alerts, and the fields of
//! `whois`.

use std::collections::BTreeSet;
use std::fs;

use super::{between, block, files, read, root, rows, spans, words_with};

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

/// The modules of the library that log, each with the levels that it uses, by its code before its tests.
fn logged_levels() -> BTreeSet<(String, &'static str)> {
    let source = root().join("kubelet/src");
    let mut found = BTreeSet::new();
    for path in files(&source, "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let module =
            path.strip_prefix(&source).unwrap().with_extension("").to_string_lossy().replace('/', "::");
        for level in ["error", "warn", "info", "debug", "trace"] {
            if code.contains(&format!("tracing::{level}!(")) {
                found.insert((module.clone(), level));
            }
        }
    }
    found
}

#[test]
fn embedders_have_each_module_of_the_library_that_logs_with_its_levels() {
    let page = read("docs/writing.md");
    let mut listed = BTreeSet::new();
    for row in rows(&page, "| target: `pod_index_kubelet::` and | `ERROR` | `WARN` | `INFO` | `DEBUG` |") {
        let levels = ["error", "warn", "info", "debug"].into_iter().zip(&row[1..]);
        for (level, _) in levels.filter(|(_, cell)| !cell.trim().is_empty()) {
            listed.extend(
                spans(row[0]).filter(|span| span.contains("::")).map(|module| (module.to_owned(), level)),
            );
        }
    }
    assert!(listed.len() > 10, "{listed:?}");
    assert_eq!(listed, logged_levels());
}

/// What operators read. The reference itself is compared with the program.
const OF_THE_AGENT: [&str; 16] = [
    "CHANGELOG.md",
    "deploy/README.md",
    "deploy/service.md",
    "deploy/upgrades.md",
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
