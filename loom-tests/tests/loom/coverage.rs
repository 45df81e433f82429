//! The end of what a snapshot covers, which moves on in a published snapshot: no reader is certain of what is not so.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::explore::{Floor, explore};
use loom::thread;
use pod_index::{Holder, Moment, Operation, Options, PodKeys, PodMeta, Snapshot, Time};

/// A pod with the one IP of the model.
struct Pod(&'static str);

impl PodMeta for Pod {
    fn uid(&self) -> &str {
        self.0
    }
    fn name(&self) -> &str {
        self.0
    }
    fn namespace(&self) -> &str {
        "default"
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        keys.ip(IP);
    }
}

const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

/// In truth, the second pod got the IP of the first in this second. The index learns it in the second 30.
const TAKEN_OVER: i64 = 25;

/// What the index knows: everything until this second.
fn moment(start: Instant, second: i64) -> Moment {
    let passed = Duration::from_secs(second.unsigned_abs());
    let time = Time::from_seconds(second);
    Moment::new(start + passed, time).covering(Time::from_seconds(0), time)
}

/// The certain pod, if there is one.
fn certain(pods: &Snapshot<Pod>, second: i64) -> Option<&'static str> {
    let at = pods.at(Time::from_seconds(second)).skew(Duration::ZERO).delay(Duration::ZERO);
    match at.get(IP) {
        Holder::Pod(found) => Some(found.pod.0),
        _ => None,
    }
}

/// Everything is known until this second.
fn known_until(pods: &Snapshot<Pod>) -> i64 {
    let at = pods.at(Time::from_seconds(0)).delay(Duration::ZERO);
    at.known().expect("something is covered").until.as_nanos() / 1_000_000_000
}

/// The writer lets time pass without a publication, publishes that another pod has the IP, and lets time pass again. A reader
/// that still has the first snapshot must not take the first pod for certain at a time that only the second snapshot knows.
#[test]
fn small_no_reader_is_certain_of_what_the_next_publication_takes_back() {
    explore("small-coverage", Floor { two: 229, three: 625, five: 1813, all: Some(2272) }, || {
        let options = Options::new().keep_removed(Duration::from_secs(300), 10).keep_times(true);
        let (mut writer, reader) = pod_index::with_options(options);
        let start = Instant::now();
        let _ = writer.apply_at(moment(start, 10), [Operation::Upsert(Pod("first").into())]);
        let other = thread::spawn(move || {
            let pods = reader.load();
            let before = known_until(&pods);
            for second in [TAKEN_OVER + 1, 35] {
                let answer = certain(&pods, second);
                assert!(answer.is_none_or(|pod| pod == "second"), "{answer:?} is certain at {second}");
                let is_known = second == 35 && second < before;
                assert!(answer.is_some() || !is_known, "it was known until {before}");
            }
            let after = known_until(&pods);
            assert!(before <= after, "from {before} back to {after}");
            let possible = if pods.generation() == 1 { [10, 20] } else { [30, 40] };
            for until in [before, after] {
                assert!(
                    possible.contains(&until),
                    "the snapshot covers what it does not have, until {until}"
                );
            }
        });
        writer.advance(moment(start, 20));
        let next = [Operation::Remove("first".into()), Operation::Upsert(Pod("second").into())];
        let _ = writer.apply_at(moment(start, 30), next);
        writer.advance(moment(start, 40));
        other.join().expect("the reader");
        assert_eq!(writer.current().generation(), 2, "time passes without a publication");
    });
}
