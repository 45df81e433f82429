//! What one change costs.

use support::sizes;

use super::designs::Designs;
use super::pods;
use super::table;

pub fn print(designs: &mut Designs) {
    let rounds = if sizes::smoke() { 1 } else { 51 };
    let Designs { pods: all, records, plain, map } = designs;
    let mut version = 0;
    let mut next = || {
        version += 1;
        pods::next(&all[version % all.len()], version)
    };
    // Not measured: the pods come from a source.
    let prepared: Vec<_> = (0..3 * rounds).map(|_| next()).collect();
    let mut prepared = prepared.into_iter();
    let mut take = || prepared.next().expect("prepared");
    let with_records = table::median(rounds, || records.update(take()));
    let without = table::median(rounds, || plain.update(take()));
    let joined: Vec<_> = records.reader.load().pods().take(rounds).cloned().collect();
    let mut joined = joined.iter().cycle();
    let replaced = table::median(rounds, || map.update(joined.next().expect("pods")));
    let mut team = 0;
    let relabelled = table::median(rounds.min(21), || {
        team += 1;
        let _ = records.join.write(&mut records.writer, [pods::namespace(&team.to_string())]);
    });
    println!("\nMicroseconds a change.");
    table::head(&["", "µs"]);
    let micros = |nanos: f64| [table::shown(nanos / 1e3)];
    table::row("a changed pod: index without records", micros(without));
    table::row("a changed pod: index with records", micros(with_records));
    table::row("a changed pod: one map, replaced whole", micros(replaced));
    table::row("the Namespace of all pods relabelled: index with records", micros(relabelled));
}
