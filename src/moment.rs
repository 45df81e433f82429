//! When a write happens: by two clocks, and what is known then.

use std::time::{Duration, Instant};

use crate::pod::Time;

/// When a write happens, and what the sources have told until then.
///
/// Every write of a [`Writer`](crate::Writer) happens at a moment. Without one, it happens [now](Self::now), by the clocks
/// of the machine. Nothing has to be said in advance, and no order of calls matters.
///
/// | an index that | reads of it |
/// |---|---|
/// | [keeps removed pods](crate::Options::keep_removed) | [`instant`](Self::instant): when a pod was removed, and which removed pods are too old |
/// | [keeps times](crate::Options::keep_times) | [`time`](Self::time): since when a pod has had a key at the latest; and [`coverage`](Self::coverage) |
/// | keeps neither | nothing |
///
/// # The two clocks
/// A moment may come later than its neighbours say: an instant before that of the last removal counts as that one. So
/// removed pods are forgotten in the order of their removal.
///
/// The wall clock can be set. If the two clocks move apart by more than [`MAX_STEP`](Self::MAX_STEP), the index notices
/// with its next write, and its past begins anew: lookups [at a time](crate::Snapshot::at) before that are
/// [`TooEarly`](crate::NotFound::TooEarly), because the times before and after are of two clocks. While a machine is
/// suspended, [`Instant`] stands still on Linux. That counts as a step too, since nothing distinguishes it.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant, SystemTime};
///
/// use pod_index::{Moment, Operation, Options, SimplePod};
///
/// let options = Options::new().keep_removed(Duration::from_secs(60), 10_000);
/// let (mut writer, reader) = pod_index::with_options(options);
/// writer.upsert_pod(SimplePod::new("u1", "default", "web"))?; // now
///
/// let moment = Moment::now();
/// let applied = writer.apply_at(moment, [Operation::Remove("u1".into())]);
/// assert_eq!(applied.forgotten, 0);
///
/// // A minute later, a test need not wait.
/// let later = Moment::new(moment.instant + Duration::from_secs(60), SystemTime::now() + Duration::from_secs(60));
/// assert_eq!(writer.advance(later), 1);
/// assert!(reader.load().removed().is_empty());
/// # Ok::<(), pod_index::Error>(())
/// ```
///
/// Kubelet: none; its pod manager knows the present only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[must_use]
pub struct Moment {
    /// By the clock that nobody sets.
    pub instant: Instant,
    /// By the node's wall clock.
    pub time: Time,
    /// The times of which the index knows everything, together with what is written at this moment. `None`: nothing new
    /// is known about that.
    pub coverage: Option<Coverage>,
}

/// The times of which everything is known: no pod came or went unseen between the two.
///
/// `since` is when the sources were last listed as a whole, and have been followed without a gap from then on. `until` is
/// up to when everything that they told is in the index. As long as all sources answer, `until` moves on and `since` stays.
/// If one did not answer for a while and was then listed anew, `since` is the end of that gap.
///
/// # Examples
/// ```
/// use pod_index::{Coverage, Moment, Time};
///
/// let listed = Time::from_seconds(1_700_000_000);
/// let last_heard = Time::from_seconds(1_700_000_060);
/// let moment = Moment::now().covering(listed, last_heard);
/// assert_eq!(moment.coverage, Some(Coverage { since: listed, until: last_heard }));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Coverage {
    /// What ended before this time may be unknown.
    pub since: Time,
    /// What happened after this time may not be known yet.
    pub until: Time,
}

impl Moment {
    /// Smaller steps of the wall clock are within the skew of clocks: see [`AtTime::skew`](crate::AtTime::skew). A leap
    /// second is one.
    pub const MAX_STEP: Duration = Duration::from_secs(1);

    /// The present, by the machine's clocks.
    ///
    /// # Complexity
    /// O(1): three readings of clocks.
    pub fn now() -> Self {
        // The two clocks are read one after the other. If the thread was interrupted between them, they seem to have moved
        // apart, which would count as a step.
        const CLOSE: Duration = Duration::from_millis(50);
        const TRIES: usize = 8;
        let mut moment = Self::read_clocks();
        for _ in 1..TRIES {
            if moment.instant.elapsed() < CLOSE {
                break;
            }
            moment = Self::read_clocks();
        }
        moment
    }

    fn read_clocks() -> Self {
        Self { instant: Instant::now(), time: Time::now(), coverage: None }
    }

    /// A moment by other clocks than the machine's. For tests, and for histories that are replayed.
    pub fn new(instant: Instant, time: impl Into<Time>) -> Self {
        Self { instant, time: time.into(), coverage: None }
    }

    /// The same moment, at which everything between these two times is known. See [`Coverage`].
    ///
    /// A coverage that begins after it ends says nothing. Nor does one that ends more than
    /// [`MAX_STEP`](Self::MAX_STEP) after the moment: it is of another clock. One that begins after the moment begins when
    /// the wall clock was last set.
    pub fn covering(self, since: impl Into<Time>, until: impl Into<Time>) -> Self {
        Self { coverage: Some(Coverage { since: since.into(), until: until.into() }), ..self }
    }
}

/// Notices steps of the wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepDetector {
    /// The two clocks when they were last found to agree.
    anchor: Option<Anchor>,
    /// The number of steps so far.
    pub(crate) count: u64,
}

/// What both clocks said at one moment.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    instant: Instant,
    time: Time,
}

impl StepDetector {
    /// Whether the wall clock was set since the last step, or since the first moment.
    pub(crate) fn has_stepped(&mut self, moment: &Moment) -> bool {
        let has_stepped = !self.agrees(moment);
        self.count += u64::from(has_stepped);
        if has_stepped || self.anchor.is_none() {
            self.anchor = Some(Anchor { instant: moment.instant, time: moment.time });
        }
        has_stepped
    }

    /// Whether the two clocks have moved together since they were last found to agree.
    pub(crate) fn agrees(&self, moment: &Moment) -> bool {
        let Some(Anchor { instant, time }) = self.anchor else { return true };
        // How far the wall clock should be from the anchor, and how far it is.
        let (passed, is_later) = match moment.instant.checked_duration_since(instant) {
            Some(later) => (later, true),
            None => (instant.saturating_duration_since(moment.instant), false),
        };
        let passed = i128::try_from(passed.as_nanos()).unwrap_or(i128::MAX);
        let expected = if is_later { passed } else { -passed };
        let moved = i128::from(moment.time.as_nanos()) - i128::from(time.as_nanos());
        moved.abs_diff(expected) <= Moment::MAX_STEP.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_wall_clock_is_noticed_once() {
        let start = Instant::now();
        let mut detector = StepDetector::default();
        let mut steps = |instant: u64, milliseconds: i64| {
            let moment =
                Moment::new(start + Duration::from_secs(instant), Time::from_nanos(milliseconds * 1_000_000));
            detector.has_stepped(&moment)
        };
        assert!(!steps(10, 10_000), "the first moment");
        assert!(!steps(20, 21_000) && !steps(30, 29_000), "a second apart is skew");
        assert!(!steps(5, 5_000), "a moment that comes late");
        assert!(steps(40, 3_640_000), "an hour forward");
        assert!(!steps(50, 3_650_000) && !steps(50, 3_650_500));
        assert!(steps(60, 60_000), "and back");
        assert!(!steps(70, 70_000));
        assert!(steps(80, 81_001), "a little more than a second");
    }

    #[test]
    fn the_present_is_read_from_both_clocks() {
        let before = Instant::now();
        let wall_before = Time::now();
        let moment = Moment::now();
        assert!((before..=Instant::now()).contains(&moment.instant));
        assert!(moment.time >= wall_before || moment.time.as_nanos() > 0);
        assert_eq!(moment.coverage, None);
    }
}
