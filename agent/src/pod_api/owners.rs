//! Follows the owners of the node's pods: requested one by one when a pod first names them, kept while a pod needs them,
//! and requested again now and then. There is never a list or a watch: a cluster can have 200,000 `ReplicaSets`.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, GetParams};
use kube::{Client, Error};
use pod_index::{PodMeta, Reader};
use pod_index_kubelet::backoff::{Backoff, jitter};
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::text::api_causes;
use pod_index_kubelet::workload::{controller, is_often_controlled};
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::collection::{Collection, Known, history};
use super::history::{History, uid};
use super::keep::restore;
use super::object::Content;
use super::owner::Kind;
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
/// After so many failed requests, a pass ends. The order is random, so that other passes request the others.
const FAILURES: usize = 3;
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

impl<K: Kind> OfKind for History<K> {
    fn is(&self, owner: &OwnerReference) -> bool {
        owner.kind == K::KIND && owner.api_version.split('/').next() == Some(K::GROUP)
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
            let object = metadata.map(|metadata| {
                let mut object = K::default();
                object.metadata_mut().clone_from(metadata);
                (Arc::new(object), true)
            });
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
    /// It is of the last run, and was not requested in this one.
    is_restored: bool,
    refresh_at: Instant,
}

/// A kind of owners.
struct Followed {
    objects: Arc<dyn OfKind>,
    /// The index of the kind whose objects name those of this one.
    below: Option<usize>,
    /// Read once every owner has been requested.
    known: channel::Sender<Known>,
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
    received: HashMap<Key, Received>,
}

impl Follower {
    /// The follower, and the collections that it fills.
    pub(super) fn new(
        client: &Client,
        (reader, readiness): (&Reader<Pod>, &Arc<Readiness>),
        (version, seats): (u64, &Arc<Seats>),
        directory: Option<&Path>,
    ) -> (Self, Vec<Arc<dyn Served>>) {
        let (client, reader, readiness) = (client.clone(), reader.clone(), Arc::clone(readiness));
        let (owners, received) = (Owners::default(), HashMap::new());
        let mut follower = Self { client, reader, readiness, kinds: Vec::new(), owners, received };
        let served = vec![
            follower.of::<ReplicaSet>(None, version, seats, directory),
            follower.of::<Deployment>(Some(0), version, seats, directory),
            follower.of::<StatefulSet>(None, version, seats, directory),
            follower.of::<DaemonSet>(None, version, seats, directory),
            follower.of::<Job>(None, version, seats, directory),
            follower.of::<CronJob>(Some(4), version, seats, directory),
        ];
        (follower, served)
    }

    pub(super) fn owners(&self) -> Owners {
        self.owners.clone()
    }

    fn of<K: Kind>(
        &mut self,
        below: Option<usize>,
        version: u64,
        seats: &Arc<Seats>,
        directory: Option<&Path>,
    ) -> Arc<dyn Served> {
        let history = history::<K>(version, seats);
        let (known, state) =
            channel::channel(restore(&history, directory, "the pods have not been read yet"));
        let kind = self.kinds.len();
        self.kinds.push(Followed { objects: Arc::clone(&history) as _, below, known });
        for object in history.now().0.values() {
            let Content::Live(object) = object.content() else { continue };
            let metadata = Arc::new(object.metadata().clone());
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let [namespace, name, uid] = [&metadata.namespace, &metadata.name, &metadata.uid].map(text);
            let name = Key { kind, namespace, name, uid };
            self.owners.keep(&name, Some(&metadata));
            let (metadata, refresh_at) = (Some(metadata), Instant::now());
            self.received.insert(name, Received { metadata, is_restored: true, refresh_at });
        }
        let shown = state.clone();
        let current = move |_| {
            let why = |why| format!("{} have not been read yet: {why}", K::URL_PATH_SEGMENT);
            let known = state.borrow().clone();
            ready(known.map(drop).map_err(|error| Refusal::unavailable(why(error)))).boxed()
        };
        Collection::new(history, Box::new(current), None, Some(shown))
    }

    pub(super) async fn run(mut self) {
        let mut changes = self.reader.changes();
        let (mut received, mut denied) = (std::mem::take(&mut self.received), Denied::new());
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
            // Those of a denied kind, and those that they name, are not asked for again before that kind is.
            let is_asked = |(name, _): &(&Key, &Received)| self.denial(&denied, name.kind).is_none();
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
            let why = self.denial(denied, at);
            let _ = kind.known.send_replace(why.map_or(Ok(None), |(_, why)| Err(why.clone())));
        }
    }

    /// Why not all objects of a kind are known.
    fn denial<'a>(&self, denied: &'a Denied, kind: usize) -> Option<&'a (Instant, String)> {
        denied.get(&kind).or_else(|| denied.get(&self.kinds[kind].below?))
    }

    /// Requests what is missing or old, and forgets what no pod needs. Adds the kinds that the agent may not read to
    /// `denied`. Fails with the first error, after the other requests.
    async fn pass(
        &self,
        received: &mut HashMap<Key, Received>,
        denied: &mut Denied,
        backoff: &mut Backoff,
    ) -> Result<(), String> {
        let (mut again, mut failed, mut first) = (None, HashSet::<Key>::new(), None::<String>);
        loop {
            // Asked before the pods are taken: those taken earlier may be incomplete.
            let was_complete = self.readiness.has_pods();
            let needed = self.needed(received);
            let now = Instant::now();
            let is_due = |name: &&Key| received.get(*name).is_none_or(|received| received.refresh_at <= now);
            let is_open = |name: &&Key| !denied.contains_key(&name.kind) && !failed.contains(*name);
            let due: Vec<_> = needed.iter().filter(is_due).filter(is_open).cloned().collect();
            if due.is_empty() || failed.len() >= FAILURES {
                // Asked again: the pods of a source may go while another one joins.
                if was_complete && self.readiness.has_pods() {
                    self.forget(received, &needed);
                }
                return first.map_or(Ok(()), Err);
            }
            for name in due {
                if failed.len() >= FAILURES {
                    break;
                }
                if denied.contains_key(&name.kind) {
                    continue;
                }
                let stale = received.contains_key(&name);
                let objects = &self.kinds[name.kind].objects;
                let why = match timeout(PATIENCE, objects.get(&self.client, &name, stale)).await {
                    Ok(Ok(metadata)) => {
                        let metadata = metadata.filter(|metadata| metadata.uid.as_ref() == Some(&name.uid));
                        let metadata = metadata.map(|metadata| Arc::new(slim(metadata)));
                        self.put(&name, metadata.as_ref());
                        let refresh_at = Instant::now() + REFRESH.mul_f64(jitter());
                        received.insert(name.clone(), Received { metadata, is_restored: false, refresh_at });
                        None
                    }
                    Ok(Err(Error::Api(status))) if status.code == 403 => {
                        let pause = || Instant::now() + backoff.wait(std::time::Instant::now());
                        let until = *again.get_or_insert_with(pause);
                        denied.insert(name.kind, (until, api_causes(&Error::Api(status))));
                        None
                    }
                    Ok(Err(error)) => Some(api_causes(&error)),
                    Err(_) => Some(format!("no answer within {PATIENCE:?}")),
                };
                if why.is_some() {
                    failed.insert(name);
                    first = first.or(why);
                }
                sleep(PACE).await;
            }
        }
    }

    /// Forgets what no pod needs. What was restored stays until all that may name it was read.
    fn forget(&self, received: &mut HashMap<Key, Received>, needed: &HashSet<Key>) {
        let unread = needed.iter().filter(|name| !received.contains_key(*name));
        let unread: HashSet<_> = unread.map(|name| name.kind).collect();
        received.retain(|name, known| {
            let below = self.kinds[name.kind].below.filter(|_| known.is_restored);
            let stays = needed.contains(name) || below.is_some_and(|below| unread.contains(&below));
            if !stays {
                self.put(name, None);
            }
            stays
        });
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use serde_json::json;

    use super::*;

    /// A denied owner is due since its refresh, and is not requested before the pause is over.
    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_withdrawn_after_the_start_costs_a_request_a_minute() {
        let (requests, is_denied) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let server = Router::new().fallback({
            let (requests, is_denied) = (Arc::clone(&requests), Arc::clone(&is_denied));
            async move || {
                requests.fetch_add(1, Ordering::Relaxed);
                if is_denied.load(Ordering::Relaxed) == 0 {
                    return (
                        StatusCode::OK,
                        json!({ "metadata": { "name": "web-1", "uid": "r" } }).to_string(),
                    );
                }
                let status =
                    json!({ "status": "Failure", "reason": "Forbidden", "code": 403, "message": "denied" });
                (StatusCode::FORBIDDEN, status.to_string())
            }
        });
        let pod = json!({ "metadata": { "namespace": "shop", "name": "web", "uid": "p", "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": true },
        ] } });
        let (mut writer, reader) = pod_index::new();
        writer.add_pod(serde_json::from_value::<Pod>(pod).unwrap()).unwrap();
        let readiness = Arc::new(Readiness::new());
        readiness.restored();
        let client = Client::new(server, "default");
        let seats = Seats::new(1, 1);
        let (follower, _) = Follower::new(&client, (&reader, &readiness), (1, &seats), None);
        let (owners, mut run) = (follower.owners(), follower.run().boxed());
        let mut polls = 0;
        // A loop that never waits would stop the paused clock, and this test with it.
        let task = tokio::spawn(poll_fn(move |context| {
            polls += 1;
            assert!(polls < 3_000, "the task does not wait");
            run.poll_unpin(context)
        }));
        let hours = async |denied| {
            is_denied.store(denied, Ordering::Relaxed);
            let before = requests.load(Ordering::Relaxed);
            sleep(Duration::from_secs(2 * 3600)).await;
            assert!(!task.is_finished());
            let is_known = owners.of(writer.current().pods().next().unwrap()).is_some();
            (requests.load(Ordering::Relaxed) - before, is_known)
        };
        let (asked, is_known) = hours(0).await;
        assert!((12..=20).contains(&asked) && is_known, "every ten minutes: {asked}");
        let (asked, is_known) = hours(1).await;
        assert!((100..=200).contains(&asked) && is_known, "every minute: {asked}");
        let (asked, _) = hours(0).await;
        assert!((12..=20).contains(&asked), "every ten minutes again: {asked}");
    }
}
