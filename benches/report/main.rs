//! The performance report: runs the benches, and writes their results to `docs/performance` and the README.
//!
//! `cargo run --release -p pod-index-benches --bin report` does everything, in about thirteen minutes on two
//! otherwise idle cores. `-- --render` writes the report again from the figures of the last run.

mod duel;
mod page;
mod plots;
mod section;
mod svg;
mod tables;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use support::figures::{self, Figure};
use support::machine;

/// The benches shown in the report.
const BENCHES: [&str; 5] = ["every_key", "ratios", "memory", "contention", "latency"];
/// Around the README's section.
const MARKS: [&str; 2] = ["<!-- figures: written by `report` -->\n", "<!-- end of what `report` wrote -->\n"];
/// A lock around a hash map: what the index is compared with in the first place.
const PARKING_LOT: &str = "parking_lot RwLock";

/// The results of all benches.
struct Figures {
    every_key: Vec<Figure>,
    ratios: Vec<Figure>,
    memory: Vec<Figure>,
    contention: Vec<Figure>,
    latency: Vec<Figure>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("docs/performance");
    let machine = machine::describe();
    if !env::args().any(|argument| argument == "--render") {
        for bench in BENCHES {
            run(bench)?;
        }
    }
    let [every_key, ratios, memory, contention, latency] = BENCHES.map(figures::load);
    let figures = Figures {
        every_key: every_key?,
        ratios: ratios?,
        memory: memory?,
        contention: contention?,
        latency: latency?,
    };
    let benches =
        [&figures.every_key, &figures.ratios, &figures.memory, &figures.contention, &figures.latency];
    let all: Vec<_> = BENCHES.into_iter().zip(benches.map(Vec::as_slice)).collect();
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("README.md"), page::page(&figures, &machine))?;
    fs::write(folder.join("figures.tsv"), tables::all(&all))?;
    fs::write(folder.join("throughput.svg"), plots::throughput(&figures.contention, &machine))?;
    fs::write(folder.join("latency.svg"), plots::latency(&figures.latency, &machine))?;
    fill(&root.join("README.md"), &section::section(&figures, &machine))?;
    println!("written: docs/performance, and the README's section");
    Ok(())
}

fn run(bench: &str) -> Result<(), Box<dyn Error>> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(cargo)
        .args(["bench", "-p", "pod-index-benches", "--features", "peers", "--bench", bench])
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("the bench `{bench}` failed: {status}").into()) }
}

/// Replaces the text between the marks in the file by `section`.
fn fill(file: &Path, section: &str) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(file)?;
    let parts = text
        .split_once(MARKS[0])
        .and_then(|(before, rest)| Some((before, rest.split_once(MARKS[1])?.1)))
        .ok_or_else(|| format!("{} has no marks to write between", file.display()))?;
    fs::write(file, format!("{}{}{section}{}{}", parts.0, MARKS[0], MARKS[1], parts.1))?;
    Ok(())
}
