//! The managers: they connect registered pods to the objects that the pods name.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::time;

use super::error::GetError;
use super::fetched::Fetched;
use super::key::ObjectKey;
use super::kind::{Object, ReferencedKind};
use super::names::ReferencingPod;
use super::options::{Options, Strategy};
use super::places::Places;
use super::registry::{Registration, Registry};
use super::request::Endpoint;
use super::watched::{Watched, Watching};
use crate::backoff::FOREVER;
use arc_swap::ArcSwap;
use im::OrdMap;
use pod_index::{Change, PodUid};

/// The Secrets that pods name.
///
/// Kubelet: `secret.Manager` (`pkg/kubelet/secret/secret_manager.go`).
#[doc(alias = "secret.Manager")]
pub type SecretManager = Manager<Secret>;

/// The `ConfigMaps` that pods name.
///
/// Kubelet: `configmap.Manager` (`pkg/kubelet/configmap/configmap_manager.go`).
#[doc(alias = "configmap.Manager")]
pub type ConfigMapManager = Manager<ConfigMap>;

/// The objects of one kind that registered pods name. From the first reference to the last, each object is
/// watched or cached as the [`Strategy`] says. This is a handle; clone it freely. Dropping the last clone
/// ends all watches.
///
/// # Consistency
/// This is a cache and may be stale: reads return what the API server last sent. Reads of one object never go
/// back in time while its watch runs.
///
/// # Examples
/// ```no_run
/// use pod_index_kubelet::references::{Options, SecretManager};
///
/// # async fn run(client: kube::Client, pod: k8s_openapi::api::core::v1::Pod) -> Result<(), pod_index_kubelet::references::GetError> {
/// let secrets = SecretManager::new(client, Options::default());
/// secrets.register_pod(&pod);
/// let secret = secrets.get("default", "db-password").await?;
/// println!("{} keys", secret.data.as_ref().map_or(0, |data| data.len()));
/// # Ok(())
/// # }
/// ```
pub struct Manager<K: ReferencedKind>(Arc<Shared<K>>);

struct Shared<K: ReferencedKind> {
    watching: Watching<K>,
    /// In milliseconds.
    ttl: AtomicU64,
    registry: Mutex<Registry>,
    /// By namespace and name. Changed only while `registry` is held.
    objects: ArcSwap<Objects<K>>,
}

type Objects<K> = OrdMap<Box<str>, OrdMap<Box<str>, Arc<Entry<K>>>>;

enum Entry<K: ReferencedKind> {
    Watched(Watched<K>),
    Fetched(Fetched<K>),
}

/// Status of a manager: numbers, no names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ManagerStatus {
    /// The manager's strategy.
    pub strategy: Strategy,
    /// Number of registered pods.
    pub pods: usize,
    /// Number of objects that they name.
    pub objects: usize,
    /// Objects whose state is known, including those known not to exist.
    pub synced: usize,
    /// Objects whose last list, watch or fetch failed. What is known of them may be old.
    pub failing: usize,
    /// Number of running watches.
    pub watches: usize,
}

impl<K: ReferencedKind> Manager<K> {
    /// A manager without any pods.
    ///
    /// # Panics
    /// Outside of a tokio runtime, on which the watches run.
    #[must_use]
    pub fn new(client: Client, options: Options) -> Self {
        let runtime = Handle::current();
        let endpoint = Endpoint::new(client, options.patience);
        let ttl = AtomicU64::new(milliseconds(options.ttl));
        let idle = options.idle;
        let shared = Arc::new(Shared {
            watching: Watching {
                endpoint,
                runtime,
                options,
                places: Places::default(),
                epoch: Instant::now(),
            },
            ttl,
            registry: Mutex::default(),
            objects: ArcSwap::new(Arc::new(OrdMap::new())),
        });
        if shared.watching.options.strategy == Strategy::Watch {
            shared.watching.runtime.spawn(stop_idle(Arc::downgrade(&shared), idle));
        }
        Self(shared)
    }

    /// Registers a pod with all objects that it names, replacing those that it named before. Unregisters a
    /// pod that has ended. Never waits for the network.
    ///
    /// With [`Strategy::Cache`], an object that this pod did not name before is fetched again at the next
    /// get. (The kubelet fetches all of a pod's objects again after every update of the pod, including its
    /// status.)
    ///
    /// Kubelet: `RegisterPod`.
    #[doc(alias = "RegisterPod")]
    pub fn register_pod<P: ReferencingPod>(&self, pod: &P) {
        self.step([registration::<K, P>(pod)]);
    }

    /// Releases the objects that the pod with this UID named when it was registered. An unregistered pod is
    /// not an error.
    ///
    /// Kubelet: `UnregisterPod`.
    #[doc(alias = "UnregisterPod")]
    pub fn unregister_pod(&self, uid: impl Into<PodUid>) {
        self.step([(uid.into(), None)]);
    }

    /// Registers and unregisters all changes between two snapshots in one step. An object that one pod stops
    /// naming and another starts to name is followed without a gap. See [`follow`](super::follow).
    pub fn apply<P: ReferencingPod>(&self, changes: &[Change<'_, P>]) {
        self.step(changes.iter().map(|change| match change.after() {
            Some(pod) => registration::<K, P>(pod),
            None => (PodUid::from(change.uid()), None),
        }));
    }

    /// The object.
    ///
    /// With [`Strategy::Watch`], returns the newest version received, like [`cached`](Self::cached), without
    /// a lock or a wait. Exception: if nothing has been received yet, or if the watch was idle, waits up to a
    /// second ([`Options::first_sync`]). The wait also ends if the last pod stops naming the object. With
    /// [`Strategy::Cache`], a fresh object is returned the same way; otherwise one fetch serves all
    /// concurrent gets.
    ///
    /// # Errors
    /// If no registered pod names the object (not with [`Strategy::Get`]), if it does not exist, if nothing
    /// was received in time, or if the API server refused or could not be reached. The messages are the
    /// kubelet's and never quote an object's content.
    ///
    /// Kubelet: `GetSecret`, `GetConfigMap`, and `GetObject` (`pkg/kubelet/util/manager/manager.go`).
    #[doc(alias = "GetSecret")]
    #[doc(alias = "GetConfigMap")]
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Object<K>, GetError> {
        let watching = &self.0.watching;
        if watching.options.strategy == Strategy::Get {
            let not_registered = || GetError::not_registered(namespace, name);
            let key = ObjectKey::new(namespace, name).ok_or_else(not_registered)?;
            return watching.endpoint.get(&key, false).await.map(Object::new);
        }
        let until = time::Instant::now() + watching.options.first_sync.min(FOREVER);
        loop {
            let entry = self.entry(namespace, name);
            let entry = entry.ok_or_else(|| GetError::not_registered(namespace, name))?;
            match &*entry {
                Entry::Watched(watched) => {
                    if let Some(got) = watched.get(watching, until).await {
                        return got;
                    }
                    // Its last pod stopped naming it and the entry was removed. Another pod may have named it
                    // again since.
                }
                Entry::Fetched(fetched) => return fetched.get(&watching.endpoint, self.ttl()).await,
            }
        }
    }

    /// The object if it is in memory, in the newest version received. `None` if it does not exist, if nothing
    /// has been received yet, or if no registered pod names it. [`get`](Self::get) distinguishes these cases,
    /// and waits.
    ///
    /// It sends no request, so its result depends on the [`Strategy`]:
    /// * `Watch`: the newest version received. The call counts as use and keeps the watch from becoming idle.
    ///   Once the watch is idle, this returns `None` until a `get` starts it again.
    /// * `Cache`: the result of the last fetch by a `get`, **however old**: it may have expired.
    /// * `Get`: always `None`.
    ///
    /// # Complexity
    /// Two loads like those of a [`Reader`](pod_index::Reader), and two lookups in small trees. No lock and
    /// no wait, whatever happens concurrently. Unlike a lookup in the index, it writes to shared memory: it
    /// increments the object's reference count, and with `Watch` it records the time of access about once a
    /// second.
    #[must_use]
    pub fn cached(&self, namespace: &str, name: &str) -> Option<Object<K>> {
        let objects = self.0.objects.load();
        match &**objects.get(namespace)?.get(name)? {
            Entry::Watched(watched) => watched.cached(&self.0.watching).object(),
            Entry::Fetched(fetched) => fetched.cached().object(),
        }
    }

    /// Sets how long a fetched object counts as fresh with [`Strategy::Cache`]. `None` restores the value of
    /// the options.
    pub fn set_ttl(&self, ttl: Option<Duration>) {
        let ttl = ttl.unwrap_or(self.0.watching.options.ttl);
        self.0.ttl.store(milliseconds(ttl), Ordering::Relaxed);
    }

    /// The manager's status.
    ///
    /// # Complexity
    /// O(objects).
    #[must_use]
    pub fn status(&self) -> ManagerStatus {
        let pods = self.registry().pods();
        let strategy = self.0.watching.options.strategy;
        let mut status = ManagerStatus { strategy, pods, objects: 0, synced: 0, failing: 0, watches: 0 };
        for entry in self.0.objects.load().values().flat_map(OrdMap::values) {
            let entry = match &**entry {
                Entry::Watched(watched) => watched.status(),
                Entry::Fetched(fetched) => fetched.status(),
            };
            status.objects += 1;
            status.synced += usize::from(entry.is_synced);
            status.failing += usize::from(entry.is_failing);
            status.watches += usize::from(entry.is_watched);
        }
        status
    }

    fn step(&self, registrations: impl IntoIterator<Item = Registration>) {
        if self.0.watching.options.strategy == Strategy::Get {
            return;
        }
        let mut registry = self.registry();
        let step = registry.apply(registrations);
        let mut objects = Objects::clone(&self.0.objects.load());
        // With a cache, a pod that newly names an object needs its current version. A fetch under way may
        // return an older one, so the entry is replaced even if other pods name the object.
        let is_cache = self.0.watching.options.strategy == Strategy::Cache;
        for key in if is_cache { &step.named_anew } else { &step.taken } {
            let entry = Arc::new(self.0.entry(key));
            objects.entry(key.namespace.clone()).or_default().insert(key.name.clone(), entry);
        }
        let mut released = Vec::new();
        for key in &step.released {
            let Some(in_namespace) = objects.get_mut(&key.namespace) else { continue };
            released.extend(in_namespace.remove(&key.name));
            if in_namespace.is_empty() {
                objects.remove(&key.namespace);
            }
        }
        self.0.objects.swap(Arc::new(objects));
        // A get under way may hold an entry a while longer.
        for entry in released {
            if let Entry::Watched(watched) = &*entry {
                watched.release();
            }
        }
    }

    fn entry(&self, namespace: &str, name: &str) -> Option<Arc<Entry<K>>> {
        self.0.objects.load().get(namespace)?.get(name).cloned()
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.0.ttl.load(Ordering::Relaxed))
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: ReferencedKind> Shared<K> {
    fn entry(&self, key: &ObjectKey) -> Entry<K> {
        match self.watching.options.strategy {
            Strategy::Watch => Entry::Watched(Watched::start(key.clone(), &self.watching)),
            Strategy::Cache | Strategy::Get => Entry::Fetched(Fetched::new(key.clone())),
        }
    }
}

/// Stops idle watches. Runs often enough that none is idle for much longer than allowed.
async fn stop_idle<K: ReferencedKind>(shared: Weak<Shared<K>>, idle: Duration) {
    let period = (idle / 5).clamp(Duration::from_millis(10), Duration::from_secs(60));
    loop {
        time::sleep(period).await;
        let Some(shared) = shared.upgrade() else { return };
        let objects = shared.objects.load_full();
        for entry in objects.values().flat_map(OrdMap::values) {
            if let Entry::Watched(watched) = &**entry {
                watched.stop_if_idle(&shared.watching);
            }
        }
    }
}

fn registration<K: ReferencedKind, P: ReferencingPod>(pod: &P) -> Registration {
    let uid = PodUid::from(pod.uid());
    if pod.has_ended() {
        return (uid, None);
    }
    let mut keys = BTreeSet::new();
    K::visit_names(pod, &mut |name| keys.extend(ObjectKey::new(pod.namespace(), name)));
    (uid, Some(keys))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl<K: ReferencedKind> Clone for Manager<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: ReferencedKind> fmt::Debug for Manager<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("kind", &K::WORD)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
