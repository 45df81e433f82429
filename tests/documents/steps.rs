//! Each step of `.ci/run` runs in a workflow, and if several jobs share it, they have all of it.

use std::collections::BTreeSet;
use std::fs;

use super::{block, files, read, root};

/// The names of the functions of `.ci/run` that have a heading. These are the steps.
fn steps(run: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut has_heading = false;
    for line in run.lines() {
        if has_heading && let Some((name, _)) = line.split_once("() {") {
            found.insert(name);
        }
        has_heading = line.starts_with("## ") || has_heading && line.starts_with('#');
    }
    found
}

/// The steps that a line of a workflow runs, if it runs some.
fn called<'a>(run: &'a str, line: &'a str) -> Vec<&'a str> {
    let list = |name: &str| block(run, &format!("\n{name}=("), ")").split(' ');
    let Some((_, named)) = line.split_once(".ci/run").filter(|_| !line.trim_start().starts_with('#')) else {
        return Vec::new();
    };
    match named.trim() {
        "" => list("STEPS").chain(list("STEPS_BESIDE")).collect(),
        "long" => list("LONG_STEPS").collect(),
        named => named.split(' ').collect(),
    }
}

#[test]
fn each_step_runs_in_a_workflow_and_has_a_row_on_the_page_of_the_checks() {
    let run = read(".ci/run");
    let workflows: String = files(&root().join(".github/workflows"), "yml")
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let called: BTreeSet<_> = workflows.lines().flat_map(|line| called(&run, line)).collect();
    assert_eq!(steps(&run), called, "the steps that there are, and those that a workflow runs");
    let page = read("docs/contributing/checks.md");
    let tables = block(&page, "\n## The steps of CI\n", "\n### ");
    let rows: Vec<_> = tables.lines().filter(|line| line.starts_with("| `")).collect();
    for step in called.into_iter().filter(|step| *step != "advisories") {
        let is_named = rows.iter().any(|row| row.split('|').nth(1).unwrap().contains(&format!("`{step}`")));
        assert!(is_named, "docs/contributing/checks.md has no row of the step {step}");
    }
}

/// A part that no job has would never run.
#[test]
fn the_jobs_of_the_mutants_have_all_parts() {
    let run = read(".ci/run");
    let workflow = read(".github/workflows/long.yml");
    let of_all = block(&run, "${MUTANTS_OF:-", "}").replace(' ', ", ");
    assert_eq!(block(&workflow, "\n        part: [", "]"), of_all);
    let shards: Vec<_> = block(&workflow, "\n        shard: [", "]").split(", ").collect();
    let all: Vec<_> = (0..shards.len()).map(|shard| format!("{shard}/{}", shards.len())).collect();
    assert_eq!(shards, all);
}
