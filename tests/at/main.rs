//! Lookups at a time: generated truths of which the index learns late, in pieces and in bursts, and random histories
//! compared with a plain list of intervals. The same histories show which current keys are contested.
//!
//! More cases: `PROPTEST_CASES=100000 cargo test --release --test index at::`.

mod by_hand;
mod model;
#[path = "../support/seeded.rs"]
mod seeded;
mod truths;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pod_index::identity::Identity;
use pod_index::{
    AtTime, CONFIG_MIRROR_ANNOTATION, Coverage, CustomKeyKind, Event, FoundBy, Holder, Key, Life, Moment,
    NotFound, Operation, Options, PodKeys, PodMeta, Reader, Time, Tolerance, Writer,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use seeded::seeded;

/// Four ticks a second, so that what objects say in whole seconds is rounded.
const TICKS: i64 = 4;
/// The bounds that the truths keep to, in ticks.
const SKEW: i64 = 6;
const DELAY: i64 = 20;
const CUSTOM: CustomKeyKind = CustomKeyKind(1);

fn time(tick: i64) -> Time {
    Time::from_nanos(tick * 1_000_000_000 / TICKS)
}

fn span(ticks: i64) -> Duration {
    Duration::from_millis(u64::try_from(ticks * 1000 / TICKS).expect("positive"))
}

/// As statuses have it.
fn second(tick: i64) -> Time {
    Time::from_seconds(tick.div_euclid(TICKS))
}

fn ip(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Pod {
    uid: String,
    name: String,
    ips: Vec<u8>,
    custom: bool,
    life: Life,
}

impl PodMeta for Pod {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &'static str {
        "default"
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        (self.uid.starts_with("mirror") && key == CONFIG_MIRROR_ANNOTATION).then_some("")
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        if self.uid == "logged" {
            keys.container_id("app", &"ab".repeat(32));
        }
        self.ips.iter().for_each(|number| keys.ip(ip(*number)));
        if self.custom {
            keys.custom_key(CUSTOM, "custom");
        }
        keys.finished(self.life.may_lack_sandbox);
        keys.created(self.life.created.map_or(0, |time| time.as_nanos() / 1_000_000_000));
    }
    fn life(&self) -> Life {
        self.life
    }
}

fn index(age: i64, most: usize) -> (Writer<Pod>, Reader<Pod>, Instant) {
    let options = Options::new().keep_removed(span(age), most).keep_times(true);
    let (writer, reader) = pod_index::with_options(options);
    (writer, reader, Instant::now())
}

/// So many ticks after the start, by both clocks.
fn moment(start: Instant, tick: i64) -> Moment {
    Moment::new(start + span(tick), time(tick))
}
