//! The managers: registered pods on one side, their objects on the other.

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
use super::request::{Endpoint, Failure};
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

/// The objects of one kind that registered pods name: from the first reference to the last, each is followed or kept, as
/// the [`Strategy`] says. A handle; clone it freely. With the last one, all watches end.
///
/// # Consistency
/// This is a cache and may be stale: what is read was true when the API server told it. Of one object, what is read
/// never goes back in time, as long as its watch runs.
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
    /// By namespace and name. Written by whoever holds `registry`.
    objects: ArcSwap<Objects<K>>,
}

type Objects<K> = OrdMap<Box<str>, OrdMap<Box<str>, Arc<Entry<K>>>>;

enum Entry<K: ReferencedKind> {
    Watched(Watched<K>),
    Fetched(Fetched<K>),
}

/// How a manager is doing: numbers, and no names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ManagerStatus {
    /// How it goes about it.
    pub strategy: Strategy,
    /// How many pods are registered.
    pub pods: usize,
    /// How many objects they name.
    pub objects: usize,
    /// Of how many of them something is known, be it that there is none.
    pub synced: usize,
    /// How many of them cannot be followed or fetched now: what was tried last has failed, and what is known may be old.
    pub failing: usize,
    /// How many watches run.
    pub watches: usize,
}

impl<K: ReferencedKind> Manager<K> {
    /// A manager without any pods.
    ///
    /// # Panics
    /// Outside of a tokio runtime; the watches run on it.
    #[must_use]
    pub fn new(client: Client, options: Options) -> Self {
        let runtime = Handle::current();
        let endpoint = Arc::new(Endpoint::new(client, options.patience));
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

    /// Registers a pod with all objects that it names, in place of those that it named before. A pod that has ended is
    /// unregistered. Never waits for the network.
    ///
    /// Under [`Strategy::Cache`] an object that this pod did not name before is fetched anew when it is asked for next. (The
    /// kubelet has all of a pod's objects fetched anew with every update of the pod, its status included.)
    ///
    /// Kubelet: `RegisterPod`.
    #[doc(alias = "RegisterPod")]
    pub fn register_pod<P: ReferencingPod>(&self, pod: &P) {
        self.step([registration::<K, P>(pod)]);
    }

    /// Lets go of the objects that the pod with this UID named. What it named counts, not what it says now; that it is not
    /// registered is no error.
    ///
    /// Kubelet: `UnregisterPod`.
    #[doc(alias = "UnregisterPod")]
    pub fn unregister_pod(&self, uid: impl Into<PodUid>) {
        self.step([(uid.into(), None)]);
    }

    /// Registers and unregisters what has changed between two snapshots, in one step: an object that some pod lets go of
    /// and another one names is followed without a gap. See [`follow`](super::follow).
    pub fn apply<P: ReferencingPod>(&self, changes: &[Change<'_, P>]) {
        self.step(changes.iter().map(|change| match change.after() {
            Some(pod) => registration::<K, P>(pod),
            None => (PodUid::from(change.uid()), None),
        }));
    }

    /// The object.
    ///
    /// Under [`Strategy::Watch`] what came last, without a lock or a wait, as [`cached`](Self::cached) reads it; only of an
    /// object of which nothing was heard yet, or whose watch was idle, the first word is waited for, up to a second
    /// ([`Options::first_sync`]). If meanwhile the last pod lets go of the object, the wait is over. Under
    /// [`Strategy::Cache`] the same goes for what is fresh; what is not is fetched once for all who ask meanwhile.
    ///
    /// # Errors
    /// If no registered pod names the object (but for [`Strategy::Get`]), if there is none, if no word of it came in time,
    /// or if the API server refused or could not be reached. The words are the kubelet's, and none of them is from the
    /// inside of an object.
    ///
    /// Kubelet: `GetSecret`, `GetConfigMap`, and `GetObject` (`pkg/kubelet/util/manager/manager.go`).
    #[doc(alias = "GetSecret")]
    #[doc(alias = "GetConfigMap")]
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Object<K>, GetError> {
        let watching = &self.0.watching;
        if watching.options.strategy == Strategy::Get {
            let not_registered = || GetError::not_registered(namespace, name);
            let key = ObjectKey::new(namespace, name).ok_or_else(not_registered)?;
            return match watching.endpoint.get(&key, false).await {
                Ok(object) => Ok(Object::new(object)),
                Err(Failure::NotFound) => Err(GetError::not_found(K::WORD, &key)),
                Err(failure) => Err(GetError::request(K::WORD, &key, failure.text())),
            };
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
                    // Nobody named it any more, and its entry went. Somebody may name it anew.
                }
                Entry::Fetched(fetched) => return fetched.get(&watching.endpoint, self.ttl()).await,
            }
        }
    }

    /// The object if it is at hand, as it came last. `None` if there is none, if nothing was heard of it yet, or if no
    /// registered pod names it; [`get`](Self::get) tells which, and waits.
    ///
    /// It asks nobody for anything, so what it can give hangs on the [`Strategy`]:
    /// * `Watch`: the object as the watch brought it. To ask counts as use, and keeps the watch from being idle; but once it
    ///   is, there is nothing at hand until a `get` starts it again.
    /// * `Cache`: what a `get` fetched last, **however long ago**: its time may be over.
    /// * `Get`: nothing, ever.
    ///
    /// # Complexity
    /// Two loads such as a [`Reader`](pod_index::Reader)'s, and two look-ups in small trees. No lock and no wait, whoever
    /// registers pods meanwhile and whatever comes of the object. Unlike a look-up in the index it writes to what readers
    /// share: it counts a reference to the object, in one place for all who read it; and under `Watch` it notes about
    /// once a second that the object was asked for.
    #[must_use]
    pub fn cached(&self, namespace: &str, name: &str) -> Option<Object<K>> {
        let objects = self.0.objects.load();
        match &**objects.get(namespace)?.get(name)? {
            Entry::Watched(watched) => watched.cached(&self.0.watching).object(),
            Entry::Fetched(fetched) => fetched.cached().object(),
        }
    }

    /// From now on, what was fetched counts as fresh for so long, under [`Strategy::Cache`]. `None` for as long as the options say.
    pub fn set_ttl(&self, ttl: Option<Duration>) {
        let ttl = ttl.unwrap_or(self.0.watching.options.ttl);
        self.0.ttl.store(milliseconds(ttl), Ordering::Relaxed);
    }

    /// How the manager is doing.
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
        // From a cache, a pod that comes to name an object wants it as it is now. What somebody is fetching may be older,
        // so it is not the entry that forgets: there is a new one, also for an object that was taken already.
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
        // A get that is under way may hold one for a while yet.
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

/// Looks for idle watches, often enough that none is idle for much longer than it may be.
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
