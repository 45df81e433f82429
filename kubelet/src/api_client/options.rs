//! Options of the connections.

use std::time::Duration;

use crate::backoff::{bounded, bounded_pause};

/// When a connection counts as dead. The defaults suit a cluster.
///
/// # Examples
/// A dead connection is noticed after 6 seconds, for a ping every 5 seconds over each silent one:
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::api_client::{ConnectionOptions, Pings};
///
/// let pings = Pings { after: Duration::from_secs(5), timeout: Duration::from_secs(1) };
/// let options = ConnectionOptions { pings, ..ConnectionOptions::default() };
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// HTTP/2 only: the pings on a silent connection. client-go has 30 s and 15 s.
    pub pings: Pings,
    /// The silences that retire a connection.
    pub silences: Silences,
    /// How long to wait for the credential plugin.
    pub plugin: PluginTimes,
}

/// The pings on a silent HTTP/2 connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pings {
    /// A ping is sent after this much silence; 25 s by default.
    pub after: Duration,
    /// Without an answer for this long, the connection is dead; 15 s by default.
    pub timeout: Duration,
}

/// If a request is dropped after this much silence, its connection is retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silences {
    /// Of a request without an answer; 10 s by default.
    pub request: Duration,
    /// Of an answer, such as a watch, after its last part; 100 s by default.
    pub answer: Duration,
    /// The same over HTTP/1.1, which has no pings; 25 s by default. Shorter than the silence after which a watch is dropped
    /// there: a proxy that swallows its events may have swallowed those of its other connections, too.
    pub http1_answer: Duration,
}

/// How long to wait for the credential plugin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PluginTimes {
    /// How long a request waits for the plugin before it fails; 8 s by default.
    pub request: Duration,
    /// How long the plugin may run before it is killed; 30 s by default.
    pub run: Duration,
}

impl ConnectionOptions {
    /// The same, each time short enough to be added to any `Instant`. There is always some between two pings.
    pub(super) fn bounded(self) -> Self {
        let Self { pings, silences, plugin } = self;
        Self {
            pings: Pings { after: bounded_pause(pings.after), timeout: bounded(pings.timeout) },
            silences: Silences {
                request: bounded(silences.request),
                answer: bounded(silences.answer),
                http1_answer: bounded(silences.http1_answer),
            },
            plugin: PluginTimes { request: bounded(plugin.request), run: bounded(plugin.run) },
        }
    }
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            pings: Pings { after: seconds(25), timeout: seconds(15) },
            silences: Silences { request: seconds(10), answer: seconds(100), http1_answer: seconds(25) },
            plugin: PluginTimes { request: seconds(8), run: seconds(30) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a ping would follow each answer to a ping at once, for as long as the connection lasts.
    #[test]
    fn there_is_a_time_between_two_pings_also_if_none_is_configured() {
        let pings = Pings { after: Duration::ZERO, timeout: Duration::from_secs(15) };
        let bounded = ConnectionOptions { pings, ..ConnectionOptions::default() }.bounded();
        assert!(bounded.pings.after > Duration::ZERO);
        assert_eq!(bounded.pings.timeout, pings.timeout);
    }
}
