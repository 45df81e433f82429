//! The README's section.

use support::bare::Bare;
use support::designs::{Cached, Design};
use support::figures::value;
use support::markdown::{header, row, short, wrapped};

use crate::disturbed::Throughputs;
use crate::page::beside_the_bare_table;
use crate::tables::PACES;
use crate::{Figures, PARKING_LOT};

const KUBE: &str = "kube-runtime Store";
/// What a dash in the table means.
const LEFT_OUT: &str = "A dash stands for a measurement that something else disturbed, as [another figure of the same design \
    shows](docs/performance/README.md#how-many-threads). ";

/// One row for each of the designs that readers ask about first.
pub(crate) fn section(figures: &Figures, machine: &str) -> String {
    let mut text = wrapped(&format!(
        "Up to 10,000 pods, a lookup by UID takes {} times as long as in an unsynchronised table; at 100,000, {} times.",
        beside_the_bare_table(&figures.ratios, &[110, 1_000, 10_000]),
        beside_the_bare_table(&figures.ratios, &[100_000]),
    ));
    text.push('\n');
    header(
        &mut text,
        "100,000 pods",
        &["lookup by UID", "2 threads", "p99.9 beside a writer at full speed", "update"],
    );
    let throughputs = Throughputs::new(&figures.contention, machine);
    let mut left_out = false;
    for name in [Bare::NAME, Cached::NAME, "papaya", PARKING_LOT, KUBE] {
        let n = 100_000;
        let throughput = throughputs.undisturbed(n, PACES[0], 2, name);
        left_out |= throughput.is_none();
        let cells = [
            value(&figures.ratios, n, "UID, hit", name).map(|ns| format!("{} ns", short(ns))),
            Some(throughput.map_or_else(|| "–".to_owned(), |m| format!("{} M/s", short(m)))),
            value(&figures.latency, n, "b p99.9", name).map(|ns| format!("{} ns", short(ns))),
            value(&figures.ratios, n, "update", name).map(|ns| format!("{} ns", short(ns))),
        ];
        row(&mut text, name, &cells.map(Option::unwrap_or_default));
    }
    text.push('\n');
    text += &wrapped(&format!(
        "pod-index keeps six tables, the others one map by UID. The two threads begin with cold caches; [with warm \
         ones](docs/performance/README.md#how-many-threads) they make more. {}Measured on: {machine}.",
        if left_out { LEFT_OUT } else { "" }
    ));
    text += "\n![Latency by percentile](docs/performance/latency.svg)\n";
    text
}
