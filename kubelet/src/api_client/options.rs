//! Options of the connections.

use std::time::Duration;

/// When a connection counts as dead. The defaults suit a cluster.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// HTTP/2 only: ping after this much silence, and give up if the answer takes longer than the second time. 25 s
    /// and 15 s by default. client-go has 30 s and 15 s.
    pub pings: (Duration, Duration),
    /// A request or a watch that is dropped after this much silence retires its connection. 10 s and 100 s by
    /// default.
    pub silences: (Duration, Duration),
    /// How long a request waits for the credential plugin before it fails, and how long the plugin may run
    /// before it is killed. 8 s and 30 s by default.
    pub plugin: (Duration, Duration),
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        let seconds = |one, other| (Duration::from_secs(one), Duration::from_secs(other));
        Self { pings: seconds(25, 15), silences: seconds(10, 100), plugin: seconds(8, 30) }
    }
}
