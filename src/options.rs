//! What an index keeps. This is chosen when it is created.

use std::time::Duration;

/// Whether an index keeps removed pods, and when each pod had its keys. By default neither.
///
/// The pods decide by which keys they are found: see [`PodMeta::keys`](crate::PodMeta::keys).
///
/// # Examples
/// See [`RemovedPods`](crate::RemovedPods).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[must_use]
pub struct Options {
    pub(crate) removed: Option<KeepRemoved>,
    pub(crate) times: bool,
}

/// How long removed pods are kept, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct KeepRemoved {
    pub(crate) max_age: Duration,
    pub(crate) max_pods: usize,
}

impl Options {
    /// What [`new`](crate::new) keeps: the current pods.
    pub const fn new() -> Self {
        Self { removed: None, times: false }
    }

    /// Keeps removed pods for [`Snapshot::removed`](crate::Snapshot::removed), because logs and spans arrive after
    /// their pod. Each pod is kept for `max_age`, and at most the last `max_pods` are kept. Mirror pods count too. Off
    /// by default; zero for either turns it off.
    ///
    /// Each write forgets the pods older than `max_age`. Without writes,
    /// [`Writer::advance`](crate::Writer::advance) does it, at [`Writer::next_deadline`](crate::Writer::next_deadline).
    ///
    /// # Complexity
    /// A removal stores the pod in a second set of tables. A removed pod takes about 700 bytes in addition to its own object, or
    /// about 2 kB with times (of an IP and a name), see [`keep_times`](Self::keep_times).
    /// Nothing bounds the bytes of these objects: choose `max_pods` by what one of yours may take. If this is off, it takes
    /// no memory and no time.
    ///
    /// # Examples
    /// See [`RemovedPods`](crate::RemovedPods).
    pub const fn keep_removed(self, max_age: Duration, max_pods: usize) -> Self {
        let is_off = max_age.is_zero() || max_pods == 0;
        Self { removed: if is_off { None } else { Some(KeepRemoved { max_age, max_pods }) }, ..self }
    }

    /// Keeps for each pod when it had its IPs, custom keys and name, for lookups [at a time](crate::Snapshot::at). Has an
    /// effect only with [`keep_removed`](Self::keep_removed), whose limits also bound how far back the answers reach. Off
    /// by default.
    ///
    /// Say which times the sources cover, with the [`Moment`](crate::Moment) of a write: without that, no answer is certain.
    ///
    /// # Complexity
    /// About 200 bytes for each key of a pod, 700 once the pod has lost it, and O(log n) per write. Lookups of the present cost nothing more. If this is
    /// off, it takes no memory and no time.
    pub const fn keep_times(self, keep: bool) -> Self {
        Self { times: keep, ..self }
    }
}
