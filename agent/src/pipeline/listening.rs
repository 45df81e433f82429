//! Of which times the sources have told everything, for look-ups at a time.
//!
//! The writer looks at the sources once a second. What they had told at one look has arrived in the index at the next one,
//! if no report waits then. So what is known is always as of the look before.

use std::time::{Duration, Instant, SystemTime};

use super::suspension::Suspension;
use pod_index::{Moment, Time};

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// The looks at the sources.
pub(super) struct Listening {
    last_look: Instant,
    /// Until when the sources had told everything at the last look. `None`: at least one has not told all its pods yet, or
    /// nobody knows.
    told_until: Option<SystemTime>,
    /// How often a source was listed anew, by the last look.
    relists: u64,
    /// Since when no pod came and went unseen.
    unbroken_since: Instant,
    /// Whether it is since then because the wall clock was set forward, or the machine was suspended.
    began_with_step: bool,
    suspension: Suspension,
}

/// What a look finds.
pub(super) struct Look {
    /// The age of what the source told last that told least recently.
    pub(super) age: Option<Duration>,
    /// See [`Readiness::relists`](super::readiness::Readiness::relists).
    pub(super) relists: u64,
    /// Whether each source has told all its pods, and no restored pod waits for its source.
    pub(super) all_told: bool,
}

impl Listening {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            last_look: now.instant,
            told_until: None,
            relists: 0,
            unbroken_since: now.instant,
            began_with_step: false,
            suspension: Suspension::new(now.instant, now.time.into()),
        }
    }

    pub(super) fn next_look(&self) -> Instant {
        self.last_look + PERIOD
    }

    /// Whether it is time for a look. As long as reports wait, what the sources told has not arrived.
    pub(super) fn is_due(&self, now: Instant, waiting_reports: usize) -> bool {
        now >= self.next_look() && waiting_reports == 0
    }

    /// The moment with what is known at it.
    pub(super) fn covered(&self, now: Moment) -> Moment {
        let Some(until) = self.told_until else { return now };
        let unbroken = now.instant.saturating_duration_since(self.unbroken_since);
        // By the clock of now, in case that it was set.
        let since = SystemTime::from(now.time).checked_sub(unbroken);
        since.map_or(now, |since| now.covering(since, until))
    }

    /// Since when everything is known at this moment, if it is not known of before because of a step of the clock.
    pub(super) fn since_step(&self, covered: &Moment) -> Option<Time> {
        covered.coverage.filter(|_| self.began_with_step).map(|coverage| coverage.since)
    }

    /// Looks at the sources.
    pub(super) fn look(&mut self, now: Moment, look: &Look) {
        let wall = SystemTime::from(now.time);
        let age = look.age.unwrap_or(Duration::MAX);
        let is_covered = self.suspension.covers(age, now.instant, wall);
        let has_stepped = self.suspension.resumed() == Some(now.instant);
        let was_told = self.told_until.is_some();
        self.told_until = wall.checked_sub(age).filter(|_| is_covered && look.all_told);
        let is_broken = self.told_until.is_none() || look.relists != self.relists;
        if is_broken {
            self.unbroken_since = now.instant;
        }
        // Until the sources have told everything again, nothing else ends what was known.
        if is_broken && was_told {
            self.began_with_step = has_stepped;
        }
        self.relists = look.relists;
        self.last_look = now.instant;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_index::Coverage;

    const SECOND: Duration = Duration::from_secs(1);

    /// Looks once a second, and says what is known at the next look: since and until when, in seconds.
    struct Looks {
        start: Instant,
        listening: Listening,
        second: u32,
        /// By how much the wall clock was set.
        step: i64,
    }

    impl Looks {
        fn new() -> Self {
            let start = Instant::now();
            let listening = Listening::new(Moment::new(start, Time::from_seconds(1_000_000)));
            Self { start, listening, second: 0, step: 0 }
        }

        fn now(&self) -> Moment {
            let wall = Time::from_seconds(1_000_000 + i64::from(self.second) + self.step);
            Moment::new(self.start + SECOND * self.second, wall)
        }

        fn look(&mut self, age: u64, relists: u64, all_told: bool) -> Option<(i64, i64)> {
            self.second += 1;
            let age = Some(Duration::from_secs(age));
            self.listening.look(self.now(), &Look { age, relists, all_told });
            self.second += 1;
            let seconds = |time: Time| time.as_nanos() / 1_000_000_000 - 1_000_000;
            let Coverage { since, until } = self.listening.covered(self.now()).coverage?;
            Some((seconds(since), seconds(until)))
        }
    }

    #[test]
    fn what_was_told_at_a_look_is_known_at_the_next_one() {
        let mut looks = Looks::new();
        assert_eq!(looks.look(0, 2, false), None, "a source is not read yet");
        assert_eq!(looks.look(0, 2, true), Some((1, 3)));
        assert_eq!(looks.look(1, 2, true), Some((1, 4)));
        assert_eq!(looks.look(3, 2, true), Some((1, 4)), "a source is silent");
        assert_eq!(looks.look(0, 3, true), Some((9, 9)), "it was listed anew: a gap ends");
        assert_eq!(looks.look(0, 3, true), Some((9, 11)));
    }

    #[test]
    fn nothing_is_known_while_reports_wait() {
        let looks = Looks::new();
        let due = looks.start + SECOND;
        assert!(looks.listening.is_due(due, 0));
        assert!(!looks.listening.is_due(due, 1));
        assert!(!looks.listening.is_due(looks.start, 0));
    }

    #[test]
    fn a_wall_clock_that_was_set_does_not_move_the_end_of_a_gap_to_another_time() {
        let mut looks = Looks::new();
        looks.look(0, 1, true);
        looks.look(0, 1, true);
        looks.step = -3600;
        assert_eq!(looks.look(0, 1, true), Some((1 - 3600, 5 - 3600)));
    }
}
