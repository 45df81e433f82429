//! A pod of nothing but what the index reads.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{PodKeys, PodMeta};

/// A ready-made pod, for those who have no type of their own: what the index reads, and nothing else.
///
/// # Examples
/// ```
/// use pod_index::{SimpleContainer, SimplePod};
///
/// let (mut writer, reader) = pod_index::new();
/// let id = format!("containerd://{}", "3e5f0b1c".repeat(8));
/// let containers = vec![SimpleContainer { name: "nginx".into(), id }];
/// let ips = vec![[10, 0, 0, 7].into()];
/// writer.upsert_pod(SimplePod { containers, ips, ..SimplePod::new("u1", "shop", "web-0") })?;
/// assert_eq!(reader.load().pod_by_ip([10, 0, 0, 7].into()).unwrap().name, "web-0");
/// # Ok::<(), pod_index::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SimplePod {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.annotations`, at least those that [`PodMeta`] names.
    pub annotations: BTreeMap<String, String>,
    /// Its containers.
    pub containers: Vec<SimpleContainer>,
    /// Its IPs, unless it uses its node's.
    pub ips: Vec<IpAddr>,
}

/// A container of a [`SimplePod`].
///
/// # Examples
/// See [`SimplePod`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SimpleContainer {
    /// Its name.
    pub name: String,
    /// Its ID, as [`PodKeys::container_id`] takes it.
    pub id: String,
}

impl SimplePod {
    /// A pod without annotations, containers and IPs.
    #[must_use]
    pub fn new(uid: &str, namespace: &str, name: &str) -> Self {
        let [uid, namespace, name] = [uid, namespace, name].map(str::to_owned);
        Self { uid, namespace, name, ..Self::default() }
    }
}

impl PodMeta for SimplePod {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        self.containers.iter().for_each(|container| keys.container_id(&container.name, &container.id));
        self.ips.iter().for_each(|ip| keys.ip(*ip));
    }
}
