//! Intervals of which only bounds are known: whether a pod held a key at a time, how likely that is, and how the intervals of
//! several pods narrow each other.
//!
//! This file knows neither pods nor keys: [`AtTime`](super::AtTime) says which bounds a hold has, and which holds exclude each
//! other.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::iter;

use crate::pod::Time;

/// Bounds of an interval.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Between,
    pub(super) until: Between,
}

/// Bounds of a time. Open ones are the first and the last time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Between {
    pub(super) earliest: Time,
    pub(super) latest: Time,
}

/// The times at which an event may have happened: its own, and those around it within the skew.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) first: Time,
    pub(super) last: Time,
}

impl Window {
    /// Whether the pod held the key at all these times, for all intervals within the bounds.
    pub(super) fn contains(&self, Range { first, last }: Range) -> bool {
        self.from.latest <= first && last < self.until.earliest
    }

    /// Whether the pod held the key at some of these times, for some interval within the bounds.
    pub(super) fn touches(&self, Range { first, last }: Range) -> bool {
        self.from.earliest <= last && first < self.until.latest && self.from.earliest < self.until.latest
    }

    /// Of the intervals within the bounds, the share that contains the time, in thousandths of thousandths. After an open
    /// end it falls within half a minute.
    pub(super) fn likelihood(&self, time: Time, is_current: bool) -> u64 {
        let half_a_minute = 30_000_000_000;
        let earliest_start = if self.from.earliest <= Time::MIN {
            self.from.latest.plus(-half_a_minute)
        } else {
            self.from.earliest
        };
        let latest_end = if self.until.latest >= Time::MAX {
            self.until.earliest.plus(half_a_minute)
        } else {
            self.until.latest
        };
        let start = Between { earliest: earliest_start.min(self.from.latest), latest: self.from.latest };
        let end = Between { earliest: self.until.earliest.min(latest_end), latest: latest_end };
        // One that runs, as far as is known, has most likely not ended.
        let ended = end.share_before(time).min(if is_current { 100 } else { 990 });
        u64::try_from(start.share_before(time) * (1000 - ended)).unwrap_or_default()
    }
}

impl Between {
    /// How much of the times within the bounds is not after this time, in thousandths.
    fn share_before(self, time: Time) -> i128 {
        let time = time.as_nanos();
        let earliest = self.earliest.as_nanos();
        let latest = self.latest.as_nanos();
        let width = i128::from(latest) - i128::from(earliest);
        if width <= 0 {
            return i128::from(time >= latest) * 1000;
        }
        (i128::from(time) - i128::from(earliest)).clamp(0, width) * 1000 / width
    }
}

/// Narrows the bounds of each hold of a key by the other holds. One hold came before another if it may have ended before the
/// other began and the reverse is impossible. Holds that must have overlapped do not narrow each other.
pub(super) fn narrow(windows: &mut [Window]) {
    let mut by_latest_start = windows.to_vec();
    let mut by_earliest_end = windows.to_vec();
    by_latest_start.sort_unstable_by_key(|window| window.from.latest);
    by_earliest_end.sort_unstable_by_key(|window| Reverse(window.until.earliest));
    let mut holds: Vec<_> = windows.iter_mut().collect();

    // The ends of those that began before the present one ended.
    let mut others = by_latest_start.iter().peekable();
    let mut ends = BTreeSet::new();
    holds.sort_unstable_by_key(|window| window.until.earliest);
    for Window { from, until } in &mut holds {
        let more = iter::from_fn(|| others.next_if(|other| other.from.latest < until.earliest));
        ends.extend(more.map(|other| other.until.earliest));
        let end_before = ends.range(..=from.latest).next_back();
        from.earliest = end_before.map_or(from.earliest, |end| from.earliest.max(*end));
    }

    // The starts of those that ended after the present one began.
    let mut others = by_earliest_end.iter().peekable();
    let mut starts = BTreeSet::new();
    holds.sort_unstable_by_key(|window| Reverse(window.from.latest));
    for Window { from, until } in &mut holds {
        let more = iter::from_fn(|| others.next_if(|other| from.latest < other.until.earliest));
        starts.extend(more.map(|other| other.from.latest));
        let start_after = starts.range(until.earliest..).next();
        until.latest = start_after.map_or(until.latest, |start| until.latest.min(*start));
    }
}
