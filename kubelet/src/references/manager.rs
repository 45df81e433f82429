//! The managers: they connect registered pods to the objects that the pods name.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use pod_index::{Change, Changes, PodMeta, PodUid};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::time;

use super::error::GetError;
use super::followed::{Followed, Known, ObjectKey};
use super::kind::{Object, ReferencedKind};
use super::names::ReferencingPod;
use super::options::Options;
use super::watch::Following;
use crate::backoff::FOREVER;
use crate::text::shorten;

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
/// followed by a watch. This is a handle; clone it freely. Dropping the last clone ends all watches.
///
/// # Consistency
/// This is a cache and may be stale: reads return what the API server last sent. Reads of one object never go
/// back in time while its watch runs.
///
/// # Complexity
/// To register or unregister pods takes O(names in all registered pods), unless what they name is as before.
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
    following: Following,
    pods: Mutex<Registered>,
    /// Changed only while `pods` is held.
    objects: ArcSwap<HashMap<ObjectKey, Arc<Followed<K>>>>,
}

/// What each registered pod names. Releasing uses this record, not the pod's current content.
type Registered = HashMap<PodUid, BTreeSet<ObjectKey>>;

/// A pod and the objects it names from now on. `None`: unregister the pod.
type Registration = (PodUid, Option<BTreeSet<ObjectKey>>);

/// Status of a manager: numbers, no names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ManagerStatus {
    /// Number of registered pods.
    pub pods: usize,
    /// Number of objects that they name.
    pub objects: usize,
    /// Objects whose state is known, including those known not to exist.
    pub synced: usize,
    /// Objects whose last list or watch failed. What is known of them may be old.
    pub failing: usize,
}

impl<K: ReferencedKind> Manager<K> {
    /// A manager without any pods.
    ///
    /// # Panics
    /// Outside of a tokio runtime, on which the watches run.
    #[must_use]
    pub fn new(client: Client, options: Options) -> Self {
        let following = Following { client, runtime: Handle::current(), options };
        Self(Arc::new(Shared { following, pods: Mutex::default(), objects: ArcSwap::default() }))
    }

    /// Registers a pod with all objects that it names, replacing those that it named before. Unregisters a
    /// pod that has ended. Never waits for the network. An object that another pod names already is not fetched again.
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
    /// naming and another starts to name is followed without a gap. See [`follow`].
    pub fn apply<P: ReferencingPod>(&self, changes: &[Change<'_, P>]) {
        self.step(changes.iter().map(|change| match change.after() {
            Some(pod) => registration::<K, P>(pod),
            None => (PodUid::from(change.uid()), None),
        }));
    }

    /// The object.
    ///
    /// Returns the newest version received, like [`cached`](Self::cached), without a lock or a wait. Exception: if
    /// nothing has been received yet, or if the watch was idle, waits up to a second ([`Options::first_sync`]). The
    /// wait also ends if the last pod stops naming the object.
    ///
    /// # Errors
    /// If no registered pod names the object, if it does not exist, or if nothing was received in time. The messages
    /// are the kubelet's and never quote an object's content.
    ///
    /// Kubelet: `GetSecret`, `GetConfigMap`, and `GetObject` (`pkg/kubelet/util/manager/manager.go`).
    #[doc(alias = "GetSecret")]
    #[doc(alias = "GetConfigMap")]
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Object<K>, GetError> {
        let following = &self.0.following;
        let until = time::Instant::now() + following.options.first_sync.min(FOREVER);
        while let Some(object) = self.object(namespace, name) {
            let known = following.get(&object, until).await;
            // If it was released, another pod may have named it again since.
            if let Some(result) = object.result(&known) {
                return result;
            }
        }
        let message = format!("object {:?}/{:?} not registered", shorten(namespace), shorten(name));
        Err(GetError::NotRegistered(message))
    }

    /// The object if it is in memory, in the newest version received. `None` if it does not exist, if nothing
    /// has been received yet, or if no registered pod names it. [`get`](Self::get) distinguishes these cases,
    /// and waits.
    ///
    /// The call counts as use and keeps the watch from becoming idle. Once the watch is idle, this returns `None` until
    /// a `get` starts it again.
    ///
    /// # Complexity
    /// Two loads like those of a [`Reader`](pod_index::Reader), and a lookup in a hash table. No lock and no wait,
    /// whatever happens concurrently. Unlike a lookup in the index, it writes to shared memory: it increments the
    /// object's reference count.
    #[must_use]
    pub fn cached(&self, namespace: &str, name: &str) -> Option<Object<K>> {
        match &*self.object(namespace, name)?.read() {
            Known::Present(object) => Some(object.clone()),
            Known::Nothing | Known::Absent | Known::Released => None,
        }
    }

    /// The manager's status.
    ///
    /// # Complexity
    /// O(objects).
    #[must_use]
    pub fn status(&self) -> ManagerStatus {
        let pods = self.registered().len();
        let objects = self.0.objects.load();
        let count = |is: fn(&Followed<K>) -> bool| objects.values().filter(|object| is(object)).count();
        ManagerStatus {
            pods,
            objects: objects.len(),
            synced: count(Followed::is_synced),
            failing: count(|object| object.problem().is_some()),
        }
    }

    fn step(&self, registrations: impl IntoIterator<Item = Registration>) {
        let mut pods = self.registered();
        let mut is_changed = false;
        for (uid, names) in registrations {
            is_changed |= pods.get(&uid) != names.as_ref();
            match names {
                Some(names) => pods.insert(uid, names),
                None => pods.remove(&uid),
            };
        }
        if !is_changed {
            return;
        }
        let mut before = HashMap::clone(&self.0.objects.load());
        let mut objects = HashMap::with_capacity(before.len());
        for key in pods.values().flatten() {
            objects.entry(key.clone()).or_insert_with(|| {
                before.remove(key).unwrap_or_else(|| {
                    let new = Arc::new(Followed::new(key.clone()));
                    self.0.following.watch(&new);
                    new
                })
            });
        }
        self.0.objects.store(Arc::new(objects));
        // No pod names these any more.
        for object in before.values() {
            object.release();
        }
    }

    fn object(&self, namespace: &str, name: &str) -> Option<Arc<Followed<K>>> {
        self.0.objects.load().get(&ObjectKey::new(namespace, name)?).cloned()
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends all watches. Their tasks hold the objects.
impl<K: ReferencedKind> Drop for Shared<K> {
    fn drop(&mut self) {
        self.objects.load().values().for_each(|object| object.release());
    }
}

fn registration<K: ReferencedKind, P: ReferencingPod>(pod: &P) -> Registration {
    let uid = PodUid::from(pod.uid());
    if pod.has_ended() {
        return (uid, None);
    }
    let mut keys = BTreeSet::new();
    pod.visit_references(&mut |kind, name| {
        if kind == K::KIND {
            keys.extend(ObjectKey::new(pod.namespace(), name));
        }
    });
    (uid, Some(keys))
}

impl<K: ReferencedKind> Clone for Manager<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: ReferencedKind> fmt::Debug for Manager<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manager").field(&K::KIND).field(&self.status()).finish()
    }
}

/// Passes every pod of the index to `apply`, then all changes. Ends when the index's writer is dropped.
///
/// Spawn it as a separate task. It never delays the writer: changes during a call of `apply` are merged into
/// one difference.
///
/// # Examples
/// ```no_run
/// use pod_index_kubelet::references::{ConfigMapManager, Options, SecretManager, follow};
///
/// # async fn run(client: kube::Client, reader: pod_index::Reader<k8s_openapi::api::core::v1::Pod>) {
/// let secrets = SecretManager::new(client.clone(), Options::default());
/// let config_maps = ConfigMapManager::new(client, Options::default());
/// follow(reader.changes(), |changes| {
///     secrets.apply(changes);
///     config_maps.apply(changes);
/// })
/// .await;
/// # }
/// ```
///
/// # Complexity
/// That of [`Step::changes`](pod_index::Step::changes), for each step.
pub async fn follow<P: PodMeta>(mut changes: Changes<P>, mut apply: impl FnMut(&[Change<'_, P>])) {
    while let Some(step) = changes.next().await {
        let changes = step.changes();
        if !changes.is_empty() {
            apply(&changes);
        }
    }
}
