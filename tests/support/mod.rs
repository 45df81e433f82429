//! Shared by the tests: a pod that is easy to create.
#![allow(dead_code, reason = "every test binary uses a part of it")]

pub mod history;
pub mod invariants;
pub mod keys;
pub mod kubelet;
pub mod model;
pub mod observation;
pub mod removed;

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_index::kubelet::{MirrorToPod, PodToMirror};
use pod_index::{
    CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, CustomKeyKind, PodKeys,
    PodMeta, Snapshot,
};

/// A pod with only what the index reads, and a number that identifies its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestPod {
    pub uid: String,
    pub name: String,
    pub namespace: String,
    pub annotations: BTreeMap<String, String>,
    pub ephemeral: usize,
    pub version: u64,
    pub keys: TestKeys,
}

/// What a [`TestPod`] names besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestKeys {
    /// Names of containers, and their IDs as statuses have them.
    pub containers: Vec<(String, String)>,
    pub ips: Vec<String>,
    pub custom: Vec<(u16, Vec<u8>)>,
    pub finished: bool,
    pub terminating: bool,
    pub created: Option<i64>,
}

impl PodMeta for TestPod {
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
    fn ephemeral_container_count(&self) -> usize {
        self.ephemeral
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        let TestKeys { containers, ips, custom, finished, terminating, created } = &self.keys;
        for (name, id) in containers {
            keys.container_id(name, id);
        }
        for ip in ips {
            keys.ip_text(ip);
        }
        for (kind, key) in custom {
            keys.custom_key(CustomKeyKind(*kind), key);
        }
        keys.finished(*finished);
        keys.terminating(*terminating);
        if let Some(created) = created {
            keys.created(*created);
        }
    }
}

impl TestPod {
    fn new(uid: &str, full_name: &str, annotation: Option<(&str, &str)>) -> Arc<Self> {
        let (name, namespace) = full_name.split_once('_').unwrap_or((full_name, "default"));
        let annotations =
            annotation.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
        Arc::new(Self {
            uid: uid.to_owned(),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            annotations,
            ..Self::default()
        })
    }

    /// A pod from the API server. `full_name` is `name_namespace`; without a namespace it is `default`.
    pub fn plain(uid: &str, full_name: &str) -> Arc<Self> {
        Self::new(uid, full_name, None)
    }

    /// A pod from a file, whose config hash is its UID.
    pub fn fixed(uid: &str, full_name: &str) -> Arc<Self> {
        let mut pod = Self::new(uid, full_name, Some((CONFIG_SOURCE_ANNOTATION, "file")));
        Arc::make_mut(&mut pod).annotations.insert(CONFIG_HASH_ANNOTATION.to_owned(), uid.to_owned());
        pod
    }

    /// A mirror of the static pod whose config hash is `hash`.
    pub fn mirror(uid: &str, full_name: &str, hash: &str) -> Arc<Self> {
        Self::new(uid, full_name, Some((CONFIG_MIRROR_ANNOTATION, hash)))
    }

    pub fn with_keys(self: Arc<Self>, keys: TestKeys) -> Arc<Self> {
        Arc::new(Self { keys, ..Arc::unwrap_or_clone(self) })
    }

    pub fn with_ephemeral(self: Arc<Self>, ephemeral: usize) -> Arc<Self> {
        Arc::new(Self { ephemeral, ..Arc::unwrap_or_clone(self) })
    }
}

/// The UIDs of some pods, sorted.
pub fn uids<'a>(pods: impl IntoIterator<Item = &'a Arc<TestPod>>) -> Vec<&'a str> {
    let mut uids: Vec<_> = pods.into_iter().map(|pod| pod.uid.as_str()).collect();
    uids.sort_unstable();
    uids
}

/// The pairs of `pod_to_mirror`, sorted; a pod without a mirror has `""`.
pub fn pod_to_mirror(snapshot: &Snapshot<TestPod>) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for PodToMirror { pod, mirror, .. } in snapshot.pod_to_mirror_uids() {
        let mirror = mirror.map_or_else(String::new, |mirror| mirror.to_string());
        assert_eq!(map.insert(pod.to_string(), mirror), None, "{pod} is reported twice");
    }
    map
}

/// The pairs of `mirror_to_pod`, sorted.
pub fn mirror_to_pod(snapshot: &Snapshot<TestPod>) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for MirrorToPod { mirror, pod, .. } in snapshot.mirror_to_pod_uids() {
        assert_eq!(map.insert(mirror.to_string(), pod.to_string()), None, "{mirror} is reported twice");
    }
    map
}

/// A pod of which only the UID, which is its name too, and the keys matter.
pub struct Named<F>(pub &'static str, pub F);

impl<F: Fn(&mut PodKeys<'_>)> PodMeta for Named<F> {
    fn uid(&self) -> &str {
        self.0
    }
    fn name(&self) -> &str {
        self.0
    }
    fn namespace(&self) -> &'static str {
        "default"
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        (self.1)(keys);
    }
}

/// Such a pod without keys, which drops `guard` when it is dropped.
pub fn guarded<T>(uid: &'static str, guard: T) -> Named<impl Fn(&mut PodKeys<'_>)> {
    Named(uid, move |_: &mut PodKeys<'_>| {
        let _ = &guard;
    })
}

/// xorshift: a history that its seed repeats.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }
}
