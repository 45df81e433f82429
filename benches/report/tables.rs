//! The report itself, in Markdown.

use std::fmt::Write;

use support::bare::Bare;
use support::designs::{Cached, Design, Load, Parsed};
use support::figures::{Figure, value};

use crate::Figures;
use support::markdown::{CONTROL, grouped, header, row, short};

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
/// The situations of the latency bench.
pub(crate) const SITUATIONS: [(&str, &str); 4] = [
    ("a", "idle"),
    ("b", "a writer at full speed"),
    ("c", "1,000 updates/s and whole-set reads"),
    ("d", "SetPods back to back"),
];
const SIZES: [usize; 5] = [110, 1_000, 10_000, 100_000, 1_000_000];

/// The report, with `every_key` in the place of the section on every key.
pub(crate) fn report(figures: &Figures, machine: &str, every_key: &str) -> String {
    let mut text = format!(
        "# Performance report\n\n\
         Written by `cargo run --release -p pod-index-benches --bin report` on: {machine}. Compare figures only \
         within a table: other machines have other figures, and other ratios for contention and cache misses.\n\n\
         Nine of ten pods come from the API server; one of ten is static and has a mirror. Keys are allocated separately \
         from the maps and looked up in shuffled order. The rows of a table were measured in interleaved runs; figures \
         are medians. The bare table is the lower bound: one flat hash table with UIDs of sixteen bytes, a hash of one \
         multiplication, and no synchronisation. The other designs have one map from UID to pod. The index and the \
         kubelet's maps have all five.\n\n\
         {every_key}"
    );
    for (what, title) in [("UID, hit", "Lookup by UID, hit"), ("UID, miss", "Lookup by UID, miss")] {
        text += &designs(&figures.ratios, title, "ns, and times the bare table", what);
    }
    text += &index_alone(&figures.ratios);
    for (what, title) in [
        ("update", "Update of one pod"),
        ("update, in a batch of 1000", "Update in a batch of 1,000, per pod"),
        ("SetPods, a pod", "SetPods, per pod"),
        ("walk over all pods, a pod", "Iteration over all pods, per pod"),
    ] {
        text += &designs(&figures.ratios, title, "ns, and times the bare table", what);
    }
    text += &designs(
        &figures.memory,
        "Memory",
        "bytes per pod, without pods, and times the bare table",
        "bytes a pod",
    );
    text += &held(&figures.memory);
    text += &threads(&figures.contention);
    text += "\n![Throughput by threads](throughput.svg)\n";
    text += &latencies(&figures.latency);
    text += "\n![Latency by percentile](latency.svg)\n";
    text
}

/// One row per design, one column per size.
fn designs(figures: &[Figure], title: &str, unit: &str, what: &str) -> String {
    let mut names = PEERS.to_vec();
    names.extend(["bare table, parsed UID", "kube-runtime Store, state()"]);
    let mut text = format!("\n## {title}\n\n{unit}\n\n");
    header(&mut text, "pods", &SIZES.map(grouped));
    for name in names {
        let cells = SIZES.map(|n| {
            let Some(own) = value(figures, n, what, name) else { return String::new() };
            let limit = value(figures, n, what, Bare::NAME).unwrap_or(f64::NAN);
            format!("{} ({:.2})", short(own), own / limit)
        });
        if cells.iter().any(|cell| !cell.is_empty()) {
            row(&mut text, name, &cells);
        }
    }
    text
}

/// Queries that only the index supports, and its own lookup by UID.
fn index_alone(figures: &[Figure]) -> String {
    let mut text =
        "\n## Other lookups of the index\n\nns with a `CachedReader`, and times its lookup by UID\n\n"
            .to_owned();
    header(&mut text, "pods", &SIZES.map(grouped));
    for what in [
        "UID, hit",
        "translate a mirror's UID",
        "translate a pod's UID",
        "mirror by UID",
        "by (namespace, name), hit",
        "by (namespace, name), miss",
        "by full name, hit",
        "pod by its mirror",
        "mirror by its pod",
        "pod and mirror",
        "obtain pods()",
    ] {
        let cells = SIZES.map(|n| {
            let Some(own) = value(figures, n, what, Cached::NAME) else { return String::new() };
            let by_uid = value(figures, n, "UID, hit", Cached::NAME).unwrap_or(f64::NAN);
            format!("{} ({:.2})", short(own), own / by_uid)
        });
        row(&mut text, what, &cells);
    }
    text
}

fn held(figures: &[Figure]) -> String {
    let mut text = "\n### Cost of a held snapshot\n\nkB that dropping it returns to the allocator. Up to 2 MiB of freed \
                    pages stay with the writer and do not count.\n\n"
        .to_owned();
    header(&mut text, "pods", &SIZES.map(grouped));
    for what in ["1,000 updates", "1,000 updates in one batch"] {
        let cells = SIZES.map(|n| {
            let what = format!("bytes of a snapshot held over {what}");
            value(figures, n, &what, Cached::NAME).map_or_else(String::new, |bytes| short(bytes / 1e3))
        });
        row(&mut text, &format!("after {what}"), &cells);
    }
    text
}

fn threads(figures: &[Figure]) -> String {
    let mut text = "\n## Threads\n\nmillion lookups per second, all threads together\n".to_owned();
    for n in [1_000, 100_000] {
        let _ = write!(text, "\n### {} pods\n\n", grouped(n));
        let columns: Vec<String> = ["no writer", "1,000 updates/s", "a writer at full speed"]
            .iter()
            .flat_map(|pace| [1, 2].map(|threads| format!("{pace}, {threads} threads")))
            .collect();
        header(&mut text, "", &columns);
        for name in PEERS {
            let cells: Vec<_> = columns
                .iter()
                .map(|what| value(figures, n, what, name).map_or_else(String::new, short))
                .collect();
            row(&mut text, name, &cells);
        }
    }
    text
}

/// One row per design, the 99.9th percentile of each situation.
fn latencies(figures: &[Figure]) -> String {
    let mut text = "\n## Latency\n\nThe 99.9th percentile of lookups by UID, in ns, including the clock. The control is the same \
                    loop without a lookup.\n\n"
        .to_owned();
    let columns: Vec<_> =
        [1_000, 100_000].iter().flat_map(|&n| SITUATIONS.map(|(letter, what)| (n, letter, what))).collect();
    let heads: Vec<_> = columns.iter().map(|(n, _, what)| format!("{} pods, {what}", grouped(*n))).collect();
    header(&mut text, "", &heads);
    for name in [&PEERS[1..], &[CONTROL]].concat() {
        let cell = |(n, letter, _): &(usize, &str, &str)| {
            value(figures, *n, &format!("{letter} p99.9"), name).map_or_else(String::new, short)
        };
        row(&mut text, name, &columns.iter().map(cell).collect::<Vec<_>>());
    }
    text
}
