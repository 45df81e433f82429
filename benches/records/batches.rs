//! `get_many` against a loop of `get`: the pod of each key is looked at afterwards.

use std::hint::black_box;

use pod_index::{Event, Holder, PodMeta, SimplePod, Snapshot, Tolerance};
use support::sizes;

use super::pods::uid;
use super::table;

const BATCH: usize = 256;
/// Batches that are timed together.
const TOGETHER: usize = 40;

pub fn print(sizes: &[usize]) {
    println!("\nNanoseconds a key, in batches of {BATCH}, by UID as text, one thread.");
    table::head(&["pods", "loop of `get`", "`get_many`", "ratio", "`get_many_at`, without times"]);
    for n in sizes {
        let (mut writer, reader) = pod_index::new::<SimplePod>();
        let _ = writer
            .set_pods((0..*n).map(|number| SimplePod::new(&uid(number), "shop", &format!("pod-{number}"))));
        let snapshot = reader.load();
        let uids: Vec<_> = (0..*n.max(&(BATCH * TOGETHER))).map(|at| uid(at * 7919 % n)).collect();
        let [looped, many, many_at] = measured(&snapshot, &uids);
        let cells = [looped, many, many / looped, many_at].map(table::shown);
        table::row(&n.to_string(), cells);
    }
}

/// Takes a batch of keys.
type Way<'a> = dyn Fn(&[String]) + 'a;

/// In turn, so that disturbances affect all alike.
fn measured(snapshot: &Snapshot<SimplePod>, uids: &[String]) -> [f64; 3] {
    let rounds = if sizes::smoke() { 1 } else { 101 };
    let parts: Vec<_> = uids.chunks_exact(BATCH * TOGETHER).collect();
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        let part = parts[round % parts.len()];
        let ways: [&Way<'_>; 3] = [
            &|keys| keys.iter().for_each(|key| looked_at(snapshot.get(&**key).map(|found| found.pod))),
            &|keys| {
                let found = snapshot.get_many(keys.iter().map(|key| &**key));
                found.for_each(|found| looked_at(found.map(|found| found.pod)));
            },
            &|keys| {
                let events = keys.iter().map(|key| Event::from(&**key));
                let holders = snapshot.get_many_at(events, Tolerance::default());
                holders.for_each(|holder| match holder {
                    Holder::Pod(found) => looked_at(Some(found.pod)),
                    _ => looked_at(None),
                });
            },
        ];
        // Each way begins once in three rounds: the first finds a cold cache.
        for turn in 0..3 {
            let way = (round + turn) % 3;
            let nanos = table::median(1, || part.chunks(BATCH).for_each(ways[way]));
            #[expect(clippy::cast_precision_loss, reason = "a few thousand keys")]
            times[way].push(nanos / part.len() as f64);
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

fn looked_at(pod: Option<&std::sync::Arc<SimplePod>>) {
    black_box(pod.expect("it is there").namespace().len());
}
