//! The numbers that `docs/reference.md` states, for the tests that compare them with the constants. A number that stands in a
//! document alone goes wrong unseen when somebody changes its constant.

use std::fmt;
use std::iter;
use std::path::Path;
use std::time::Duration;

use axum::response::IntoResponse;

use super::refusal::{Reason, Refusal, refused};

/// A number of a document. Two are equal if they mean the same: `2 min` is `120 s`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stated {
    Count(u64),
    Bytes(u64),
    Time(Duration),
}

pub(crate) fn count(number: impl TryInto<u64, Error: fmt::Debug>) -> Stated {
    Stated::Count(number.try_into().unwrap())
}

pub(crate) fn bytes(number: impl TryInto<u64, Error: fmt::Debug>) -> Stated {
    Stated::Bytes(number.try_into().unwrap())
}

/// The status of a refusal for this reason.
pub(crate) fn status(reason: Reason) -> Stated {
    count(refused(reason, "").status().as_u16())
}

/// The status of a client that has too much.
pub(crate) fn too_many() -> Stated {
    count(Refusal::still_too_many_requests("").into_response().status().as_u16())
}

/// A row of a table: how its first cell begins, and all numbers of the row in their order.
pub(crate) type Row = (&'static str, Vec<Stated>);

/// Fails unless the table of the reference with this header has exactly these rows. A number that is a word counts from two on.
pub(crate) fn assert_states(header: &str, expected: &[Row]) {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference.md");
    let reference = std::fs::read_to_string(reference).unwrap();
    let (_, table) =
        reference.split_once(&format!("\n{header}\n")).unwrap_or_else(|| panic!("no table {header}"));
    let rows: Vec<_> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), expected.len(), "rows of the table {header}");
    for (row, (begin, numbers)) in rows.into_iter().zip(expected) {
        assert!(row.trim_start_matches("| ").starts_with(begin), "no row {begin:?}, but: {row}");
        assert_eq!(stated(row), *numbers, "docs/reference.md, or the constants: {row}");
    }
}

/// What a number means with its unit.
type OfUnit = fn(u64) -> Stated;

/// The numbers of a text. The targets of links are left out.
fn stated(text: &str) -> Vec<Stated> {
    const UNITS: [(&str, OfUnit); 7] = [
        ("bytes", Stated::Bytes),
        ("KiB", |number| Stated::Bytes(number << 10)),
        ("KiB/s", |number| Stated::Bytes(number << 10)),
        ("MiB", |number| Stated::Bytes(number << 20)),
        ("s", |number| Stated::Time(Duration::from_secs(number))),
        ("min", |number| Stated::Time(Duration::from_secs(60 * number))),
        ("h", |number| Stated::Time(Duration::from_secs(60 * 60 * number))),
    ];
    let mut texts = text.split("](");
    let first = texts.next().unwrap_or_default();
    let texts = iter::once(first).chain(texts.filter_map(|text| Some(text.split_once(')')?.1)));
    let text = texts.collect::<Vec<_>>().join(" ");
    let is_of_word = |char: char| char.is_ascii_alphanumeric() || matches!(char, ',' | '/');
    let words = text.split(|char| !is_of_word(char)).map(|word| word.trim_matches([',', '/']));
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let unit = |word: Option<&&str>| UNITS.iter().find(|(unit, _)| word == Some(unit)).map(|(_, of)| of);
    let mut stated = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Some(number) = number(word) else { continue };
        // Of `30 to 60 min`, both are minutes.
        let is_range = words.get(at + 1) == Some(&"to");
        let unit = unit(words.get(if is_range { at + 3 } else { at + 1 }));
        stated.push(unit.map_or(Stated::Count(number), |of| of(number)));
    }
    stated
}

fn number(word: &str) -> Option<u64> {
    const WORDS: [&str; 4] = ["two", "three", "four", "five"];
    if let Some(at) = WORDS.iter().position(|number| *number == word) {
        return Some(at as u64 + 2);
    }
    word.replace(',', "").parse().ok()
}

impl From<Duration> for Stated {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

impl fmt::Debug for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(number) => write!(f, "{number}"),
            Self::Bytes(number) => write!(f, "{number} bytes"),
            Self::Time(time) => write!(f, "{time:?}"),
        }
    }
}

#[test]
fn numbers_are_read_with_their_units() {
    let time = Duration::from_secs;
    for (text, expected) in [
        ("| at most 20,000, in [429 cases](#429); | two |", vec![count(20_000), count(429), count(2)]),
        (
            "128 KiB, else 413; 4,096 bytes, 64 KiB/s",
            vec![bytes(128 << 10), count(413), bytes(4096), bytes(64 << 10)],
        ),
        (
            "2 h; 30 to 60 min, `timeout=90`",
            vec![time(7200).into(), time(1800).into(), time(3600).into(), count(90)],
        ),
        ("[a](x) 5 s [b](y)", vec![time(5).into()]),
        ("one `v1` pod", vec![]),
    ] {
        assert_eq!(stated(text), expected, "{text}");
    }
}
