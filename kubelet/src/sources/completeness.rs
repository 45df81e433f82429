//! Whether a kubelet's list has all pods of its node.
//!
//! A kubelet answers before it has read its own sources. After its start it lists no pod at all for a moment, and only
//! its static pods as long as the API server is away, although the containers of the others run on. Nothing in the
//! answer says so. So a list that has lost pods proves nothing by itself. This module judges what a series of lists
//! proves; it knows neither how they were requested nor what the merge does with an incomplete one.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{CONFIG_SOURCE_ANNOTATION, PodMeta, is_static_pod};

use super::Source;

/// How long a kubelet that was restarted, or was unreachable, may list no pod of the API server before its list counts as
/// complete all the same. Until then, pods that it listed earlier stay, marked with
/// [`UNCONFIRMED_ANNOTATION`](super::static_pods::UNCONFIRMED_ANNOTATION). A node that runs nothing but static pods has
/// no such pod to list; an API server may be away for long.
pub const INCOMPLETE_FOR: Duration = Duration::from_secs(3600);

/// What to say of a list that may be incomplete.
pub(crate) const INCOMPLETE: &str = "the kubelet has just answered for the first time, or was restarted or unreachable, and may not list the API server's \
     pods yet; pods that it listed before stay, unconfirmed";

/// A kubelet takes over the pods of a source one after the other. If their number did not grow for this long, it has all of them.
pub(crate) const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Judges the lists of one kubelet, in the order in which they are received.
///
/// Tell it of each interruption, after which another process may answer: a request that failed, a connection that
/// ended. A list is complete once two lists since then, at least [`SETTLED_AFTER`] apart, have pods of the API server,
/// and the second one has no more of them than the first; or after [`INCOMPLETE_FOR`].
///
/// Earlier than that, it may have all pods of the kubelet's files, for which no server is needed: once lists have had the same number
/// of them, and not none, for [`SETTLED_AFTER`]. A list without any proves nothing: a kubelet reads none of its sources before its
/// container runtime has answered, which may take long.
#[derive(Debug)]
pub(crate) struct Completeness(State);

/// What a list has for certain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Extent {
    /// Only a part, perhaps.
    Part,
    /// All pods of the kubelet's files. Others may be missing.
    PodsOfFiles,
    All,
}

/// How many pods a list has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) of_api_server: usize,
    pub(crate) of_files: usize,
}

impl Listed {
    pub(crate) fn of<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut listed = Self { of_api_server: 0, of_files: 0 };
        for pod in pods {
            listed.of_api_server += usize::from(!is_static_pod(pod));
            listed.of_files += usize::from(is_of_file(pod));
        }
        listed
    }
}

/// Whether a pod that a kubelet lists is one of its files.
pub(crate) fn is_of_file(pod: &Pod) -> bool {
    pod.annotation(CONFIG_SOURCE_ANNOTATION) == Some(Source::File.as_str())
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No list since the interruption, or since the start of this program.
    Interrupted,
    /// All lists since the interruption may be incomplete.
    InDoubt {
        /// When the first of them was requested.
        since: Instant,
        of_api_server: Option<Count>,
        of_files: Option<Count>,
    },
    Complete,
}

/// How many pods of one origin the lists have, once there are any.
#[derive(Clone, Copy, Debug)]
struct Count {
    pods: usize,
    /// When a list first had so many of them.
    since: Instant,
}

impl Count {
    /// Counts anew if the number has grown.
    fn unless_more(before: Option<Self>, pods: usize, asked: Instant) -> Option<Self> {
        Self::unless(|before| pods > before, before, pods, asked)
    }

    /// Counts anew if the number has changed.
    fn unless_other(before: Option<Self>, pods: usize, asked: Instant) -> Option<Self> {
        Self::unless(|before| pods != before, before, pods, asked)
    }

    fn unless(
        is_new: impl FnOnce(usize) -> bool,
        before: Option<Self>,
        pods: usize,
        asked: Instant,
    ) -> Option<Self> {
        let new = Self { pods, since: asked };
        let count = before.filter(|before| !is_new(before.pods)).unwrap_or(new);
        (pods > 0).then_some(count)
    }

    fn stands_still(self, asked: Instant) -> bool {
        asked.saturating_duration_since(self.since) >= SETTLED_AFTER
    }
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

    /// What the list has for certain that was requested at `asked` and has these pods.
    pub(crate) fn extent(&mut self, asked: Instant, listed: Listed) -> Extent {
        if matches!(self.0, State::Interrupted) {
            self.0 = State::InDoubt { since: asked, of_api_server: None, of_files: None };
        }
        let State::InDoubt { since, of_api_server, of_files } = self.0 else { return Extent::All };
        let of_api_server = Count::unless_more(of_api_server, listed.of_api_server, asked);
        let of_files = Count::unless_other(of_files, listed.of_files, asked);
        let has_all = of_api_server.is_some_and(|count| count.stands_still(asked))
            || asked.saturating_duration_since(since) >= INCOMPLETE_FOR;
        if has_all {
            self.0 = State::Complete;
            return Extent::All;
        }
        self.0 = State::InDoubt { since, of_api_server, of_files };
        let has_files = of_files.is_some_and(|count| count.stands_still(asked));
        if has_files { Extent::PodsOfFiles } else { Extent::Part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Completeness {
        /// Of a list without static pods.
        fn is_complete(&mut self, asked: Instant, of_api_server: usize) -> bool {
            self.extent(asked, Listed { of_api_server, of_files: 0 }) == Extent::All
        }
    }

    /// Each list without a pod of the API server: when it was requested, in milliseconds, how many pods of files it has, and whether
    /// it must count as having all of them.
    fn judged_of_files(lists: &[(u64, usize, bool)]) {
        let start = Instant::now();
        let mut completeness = Completeness::new();
        for (at, of_files, has_all) in lists {
            let asked = start + Duration::from_millis(*at);
            let extent = completeness.extent(asked, Listed { of_api_server: 0, of_files: *of_files });
            let expected = if *has_all { Extent::PodsOfFiles } else { Extent::Part };
            assert_eq!(extent, expected, "the list at {at} ms");
        }
    }

    #[test]
    fn pods_of_files_are_all_there_once_some_are_and_their_number_stands_still() {
        judged_of_files(&[
            (0, 0, false),
            (300, 3, false),
            (1299, 3, false),
            (1300, 3, true),
            (9000, 3, true),
        ]);
        judged_of_files(&[(0, 1, false), (900, 3, false), (1800, 3, false), (1900, 3, true)]);
        // One of them has gone. Or another process lists the first of its pods.
        judged_of_files(&[(0, 3, false), (1000, 2, false), (1999, 2, false), (2000, 2, true)]);
    }

    /// Its container runtime does not answer, so it has not read its files. The containers run on.
    #[test]
    fn a_list_without_any_pod_of_a_file_says_nothing_of_these_however_long() {
        judged_of_files(&[(0, 0, false), (60_000, 0, false), (3_000_000, 0, false), (3_000_100, 2, false)]);
    }

    #[test]
    fn after_an_interruption_pods_of_files_are_doubted_anew() {
        let start = Instant::now();
        let listed = Listed { of_api_server: 0, of_files: 2 };
        let mut completeness = Completeness::new();
        let mut extents = [0, 1, 2].map(|second| completeness.extent(start + SETTLED_AFTER * second, listed));
        assert_eq!(extents, [Extent::Part, Extent::PodsOfFiles, Extent::PodsOfFiles]);
        completeness.interrupted();
        extents = [3, 4, 5].map(|second| completeness.extent(start + SETTLED_AFTER * second, listed));
        assert_eq!(extents, [Extent::Part, Extent::PodsOfFiles, Extent::PodsOfFiles]);
    }

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
