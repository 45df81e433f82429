//! The results of a bench: printed, and saved for the report.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{fs, io};

/// One measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Number of pods.
    pub n: usize,
    /// What was measured, with its unit unless it is nanoseconds.
    pub what: String,
    /// The design.
    pub who: String,
    /// The value.
    pub value: f64,
}

/// The value for `what` and `who` at `n`.
#[must_use]
pub fn value(figures: &[Figure], n: usize, what: &str, who: &str) -> Option<f64> {
    figures
        .iter()
        .find(|figure| figure.n == n && figure.what == what && figure.who == who)
        .map(|figure| figure.value)
}

/// Where the benches leave their figures.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/performance")
}

fn file(bench: &str) -> PathBuf {
    folder().join(format!("{bench}.tsv"))
}

/// Saves figures for the report.
///
/// # Errors
/// If the file cannot be written.
pub fn save(bench: &str, figures: &[Figure]) -> io::Result<()> {
    let mut text = String::new();
    for Figure { n, what, who, value } in figures {
        let _ = writeln!(text, "{n}\t{what}\t{who}\t{value}");
    }
    let file = file(bench);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text)
}

/// The figures written by [`save`].
///
/// # Errors
/// If the bench has not been run.
pub fn load(bench: &str) -> io::Result<Vec<Figure>> {
    let text = fs::read_to_string(file(bench))?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let n = fields.next()?.parse().ok()?;
            let (what, who) = (fields.next()?.to_owned(), fields.next()?.to_owned());
            Some(Figure { n, what, who, value: fields.next()?.parse().ok()? })
        })
        .collect())
}

/// Prints figures, each with its ratio to the one that `base` selects by what and who.
pub fn print(figures: &[Figure], base: impl Fn(&Figure) -> (String, String)) {
    for figure in figures {
        let (what, who) = base(figure);
        let ratio = figure.value / value(figures, figure.n, &what, &who).unwrap_or(f64::NAN);
        println!("{:<32} {:<36} {:>12.1} {ratio:>8.2} x", figure.what, figure.who, figure.value);
    }
}
