//! The index's goals and results.

use std::fmt::Write;

use support::bare::Bare;
use support::designs::{Cached, Design, Load};
use support::figures::value;

use crate::Figures;
use crate::markdown::{CONTROL, header, row, short};

const SIZES: [usize; 5] = [110, 1_000, 10_000, 100_000, 1_000_000];
const KUBE: &str = "kube-runtime Store";
const PARKING_LOT: &str = "parking_lot RwLock";

struct Goal {
    what: &'static str,
    goal: &'static str,
    measured: String,
    met: bool,
}

/// The goals as a table, each with its result.
pub(crate) fn table(figures: &Figures) -> String {
    let mut text = String::new();
    header(&mut text, "what", &["goal", "measured", ""]);
    for Goal { what, goal, measured, met } in goals(figures) {
        row(&mut text, what, &[goal, &measured, if met { "met" } else { "**missed**" }]);
    }
    text
}

/// The README's section.
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

fn goals(figures: &Figures) -> Vec<Goal> {
    let Figures { ratios, memory, contention, latency } = figures;
    let ns = |n, what: &str, who: &str| value(ratios, n, what, who).unwrap_or(f64::NAN);
    let mega = |n, what: &str, who: &str| value(contention, n, what, who).unwrap_or(f64::NAN);
    let at = |n, what: &str, who: &str| value(latency, n, what, who).unwrap_or(f64::NAN);
    let list =
        |values: &[f64]| values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(" · ");
    let worst = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let mut goals = Vec::new();
    let mut goal = |what, goal, measured, met| goals.push(Goal { what, goal, measured, met });

    for (handle, what, text, limit) in [
        (
            Cached::NAME,
            "UID lookup through `CachedReader`, against the bare table",
            "≤ 1.5 × at every N",
            1.5,
        ),
        (Load::NAME, "the same through `load()`", "≤ 2.5 × at every N", 2.5),
    ] {
        let times = SIZES.map(|n| ns(n, "UID, hit", handle) / ns(n, "UID, hit", Bare::NAME));
        goal(what, text, list(&times), worst(&times) <= limit);
    }
    let times = [1_000, 100_000].map(|n| ns(n, "UID, hit", KUBE) / ns(n, "UID, hit", Cached::NAME));
    goal(
        "against kube-runtime's Store, at 1,000 · 100,000",
        "≥ 4 × faster",
        list(&times),
        least(&times) >= 4.0,
    );

    let own =
        |n, what: &str, extra: f64| ns(n, what, Cached::NAME) / (ns(n, "UID, hit", Cached::NAME) + extra);
    let both = [1_000, 100_000];
    let translate = both.map(|n| own(n, "translate a mirror's UID", 0.0));
    goal(
        "translate a mirror's UID, against the UID lookup, at 1,000 · 100,000",
        "≤ 1.3 ×",
        list(&translate),
        worst(&translate) <= 1.3,
    );
    let hash = |n| ns(n, "by (namespace, name), hit", "the hash alone");
    for (what, text) in [
        ("by full name, hit", "by full name, against the UID lookup plus the hash, at 1,000 · 100,000"),
        ("by (namespace, name), hit", "by (namespace, name), likewise"),
    ] {
        let times = both.map(|n| own(n, what, hash(n)));
        goal(text, "≤ 1.3 ×", list(&times), worst(&times) <= 1.3);
    }

    let scaling = both.map(|n| {
        mega(n, "no writer, 2 threads", Cached::NAME) / mega(n, "no writer, 1 threads", Cached::NAME)
    });
    goal("2 threads against 1, at 1,000 · 100,000", "≥ 1.9 ×", list(&scaling), least(&scaling) >= 1.9);

    for (letter, sizes, what) in [
        (
            "c",
            &both[..],
            "p99.9 beside 1,000 updates/s and whole-set reads, against idle, at 1,000 · 100,000",
        ),
        ("d", &both[1..], "p99.9 beside SetPods of 100,000 back to back, against idle"),
    ] {
        let times: Vec<_> = sizes
            .iter()
            .map(|&n| at(n, &format!("{letter} p99.9"), Cached::NAME) / at(n, "a p99.9", Cached::NAME))
            .collect();
        goal(what, "≤ 1.5 ×", list(&times), worst(&times) <= 1.5);
    }
    let maxima = ["c", "d"].map(|letter| {
        let what = format!("{letter} p100");
        (at(100_000, &what, Cached::NAME), at(100_000, &what, CONTROL))
    });
    goal(
        "the longest lookup of both, at 100,000, against the control's",
        "no longer",
        maxima
            .map(|(own, control)| format!("{} µs, {} µs", short(own / 1e3), short(control / 1e3)))
            .join(" · "),
        maxima.iter().all(|(own, control)| own <= control),
    );
    for (percentile, text, limit) in [("99", "p99 ≤ 450 ns", 450.0), ("99.9", "p99.9 ≤ 600 ns", 600.0)] {
        let values = both.map(|n| at(n, &format!("b p{percentile}"), Cached::NAME));
        let shown = values.map(short).join(" · ") + " ns";
        goal("beside a writer at full speed, at 1,000 · 100,000", text, shown, worst(&values) <= limit);
    }
    for (n, text, limit) in [(1_000, "≥ 20 ×", 20.0), (100_000, "≥ 12 ×", 12.0)] {
        for (peer, what) in [
            (KUBE, "2 readers against kube-runtime's Store, idle · 1,000 updates/s"),
            (PARKING_LOT, "2 readers against parking_lot's RwLock, idle · 1,000 updates/s"),
        ] {
            let times = ["no writer, 2 threads", "1,000 updates/s, 2 threads"]
                .map(|what| mega(n, what, Cached::NAME) / mega(n, what, peer));
            let what: &'static str = if n == 1_000 { what } else { large(peer) };
            goal(what, text, list(&times), least(&times) >= limit);
        }
    }
    let obtain = ["obtain pods()", "obtain uid_translations()"].map(|what| ns(100_000, what, Cached::NAME));
    goal("whole-set reads, to obtain", "≤ 50 ns", list(&obtain) + " ns", worst(&obtain) <= 50.0);
    let walk = both.map(|n| {
        ns(n, "walk over all pods, a pod", "kube-runtime Store, state()")
            / ns(n, "walk over all pods, a pod", Cached::NAME)
    });
    goal(
        "iteration against kube-runtime's `state()`, at 1,000 · 100,000",
        "≥ 1 ×",
        list(&walk),
        least(&walk) >= 1.0,
    );

    let update = ns(100_000, "update", Cached::NAME);
    goal(
        "update of one pod in all indices, at 100,000",
        "≤ 1 µs",
        format!("{} ns", short(update)),
        update <= 1_000.0,
    );
    let batch = ns(100_000, "update, in a batch of 1000", Cached::NAME);
    goal("in a batch of 1,000, a pod", "≤ 0.4 µs", format!("{} ns", short(batch)), batch <= 400.0);
    let growth = ns(1_000_000, "update", Cached::NAME) / ns(1_000, "update", Cached::NAME);
    goal("growth of an update from 1,000 to 1,000,000", "≤ 3 ×", format!("{growth:.2} ×"), growth <= 3.0);
    let set = ns(100_000, "SetPods, a pod", Cached::NAME) / 10.0;
    goal("SetPods of 100,000", "≤ 40 ms", format!("{set:.1} ms"), set <= 40.0);
    let bytes = value(memory, 100_000, "bytes a pod", Cached::NAME).unwrap_or(f64::NAN);
    goal("index memory at 100,000, a pod", "≤ 130 bytes", format!("{bytes:.0} bytes"), bytes <= 130.0);
    goals
}

fn large(peer: &str) -> &'static str {
    if peer == KUBE {
        "the same with 100,000 pods: kube-runtime"
    } else {
        "the same with 100,000 pods: parking_lot"
    }
}
