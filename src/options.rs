//! What an index keeps. This is chosen when it is created.

use std::time::Duration;

/// The keys by which an index finds pods, besides UIDs and names, and whether it keeps removed pods.
///
/// [`new`](crate::new) keeps all kinds, so every lookup finds what the pods name. A kind that is left out
/// takes no memory or time, and its lookups find nothing. A kind for which pods name no keys
/// ([`PodMeta::keys`](crate::PodMeta::keys)) costs nothing either.
///
/// # Examples
/// ```
/// # struct Slim;
/// # impl pod_index::PodMeta for Slim {
/// #     fn uid(&self) -> &str { "u1" }
/// #     fn name(&self) -> &str { "web" }
/// #     fn namespace(&self) -> &str { "default" }
/// #     fn annotation(&self, _: &str) -> Option<&str> { None }
/// # }
/// use pod_index::Options;
///
/// let (mut writer, reader) = pod_index::with_options::<Slim>(Options::new().ips(true));
/// # writer.add_pod(Slim)?;
/// # assert!(reader.load().pod_by_ip([10, 0, 0, 7].into()).is_none());
/// # Ok::<(), pod_index::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub struct Options {
    pub(crate) kinds: Kinds,
    pub(crate) removed: Option<KeepRemoved>,
    pub(crate) times: bool,
}

/// The kinds of keys that are kept, besides UIDs and names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) container_ids: bool,
    pub(crate) ips: bool,
    pub(crate) keys: bool,
}

/// How long removed pods are kept, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct KeepRemoved {
    pub(crate) max_age: Duration,
    pub(crate) max_pods: usize,
}

/// What [`new`](crate::new) keeps: every kind of key, and no removed pods.
impl Default for Options {
    fn default() -> Self {
        Self::all()
    }
}

impl Options {
    /// Only UIDs and names, and no removed pods.
    pub const fn new() -> Self {
        Self { kinds: Kinds { container_ids: false, ips: false, keys: false }, removed: None, times: false }
    }

    /// Every kind of key, and no removed pods.
    pub const fn all() -> Self {
        Self::new().container_ids(true).ips(true).keys(true)
    }

    /// Whether [`pod_by_container_id`](crate::Snapshot::pod_by_container_id) finds pods.
    pub const fn container_ids(self, keep: bool) -> Self {
        Self { kinds: Kinds { container_ids: keep, ..self.kinds }, ..self }
    }

    /// Whether [`pod_by_ip`](crate::Snapshot::pod_by_ip) finds pods.
    pub const fn ips(self, keep: bool) -> Self {
        Self { kinds: Kinds { ips: keep, ..self.kinds }, ..self }
    }

    /// Whether [`pods_by_key`](crate::Snapshot::pods_by_key) finds pods.
    pub const fn keys(self, keep: bool) -> Self {
        Self { kinds: Kinds { keys: keep, ..self.kinds }, ..self }
    }

    /// Keeps removed pods for [`Snapshot::removed`](crate::Snapshot::removed), because logs and spans arrive after
    /// their pod. Each pod is kept for `max_age`, and at most the last `max_pods` are kept. Mirror pods count too. Off
    /// by default; zero for either turns it off.
    ///
    /// [`Writer::expire`](crate::Writer::expire) drops the pods older than `max_age`.
    ///
    /// # Complexity
    /// A removal stores the pod in a second set of tables. A removed pod takes about as much memory as a current one, in
    /// addition to its own object. If this is off, it takes no memory and no time.
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
    /// Tell the writer the time: [`Writer::set_time`](crate::Writer::set_time) before writes,
    /// [`Writer::heard`](crate::Writer::heard) after them.
    ///
    /// # Complexity
    /// About 200 bytes for each key of a pod, 700 once the pod has lost it, and O(log n) per write. Lookups of the present cost nothing more. If this is
    /// off, it takes no memory and no time.
    pub const fn keep_times(self, keep: bool) -> Self {
        Self { times: keep, ..self }
    }
}

impl Kinds {
    /// Whether any kind is kept.
    pub(crate) const fn any(self) -> bool {
        self.container_ids || self.ips || self.keys
    }
}
