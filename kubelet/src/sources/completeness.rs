//! Whether a kubelet's list has all pods of its node.
//!
//! A kubelet answers before it has read its own sources. After its start it lists no pod at all for a moment, and only
//! its static pods as long as the API server is away, although the containers of the others run on. Nothing in the
//! answer says so. So a list that has lost pods proves nothing by itself. This module judges what a series of lists
//! proves; it knows neither how they were requested nor what the merge does with an incomplete one.

use std::time::{Duration, Instant};

/// How long a kubelet that was restarted, or was unreachable, may list no pod of the API server before its list counts as
/// complete all the same. Until then, pods that it listed earlier stay, marked with
/// [`UNCONFIRMED_ANNOTATION`](super::static_pods::UNCONFIRMED_ANNOTATION). A node that runs nothing but static pods has
/// no such pod to list; an API server may be away for long.
pub const INCOMPLETE_FOR: Duration = Duration::from_secs(3600);

/// What to say of a list that may be incomplete.
pub(crate) const INCOMPLETE: &str = "the kubelet has just answered for the first time, or was restarted or unreachable, and may not list the API server's \
     pods yet; pods that it listed before stay, unconfirmed";

/// A kubelet takes over the pods of the API server one after the other. If their number did not grow for this long, it
/// has all of them.
pub(crate) const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Judges the lists of one kubelet, in the order in which they are received.
///
/// Tell it of each interruption, after which another process may answer: a request that failed, a connection that
/// ended. A list is complete once two lists since then, at least [`SETTLED_AFTER`] apart, have pods of the API server,
/// and the second one has no more of them than the first; or after [`INCOMPLETE_FOR`].
#[derive(Debug)]
pub(crate) struct Completeness(State);

#[derive(Clone, Copy, Debug)]
enum State {
    /// No list since the interruption, or since the start of this program.
    Interrupted,
    /// All lists since the interruption may be incomplete.
    InDoubt {
        /// When the first of them was requested.
        since: Instant,
        /// The pods of the API server, once there are any.
        listed: Option<ApiPods>,
    },
    Complete,
}

/// The pods of the API server in a kubelet's list.
#[derive(Clone, Copy, Debug)]
struct ApiPods {
    count: usize,
    /// When a list first had so many of them.
    since: Instant,
}

impl Completeness {
    /// Of a kubelet of which nothing is known: it may have started just now.
    pub(crate) fn new() -> Self {
        Self(State::Interrupted)
    }

    /// From now on, another process may answer, which does not have its pods yet.
    pub(crate) fn interrupted(&mut self) {
        self.0 = State::Interrupted;
    }

    /// From now on, the kubelet answers no list at all before it has its pods, and says so: Kubernetes 1.37, over its Pods API.
    pub(crate) fn announced(&mut self) {
        self.0 = State::Complete;
    }

    /// Whether the list is complete that was requested at `asked` and has `api_pods` pods of the API server.
    pub(crate) fn is_complete(&mut self, asked: Instant, api_pods: usize) -> bool {
        let now_listed = (api_pods > 0).then_some(ApiPods { count: api_pods, since: asked });
        self.0 = match self.0 {
            State::Complete => State::Complete,
            State::Interrupted => State::InDoubt { since: asked, listed: now_listed },
            State::InDoubt { since, .. } if asked.saturating_duration_since(since) >= INCOMPLETE_FOR => {
                State::Complete
            }
            State::InDoubt { since, listed } => match (listed, now_listed) {
                (Some(before), Some(now)) if now.count <= before.count => {
                    if asked.saturating_duration_since(before.since) >= SETTLED_AFTER {
                        State::Complete
                    } else {
                        State::InDoubt { since, listed }
                    }
                }
                _ => State::InDoubt { since, listed: now_listed },
            },
        };
        matches!(self.0, State::Complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each list: when it was requested, in milliseconds, how many pods of the API server it has, and whether it must
    /// count as complete.
    fn judged(lists: &[(u64, usize, bool)]) {
        let start = Instant::now();
        let mut completeness = Completeness::new();
        for (at, api_pods, is_complete) in lists {
            let judged = completeness.is_complete(start + Duration::from_millis(*at), *api_pods);
            assert_eq!(judged, *is_complete, "the list at {at} ms");
        }
    }

    #[test]
    fn a_new_kubelet_is_believed_once_the_number_of_its_api_pods_stands_still() {
        judged(&[
            (0, 0, false),
            (370, 0, false),
            (1400, 20, false),
            (2399, 20, false),
            (2400, 20, true),
            (2500, 0, true),
        ]);
        judged(&[(0, 1, false), (900, 7, false), (1800, 20, false), (2700, 20, false), (2900, 20, true)]);
        judged(&[(0, 20, false), (500, 19, false), (1000, 19, true)]);
        judged(&[(0, 20, false), (500, 0, false), (1000, 20, false), (2000, 20, true)]);
    }

    #[test]
    fn a_kubelet_without_its_api_server_is_doubted_for_an_hour() {
        let hour = 3_600_000;
        judged(&[(0, 0, false), (1000, 0, false), (20_000, 0, false), (hour - 1, 0, false), (hour, 0, true)]);
    }

    #[test]
    fn after_an_interruption_the_doubt_begins_anew() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut completeness = Completeness::new();
        assert!(!completeness.is_complete(at(0), 3) && completeness.is_complete(at(1), 3));
        completeness.interrupted();
        assert!(!completeness.is_complete(at(2), 3) && completeness.is_complete(at(3), 3));
        completeness.interrupted();
        assert!(!completeness.is_complete(at(4), 0) && !completeness.is_complete(at(3603), 0));
        completeness.interrupted();
        assert!(
            !completeness.is_complete(at(3604), 0) && !completeness.is_complete(at(3605), 0),
            "counted from the interruption"
        );
    }
}
