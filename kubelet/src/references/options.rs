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
/// let options = Options { first_sync: Duration::from_secs(10), ..Options::default() };
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a get waits for an object that is followed but not yet received; 1 s by default.
    pub first_sync: Duration,
    /// At intervals of this length, 5 min by default, a watch ends if its object was not requested since the last
    /// check. The next get starts it again. With [`Duration::MAX`], it ends only when no pod names the object any more.
    pub idle: Duration,
    /// How long to wait for the server.
    pub times: Times,
}

impl Default for Options {
    fn default() -> Self {
        let first_sync = Duration::from_secs(1);
        let idle = Duration::from_secs(5 * 60);
        Self { first_sync, idle, times: Times::default() }
    }
}
