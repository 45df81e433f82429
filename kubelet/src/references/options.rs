//! Options of a manager.

use std::time::Duration;

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
    pub(super) backoff: (Duration, Duration),
    pub(super) patience: Duration,
    pub(super) watch_time: Option<Duration>,
    pub(super) silence: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            first_sync: Duration::from_secs(1),
            idle: Duration::from_secs(5 * 60),
            backoff: (Duration::from_millis(800), Duration::from_secs(8)),
            patience: Duration::from_secs(30),
            watch_time: None,
            silence: Duration::from_secs(150),
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

    /// The waits after failures of a watch: the first, and the longest. Each is shortened at random by up to a third.
    /// 0.8 s and 8 s by default.
    pub fn backoff(mut self, least: Duration, most: Duration) -> Self {
        self.backoff = (least, most);
        self
    }

    /// Time limit for an answer, and for the start of a watch; 30 s by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The lifetime of a watch requested from the API server, in whole seconds; 200 to 290 s at random by
    /// default.
    pub fn watch_time(mut self, time: Duration) -> Self {
        self.watch_time = Some(time);
        self
    }

    /// A watch without an event or a bookmark for this long counts as dead, and the object is listed again;
    /// 150 s by default. API servers send a bookmark about once a minute.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }
}
