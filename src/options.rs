//! The kinds of keys that an index keeps. They are chosen when it is created.

/// The keys by which an index finds pods, besides UIDs and names.
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[must_use]
pub struct Options {
    container_ids: bool,
    ips: bool,
    keys: bool,
}

impl Options {
    /// Only UIDs and names.
    pub const fn new() -> Self {
        Self { container_ids: false, ips: false, keys: false }
    }

    /// Every kind.
    pub const fn all() -> Self {
        Self { container_ids: true, ips: true, keys: true }
    }

    /// Whether [`pod_by_container_id`](crate::Snapshot::pod_by_container_id) finds pods.
    pub const fn container_ids(self, keep: bool) -> Self {
        Self { container_ids: keep, ..self }
    }

    /// Whether [`pod_by_ip`](crate::Snapshot::pod_by_ip) finds pods.
    pub const fn ips(self, keep: bool) -> Self {
        Self { ips: keep, ..self }
    }

    /// Whether [`pods_by_key`](crate::Snapshot::pods_by_key) finds pods.
    pub const fn keys(self, keep: bool) -> Self {
        Self { keys: keep, ..self }
    }

    pub(crate) const fn keeps_container_ids(self) -> bool {
        self.container_ids
    }

    pub(crate) const fn keeps_ips(self) -> bool {
        self.ips
    }

    pub(crate) const fn keeps_keys(self) -> bool {
        self.keys
    }

    /// Whether any kind is kept.
    pub(crate) const fn keeps_any(self) -> bool {
        self.container_ids || self.ips || self.keys
    }
}
