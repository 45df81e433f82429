//! The performance report: runs the benches, and writes their results to `docs/performance` and the README.
//!
//! `cargo run --release -p pod-index-benches --bin report` does everything, in about thirteen minutes on two
//! otherwise idle cores. `-- --render` measures nothing, and writes the report again from `figures.tsv` and `machine.txt` in
//! `docs/performance`.

mod disturbed;
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

use self::disturbed::Throughputs;

/// The benches shown in the report.
const BENCHES: [&str; 5] = ["every_key", "ratios", "memory", "contention", "latency"];
/// Their figures, with three digits.
const TABLE: &str = "figures.tsv";
/// The machine on which they were measured.
const MACHINE: &str = "machine.txt";
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
    if !env::args().any(|argument| argument == "--render") {
        measure(&folder)?;
    }
    // Also after a measurement: then the report is the same whenever it is rendered again.
    let machine = fs::read_to_string(folder.join(MACHINE))?;
    let machine = machine.trim();
    let table = fs::read_to_string(folder.join(TABLE))?;
    let [every_key, ratios, memory, contention, latency] =
        BENCHES.map(|bench| tables::of_bench(&table, bench));
    let figures = Figures { every_key, ratios, memory, contention, latency };
    let throughputs = Throughputs::new(&figures.contention, machine);
    fs::write(folder.join("README.md"), page::page(&figures, machine))?;
    fs::write(folder.join("throughput.svg"), plots::throughput(&throughputs, machine))?;
    fs::write(folder.join("latency.svg"), plots::latency(&figures.latency, machine))?;
    fill(&root.join("README.md"), &section::section(&figures, machine))?;
    println!("written: docs/performance, and the README's section");
    Ok(())
}

/// Runs all benches, and records their figures and the machine.
fn measure(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut measured = Vec::new();
    for bench in BENCHES {
        run(bench)?;
        measured.push((bench, figures::load(bench)?));
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join(TABLE), tables::all(&measured))?;
    fs::write(folder.join(MACHINE), machine::describe() + "\n")?;
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
