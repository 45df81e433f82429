//! The two plots: throughput by threads, latency by percentile.

use support::figures::{Figure, value};

use crate::disturbed::Throughputs;
use crate::svg::{self, Line, Panel};
use crate::tables::{PACES, PEERS, SITUATIONS, THREADS};
use support::markdown::CONTROL;

const N: usize = 100_000;

/// Lookups per second by number of reading threads. A disturbed figure has no point.
pub(crate) fn throughput(throughputs: &Throughputs<'_>, machine: &str) -> String {
    let panels: Vec<_> = PACES
        .into_iter()
        .map(|pace| Panel {
            title: format!("{pace}, {N} pods, by threads"),
            ticks: THREADS.map(|threads| threads.to_string()).into(),
            lines: PEERS
                .iter()
                .map(|&name| Line {
                    name,
                    values: THREADS
                        .iter()
                        .map(|&threads| throughputs.undisturbed(N, pace, threads, name).unwrap_or(f64::NAN))
                        .collect(),
                })
                .collect(),
        })
        .collect();
    svg::chart("Lookups by UID, all threads together", "million a second", machine, &panels)
}

/// Duration of a lookup, by percentile.
pub(crate) fn latency(figures: &[Figure], machine: &str) -> String {
    const PERCENTILES: [&str; 7] = ["50", "90", "99", "99.9", "99.99", "99.999", "100"];
    let names = [&PEERS[1..], &[CONTROL]].concat();
    let panels: Vec<_> = SITUATIONS
        .into_iter()
        .map(|(letter, situation)| Panel {
            title: format!("({letter}) {situation}, {N} pods, by percentile"),
            ticks: PERCENTILES.map(|p| if p == "100" { "max".to_owned() } else { p.to_owned() }).into(),
            lines: names
                .iter()
                .map(|&name| Line {
                    name,
                    values: PERCENTILES
                        .iter()
                        .map(|p| value(figures, N, &format!("{letter} p{p}"), name).unwrap_or(f64::NAN))
                        .collect(),
                })
                .collect(),
        })
        .collect();
    svg::chart("One lookup by UID", "nanoseconds, the clock's own included", machine, &panels)
}
