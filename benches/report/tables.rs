//! The report's tables.

use std::fmt::Write;

use support::bare::Bare;
use support::designs::{Cached, Design, Load, Parsed};
use support::every_key::{KEYS, SIZES, Situation};
use support::figures::{Figure, value};
use support::markdown::{CONTROL, grouped, header, row, short};

use crate::duel::Duel;

/// The designs in the order of the tables.
pub(crate) const PEERS: [&str; 11] = [
    Bare::NAME,
    Cached::NAME,
    Load::NAME,
    Parsed::NAME,
    "left-right",
    "papaya",
    "DashMap",
    "parking_lot RwLock",
    "std RwLock",
    "kubelet's maps, parking_lot RwLock",
    "kube-runtime Store",
];
/// What the bench `contention` has beside the readers.
pub(crate) const PACES: [&str; 3] = ["no writer", "1,000 updates/s", "a writer at full speed"];
/// How many threads look up there.
pub(crate) const THREADS: [usize; 4] = [1, 2, 4, 8];
/// The situations of the latency bench.
pub(crate) const SITUATIONS: [(&str, &str); 4] = [
    ("a", "idle"),
    ("b", "a writer at full speed"),
    ("c", "1,000 updates/s and whole-set reads"),
    ("d", "SetPods back to back"),
];

/// One row per key: the index, and the best of the others.
pub(crate) fn every_key(figures: &[Figure], situation: Situation) -> String {
    let mut text = String::new();
    header(&mut text, "key, pods", &SIZES.map(grouped));
    for key in KEYS {
        let cells = SIZES.map(|n| {
            Duel::of(figures, n, key, situation).map_or_else(String::new, |duel| {
                format!("{} · {} ({})", short(duel.own), short(duel.best), duel.times())
            })
        });
        row(&mut text, key, &cells);
    }
    text
}

/// One row per number of threads: million lookups a second of the index, all threads together.
pub(crate) fn by_threads(figures: &[Figure]) -> String {
    let columns = [1_000, 100_000].into_iter().flat_map(|n| PACES.map(|pace| (n, pace)));
    let columns: Vec<_> = columns.collect();
    let heads: Vec<_> = columns
        .iter()
        .map(
            |(n, pace)| {
                if *pace == PACES[0] { format!("{} pods: {pace}", grouped(*n)) } else { (*pace).to_owned() }
            },
        )
        .collect();
    let mut text = String::new();
    header(&mut text, "threads", &heads);
    for threads in THREADS {
        let cells: Vec<_> = columns
            .iter()
            .map(|(n, pace)| {
                value(figures, *n, &format!("{pace}, {threads} threads"), Cached::NAME)
                    .map_or_else(String::new, short)
            })
            .collect();
        row(&mut text, &threads.to_string(), &cells);
    }
    text
}

/// What a write costs, with two numbers of pods.
pub(crate) fn writes(figures: &[Figure]) -> String {
    let columns = [
        ("one pod", "update"),
        ("in a batch of 1,000", "update, in a batch of 1000"),
        ("replacing all pods", "SetPods, a pod"),
    ];
    let mut text = String::new();
    header(&mut text, "", &columns.map(|(head, _)| head));
    for name in PEERS {
        let cells = columns.map(|(_, what)| {
            let [few, many] = [1_000, 100_000].map(|n| value(figures, n, what, name));
            few.zip(many).map_or_else(String::new, |(few, many)| format!("{} · {}", short(few), short(many)))
        });
        if cells.iter().any(|cell| !cell.is_empty()) {
            row(&mut text, name, &cells);
        }
    }
    text
}

/// One row per design, one column per size: figures, and their ratios to the bare table.
pub(crate) fn designs(figures: &[Figure], what: &str) -> String {
    let sizes = [1_000, 100_000, 1_000_000];
    let mut text = String::new();
    header(&mut text, "pods", &sizes.map(grouped));
    for name in PEERS {
        let cells = sizes.map(|n| {
            let Some(own) = value(figures, n, what, name) else { return String::new() };
            let bare = value(figures, n, what, Bare::NAME).unwrap_or(f64::NAN);
            format!("{} ({:.2})", short(own), own / bare)
        });
        if cells.iter().any(|cell| !cell.is_empty()) {
            row(&mut text, name, &cells);
        }
    }
    text
}

/// One row per number of pods and situation: percentiles of the index's single lookups.
pub(crate) fn percentiles(figures: &[Figure]) -> String {
    let shown =
        [("50 %", "p50"), ("99 %", "p99"), ("99.9 %", "p99.9"), ("99.99 %", "p99.99"), ("maximum", "p100")];
    let mut heads = shown.map(|(head, _)| head).to_vec();
    heads.push("maximum of the control");
    let mut text = String::new();
    header(&mut text, "pods, situation", &heads);
    for n in [1_000, 100_000] {
        for (letter, situation) in SITUATIONS {
            let figure = |percentile: &str, name| {
                value(figures, n, &format!("{letter} {percentile}"), name).map_or_else(String::new, short)
            };
            let mut cells = shown.map(|(_, percentile)| figure(percentile, Cached::NAME)).to_vec();
            cells.push(figure("p100", CONTROL));
            row(&mut text, &format!("{}, {situation}", grouped(n)), &cells);
        }
    }
    text
}

/// One row per design, the 99.9th percentile of each situation.
pub(crate) fn latencies(figures: &[Figure]) -> String {
    let mut text = String::new();
    header(&mut text, "100,000 pods", &SITUATIONS.map(|(_, what)| what));
    for name in [&PEERS[1..], &[CONTROL]].concat() {
        let cells = SITUATIONS.map(|(letter, _)| {
            value(figures, 100_000, &format!("{letter} p99.9"), name).map_or_else(String::new, short)
        });
        row(&mut text, name, &cells);
    }
    text
}

/// All figures, for those who want more than the tables have.
pub(crate) fn all(benches: &[(&str, Vec<Figure>)]) -> String {
    let mut text = "bench\tpods\twhat\tdesign\tvalue\tunit\n".to_owned();
    for (bench, figures) in benches {
        for Figure { n, what, who, value } in figures {
            let _ = writeln!(text, "{bench}\t{n}\t{what}\t{who}\t{}\t{}", short(*value), unit(bench, what));
        }
    }
    text
}

/// The figures of a bench in the text that [`all`] made.
pub(crate) fn of_bench(text: &str, bench: &str) -> Vec<Figure> {
    let figure = |line: &str| {
        let mut fields = line.strip_prefix(bench)?.strip_prefix('\t')?.split('\t');
        let n = fields.next()?.parse().ok()?;
        let what = fields.next()?.to_owned();
        let who = fields.next()?.to_owned();
        let value = fields.next()?.replace(',', "").parse().ok()?;
        Some(Figure { n, what, who, value })
    };
    text.lines().filter_map(figure).collect()
}

/// The unit of a figure of this bench.
fn unit(bench: &str, what: &str) -> &'static str {
    match bench {
        "contention" => "M/s",
        "every_key" if what.contains(", two threads, ") => "M/s",
        "memory" => "bytes",
        _ => "ns",
    }
}
