//! Two clocks. Tests can replace both by one of their own.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The system's clocks, or a test's.
#[derive(Default)]
pub(super) struct Clock(Option<Box<dyn Fn() -> Duration + Send + Sync>>);

impl_debug!(Clock);

impl Clock {
    pub(super) fn new(own: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(own)))
    }

    /// For ages. Moves in steps of 1 to 10 ms. Each lookup reads it, so it makes no system call and does not read the
    /// processor's counter.
    #[inline]
    pub(super) fn now(&self) -> Duration {
        self.read(ClockId::MonotonicCoarse)
    }

    /// The clock of process start times.
    pub(super) fn since_boot(&self) -> Duration {
        self.read(ClockId::Boottime)
    }

    #[inline]
    fn read(&self, id: ClockId) -> Duration {
        if let Some(own) = &self.0 {
            return own();
        }
        let time = clock_gettime(id);
        // Neither clock is ever negative.
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
    }
}
