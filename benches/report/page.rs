//! The page `docs/performance/README.md`: a verdict, then what it rests on.

use support::bare::Bare;
use support::designs::{Cached, Design};
use support::every_key::{KEYS, SITUATIONS, SIZES, Situation};
use support::figures::{Figure, value};
use support::markdown::{grouped, short, wrapped};

use crate::disturbed::Throughputs;
use crate::duel::{Duel, span, times};
use crate::tables::{by_threads, designs, every_key, latencies, percentiles, writes};
use crate::{Figures, PARKING_LOT};

const ALONE: Situation = Situation { threads: 1, updates: false };
const TWO: Situation = Situation { threads: 2, updates: false };

/// The question that the page answers. What is written here does not depend on the figures.
const INTRODUCTION: &str = "\
How fast is a lookup in `pod-index`, beside the maps that you could use instead, and what does an update cost? The index
is built for many lookups and few updates, and gives time at the update for time at the lookup. The list has both. *2.3 times* means
that the index does 2.3 times as many lookups in the same time as the best of the others; below 1, it is the slower one.

";

/// The whole page.
pub(crate) fn page(figures: &Figures, machine: &str) -> String {
    let Figures { every_key: keys, ratios, memory, contention, latency } = figures;
    let mut text = format!("# Performance\n\n{INTRODUCTION}");
    for line in verdict(figures) {
        text += &wrapped(&format!("- {line}"));
    }
    text += &format!(
        "
*The others* are `RwLock` of std and of parking_lot around a hash map, DashMap, papaya and kube's `Store`. Each has a map
of its own for each key. The index has all keys in one snapshot.

## Which key
One thread, ns per lookup: the index · the best of the others (how many times faster). Container IDs are
looked up parsed, and as text.

{}
## How many threads
Two threads, million lookups per second: the index · the best of the others.

{}
*More threads.* The index by UID alone, with 1, 2, 4 and 8 threads, as in the plot below *Latency*. **The machine has {}**, and threads beyond these take turns on
them. Such rows show that nobody waits for anybody, and say nothing about the growth with more cores, which was not measured. By design it grows, because a lookup through a
`CachedReader` writes no memory that threads share. Only the first one of a thread after each publication counts a reference to the new snapshot.

{}
*Why is a figure here, by UID, not that of two threads in the table above?* It is another bench. There, each thread looks up every key once before its time counts. Here it does
not, so each of the seven runs of 80 ms begins with cold caches, which counts most with many pods; and the pods have neither IPs nor containers. What else adds to the difference was not examined. The README has the figure of
this bench, beside those of the other designs.

*Beside a writer at full speed* there is one thread more than the row says. The more of them look up, the less time the writer gets to publish: that may be why these figures grow beyond two threads.
{}
## What an update costs
ns per pod, with 1,000 · 100,000 pods. Pods have neither IPs nor containers. The index has six tables, and each pod is in two of them; every other design
has one map from UID to pod, except the kubelet's five maps. Each additional key adds to an update of the index. The [bare
table](#lookup-by-uid-against-a-bare-table) is no bound here: in a batch, a map behind a lock is about as fast. Why was not examined.

{}
## Lookup by UID against a bare table
How much of a lookup's time is the price of sharing? These are ns, and times the *bare table*: one flat hash table with UIDs of
sixteen bytes, a hash of one multiplication, and no synchronisation, so nobody can write to it while others read. A design that
threads share can come near it. It is not the fastest table possible, and a UID that was parsed before skips its hash, so it
may be found in less time.

*Why is a UID slower here than in Which key?* There, one design looks up again and again, so its table stays in the caches of
the processor. Here, the designs take turns, and each finds the caches filled by others, as in a program that does other
work between its lookups. With 1,000 pods both fit, and the figures agree.

{}
## Latency
How long do you wait for one lookup, and for the slowest of a thousand? Here each lookup by UID was timed for itself, in ns, including the clock. For each row
and situation these are three rounds of a quarter of a second, so some million lookups. The *control* is the same loop without a lookup: a maximum that
it has, too, comes from the machine. What interrupted the other slowest lookups was not examined.

The index, through a `CachedReader`. The column *99 %* says within how many ns 99 of 100 lookups had ended:

{}
The 99.9th percentile of each design:

{}
![Latency by percentile](latency.svg)

How many lookups by UID do all threads of a design make together? The scale is logarithmic, so growth cannot be read from it; [How many threads](#how-many-threads) has the index's
figures, and what they do not say:

![Throughput by threads](throughput.svg)

## Memory
Bytes per pod, without pods, and times the bare table.

{}
## More measurements
What did the agent do beside a real cluster? [The agent](agent.md). What do attributes of events cost? [Records](records.md). How certain are answers about the past? [At a time](at-a-time.md).
Why are pods requested in protobuf? [Protobuf or JSON](protobuf.md). What was tried, and is no part of the index?
[Designs tried](designs-tried.md).

## How it was measured
{}
One of ten pods is static and has a mirror. In *Which key* and the first table of *How many threads*, every pod has an IP and a container.
Keys are allocated separately from the maps and looked up in shuffled order. The rows of a table were measured in
interleaved runs; each figure is the median of the runs, and a run's figure is the mean of its lookups. A ratio is that of the figures as they are printed here. (*Latency* has percentiles of single lookups
instead. In `figures.tsv`, its situations are called a to d, in the order of the columns, and each row has its unit: ns of a lookup or a pod, million lookups a second of all threads (M/s), or bytes.) The index is asked through a `CachedReader`, unless it says `load()`. kube's
`Store` has names only, and finds a pod by another key by scanning.
",
        every_key(keys, ALONE),
        every_key(keys, TWO),
        cores(machine),
        by_threads(contention),
        misfits(&Throughputs::new(contention, machine)),
        writes(ratios),
        designs(ratios, "UID, hit"),
        percentiles(latency),
        latencies(latency),
        designs(memory, "bytes a pod"),
        wrapped(&format!(
            "`cargo run --release -p pod-index-benches --bin report` wrote this page on: {machine}. Compare figures only \
             within a table: other machines have other figures, and other ratios for contention and cache misses. \
             [`figures.tsv`](figures.tsv) has all figures: other lookups, misses, iteration, held snapshots (without their \
             pods, and without the pages that the writer reuses), more threads, lookups beside a writer."
        )),
    );
    text
}

fn verdict(figures: &Figures) -> [String; 5] {
    let keys = &figures.every_key;
    let advantages = |situation, sizes: &[usize]| {
        let of = |key: &str| {
            let duels = sizes.iter().filter_map(|&n| Duel::of(keys, n, key, situation));
            format!(
                "{} times by {}",
                span(duels.map(|duel| duel.advantage)),
                key.replace(", text", " as text")
            )
        };
        KEYS.map(of).join(", ")
    };
    [
        format!(
            "**One thread, up to 10,000 pods.** Speed of the index, compared with the best of the others: {}.",
            advantages(ALONE, &SIZES[..3])
        ),
        format!("**One thread, 100,000 pods.** {}.", advantages(ALONE, &SIZES[3..])),
        format!("**Two threads, 200 to 100,000 pods.** {}.", advantages(TWO, &SIZES)),
        format!("**Slower than a rival** (pods: ratio, rival): {}.", losses(keys)),
        format!("**An update costs more:** {}.", update(&figures.ratios)),
    ]
}

/// The part of the machine's description that says how many cores it has.
fn cores(machine: &str) -> &str {
    machine.split(", ").find(|part| part.ends_with(" cores")).unwrap_or("few cores")
}

/// A paragraph about figures that cannot be right. Empty if there are none.
fn misfits(throughputs: &Throughputs<'_>) -> String {
    let found = throughputs.disturbed();
    if found.is_empty() {
        return String::new();
    }
    let text = wrapped(&format!(
        "*Figures that do not fit* (million lookups a second without a writer; then the figure that contradicts it, beside \
         1,000 updates a second or with twice the threads): {}. A writer makes no lookup faster, and threads beyond the \
         number of cores have no core of their own. So something else disturbed the first one of each pair, and it is left \
         out of the README and of the plot. Each is the median of seven runs; the cause was not looked for.",
        found.join("; ")
    ));
    format!("\n{text}")
}

/// The lookups in which another design is faster, in any situation.
fn losses(keys: &[Figure]) -> String {
    let loss = |key, n| {
        let duels = SITUATIONS.into_iter().filter_map(|situation| Duel::of(keys, n, key, situation));
        let worst = duels.min_by(|a, b| a.advantage.total_cmp(&b.advantage));
        let worst = worst.filter(|duel| duel.advantage < 1.0)?;
        Some(format!("{}: {}, {}", grouped(n), worst.times(), worst.peer))
    };
    let mut losses = Vec::new();
    for key in KEYS {
        let of_key: Vec<_> = SIZES.into_iter().filter_map(|n| loss(key, n)).collect();
        if !of_key.is_empty() {
            losses.push(format!("by {key} ({})", of_key.join("; ")));
        }
    }
    if losses.is_empty() { "no lookup".to_owned() } else { losses.join(", ") }
}

fn update(ratios: &[Figure]) -> String {
    let at = |n| {
        let [own, locked] = [Cached::NAME, PARKING_LOT].map(|name| value(ratios, n, "update", name));
        let (own, locked) = own.zip(locked).unwrap_or((f64::NAN, f64::NAN));
        format!(
            "{} ns with {} pods, {} times as long as in one locked map",
            short(own),
            grouped(n),
            times(own / locked)
        )
    };
    format!("{}; {}", at(1_000), at(100_000))
}

/// How long a lookup by UID takes, as a multiple of the bare table's time.
pub(crate) fn beside_the_bare_table(ratios: &[Figure], sizes: &[usize]) -> String {
    span(sizes.iter().filter_map(|&n| {
        let [own, bare] = [Cached::NAME, Bare::NAME].map(|name| value(ratios, n, "UID, hit", name));
        own.zip(bare).map(|(own, bare)| own / bare)
    }))
}
