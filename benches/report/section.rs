//! The README's section.

use std::fmt::Write;

use support::bare::Bare;
use support::designs::{Cached, Design};
use support::figures::value;

use crate::Figures;
use support::markdown::{header, row, short};

const KUBE: &str = "kube-runtime Store";
const PARKING_LOT: &str = "parking_lot RwLock";

/// One row for each of the designs that readers ask about first.
pub(crate) fn section(figures: &Figures, machine: &str) -> String {
    let mut text = format!("Measured on: {machine}.\n\n");
    header(
        &mut text,
        "100,000 pods",
        &["lookup by UID", "2 threads", "p99.9 beside a writer at full speed", "update"],
    );
    for name in [Bare::NAME, Cached::NAME, "papaya", PARKING_LOT, KUBE] {
        let n = 100_000;
        let cells = [
            value(&figures.ratios, n, "UID, hit", name).map(|ns| format!("{} ns", short(ns))),
            value(&figures.contention, n, "no writer, 2 threads", name).map(|m| format!("{} M/s", short(m))),
            value(&figures.latency, n, "b p99.9", name).map(|ns| format!("{} ns", short(ns))),
            value(&figures.ratios, n, "update", name).map(|ns| format!("{} ns", short(ns))),
        ];
        row(&mut text, name, &cells.map(Option::unwrap_or_default));
    }
    let _ = write!(
        text,
        "\n(pod-index keeps five indices, the others one map by UID.)\n\n\
         ![Latency by percentile](docs/performance/latency.svg)\n\n\
         ![Throughput by threads](docs/performance/throughput.svg)\n"
    );
    text
}
