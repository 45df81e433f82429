//! The generated pods of a node: the same in every run.
//!
//! Nine of ten pods come from the API server and have UUIDs as UIDs. One of ten is static, has 32 hex digits
//! as its UID, and has a mirror with a UUID. Keys are separate strings, created in shuffled order after the
//! pods, so that no lookup finds its key where the index keeps its own.

use std::ops::Range;
use std::sync::Arc;

use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, PodMeta};

/// A pod as a latency-sensitive agent would store it: only what it is indexed by.
#[derive(Debug)]
pub struct Pod {
    uid: Box<str>,
    name: Box<str>,
    namespace: Box<str>,
    role: Role,
}

#[derive(Clone, Debug)]
enum Role {
    Plain,
    Static,
    /// With the config hash of the static pod.
    Mirror(Box<str>),
}

impl PodMeta for Pod {
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
        match &self.role {
            Role::Plain => None,
            Role::Static if key == CONFIG_SOURCE_ANNOTATION => Some("file"),
            Role::Static if key == CONFIG_HASH_ANNOTATION => Some(&self.uid),
            Role::Mirror(hash) if key == CONFIG_MIRROR_ANNOTATION => Some(hash),
            Role::Static | Role::Mirror(_) => None,
        }
    }
}

impl Pod {
    /// A copy of the pod as another object, for updates.
    #[must_use]
    pub fn renewed(&self) -> Arc<Self> {
        Arc::new(Self {
            uid: self.uid.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            role: self.role.clone(),
        })
    }
}

/// The pods of one node.
pub struct Workload {
    /// All pods, mirrors excluded.
    pub pods: Vec<Arc<Pod>>,
    /// The mirrors, in the order of the static pods.
    pub mirrors: Vec<Arc<Pod>>,
    rng: Rng,
}

impl Workload {
    /// A node with `n` pods.
    #[must_use]
    pub fn new(n: usize) -> Self {
        let mut rng = Rng::new();
        let (mut pods, mut mirrors) = (Vec::with_capacity(n), Vec::with_capacity(n / 10));
        for i in 0..n {
            let name = format!("web-{:010x}-{i:x}", rng.next() >> 24).into_boxed_str();
            let namespace = format!("team-{}", rng.below(n / 20 + 1)).into_boxed_str();
            if i % 10 == 9 {
                let uid = rng.hex();
                let role = Role::Mirror(uid.clone());
                mirrors.push(Arc::new(Pod {
                    uid: rng.uuid(),
                    name: name.clone(),
                    namespace: namespace.clone(),
                    role,
                }));
                pods.push(Arc::new(Pod { uid, name, namespace, role: Role::Static }));
            } else {
                pods.push(Arc::new(Pod { uid: rng.uuid(), name, namespace, role: Role::Plain }));
            }
        }
        rng.shuffle(&mut pods);
        Self { pods, mirrors, rng }
    }

    /// Pods and mirrors, as a source would deliver them.
    pub fn all(&self) -> impl Iterator<Item = Arc<Pod>> {
        self.pods.iter().chain(&self.mirrors).cloned()
    }

    /// A copy of each pod as another object, in shuffled order.
    #[must_use]
    pub fn updates(&mut self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<_> = self.pods.iter().map(|pod| pod.renewed()).collect();
        self.rng.shuffle(&mut pods);
        pods
    }

    /// Up to `limit` keys of pods, created by `key`, in an order independent of the pods'.
    pub fn hits<K>(&mut self, limit: usize, key: impl FnMut(&Pod) -> K) -> Vec<K> {
        Self::keys(&mut self.rng, &self.pods, limit, key)
    }

    /// Like [`hits`](Self::hits), for mirrors.
    pub fn mirror_hits<K>(&mut self, limit: usize, key: impl FnMut(&Pod) -> K) -> Vec<K> {
        Self::keys(&mut self.rng, &self.mirrors, limit, key)
    }

    fn keys<K>(rng: &mut Rng, pods: &[Arc<Pod>], limit: usize, mut key: impl FnMut(&Pod) -> K) -> Vec<K> {
        let mut order: Vec<_> = (0..pods.len()).collect();
        rng.shuffle(&mut order);
        order.truncate(limit);
        order.into_iter().map(|at| key(&pods[at])).collect()
    }

    /// The items in another order each time.
    #[must_use]
    pub fn shuffled<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        let mut items = items.to_vec();
        self.rng.shuffle(&mut items);
        items
    }

    /// The texts of up to `limit` keys of pods one after the other, in an order independent of the pods', and the
    /// place of each. The processor reads ahead in them, so that lookups overlap.
    #[must_use]
    pub fn contiguous_hits(
        &mut self,
        limit: usize,
        mut key: impl FnMut(&Pod) -> &str,
    ) -> (String, Vec<Range<usize>>) {
        let mut text = String::new();
        let places = self.hits(limit, |pod| {
            let start = text.len();
            text.push_str(key(pod));
            start..text.len()
        });
        (text, places)
    }

    /// `count` UIDs in the API server's spelling that no pod has.
    #[must_use]
    pub fn misses(&mut self, count: usize) -> Vec<Box<str>> {
        (0..count).map(|_| self.rng.uuid()).collect()
    }

    /// `count` pods that the node does not have yet.
    #[must_use]
    pub fn strangers(&mut self, count: usize) -> Vec<Arc<Pod>> {
        (0..count)
            .map(|i| {
                let name = format!("new-{:010x}-{i:x}", self.rng.next() >> 24).into();
                Arc::new(Pod { uid: self.rng.uuid(), name, namespace: "team-0".into(), role: Role::Plain })
            })
            .collect()
    }
}

/// `SplitMix64`: the same numbers in every run, on every machine.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new() -> Self {
        Self(0x0070_6f64_2d69_6478)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or_default()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    pub(crate) fn hex(&mut self) -> Box<str> {
        format!("{:016x}{:016x}", self.next(), self.next()).into()
    }

    fn uuid(&mut self) -> Box<str> {
        let hex = self.hex();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]).into()
    }
}
