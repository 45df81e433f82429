//! The reads by container ID, by IP and by custom keys.

use std::fmt;
use std::iter::FusedIterator;
use std::net::IpAddr;
use std::sync::Arc;

use super::Snapshot;
use super::tables::{Claimants, Tables};
use crate::identity::ContainerId;
use crate::pod::{KeyKind, KeyRef, PodMeta, ip_number};

/// The result of [`Snapshot::pod_by_container_id`]: a pod and one of its containers.
#[non_exhaustive]
pub struct ContainerMatch<'a, P> {
    /// The pod.
    pub pod: &'a Arc<P>,
    /// The container's name in the pod.
    pub container: &'a str,
}

/// The pods that name a key, strongest claim first. See [`Snapshot::pods_by_key`].
pub struct PodsByKey<'a, P>(pub(crate) Claimants<'a, Arc<P>>);

/// Numbers of keys in a snapshot. See [`Snapshot::key_counts`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct KeyCounts {
    /// Distinct container IDs.
    pub container_ids: usize,
    /// Distinct IPs.
    pub ips: usize,
    /// Distinct custom keys.
    pub keys: usize,
    /// Number of claims to keys that another pod holds.
    pub contended: usize,
}

impl<P: PodMeta> Snapshot<P> {
    /// The pod with this container, and the container's name. The ID is a [`ContainerId`] or text in any of
    /// its spellings.
    ///
    /// If several pods name the ID, returns the one with the strongest claim; see [`PodMeta::keys`]. A prefix
    /// of an ID finds nothing. Neither does the ID of a sandbox, because no pod status names it.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// # Examples
    /// ```
    /// # struct Slim(String);
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { "u1" }
    /// #     fn name(&self) -> &str { "web" }
    /// #     fn namespace(&self) -> &str { "default" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// #     fn keys(&self, keys: &mut pod_index::PodKeys<'_>) { keys.container_id("nginx", &self.0); }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// let id = "3e5f0b1c".repeat(8);
    /// writer.add_pod(Slim(format!("containerd://{id}")))?;
    ///
    /// let pods = reader.load();
    /// let found = pods.pod_by_container_id(&id).expect("it was published");
    /// assert_eq!(found.container, "nginx");
    /// assert!(pods.pod_by_container_id("3e5f0b1c3e5f").is_none());
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn pod_by_container_id(&self, id: impl TryInto<ContainerId>) -> Option<ContainerMatch<'_, P>> {
        let entry = self.live.by_container_id(id.try_into().ok()?, &self.hashing)?;
        Some(ContainerMatch { pod: &entry.value, container: entry.key.label.as_str() })
    }

    /// The pod with this IP. An IPv4 address mapped to IPv6 equals the IPv4 address.
    ///
    /// If several pods name the IP, returns the one with the strongest claim; see [`PodMeta::keys`]. Pods in
    /// their node's network have no IP of their own, so this does not find them.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// # Examples
    /// ```
    /// # struct Slim;
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { "u1" }
    /// #     fn name(&self) -> &str { "web" }
    /// #     fn namespace(&self) -> &str { "default" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// #     fn keys(&self, keys: &mut pod_index::PodKeys<'_>) { keys.ip_text("10.0.0.7"); }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// writer.add_pod(Slim)?;
    /// assert!(reader.load().pod_by_ip([10, 0, 0, 7].into()).is_some());
    /// assert!(reader.load().pod_by_ip("::ffff:10.0.0.7".parse().unwrap()).is_some());
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn pod_by_ip(&self, ip: IpAddr) -> Option<&Arc<P>> {
        self.live.by_ip(ip_number(ip), &self.hashing)
    }

    /// The pods that name this custom key, strongest claim first; see [`PodMeta::keys`].
    ///
    /// # Complexity
    /// O(1) expected for the first pod, O(log n) for each further one; no allocation.
    ///
    /// # Examples
    /// See [`PodMeta::keys`].
    #[must_use]
    pub fn pods_by_key(&self, kind: KeyKind, key: &[u8]) -> PodsByKey<'_, P> {
        PodsByKey(self.live.claimants(KeyRef::Own(kind, key), &self.hashing))
    }

    /// Number of distinct keys that the pods of this snapshot name.
    ///
    /// # Complexity
    /// O(1).
    #[must_use]
    pub fn key_counts(&self) -> KeyCounts {
        let Tables { container_ids, ips, keys, contenders, .. } = &self.live;
        let (container_ids, ips, keys) = (container_ids.len(), ips.len(), keys.len());
        KeyCounts { container_ids, ips, keys, contended: contenders.len() }
    }

    /// Number of ignored keys of all pods: those beyond [`MAX_KEYS_PER_POD`](crate::MAX_KEYS_PER_POD), empty
    /// ones, ones longer than [`MAX_KEY_LENGTH`](crate::MAX_KEY_LENGTH), and invalid container IDs and IPs.
    ///
    /// The pods themselves and all their other keys are in the index.
    ///
    /// # Complexity
    /// O(1).
    #[must_use]
    pub fn ignored_key_count(&self) -> usize {
        self.history.ignored_keys
    }
}

impl<'a, P: PodMeta> Iterator for PodsByKey<'a, P> {
    type Item = &'a Arc<P>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<P: PodMeta> FusedIterator for PodsByKey<'_, P> {}

// None of these is derived: a derive would require the same of `P`.
impl<P> Clone for PodsByKey<'_, P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: PodMeta> fmt::Debug for PodsByKey<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone().map(PodMeta::uid)).finish()
    }
}

impl<P> Clone for ContainerMatch<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for ContainerMatch<'_, P> {}

impl<P: PodMeta> fmt::Debug for ContainerMatch<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, container } = self;
        f.debug_struct("ContainerMatch").field("pod", &pod.uid()).field("container", container).finish()
    }
}
