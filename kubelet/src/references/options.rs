//! Options of a manager.

use std::time::Duration;

use crate::reflector::Times;

/// Options of a [`Manager`](super::Manager). The defaults are the kubelet's.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::references::Options;
///
/// let options = Options::default().first_sync(Duration::from_secs(10));
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing by themselves"]
pub struct Options {
    pub(super) first_sync: Duration,
    pub(super) idle: Duration,
    pub(super) times: Times,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            first_sync: Duration::from_secs(1),
            idle: Duration::from_secs(5 * 60),
            times: Times::default(),
        }
    }
}

impl Options {
    /// How long a get waits for an object that is followed but not yet received; 1 s by default.
    pub fn first_sync(mut self, wait: Duration) -> Self {
        self.first_sync = wait;
        self
    }

    /// At intervals of this length, 5 min by default, a watch ends if its object was not requested since the last check.
    /// The next get starts it again. With [`Duration::MAX`], it ends only when no pod names the object any more.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// How long to wait for the server.
    pub fn times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }
}
