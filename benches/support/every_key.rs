//! Lookups by every key: the index, and the maps that agents use instead.
//!
//! The index has all keys in one snapshot. Each other design has a map of its own for each key, so that nothing but this
//! map is locked, and its answers by two keys need not belong together. Every map is from the key to `Arc<Keyed>`.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use pod_index::identity::ContainerId;
use pod_index::{Options, PodMeta};

use crate::designs::{Cached, Design};
use crate::keys::{Keyed, filled, keyed};
use crate::throughput::Run;
use crate::workload::Workload;

/// The keys, in the order of the tables.
pub const KEYS: [&str; 5] = ["UID", "name", "IP", "container ID", "container ID, text"];
/// Numbers of pods.
pub const SIZES: [usize; 4] = [200, 1_000, 10_000, 100_000];
/// What goes on beside a lookup: a table each.
pub const SITUATIONS: [Situation; 4] = [
    Situation { threads: 1, updates: false },
    Situation { threads: 1, updates: true },
    Situation { threads: 2, updates: false },
    Situation { threads: 2, updates: true },
];
/// Lookups between two looks at the clock.
const STEP: usize = 256;

/// Threads that look up, and whether pods are updated meanwhile.
#[derive(Clone, Copy)]
pub struct Situation {
    /// Number of threads that look up.
    pub threads: usize,
    /// Whether a writer makes 1,000 updates per second.
    pub updates: bool,
}

impl Situation {
    /// The name of a figure: lookups by this key.
    #[must_use]
    pub fn what(self, key: &str) -> String {
        format!("{key}, {}", self.title())
    }

    fn title(self) -> String {
        let threads = if self.threads == 1 { "one thread" } else { "two threads" };
        let beside = if self.updates { "1,000 updates per second" } else { "no writer" };
        format!("{threads}, {beside}")
    }
}

/// A design that is full of pods.
pub struct Subject {
    /// The design.
    pub who: &'static str,
    /// Replaces this many pods, one after the other.
    pub update: Run,
    /// Its lookups, by some of [`KEYS`].
    pub lookups: Vec<Lookups>,
}

/// The lookups of a design by one key.
pub struct Lookups {
    /// The key.
    pub what: &'static str,
    /// Number of lookups between two looks at the clock.
    pub step: usize,
    keys: usize,
    start: Box<dyn Fn(usize) -> Run>,
}

impl Lookups {
    fn new<K, R>(
        what: &'static str,
        step: usize,
        keys: &Arc<[K]>,
        reader: R,
        find: impl Fn(&mut R, &K) -> usize + Copy + Send + 'static,
    ) -> Self
    where
        K: Send + Sync + 'static,
        R: Clone + Send + 'static,
    {
        let (len, keys) = (keys.len(), Arc::clone(keys));
        let start = Box::new(move |first| -> Run {
            let (keys, mut reader, mut at) = (Arc::clone(&keys), reader.clone(), first);
            Box::new(move |count| {
                for _ in 0..count {
                    let found = find(&mut reader, black_box(&keys[at]));
                    assert_ne!(black_box(found), 0, "every key has a pod");
                    at = if at + 1 < keys.len() { at + 1 } else { 0 };
                }
            })
        });
        Self { what, step, keys: len, start }
    }

    /// Number of lookups after which the caches have what they can hold.
    #[must_use]
    pub fn warm(&self) -> usize {
        if self.step == 1 { 1 } else { self.keys.min(100_000) }
    }

    /// A reader for one thread of `threads`. Each begins at another key and goes through all of them.
    #[must_use]
    pub fn reader(&self, thread: usize, threads: usize) -> Run {
        (self.start)(thread * self.keys / threads)
    }
}

/// A pod, its keys, and another object of the same pod.
#[cfg_attr(not(feature = "peers"), expect(dead_code, reason = "the index reads the keys from the pod"))]
struct Item {
    uid: Box<str>,
    full_name: Box<str>,
    ip: IpAddr,
    id: ContainerId,
    text: Box<str>,
    versions: [Arc<Keyed>; 2],
}

impl Item {
    fn new(pod: &Arc<Keyed>) -> Self {
        let text = pod.container().expect("it has one");
        Self {
            uid: pod.uid().into(),
            full_name: format!("{}_{}", pod.name(), pod.namespace()).into(),
            ip: pod.ip().expect("it has one"),
            id: text.parse().expect("64 digits"),
            text: text.into(),
            versions: [Arc::clone(pod), pod.renewed()],
        }
    }
}

/// A call of `update` for each of `count` pods, first with one of their objects, then with the other.
fn updates(items: &Arc<[Item]>, mut update: impl FnMut(&Item, &Arc<Keyed>) + Send + 'static) -> Run {
    let (items, mut at) = (Arc::clone(items), 0);
    Box::new(move |count| {
        for _ in 0..count {
            let item = &items[at % items.len()];
            at += 1;
            update(item, &item.versions[at / items.len() % 2]);
        }
    })
}

/// Every design of this build, with the pods of this workload: the index first.
#[must_use]
pub fn subjects(workload: &mut Workload) -> Vec<Subject> {
    let pods = keyed(workload, true, 1);
    let items: Arc<[Item]> = pods.iter().map(Item::new).collect();
    // Texts of their own, in an order of their own.
    let order = workload.shuffled(&pods);
    let keys = Keys {
        uids: order.iter().map(|pod| pod.uid().into()).collect(),
        names: order.iter().map(|pod| (pod.namespace().into(), pod.name().into())).collect(),
        ips: order.iter().filter_map(|pod| pod.ip()).collect(),
        ids: order.iter().filter_map(|pod| pod.container()?.parse().ok()).collect(),
        texts: order.iter().filter_map(|pod| Some(pod.container()?.into())).collect(),
    };
    let all = vec![index(&pods, &items, &keys)];
    #[cfg(feature = "peers")]
    let all = all.into_iter().chain(peers::subjects(&items, &keys, &order)).collect();
    all
}

struct Keys {
    uids: Arc<[Box<str>]>,
    names: Arc<[(Box<str>, Box<str>)]>,
    ips: Arc<[IpAddr]>,
    ids: Arc<[ContainerId]>,
    texts: Arc<[Box<str>]>,
}

/// The address of a found pod. Every design has to load it.
fn address(pod: Option<&Arc<Keyed>>) -> usize {
    pod.map_or(0, |pod| Arc::as_ptr(pod).addr())
}

fn index(pods: &[Arc<Keyed>], items: &Arc<[Item]>, keys: &Keys) -> Subject {
    let (mut writer, reader) = filled(pods, Options::new());
    let update = updates(items, move |_, pod| drop(writer.upsert_pod(Arc::clone(pod)).expect("a good pod")));
    let [uid, name, ip, id, text] = KEYS;
    let lookups = vec![
        Lookups::new(uid, STEP, &keys.uids, reader.clone(), |index, uid| {
            address(index.load().pod_by_uid(&**uid))
        }),
        Lookups::new(name, STEP, &keys.names, reader.clone(), |index, (namespace, name)| {
            address(index.load().pod_by_name(namespace, name))
        }),
        Lookups::new(ip, STEP, &keys.ips, reader.clone(), |index, ip| address(index.load().pod_by_ip(*ip))),
        Lookups::new(id, STEP, &keys.ids, reader.clone(), |index, id| {
            address(index.load().get(*id).map(|found| found.pod))
        }),
        Lookups::new(text, STEP, &keys.texts, reader, |index, id| {
            address(index.load().pod_by_container_id(&**id).map(|found| found.pod))
        }),
    ];
    Subject { who: Cached::NAME, update, lookups }
}

#[cfg(feature = "peers")]
mod peers {
    use std::hash::Hash;
    use std::sync::{Arc, PoisonError};

    use ahash::{AHashMap, RandomState};
    use kube_runtime::reflector::ObjectRef;
    use kube_runtime::reflector::store::Writer;
    use kube_runtime::watcher::Event;
    use pod_index::PodMeta;

    use super::{Item, KEYS, Keyed, Keys, Lookups, STEP, Subject, address, updates};
    use crate::designs::{DashMap, Design, KubeStore, Object, Papaya, ParkingLotRwLock, StdRwLock};

    /// A map that threads share.
    trait Map<K>: Clone + Default + Send + 'static {
        fn find(&self, key: &K) -> usize;
        fn store(&self, key: &K, pod: &Arc<Keyed>);
    }

    type StdMap<K> = Arc<std::sync::RwLock<AHashMap<K, Arc<Keyed>>>>;
    type ParkingLotMap<K> = Arc<parking_lot::RwLock<AHashMap<K, Arc<Keyed>>>>;
    type Shards<K> = Arc<dashmap::DashMap<K, Arc<Keyed>, RandomState>>;
    type LockFree<K> = Arc<papaya::HashMap<K, Arc<Keyed>, RandomState>>;

    /// Stores a pod under a key, which is copied only if it is new.
    fn replace<K: Hash + Eq + Clone>(map: &mut AHashMap<K, Arc<Keyed>>, key: &K, pod: &Arc<Keyed>) {
        match map.get_mut(key) {
            Some(known) => known.clone_from(pod),
            None => drop(map.insert(key.clone(), Arc::clone(pod))),
        }
    }

    impl<K: Hash + Eq + Clone + Send + Sync + 'static> Map<K> for StdMap<K> {
        fn find(&self, key: &K) -> usize {
            address(self.read().unwrap_or_else(PoisonError::into_inner).get(key))
        }

        fn store(&self, key: &K, pod: &Arc<Keyed>) {
            replace(&mut self.write().unwrap_or_else(PoisonError::into_inner), key, pod);
        }
    }

    impl<K: Hash + Eq + Clone + Send + Sync + 'static> Map<K> for ParkingLotMap<K> {
        fn find(&self, key: &K) -> usize {
            address(self.read().get(key))
        }

        fn store(&self, key: &K, pod: &Arc<Keyed>) {
            replace(&mut self.write(), key, pod);
        }
    }

    impl<K: Hash + Eq + Clone + Send + Sync + 'static> Map<K> for Shards<K> {
        fn find(&self, key: &K) -> usize {
            address(self.get(key).as_deref())
        }

        fn store(&self, key: &K, pod: &Arc<Keyed>) {
            match self.get_mut(key) {
                Some(mut known) => known.clone_from(pod),
                None => drop(self.insert(key.clone(), Arc::clone(pod))),
            }
        }
    }

    impl<K: Hash + Eq + Clone + Send + Sync + 'static> Map<K> for LockFree<K> {
        fn find(&self, key: &K) -> usize {
            address(self.pin().get(key))
        }

        fn store(&self, key: &K, pod: &Arc<Keyed>) {
            self.pin().insert(key.clone(), Arc::clone(pod));
        }
    }

    pub(super) fn subjects(items: &Arc<[Item]>, keys: &Keys, order: &[Arc<Keyed>]) -> Vec<Subject> {
        let names = &keys.names;
        let full_names = names.iter().map(|(namespace, name)| format!("{name}_{namespace}").into()).collect();
        macro_rules! subject {
            ($who:expr, $map:ident) => {
                subject::<$map<_>, $map<_>, $map<_>, $map<_>>($who, items, keys, &full_names)
            };
        }
        vec![
            subject!(StdRwLock::NAME, StdMap),
            subject!(ParkingLotRwLock::NAME, ParkingLotMap),
            subject!(DashMap::NAME, Shards),
            subject!(Papaya::NAME, LockFree),
            kube(items, keys, order),
        ]
    }

    /// A design with a map for each key. The texts of full names are given, in its favour.
    fn subject<U, F, I, C>(
        who: &'static str,
        items: &Arc<[Item]>,
        keys: &Keys,
        full_names: &Arc<[Box<str>]>,
    ) -> Subject
    where
        U: Map<Box<str>>,
        F: Map<Box<str>>,
        I: Map<std::net::IpAddr>,
        C: Map<pod_index::identity::ContainerId>,
    {
        let maps = (U::default(), F::default(), I::default(), C::default(), U::default());
        let (by_uid, by_name, by_ip, by_id, by_text) = maps.clone();
        let store = move |item: &Item, pod: &Arc<Keyed>| {
            by_uid.store(&item.uid, pod);
            by_name.store(&item.full_name, pod);
            by_ip.store(&item.ip, pod);
            by_id.store(&item.id, pod);
            by_text.store(&item.text, pod);
        };
        items.iter().for_each(|item| store(item, &item.versions[0]));
        let (by_uid, by_name, by_ip, by_id, by_text) = maps;
        let [uid, name, ip, id, text] = KEYS;
        let lookups = vec![
            Lookups::new(uid, STEP, &keys.uids, by_uid, |map, key| map.find(key)),
            Lookups::new(name, STEP, full_names, by_name, |map, key| map.find(key)),
            Lookups::new(ip, STEP, &keys.ips, by_ip, |map, key| map.find(key)),
            Lookups::new(id, STEP, &keys.ids, by_id, |map, key| map.find(key)),
            Lookups::new(text, STEP, &keys.texts, by_text, |map, key| map.find(key)),
        ];
        Subject { who, update: updates(items, store), lookups }
    }

    /// kube's store, which has names only. By the other keys an agent has to look at one pod after the other.
    fn kube(items: &Arc<[Item]>, keys: &Keys, order: &[Arc<Keyed>]) -> Subject {
        let mut writer = Writer::<Object<Keyed>>::new(());
        let store = writer.as_reader();
        let mut apply = move |pod: &Arc<Keyed>| {
            writer.apply_watcher_event(&Event::Apply(Object(Arc::clone(pod))));
        };
        items.iter().for_each(|item| apply(&item.versions[0]));
        let refs = order.iter().map(|pod| ObjectRef::new_with(pod.name(), ()).within(pod.namespace()));
        let found = |pod: Option<Arc<Object<Keyed>>>| address(pod.as_ref().map(|pod| &pod.0));
        let [uid, name, ip, _, text] = KEYS;
        let lookups = vec![
            Lookups::new(uid, 1, &keys.uids, store.clone(), move |store, uid| {
                found(store.find(|pod| pod.0.uid() == &**uid))
            }),
            Lookups::new(name, STEP, &refs.collect(), store.clone(), move |store, name| {
                found(store.get(name))
            }),
            Lookups::new(ip, 1, &keys.ips, store.clone(), move |store, ip| {
                found(store.find(|pod| pod.0.ip() == Some(*ip)))
            }),
            Lookups::new(text, 1, &keys.texts, store, move |store, id| {
                found(store.find(|pod| pod.0.container() == Some(&**id)))
            }),
        ];
        Subject { who: KubeStore::NAME, update: updates(items, move |_, pod| apply(pod)), lookups }
    }
}
