//! Tables in Markdown, and times.

use std::time::{Duration, Instant};

/// Prints the head of a table. Numbers stand at the right.
pub fn head(columns: &[&str]) {
    println!("\n| {} |", columns.join(" | "));
    println!("|---{}|", "|---:".repeat(columns.len() - 1));
}

/// Prints a row.
pub fn row(name: &str, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<_> = cells.into_iter().collect();
    println!("| {name} | {} |", cells.join(" | "));
}

/// Three digits.
pub fn shown(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// The median of the nanoseconds that a step takes, of `rounds`.
pub fn median(rounds: usize, mut step: impl FnMut()) -> f64 {
    let mut times: Vec<_> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            step();
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    nanoseconds(times[rounds / 2])
}

pub fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}
