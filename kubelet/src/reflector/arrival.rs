//! Until when everything has arrived that happened on the server.
//!
//! A watch sends its events in order. So whatever it sends, all that happened before has arrived, with one exception: a watch that
//! continues another one late first sends what was missed meanwhile. At the first of these events, others are still to come.

use std::time::{Duration, Instant};

/// If a watch begins so long after what it continues, its first events are not the latest ones.
const GAP: Duration = Duration::from_secs(1);

/// What has arrived, by the list and the watches so far.
#[derive(Debug)]
pub(super) struct Arrival {
    /// When the next watch should begin, so that nothing happens before it: the request of the list, or the end of the last watch.
    left_off: Instant,
    /// The watch may not have sent all that was missed before it.
    is_behind: bool,
    /// Until when everything has arrived, if that is news.
    until: Option<Instant>,
}

impl Arrival {
    pub(super) fn new() -> Self {
        Self { left_off: Instant::now(), is_behind: false, until: None }
    }

    /// A list has arrived that was requested at this time. Its objects are those of then, however long it took.
    pub(super) fn listed(&mut self, asked: Instant) {
        self.left_off = asked;
        self.until = Some(asked);
    }

    /// A watch continues the list, or the last watch. `is_cut`: that one was cut off.
    pub(super) fn continues(&mut self, now: Instant, is_cut: bool) {
        self.is_behind = is_cut || now.saturating_duration_since(self.left_off) > GAP;
    }

    /// The watch has said something at this time, which has been taken.
    pub(super) fn said(&mut self, now: Instant) {
        if !self.is_behind {
            self.until = Some(now);
        }
    }

    /// All that was missed has arrived.
    pub(super) fn caught_up(&mut self) {
        self.is_behind = false;
    }

    /// The watch has ended as it was asked to.
    pub(super) fn ended(&mut self, now: Instant) {
        self.left_off = now;
    }

    /// Until when everything has arrived, unless it was taken before.
    pub(super) fn take(&mut self) -> Option<Instant> {
        self.until.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_begins_late_or_after_a_cut_says_nothing_until_it_has_caught_up() {
        let start = Instant::now();
        let at = |seconds: u32| start + GAP * seconds;
        let mut arrival = Arrival::new();
        arrival.listed(at(0));
        assert_eq!(arrival.take(), Some(at(0)));
        for (begins, is_cut, is_believed) in [(1, false, true), (2, false, false), (0, true, false)] {
            arrival.ended(at(0));
            arrival.continues(at(begins), is_cut);
            arrival.said(at(10));
            assert_eq!(arrival.take(), is_believed.then_some(at(10)), "{begins} {is_cut}");
            arrival.caught_up();
            arrival.said(at(11));
            assert_eq!((arrival.take(), arrival.take()), (Some(at(11)), None));
        }
    }
}
