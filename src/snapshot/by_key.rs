//! The reads by any key, and those by container ID, by IP and by custom keys.

use std::net::IpAddr;
use std::sync::Arc;

use super::Snapshot;
use crate::identity::ContainerId;
use crate::pod::{ClaimedKeyRef, CustomKeyKind, PodMeta, ip_number};
use crate::pods::{Found, Key, KeyNumbers};

/// Numbers of keys in a snapshot.
///
/// # Examples
/// See [`Snapshot::key_counts`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct KeyCounts {
    /// Distinct container IDs.
    pub container_ids: usize,
    /// Distinct IPs.
    pub ips: usize,
    /// Distinct custom keys.
    pub custom_keys: usize,
    /// Claims to IPs that another pod holds, without those of finished pods, which keep an IP in their status after it has
    /// gone to another pod. For a few seconds, this is usual: the IP of a pod that is being deleted goes to the next one. If it
    /// stays above 0, a lookup by such an IP may name the wrong pod, and [`is_contested`](Snapshot::is_contested) is true of it.
    pub contended_ips: usize,
    /// Claims to container IDs that another pod holds. None is usual: no two containers have one ID.
    pub contended_container_ids: usize,
    /// Claims to custom keys that another pod holds. Of a key that pods share, such as that of their workload, these are all
    /// pods but one: no sign of a conflict.
    pub contended_custom_keys: usize,
    /// Claims to names that another pod holds: of pods, and of mirror pods. A name is that of the pod that was stored last.
    pub contended_names: usize,
}

impl<P: PodMeta> Snapshot<P> {
    /// The current pod with this key. Ignores mirror pods, and translates no UID. If several pods claim the key, returns
    /// the one with the strongest claim; of a name, the one stored last. [`is_contested`](Self::is_contested) says so, and
    /// [`claimants`](Self::claimants) lists them all.
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
    /// #     fn namespace(&self) -> &str { "shop" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// # writer.upsert_pod(Slim)?;
    /// let pods = reader.load();
    /// let found = pods.get(("shop", "web")).expect("it was published");
    /// assert_eq!((found.by, found.container), (pod_index::FoundBy::Name, None));
    /// assert!(pods.get("u1").is_some() && pods.get("u2").is_none());
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Option<Found<'_, P>> {
        self.live.get(key.into(), &self.hashing)
    }

    /// Whether several current pods claim this key, so that [`get`](Self::get) returns only one of them. A UID is never
    /// contested. This is a method of its own so that a `get` which does not ask pays nothing.
    ///
    /// # Complexity
    /// O(1) for an IP or a container ID while none is contested, otherwise O(log n) for n claims, with at most one
    /// allocation.
    ///
    /// # Examples
    /// See [`claimants`](Self::claimants).
    #[inline]
    #[must_use]
    pub fn is_contested<'k>(&self, key: impl Into<Key<'k>>) -> bool {
        let key = self.live.meant(key.into(), &self.hashing);
        key.claimed_by_pods().is_some_and(|key| self.live.contenders.first_of(key).is_some())
    }

    /// All current pods that claim this key: the pod that [`get`](Self::get) returns, then the others, the strongest claim
    /// first. An IP of a pod that is being deleted may already be that of the next one. A UID has one claimant.
    ///
    /// # Complexity
    /// That of [`get`](Self::get) for the first pod, O(log n) for each further one. If there are others, they may take
    /// one allocation.
    ///
    /// # Examples
    /// ```
    /// # struct Slim(&'static str);
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { self.0 }
    /// #     fn name(&self) -> &str { self.0 }
    /// #     fn namespace(&self) -> &str { "default" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// #     fn keys(&self, keys: &mut pod_index::PodKeys<'_>) { keys.ip([10, 0, 0, 7].into()); }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// use std::net::IpAddr;
    ///
    /// writer.upsert_pod(Slim("u1"))?;
    /// writer.upsert_pod(Slim("u2"))?;
    /// let pods = reader.load();
    /// let ip = IpAddr::from([10, 0, 0, 7]);
    /// let uids: Vec<_> = pods.claimants(ip).map(|found| found.pod.0).collect();
    /// assert_eq!(uids, ["u1", "u2"]); // so the IP alone does not tell which of the two it is
    /// assert!(pods.is_contested(ip) && !pods.is_contested("u1"));
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    pub fn claimants<'a>(&'a self, key: impl Into<Key<'a>>) -> impl Iterator<Item = Found<'a, P>> {
        self.live.all(key.into(), &self.hashing)
    }

    /// The pod with this container, and the container's name. The ID is text in any of its spellings; for a
    /// [`ContainerId`] use [`get`](Self::get).
    ///
    /// If several pods name the ID, returns the one with the strongest claim; see [`PodMeta::keys`]. A prefix
    /// of an ID finds nothing. Neither does the ID of a sandbox, because no pod status names it.
    ///
    /// A status names the container's present run and the one before. So the ID of an earlier run finds nothing once the
    /// container has been restarted twice; the pod's UID, in the same log path or cgroup, still does.
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
    /// writer.upsert_pod(Slim(format!("containerd://{id}")))?;
    ///
    /// let pods = reader.load();
    /// let found = pods.pod_by_container_id(&id).expect("it was published");
    /// assert_eq!(found.container, Some("nginx"));
    /// assert!(pods.pod_by_container_id("3e5f0b1c3e5f").is_none());
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn pod_by_container_id(&self, id: impl AsRef<str>) -> Option<Found<'_, P>> {
        self.get(ContainerId::parse(id.as_ref())?)
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
    /// writer.upsert_pod(Slim)?;
    /// assert!(reader.load().pod_by_ip([10, 0, 0, 7].into()).is_some());
    /// assert!(reader.load().pod_by_ip("::ffff:10.0.0.7".parse().unwrap()).is_some());
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn pod_by_ip(&self, ip: IpAddr) -> Option<&Arc<P>> {
        Some(self.live.find(ClaimedKeyRef::Ip(ip_number(ip)), &self.hashing)?.1)
    }

    /// The pods that name this custom key, strongest claim first; see [`PodMeta::keys`].
    ///
    /// # Complexity
    /// O(1) expected for the first pod, O(log n) for each further one. If there are others, they may take one allocation.
    ///
    /// # Examples
    /// See [`PodMeta::keys`].
    pub fn pods_by_custom_key<'a>(
        &'a self,
        kind: CustomKeyKind,
        key: &'a [u8],
    ) -> impl Iterator<Item = &'a Arc<P>> {
        self.claimants((kind, key)).map(|found| found.pod)
    }

    /// Numbers of distinct keys that the pods of this snapshot name, and of the claims to keys that another pod holds.
    ///
    /// # Complexity
    /// O(1).
    ///
    /// # Examples
    /// ```
    /// use pod_index::SimplePod;
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// let ips = vec![[10, 0, 0, 7].into()];
    /// writer.upsert_pod(SimplePod { ips: ips.clone(), ..SimplePod::new("u1", "shop", "web-0") })?;
    /// writer.upsert_pod(SimplePod { ips, ..SimplePod::new("u2", "shop", "web-1") })?;
    /// let counts = reader.load().key_counts();
    /// assert_eq!((counts.ips, counts.contended_ips), (1, 1)); // one IP, and a second pod that claims it
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[must_use]
    pub fn key_counts(&self) -> KeyCounts {
        let KeyNumbers { names: _, container_ids, ips, custom_keys } = self.live.key_numbers();
        let contended = self.live.contenders.numbers();
        KeyCounts {
            container_ids,
            ips,
            custom_keys,
            contended_ips: contended.ips,
            contended_container_ids: contended.container_ids,
            contended_custom_keys: contended.custom_keys,
            contended_names: contended.names,
        }
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
