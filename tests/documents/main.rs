//! What the documents say is so: links lead somewhere, names exist, figures agree with each other, and limits with the code.
//! This file has what the others read pages with.
//!
//! They use no crate, so that `rustc --test` can build them by themselves.

mod code;
mod figures;
mod limits;
mod links;
mod names;
mod packages;
mod sizes;
mod steps;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files below `directory` with this extension, except build output and hidden files.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = all_files(directory);
    found.retain(|path| path.extension().is_some_and(|of| of == extension));
    found
}

/// All files below `directory`, except build output and hidden directories.
fn all_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_file() {
            found.push(path);
        } else if path.is_dir() && !name.starts_with('.') && !["target", "corpus"].contains(&&*name) {
            found.extend(all_files(&path));
        }
    }
    found
}

/// What `include` in the index's `Cargo.toml` names, such as `/src` and `/examples/*.rs`.
fn included(manifest: &str) -> impl Iterator<Item = &str> {
    let list = block(manifest, "\ninclude = [\n", "\n]");
    list.lines().map(|line| line.trim().trim_matches(['"', ',']))
}

/// The files that one entry of `include` names. A `*` is in the last part of its path, if it has one.
fn files_of(entry: &str) -> Vec<PathBuf> {
    let path = root().join(entry.trim_start_matches('/'));
    let name = path.file_name().unwrap().to_string_lossy();
    let Some((begin, end)) = name.split_once('*') else {
        return if path.is_dir() { all_files(&path) } else { vec![path] };
    };
    let matches = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    };
    let beside = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    beside.filter(|path| matches(path)).collect()
}

/// The page with the tables of modules, and with the glossary.
const OF_THE_CODE: &str = "docs/contributing/code.md";

/// The lines of a document that are not in a code block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The code spans of a text.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// All texts between `open` and `close`.
fn between<'a>(line: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    line.split(open).skip(1).filter_map(move |rest| rest.split_once(close).map(|(inside, _)| inside))
}

/// What stands between two texts.
fn block<'a>(text: &'a str, first: &str, last: &str) -> &'a str {
    let (_, rest) = text.split_once(first).unwrap_or_else(|| panic!("no {first:?}"));
    rest.split_once(last).unwrap_or_else(|| panic!("no {last:?} after {first:?}")).0
}

/// The words of a text that begin so, and go on with letters, digits or these characters.
fn words_with<'a>(text: &'a str, prefix: &'a str, also: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(prefix).map(move |(at, _)| {
        let rest = &text[at..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
        let end = rest[prefix.len()..].find(|c| !is_part(c)).map_or(rest.len(), |end| prefix.len() + end);
        &rest[..end]
    })
}

/// The rows of a table, by their first cell.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let table = text.split(heading).nth(1).unwrap_or_else(|| panic!("no table {heading}"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
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

/// The recorded count of a bench, for one lookup or one pod.
fn instructions(bench: &str) -> u64 {
    let benches = read("benches/instructions.rs");
    let before = benches.split(&format!("\nfn {bench}(")).next().unwrap();
    assert_ne!(before, benches, "no bench {bench}");
    let counted = before.rsplit("recorded(").next().unwrap().split(')').next().unwrap();
    let counted: u64 = counted.replace('_', "").parse().unwrap();
    (counted + 500) / 1_000
}
