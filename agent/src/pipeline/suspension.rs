//! Whether the machine was suspended. Meanwhile `Instant`s stand still, so the ages of what was heard before are too small.

use std::time::{Duration, Instant, SystemTime};

/// Smaller steps of the wall clock are within the skew of clocks.
const STEP: Duration = Duration::from_secs(1);

/// Both clocks at one look.
struct Look {
    instant: Instant,
    wall: SystemTime,
}

/// Compares the wall clock with `Instant`s, look by look.
pub(super) struct Suspension {
    last: Look,
    /// When the wall clock was last found to have moved on further than `Instant`s.
    resumed: Option<Instant>,
}

impl Suspension {
    pub(super) fn new(now: Instant, wall: SystemTime) -> Self {
        Self { last: Look { instant: now, wall }, resumed: None }
    }

    /// When it was last found that the machine was suspended, or its wall clock was set forward.
    pub(super) fn resumed(&self) -> Option<Instant> {
        self.resumed
    }

    /// Whether an age can be trusted: what it is the age of was heard after the last suspension.
    pub(super) fn covers(&mut self, age: Duration, now: Instant, wall: SystemTime) -> bool {
        let last = std::mem::replace(&mut self.last, Look { instant: now, wall });
        // If the clock was set back, ages are not too small.
        let moved = wall.duration_since(last.wall).unwrap_or_default();
        if moved > now.saturating_duration_since(last.instant) + STEP {
            self.resumed = Some(now);
        }
        self.resumed.is_none_or(|resumed| age < now.saturating_duration_since(resumed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_suspension_only_what_was_heard_since_counts() {
        let began = Instant::now();
        let wall = SystemTime::now();
        let seconds = Duration::from_secs;
        let mut suspension = Suspension::new(began, wall);
        let mut covers =
            |age, at, wall_at| suspension.covers(seconds(age), began + seconds(at), wall + seconds(wall_at));
        assert!(covers(0, 1, 1) && covers(30, 2, 3), "a step of a second");
        // An hour passes, of which two seconds count.
        assert!(!covers(0, 4, 3605));
        assert!(!covers(3, 5, 3606) && !covers(1, 5, 3606), "heard before it, or at once");
        assert!(covers(1, 6, 3607) && !covers(2, 6, 3607));
        assert!(covers(0, 7, 1000) && !covers(5, 8, 1001), "the clock was set back");
    }
}
