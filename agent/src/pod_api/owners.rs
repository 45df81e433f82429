//! Follows the owners of the node's pods: requested one by one when a pod first names them, kept while a pod needs them,
//! and requested again now and then. There is never a list or a watch: a cluster can have 200,000 `ReplicaSets`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{NamespaceResourceScope, Resource as _};
use kube::api::{Api, GetParams};
use kube::{Client, Error};
use pod_index::{PodMeta, Reader};
use pod_index_kubelet::backoff::{Backoff, jitter};
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::text::api_causes;
use pod_index_kubelet::workload::{controller, is_often_controlled};
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::collection::{Collection, history};
use super::history::{History, uid};
use super::owner::{Kind, Owner};
use super::seats::Seats;
use super::served::Served;
use super::status::Refusal;
use crate::pipeline::readiness::Readiness;

/// Changes of pods within this time cause one pass.
const GATHER: Duration = Duration::from_millis(200);
/// Pause between two requests.
const PACE: Duration = Duration::from_millis(20);
/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The age at which an owner is requested again. Shortened at random by up to a third.
const REFRESH: Duration = Duration::from_secs(600);
/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// `kubectl apply` stores the whole object in it, which metadata clients do not expect, and which may hold passwords.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is known of owners, by namespace and UID: a pod may name the UID of an object in another namespace. Clones share
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Arc<RwLock<HashMap<String, Arc<ObjectMeta>>>>);

impl Owners {
    /// The metadata of the pod's controller, if it is known and says more than the pod does.
    pub(crate) fn of(&self, pod: &Pod) -> Option<Arc<ObjectMeta>> {
        let owner = controller(&pod.metadata).filter(|owner| is_often_controlled(owner))?;
        let key = format!("{}/{}", pod.namespace(), owner.uid);
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    fn keep(&self, name: &Key, metadata: Option<&Arc<ObjectMeta>>) {
        let key = format!("{}/{}", name.namespace, name.uid);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match metadata {
            Some(metadata) => known.insert(key, Arc::clone(metadata)),
            None => known.remove(&key),
        };
    }
}

/// The owners of one kind.
pub(super) trait OfKind: Send + Sync {
    /// Its group and its kind.
    fn is(&self, owner: &OwnerReference) -> bool;
    /// Requests one. With `stale`, the API server may answer from its cache.
    fn get<'a>(&'a self, client: &'a Client, name: &'a Key, stale: bool) -> Got<'a>;
    fn show(&self, name: &Key, metadata: Option<&ObjectMeta>);
    fn age(&self);
}

/// The answer: `None` if there is no such object.
type Got<'a> = BoxFuture<'a, Result<Option<ObjectMeta>, Error>>;

impl<K> OfKind for History<Owner<K>>
where
    K: Kind + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    fn is(&self, owner: &OwnerReference) -> bool {
        owner.kind == Owner::<K>::KIND && owner.api_version.split('/').next() == Some(Owner::<K>::GROUP)
    }

    fn get<'a>(&'a self, client: &'a Client, name: &'a Key, stale: bool) -> Got<'a> {
        let parameters = if stale { GetParams::any() } else { GetParams::default() };
        async move {
            let objects = Api::<K>::namespaced(client.clone(), &name.namespace);
            let found = objects.get_metadata_opt_with(&name.name, &parameters).await?;
            Ok(found.map(|found| found.metadata))
        }
        .boxed()
    }

    fn show(&self, name: &Key, metadata: Option<&ObjectMeta>) {
        let key: Arc<str> = format!("{}/{}", name.namespace, name.name).into();
        let there = self.now().0.get(&key).and_then(|object| uid(object));
        // A newer object may already have the name.
        if metadata.is_some() || there.as_ref() == Some(&name.uid) {
            let object = metadata.map(|metadata| (Arc::new(Owner::new(metadata.clone())), true));
            History::show(self, vec![(key, object)]);
        }
    }

    fn age(&self) {
        History::age(self);
    }
}

/// The name of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The index of its kind.
    kind: usize,
    namespace: String,
    name: String,
    uid: String,
}

/// What was received of an owner.
struct Received {
    /// `None` if it does not exist.
    metadata: Option<Arc<ObjectMeta>>,
    refresh_at: Instant,
}

/// A kind of owners.
struct Followed {
    objects: Arc<dyn OfKind>,
    /// The index of the kind whose objects name those of this one.
    below: Option<usize>,
    /// `Ok` once every owner has been requested; why not.
    read: channel::Sender<Result<(), String>>,
}

/// The kinds that the agent may not read, until when it does not try again, and why.
type Denied = HashMap<usize, (Instant, String)>;

/// Follows the owners of the pods in the index.
pub(super) struct Follower {
    client: Client,
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
    kinds: Vec<Followed>,
    owners: Owners,
}

impl Follower {
    /// The follower, and the collections that it fills.
    pub(super) fn new(
        client: &Client,
        (reader, readiness): (&Reader<Pod>, &Arc<Readiness>),
        (version, seats): (u64, &Arc<Seats>),
    ) -> (Self, Vec<Arc<dyn Served>>) {
        let (client, reader, readiness) = (client.clone(), reader.clone(), Arc::clone(readiness));
        let mut follower = Self { client, reader, readiness, kinds: Vec::new(), owners: Owners::default() };
        let served = vec![
            follower.of::<ReplicaSet>(None, version, seats),
            follower.of::<Deployment>(Some(0), version, seats),
            follower.of::<StatefulSet>(None, version, seats),
            follower.of::<DaemonSet>(None, version, seats),
            follower.of::<Job>(None, version, seats),
            follower.of::<CronJob>(Some(4), version, seats),
        ];
        (follower, served)
    }

    pub(super) fn owners(&self) -> Owners {
        self.owners.clone()
    }

    fn of<K>(&mut self, below: Option<usize>, version: u64, seats: &Arc<Seats>) -> Arc<dyn Served>
    where
        K: Kind + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let history = history::<Owner<K>>(version, seats);
        let read = channel::Sender::new(Err("the pods have not been read yet".to_owned()));
        let state = read.subscribe();
        self.kinds.push(Followed { objects: Arc::clone(&history) as _, below, read });
        let current = move |_| {
            let state = state.borrow().clone();
            let why = |why| format!("{} have not been read yet: {why}", K::URL_PATH_SEGMENT);
            ready(state.map_err(|error| Refusal::unavailable(why(error)))).boxed()
        };
        Collection::new(history, Box::new(current), None)
    }

    pub(super) async fn run(self) {
        let mut changes = self.reader.changes();
        let (mut received, mut denied) = (HashMap::new(), Denied::new());
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut reported = None;
        loop {
            let was_complete = self.readiness.has_pods();
            denied.retain(|_, (until, _)| *until > Instant::now());
            let failed = self.pass(&mut received, &mut denied, &mut backoff).await.err();
            let why = failed.as_ref().or_else(|| denied.values().map(|(_, why)| why).next());
            if let Some(why) = why.filter(|_| reported.is_none()) {
                tracing::warn!("owners of pods cannot be read; their names are derived: {why}");
            }
            reported = why.cloned();
            if failed.is_some() {
                let until = Instant::now() + backoff.wait(std::time::Instant::now());
                // Changes of pods do not shorten the pause. They are taken, so that no old snapshot is held.
                while let Ok(step) = timeout_at(until, changes.next()).await {
                    if step.is_none() {
                        return;
                    }
                }
                continue;
            }
            // Those of a denied kind are not asked for again before that kind is.
            let is_asked = |(name, _): &(&Key, &Received)| !denied.contains_key(&name.kind);
            let refresh = received.iter().filter(is_asked).map(|(_, received)| received.refresh_at);
            let next = refresh.chain(denied.values().map(|(until, _)| *until)).min();
            // The pods may become complete without a change of the index.
            let next = next
                .filter(|_| was_complete)
                .unwrap_or_else(|| Instant::now() + if was_complete { REFRESH } else { GATHER });
            if was_complete {
                self.tell(&denied);
            }
            self.kinds.iter().for_each(|kind| kind.objects.age());
            tokio::select! {
                step = changes.next() => {
                    if step.is_none() {
                        return;
                    }
                    drop(step);
                    sleep(GATHER).await;
                }
                () = sleep_until(next) => {}
            }
        }
    }

    /// Says which kinds are read. Without the objects of a kind, those that they name are unknown as well.
    fn tell(&self, denied: &Denied) {
        for (at, kind) in self.kinds.iter().enumerate() {
            let why = denied.get(&at).or_else(|| denied.get(&kind.below?));
            let _ = kind.read.send_replace(why.map_or(Ok(()), |(_, why)| Err(why.clone())));
        }
    }

    /// Requests what is missing or old, and forgets what no pod needs. Adds the kinds that the agent may not read to
    /// `denied`.
    async fn pass(
        &self,
        received: &mut HashMap<Key, Received>,
        denied: &mut Denied,
        backoff: &mut Backoff,
    ) -> Result<(), String> {
        let mut again = None;
        loop {
            let needed = self.needed(received);
            received.retain(|name, _| {
                let is_needed = needed.contains(name);
                if !is_needed {
                    self.put(name, None);
                }
                is_needed
            });
            let now = Instant::now();
            let is_due = |name: &&Key| received.get(*name).is_none_or(|received| received.refresh_at <= now);
            let due = needed.iter().filter(is_due).filter(|name| !denied.contains_key(&name.kind));
            let due: Vec<_> = due.cloned().collect();
            if due.is_empty() {
                return Ok(());
            }
            for name in due {
                if denied.contains_key(&name.kind) {
                    continue;
                }
                let stale = received.contains_key(&name);
                let objects = &self.kinds[name.kind].objects;
                match timeout(PATIENCE, objects.get(&self.client, &name, stale)).await {
                    Ok(Ok(metadata)) => {
                        let metadata = metadata.filter(|metadata| metadata.uid.as_ref() == Some(&name.uid));
                        let metadata = metadata.map(|metadata| Arc::new(slim(metadata)));
                        self.put(&name, metadata.as_ref());
                        let refresh_at = Instant::now() + REFRESH.mul_f64(jitter());
                        received.insert(name, Received { metadata, refresh_at });
                    }
                    Ok(Err(Error::Api(status))) if status.code == 403 => {
                        let pause = || Instant::now() + backoff.wait(std::time::Instant::now());
                        let until = *again.get_or_insert_with(pause);
                        denied.insert(name.kind, (until, api_causes(&Error::Api(status))));
                    }
                    Ok(Err(error)) => return Err(api_causes(&error)),
                    Err(_) => return Err(format!("no answer within {PATIENCE:?}")),
                }
                sleep(PACE).await;
            }
        }
    }

    /// The controllers of the pods, and the controllers of those.
    fn needed(&self, received: &HashMap<Key, Received>) -> HashSet<Key> {
        let mut needed = HashSet::new();
        let snapshot = self.reader.load();
        for pod in snapshot.pods() {
            let Some(owner) = controller(&pod.metadata) else { continue };
            let Some(name) = self.name(pod.namespace(), owner) else { continue };
            if is_often_controlled(owner)
                && let Some(Received { metadata: Some(metadata), .. }) = received.get(&name)
                && let Some(upper) = controller(metadata)
            {
                needed.extend(self.name(pod.namespace(), upper));
            }
            needed.insert(name);
        }
        needed
    }

    /// What to request. `None` for a kind that is not followed, and for a name that no object can have: it would become
    /// part of the path of a request, and whoever creates pods chooses it.
    fn name(&self, namespace: &str, owner: &OwnerReference) -> Option<Key> {
        let kind = self.kinds.iter().position(|kind| kind.objects.is(owner))?;
        let is_valid = dns_subdomain(&owner.name).is_none() && dns_subdomain(namespace).is_none();
        is_valid.then(|| Key {
            kind,
            namespace: namespace.to_owned(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        })
    }

    fn put(&self, name: &Key, metadata: Option<&Arc<ObjectMeta>>) {
        self.owners.keep(name, metadata);
        self.kinds[name.kind].objects.show(name, metadata.map(|metadata| &**metadata));
    }
}

/// Without the parts that can take most of the memory.
fn slim(mut metadata: ObjectMeta) -> ObjectMeta {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    metadata
}
