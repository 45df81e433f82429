//! Follows the owners of the node's pods: requested one by one, kept while a pod needs them, and requested again now and
//! then. There is never a list or a watch: a cluster can have 200,000 `ReplicaSets`.
//!
//! # When an owner is requested
//! Two thousand nodes have two thousand agents, so each request counts.
//!
//! | owner | first | again |
//! |---|---|---|
//! | one whose own owner names the workload: a `ReplicaSet`, a Job | within three minutes of the start, then as soon as a pod names it | hourly |
//! | others: the pod or the `ReplicaSet` names them | once somebody has asked for objects of their kind | hourly |
//! | of a kind that somebody asks for now | at once | ten minutes after it was read |
//!
//! The API server answers from its cache. Only what that lacks is requested once more, from etcd.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, ApiResource, DynamicObject, GetParams, GroupVersionKind};
use kube::{Client, Error};
use pod_index::workload::{controller, is_often_controlled};
use pod_index::{PodMeta, Reader};
use pod_index_kubelet::backoff::{Backoff, jitter};
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::sources::SourceUpdate;
use pod_index_kubelet::text::api_causes;
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::collection::{Begin, Collection, Known, START};
use super::interest::Interest;
use super::object::Object;
use super::owner::{KINDS, Owner};
use crate::pipeline::readiness::Readiness;
use crate::pipeline::records::Feed;

/// Changes of pods within this time cause one pass.
const GATHER: Duration = Duration::from_millis(200);
/// Pause between two requests.
const PACE: Duration = Duration::from_millis(20);
/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// After so many failed requests, the API server counts as away: what pods need now waits, and what new pods need does not.
/// The order is random, so that the next pass requests others.
const FAILURES: usize = 3;
/// The age at which an owner is requested again. Shortened at random by up to a third.
const REFRESH: Duration = Duration::from_secs(3600);
/// The age at which an owner is requested again if somebody asks for objects of its kind. Shortened likewise.
const STALE: Duration = Duration::from_secs(600);
/// After the start, the owners are requested at random times within this time, unless somebody asks for them.
const SPREAD: Duration = Duration::from_secs(180);
/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// `kubectl apply` stores the whole object in it, which metadata clients do not expect, and which may hold passwords.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is known of owners, by namespace and UID: a pod may name the UID of an object in another namespace. Clones share
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    known: Arc<RwLock<HashMap<String, Arc<Owner>>>>,
    /// For each of [`KINDS`]; empty if owners are not followed.
    interests: Arc<[Arc<Interest>]>,
    /// Told of each owner that is read or forgotten.
    feed: Option<Feed>,
}

impl Owners {
    /// The pod's controller, if it is known and says more than the pod does.
    pub(crate) fn of(&self, pod: &Pod) -> Option<Arc<Owner>> {
        let owner = controller(&pod.metadata).filter(|owner| is_often_controlled(owner))?;
        let key = format!("{}/{}", pod.namespace(), owner.uid);
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// As [`of`](Self::of), for somebody who asks: if it is not known yet, it is requested now.
    pub(crate) fn asked_of(&self, pod: &Pod) -> Option<Arc<Owner>> {
        let known = self.of(pod);
        if known.is_none()
            && let Some(kind) = controller(&pod.metadata).and_then(kind_of)
            && let Some(interest) = self.interests.get(kind)
        {
            interest.hurry();
        }
        known
    }

    fn keep(&self, name: &Key, owner: Option<Arc<Owner>>) {
        let (namespace, _) = name.object.split_once('/').unwrap_or_default();
        let key = format!("{namespace}/{}", name.uid);
        if let Some(feed) = &self.feed {
            let metadata = owner
                .as_ref()
                .map(|owner| ObjectMeta { namespace: Some(namespace.to_owned()), ..owner.metadata.clone() });
            feed.owners(match metadata {
                Some(metadata) => SourceUpdate::Upsert(vec![Arc::new(metadata)]),
                None => SourceUpdate::Remove(vec![name.uid.as_str().into()]),
            });
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match owner {
            Some(owner) => known.insert(key, owner),
            None => known.remove(&key),
        };
    }
}

/// The index of an owner's kind in [`KINDS`]. `None` for a kind that is not followed.
fn kind_of(owner: &OwnerReference) -> Option<usize> {
    let group = owner.api_version.split('/').next();
    KINDS.iter().position(|(of, _)| of.kind == owner.kind && Some(of.group) == group)
}

/// Whether pods, or the owners of pods, name objects of this kind as workloads, so that the object adds no name.
fn is_named_elsewhere(kind: usize) -> bool {
    !matches!(KINDS[kind].0.kind, "ReplicaSet" | "Job")
}

/// The name of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// The index of its kind.
    kind: usize,
    /// As in the history: the namespace, a slash and the name.
    object: Arc<str>,
    uid: String,
}

/// The results of this run's requests for an owner.
#[derive(Default)]
struct Tried {
    /// Whether the API server has answered. That the owner does not exist is an answer.
    is_read: bool,
    /// Failed requests since the last answer. Owners with fewer are requested first.
    failures: usize,
    /// The last failure, and whether the right is missing.
    problem: Option<(String, bool)>,
    due_at: Option<Instant>,
    /// When it is requested again if somebody asks for objects of its kind.
    stale_at: Option<Instant>,
}

/// Follows the owners of the pods in the index.
pub(super) struct Follower {
    client: Client,
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
    /// For each of [`KINDS`].
    kinds: Vec<(Arc<Collection>, channel::Sender<Known>)>,
    pub(super) owners: Owners,
    tried: HashMap<Key, Tried>,
    backoff: Backoff,
    began: Instant,
    /// Spreads the first requests.
    hasher: RandomState,
}

impl Follower {
    /// The follower, and the collections that it fills.
    pub(super) fn new(
        client: &Client,
        (reader, readiness): (&Reader<Pod>, &Arc<Readiness>),
        begin: Begin<'_>,
        feed: Option<&Feed>,
    ) -> (Self, Vec<Arc<Collection>>) {
        let kinds: Vec<_> = KINDS.iter().map(|(of, _)| begin.restored(of, None)).collect();
        let collections: Vec<_> = kinds.iter().map(|(collection, _)| Arc::clone(collection)).collect();
        let interests = collections.iter().filter_map(|collection| collection.interest().cloned());
        let follower = Self {
            client: client.clone(),
            reader: reader.clone(),
            readiness: Arc::clone(readiness),
            kinds,
            owners: Owners { known: Arc::default(), interests: interests.collect(), feed: feed.cloned() },
            tried: HashMap::new(),
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
            began: Instant::now(),
            hasher: RandomState::new(),
        };
        for (kind, collection) in collections.iter().enumerate() {
            for (object, restored) in collection.history.now().0 {
                let restored = restored.current().map(|restored| restored as Arc<dyn Any + Send + Sync>);
                let restored = restored.and_then(|restored| restored.downcast::<Owner>().ok());
                let uid = restored.as_ref().and_then(|restored| restored.metadata.uid.clone());
                follower.owners.keep(&Key { kind, object, uid: uid.unwrap_or_default() }, restored);
            }
        }
        (follower, collections)
    }

    pub(super) async fn run(mut self) {
        let mut was_reported = false;
        let interests = Arc::clone(&self.owners.interests);
        loop {
            let was_complete = self.readiness.has_pods();
            let (needed, seen) = self.pass().await;
            let why = self.tried.values().find_map(|tried| tried.problem.as_ref());
            if let Some((why, _)) = why.filter(|_| !was_reported) {
                tracing::warn!("owners of pods cannot be read; their names are derived: {why}");
            }
            was_reported = why.is_some();
            if was_complete {
                self.tell(&needed);
            } else if self.began.elapsed() >= START {
                // Requests need not wait for it.
                let why = || Err("the pods have not been read yet".to_owned());
                let tell = |known: &mut Known| {
                    known.read.get_or_insert_with(why);
                };
                self.kinds.iter().for_each(|(_, known)| known.send_modify(tell));
            }
            let denied = self.denied(&needed);
            let next = needed.iter().filter_map(|name| self.due_at(name, &denied)).min();
            // The pods may become complete without a change of the index.
            let longest = Instant::now() + if was_complete { REFRESH } else { GATHER };
            // Only for the wait: it holds the snapshot that it saw last.
            let mut changes = self.reader.changes();
            let newer = async {
                while changes.next().await?.after().pods_generation() == seen {}
                Some(())
            };
            let mut woken: FuturesUnordered<_> = interests.iter().map(|interest| interest.woken()).collect();
            tokio::select! {
                change = newer => {
                    if change.is_none() {
                        return;
                    }
                }
                // Also if it was woken before.
                Some(()) = woken.next() => continue,
                () = sleep_until(next.map_or(longest, |next| next.min(longest))) => continue,
            }
            drop(changes);
            sleep(GATHER).await;
        }
    }

    /// The kinds without the right, and when each is tried again. Rights are granted for kinds.
    fn denied(&self, needed: &HashSet<Key>) -> HashMap<usize, Instant> {
        let now = Instant::now();
        let until = |name: &Key| {
            let Tried { problem: Some((_, true)), due_at, .. } = self.tried.get(name)? else { return None };
            Some((name.kind, due_at.filter(|until| *until > now)?))
        };
        needed.iter().filter_map(until).collect()
    }

    /// When an owner is to be requested. `None`: at once.
    fn due_at(&self, name: &Key, denied: &HashMap<usize, Instant>) -> Option<Instant> {
        // Of its kind, and of the kind that it has to name.
        let is_for_it = |kind: &usize| *kind == name.kind || KINDS[*kind].1 == Some(name.kind);
        let interests = || (0..KINDS.len()).filter(is_for_it).map(|kind| &self.owners.interests[kind]);
        let due_at = match self.tried.get(name) {
            None if interests().any(|interest| interest.is_urgent()) => None,
            None if is_named_elsewhere(name.kind) && !self.are_all_needed() => Some(Instant::now() + REFRESH),
            None => Some(self.began + SPREAD.mul_f64(self.share(name))),
            Some(tried) if tried.problem.is_some() => tried.due_at,
            Some(tried) => {
                let asked_at = interests().filter_map(|interest| interest.asked_at()).max();
                let is_stale = |stale_at: &Instant| asked_at.is_some_and(|asked_at| asked_at >= *stale_at);
                tried.stale_at.filter(is_stale).or(tried.due_at)
            }
        };
        due_at.max(denied.get(&name.kind).copied())
    }

    /// Whether rules are about owners, so that their names are not enough.
    fn are_all_needed(&self) -> bool {
        self.owners.feed.as_ref().is_some_and(|feed| feed.needs_owners)
    }

    /// A share from 0 to 1 of a time, always the same for an owner.
    fn share(&self, name: &Key) -> f64 {
        let [low, high, ..] = self.hasher.hash_one(name).to_le_bytes();
        f64::from(u16::from_le_bytes([low, high])) / f64::from(u16::MAX)
    }

    /// Says which kinds are read. Without all objects of a kind, those that they name are unknown as well.
    fn tell(&self, needed: &HashSet<Key>) {
        for (at, (_, known)) in self.kinds.iter().enumerate() {
            let is_for_it = |name: &&Key| name.kind == at || Some(name.kind) == KINDS[at].1;
            let needed = || needed.iter().filter(is_for_it);
            let problems = needed().filter_map(|name| self.tried.get(name)?.problem.as_ref());
            let worst = problems.max_by_key(|(_, is_denied)| *is_denied);
            known.send_modify(|known| match worst {
                Some((why, true)) => *known = Known { stored: None, read: Some(Err(why.clone())) },
                _ if needed().all(|name| self.is_read(name)) => *known = Known::READ,
                // A kind that was read stays served if a later request fails.
                Some((why, _)) if *known != Known::READ => known.read = Some(Err(why.clone())),
                _ => {}
            });
        }
    }

    /// Requests what is missing or old, and forgets what no pod needs. Returns what pods need, and the generation of the pods
    /// that need it.
    async fn pass(&mut self) -> (HashSet<Key>, u64) {
        let mut failures = 0;
        loop {
            // Asked before the pods are taken: those taken earlier may be incomplete.
            let was_complete = self.readiness.has_pods();
            // Taken again after each request: a new pod waits for one request at most.
            let (needed, seen) = self.needed();
            let (now, denied) = (Some(Instant::now()), self.denied(&needed));
            let due = || needed.iter().filter(|name| self.due_at(name, &denied) <= now);
            let failed = |name: &&Key| self.tried.get(*name).map_or(0, |tried| tried.failures);
            let Some(name) = due().min_by_key(failed).cloned() else {
                // Asked again: the pods of a source may go while another one joins.
                if was_complete && self.readiness.has_pods() {
                    self.forget(&needed);
                }
                return (needed, seen);
            };
            let problem = match timeout(PATIENCE, self.get(&name)).await {
                Ok(Ok(owner)) => {
                    self.received(name, owner);
                    sleep(PACE).await;
                    continue;
                }
                Ok(Err(error)) => {
                    let is_denied = matches!(&error, Error::Api(status) if status.code == 403);
                    (api_causes(&error), is_denied)
                }
                Err(_) => (format!("no answer within {PATIENCE:?}"), false),
            };
            failures += usize::from(!problem.1);
            let waits = |other: &Key| *other == name || !problem.1 && failures >= FAILURES;
            let waiting: Vec<_> = due().filter(|other| waits(other)).cloned().collect();
            // All owners that failed become due at the same time. Then few requests show whether the server is back.
            let now = Instant::now();
            let failed = self.tried.values().filter(|tried| tried.problem.is_some());
            let paused = failed.filter_map(|tried| tried.due_at).max().filter(|until| *until > now);
            let due_at = paused.unwrap_or_else(|| now + self.backoff.wait(std::time::Instant::now()));
            for other in waiting {
                let tried = self.tried.entry(other).or_default();
                (tried.problem, tried.due_at) = (Some(problem.clone()), Some(due_at));
            }
            self.tried.entry(name).or_default().failures += 1;
            sleep(PACE).await;
        }
    }

    /// Requests an owner: `None` if there is no such object. Asks the API server's cache first, and etcd for what that
    /// lacks: it may be late.
    async fn get(&self, name: &Key) -> Result<Option<Owner>, Error> {
        match self.get_with(name, &GetParams::any()).await? {
            Some(owner) => Ok(Some(owner)),
            None => self.get_with(name, &GetParams::default()).await,
        }
    }

    async fn get_with(&self, name: &Key, parameters: &GetParams) -> Result<Option<Owner>, Error> {
        let (of, _) = &KINDS[name.kind];
        let kind = GroupVersionKind::gvk(of.group, "v1", of.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, of.name);
        let (namespace, object) = name.object.split_once('/').unwrap_or_default();
        let objects = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        let found = objects.get_metadata_opt_with(object, parameters).await?;
        Ok(found.filter(|found| found.metadata.uid.as_ref() == Some(&name.uid)).map(|mut found| {
            // Without the parts that can take most of the memory.
            found.metadata.managed_fields = None;
            found.metadata.annotations.as_mut().and_then(|annotations| annotations.remove(LAST_APPLIED));
            found
        }))
    }

    /// Whether it was read in this run, or does not exist.
    fn is_read(&self, name: &Key) -> bool {
        self.tried.get(name).is_some_and(|tried| tried.is_read)
    }

    /// Whether the history has it. An object with its name and another UID does not count.
    fn is_known(&self, name: &Key) -> bool {
        let known = self.kinds[name.kind].0.history.get(&name.object).and_then(|known| known.current());
        known.is_some_and(|known| known.metadata().uid.as_ref() == Some(&name.uid))
    }

    /// Shows an owner, or that it is gone.
    fn put(&self, name: &Key, owner: Option<Arc<Owner>>) {
        self.owners.keep(name, owner.clone());
        if owner.is_some() || self.is_known(name) {
            let shown = owner.map(|owner| (owner as _, true));
            self.kinds[name.kind].0.history.show(vec![(Arc::clone(&name.object), shown)]);
        }
    }

    fn received(&mut self, name: Key, owner: Option<Owner>) {
        self.put(&name, owner.map(Arc::new));
        let (now, jitter) = (Instant::now(), jitter());
        let due_at = Some(now + REFRESH.mul_f64(jitter));
        let stale_at = Some(now + STALE.mul_f64(jitter));
        self.tried.insert(name, Tried { is_read: true, due_at, stale_at, ..Tried::default() });
    }

    /// Forgets what no pod needs. What was restored stays until all that may name it was read.
    fn forget(&mut self, needed: &HashSet<Key>) {
        for (kind, (collection, _)) in self.kinds.iter().enumerate() {
            let is_below = |name: &&Key| Some(name.kind) == KINDS[kind].1;
            let is_all_known = needed.iter().filter(is_below).all(|name| self.is_read(name));
            let unneeded = |(object, known): (Arc<str>, Arc<Object>)| {
                let uid = known.current()?.metadata().uid.clone().unwrap_or_default();
                let name = Key { kind, object, uid };
                (!needed.contains(&name) && (is_all_known || self.is_read(&name))).then_some(name)
            };
            for name in collection.history.now().0.into_iter().filter_map(unneeded) {
                self.put(&name, None);
            }
        }
        self.tried.retain(|name, _| {
            let is_needed = needed.contains(name);
            // Its name may have been taken by another one.
            if !is_needed {
                self.owners.keep(name, None);
            }
            is_needed
        });
    }

    /// The controllers of the pods, and the controllers of those; and the generation of the pods.
    fn needed(&self) -> (HashSet<Key>, u64) {
        let snapshot = self.reader.load();
        let mut needed = HashSet::new();
        for pod in snapshot.pods() {
            let known = self.owners.of(pod);
            let upper = known.as_ref().and_then(|known| controller(&known.metadata));
            let owners = controller(&pod.metadata).into_iter().chain(upper);
            needed.extend(owners.filter_map(|owner| key(pod.namespace(), owner)));
        }
        (needed, snapshot.pods_generation())
    }
}

/// What to request. `None` for a kind that is not followed, and for a name that no object can have: it would become part of
/// the path of a request, and whoever creates pods chooses it.
fn key(namespace: &str, owner: &OwnerReference) -> Option<Key> {
    let (kind, name) = (kind_of(owner)?, &*owner.name);
    let is_valid = dns_subdomain(name).is_none() && dns_subdomain(namespace).is_none();
    let object = format!("{namespace}/{name}").into();
    is_valid.then(|| Key { kind, object, uid: owner.uid.clone() })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use futures_util::FutureExt;
    use serde_json::json;

    use super::super::watch_limits::WatchLimits;
    use super::*;

    fn pod(name: &str, kind: &str, owner: &str) -> Pod {
        let pod = json!({ "metadata": { "namespace": "shop", "name": name, "uid": name, "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": true },
        ] } });
        serde_json::from_value(pod).unwrap()
    }

    /// A follower of the owners on this server, and what it fills.
    fn follower(server: Router, reader: &Reader<Pod>) -> (Follower, Vec<Arc<Collection>>) {
        let (readiness, watch_limits) = (Arc::new(Readiness::new([], true)), WatchLimits::new(1, 1));
        let begin = Begin { version: 1, watch_limits: &watch_limits, directory: None };
        Follower::new(&Client::new(server, "default"), (reader, &readiness), begin, None)
    }

    /// As if a client had asked for objects of every kind.
    fn ask(collections: &[Arc<Collection>]) {
        for collection in collections {
            collection.interest().unwrap().ask();
        }
    }

    /// A request: the object's name, and whether the cache may answer.
    type Asked = Arc<Mutex<Vec<(String, bool)>>>;

    /// A server that notes each request. Its cache lacks objects whose names begin with `late`.
    fn noting() -> (Router, Asked) {
        let asked = Asked::default();
        let server = Router::new().fallback({
            let asked = Arc::clone(&asked);
            async move |uri: axum::http::Uri| {
                let name = uri.path().rsplit('/').next().unwrap().to_owned();
                let is_cached = uri.query().is_some_and(|query| query.contains("resourceVersion=0"));
                asked.lock().unwrap().push((name.clone(), is_cached));
                if is_cached && name.starts_with("late") {
                    let status = json!({ "status": "Failure", "reason": "NotFound", "code": 404, "message": "" });
                    return (StatusCode::NOT_FOUND, status.to_string());
                }
                let owner = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true }]);
                let owner = if uri.path().contains("replicasets") { owner } else { json!([]) };
                (StatusCode::OK, json!({ "metadata": { "name": name, "uid": name, "ownerReferences": owner } }).to_string())
            }
        });
        (server, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_servers_cache_is_asked_first_and_etcd_for_what_it_lacks() {
        let (server, asked) = noting();
        let (mut writer, reader) = pod_index::new();
        for name in ["new", "late", "old", "renewed"] {
            writer.add_pod(pod(name, "StatefulSet", name)).unwrap();
        }
        let (follower, collections) = follower(server, &reader);
        let restored = [("old", "old"), ("renewed", "of an earlier one")].map(|(name, uid)| {
            let owner = json!({ "metadata": { "namespace": "shop", "name": name, "uid": uid } });
            let owner: Owner = serde_json::from_value(owner).unwrap();
            (format!("shop/{name}").into(), Some((Arc::new(owner) as _, true)))
        });
        collections[2].history.show(restored.into());
        ask(&collections);
        tokio::spawn(follower.run());
        sleep(Duration::from_secs(1)).await;
        let mut asked = asked.lock().unwrap().clone();
        asked.sort_unstable();
        let expected = [("late", false), ("late", true), ("new", true), ("old", true), ("renewed", true)];
        assert_eq!(asked, expected.map(|(name, is_cached)| (name.to_owned(), is_cached)));
        assert!(["late", "new", "old", "renewed"].iter().all(|name| {
            let known = collections[2].history.get(&format!("shop/{name}")).and_then(|known| known.current());
            known.is_some_and(|known| known.metadata().uid.as_deref() == Some(*name))
        }));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_is_requested_late_and_what_pods_name_not_at_all() {
        let (server, asked) = noting();
        let (mut writer, reader) = pod_index::new();
        for (name, kind) in
            [("a", "ReplicaSet"), ("b", "ReplicaSet"), ("c", "StatefulSet"), ("d", "DaemonSet")]
        {
            writer.add_pod(pod(name, kind, name)).unwrap();
        }
        let (follower, collections) = follower(server, &reader);
        let owners = follower.owners.clone();
        tokio::spawn(follower.run());
        let requests = || asked.lock().unwrap().drain(..).map(|(name, _)| name).collect::<Vec<_>>().join(" ");
        sleep(SPREAD + Duration::from_secs(1)).await;
        let mut first: Vec<_> = requests().split(' ').map(str::to_owned).collect();
        first.sort_unstable();
        assert_eq!(first, ["a", "b"]);
        // A new pod's owner is requested at once, also by somebody's question.
        let new = pod("e", "ReplicaSet", "e");
        writer.add_pod(new.clone()).unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(requests(), "e");
        assert!(owners.asked_of(&new).is_some());
        // The Deployment, which all three name, and the others, once somebody asks for their kinds.
        collections[2].current(true).await.unwrap();
        assert_eq!(requests(), "c");
        collections[1].current(true).await.unwrap();
        assert_eq!(requests(), "web");
        // Hourly; and every ten minutes while somebody asks.
        sleep(Duration::from_secs(30 * 60)).await;
        assert_eq!(requests(), "");
        collections[2].current(true).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(requests(), "c");
        sleep(Duration::from_secs(40 * 60)).await;
        assert!(["a", "b", "e", "web"].iter().all(|name| requests_of(&asked, name) == 1));
        assert_eq!(requests_of(&asked, "d"), 0);
    }

    fn requests_of(asked: &Asked, name: &str) -> usize {
        asked.lock().unwrap().iter().filter(|(other, _)| other == name).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_about_a_pod_whose_owner_is_not_read_yet_hurries() {
        let (server, asked) = noting();
        let (mut writer, reader) = pod_index::new();
        let pods: Vec<_> =
            (0..20).map(|number| pod(&format!("p-{number}"), "ReplicaSet", &format!("r-{number}"))).collect();
        let _ = writer.set_pods(pods.clone());
        let (follower, _) = follower(server, &reader);
        let owners = follower.owners.clone();
        tokio::spawn(follower.run());
        sleep(Duration::from_secs(1)).await;
        assert!(asked.lock().unwrap().len() < 10, "spread");
        for pod in &pods {
            let _ = owners.asked_of(pod);
        }
        sleep(Duration::from_secs(1)).await;
        assert!(pods.iter().all(|pod| owners.of(pod).is_some()));
    }

    /// A twentieth of a cluster of 2,000 nodes, each with 30 `ReplicaSets` of 30 Deployments. All agents start at once, run for
    /// an hour, and are upgraded, a tenth at a time, each minute.
    #[tokio::test(start_paused = true)]
    async fn the_requests_of_two_thousand_agents_are_few_and_spread() {
        const AGENTS: usize = 100;
        const SCALE: usize = 2_000 / AGENTS;
        let times = Arc::new(Mutex::new(Vec::new()));
        let server = Router::new().fallback({
            let times = Arc::clone(&times);
            async move |uri: axum::http::Uri| {
                let is_quorum = uri.query().is_none_or(|query| !query.contains("resourceVersion=0"));
                times.lock().unwrap().push((Instant::now(), is_quorum));
                let name = uri.path().rsplit('/').next().unwrap().to_owned();
                json!({ "metadata": { "name": name, "uid": name } }).to_string()
            }
        });
        // The number of requests, the most in a second, and those that reach etcd, in the whole cluster.
        let counts = || {
            let times = std::mem::take(&mut *times.lock().unwrap());
            let mut by_second = HashMap::new();
            for (time, _) in &times {
                *by_second.entry(time.duration_since(times[0].0).as_secs()).or_insert(0) += SCALE;
            }
            let most: usize = by_second.into_values().max().unwrap_or_default();
            (times.len() * SCALE, most, times.iter().filter(|(_, is_quorum)| *is_quorum).count() * SCALE)
        };
        let mut indices = Vec::new();
        for agent in 0..AGENTS {
            let (mut writer, reader) = pod_index::new();
            let pods = (0..30)
                .map(|number| pod(&format!("p-{number}"), "ReplicaSet", &format!("r-{agent}-{number}")));
            let _ = writer.set_pods(pods);
            indices.push((writer, reader));
        }
        let start = |reader: &Reader<Pod>| tokio::spawn(follower(server.clone(), reader).0.run());
        let mut agents: Vec<_> = indices.iter().map(|(_, reader)| start(reader)).collect();
        sleep(Duration::from_secs(300)).await;
        let at_the_start = counts();
        sleep(Duration::from_secs(3600)).await;
        let in_an_hour = counts();
        for tenth in 0..10 {
            for number in tenth * AGENTS / 10..(tenth + 1) * AGENTS / 10 {
                agents[number].abort();
                agents[number] = start(&indices[number].1);
            }
            sleep(Duration::from_secs(60)).await;
        }
        sleep(SPREAD).await;
        let in_an_upgrade = counts();
        let all = (at_the_start, in_an_hour, in_an_upgrade);
        println!(
            "requests, most in a second, from etcd: at the start {at_the_start:?}, in an hour {in_an_hour:?}, in an upgrade {in_an_upgrade:?}"
        );
        assert_eq!((all.0.0, all.0.2, all.1.2, all.2.2), (60_000, 0, 0, 0), "{all:?}");
        assert!(all.0.1 <= 1_000 && all.1.1 <= 400 && all.2.1 <= 600, "{all:?}");
        assert!((60_000..=100_000).contains(&all.1.0) && (60_000..=90_000).contains(&all.2.0), "{all:?}");
    }

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
                        json!({ "metadata": { "name": "web-1", "uid": "web-1" } }).to_string(),
                    );
                }
                let status =
                    json!({ "status": "Failure", "reason": "Forbidden", "code": 403, "message": "denied" });
                (StatusCode::FORBIDDEN, status.to_string())
            }
        });
        let (mut writer, reader) = pod_index::new();
        writer.add_pod(pod("p", "ReplicaSet", "web-1")).unwrap();
        let (follower, _) = follower(server, &reader);
        let (owners, mut run) = (follower.owners.clone(), follower.run().boxed());
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
        assert!((2..=4).contains(&asked) && is_known, "hourly: {asked}");
        let (asked, is_known) = hours(1).await;
        assert!((50..=200).contains(&asked) && is_known, "every minute: {asked}");
        let (asked, _) = hours(0).await;
        assert!((1..=4).contains(&asked), "hourly again: {asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_without_a_right_hold_up_no_other_and_cost_one_request_each() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let server = Router::new().fallback({
            let asked = Arc::clone(&asked);
            async move |uri: axum::http::Uri| {
                let mut parts = uri.path().rsplit('/').map(str::to_owned);
                let (name, kind) = (parts.next().unwrap(), parts.next().unwrap());
                asked.lock().unwrap().push(kind.clone());
                let found = json!({ "metadata": { "name": name, "uid": name } });
                let refused = json!({ "status": "Failure", "reason": "Forbidden", "code": 403 });
                let may = kind == "replicasets";
                let (code, body) =
                    if may { (StatusCode::OK, found) } else { (StatusCode::FORBIDDEN, refused) };
                (code, body.to_string())
            }
        });
        let (mut writer, reader) = pod_index::new();
        let mut put = |kind: &str, count: usize| {
            for number in 0..count {
                let name = format!("{}-{number}", kind.to_lowercase());
                let mut pod = pod(&name, kind, &name);
                if matches!(kind, "Job" | "CronJob") {
                    pod.metadata.owner_references.as_mut().unwrap()[0].api_version = "batch/v1".to_owned();
                }
                writer.add_pod(pod).unwrap();
            }
            writer.current().pods().cloned().collect::<Vec<_>>()
        };
        for kind in ["StatefulSet", "DaemonSet", "Job"] {
            put(kind, 10);
        }
        let pods = put("ReplicaSet", 20);
        let (follower, collections) = follower(server, &reader);
        let owners = follower.owners.clone();
        ask(&collections);
        tokio::spawn(follower.run());
        // Before the shortest pause after a failure, 1.3 s, is over.
        sleep(Duration::from_millis(700)).await;
        assert_eq!(pods.iter().filter(|pod| owners.of(pod).is_some()).count(), 20, "all that may be read");
        collections[0].current(true).await.unwrap();
        assert!(collections[2].current(true).await.is_err());
        // New ones of a denied kind are not requested before its pause is over.
        let before = asked.lock().unwrap().len();
        put("Job", 40);
        sleep(Duration::from_millis(300)).await;
        assert_eq!((before, asked.lock().unwrap().len()), (23, 23));
    }

    /// Every GET of one `StatefulSet` fails, later of five.
    #[tokio::test(start_paused = true)]
    async fn an_owner_that_cannot_be_read_holds_up_no_other_and_only_its_own_list() {
        let (failures, is_healed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let server = Router::new().fallback({
            let (failures, is_healed) = (Arc::clone(&failures), Arc::clone(&is_healed));
            async move |uri: axum::http::Uri| {
                let name = uri.path().rsplit('/').next().unwrap().to_owned();
                if name.starts_with("bad") && is_healed.load(Ordering::Relaxed) == 0 {
                    failures.fetch_add(1, Ordering::Relaxed);
                    return (StatusCode::INTERNAL_SERVER_ERROR, "planted".to_owned());
                }
                (StatusCode::OK, json!({ "metadata": { "name": name, "uid": name } }).to_string())
            }
        });
        let (mut writer, reader) = pod_index::new();
        for (name, kind, owner) in
            [("a", "ReplicaSet", "web"), ("b", "StatefulSet", "bad"), ("c", "StatefulSet", "good")]
        {
            writer.add_pod(pod(name, kind, owner)).unwrap();
        }
        let (follower, collections) = follower(server, &reader);
        let [replica_sets, deployments, stateful_sets, ..] = &*collections else { unreachable!() };
        let has = |of: &Collection, name: &str| of.history.now().0.contains_key(&*format!("shop/{name}"));
        tokio::spawn(follower.run());
        for read in [replica_sets, deployments] {
            read.current(true).await.unwrap();
        }
        let asked = Instant::now();
        let refused = stateful_sets.current(true).await.unwrap_err().status().message.clone().unwrap();
        assert!(refused.starts_with("statefulsets have not been read yet: "), "{refused}");
        assert!(asked.elapsed() < Duration::from_secs(1), "it is known that it fails");
        // For hours, others are served as soon as they come.
        for round in 0..20 {
            sleep(Duration::from_secs(600)).await;
            for kind in ["ReplicaSet", "StatefulSet"] {
                let name = format!("{}-{round}", kind.to_lowercase());
                writer.add_pod(pod(&name, kind, &name)).unwrap();
            }
            sleep(Duration::from_secs(1)).await;
            assert!(has(replica_sets, &format!("replicaset-{round}")), "round {round}");
            assert!(has(stateful_sets, &format!("statefulset-{round}")) && has(stateful_sets, "good"));
            replica_sets.current(true).await.unwrap();
        }
        let failed = failures.load(Ordering::Relaxed);
        assert!((180..=320).contains(&failed), "about one request a minute: {failed}");
        is_healed.store(1, Ordering::Relaxed);
        sleep(Duration::from_secs(61)).await;
        stateful_sets.current(true).await.unwrap();
        assert!(has(stateful_sets, "bad"));
        // A list that was whole stays served.
        is_healed.store(0, Ordering::Relaxed);
        sleep(Duration::from_secs(3600)).await;
        stateful_sets.current(true).await.unwrap();
        // After several failures the others wait, and new ones do not.
        let failed = failures.load(Ordering::Relaxed);
        for number in 0..40 {
            for name in ["bad", "early"].map(|start| format!("{start}-{number}")) {
                writer.add_pod(pod(&name, "StatefulSet", &name)).unwrap();
            }
        }
        // Each pass finds out three that fail, and then they are last.
        sleep(Duration::from_secs(1200)).await;
        assert!((0..40).all(|number| has(stateful_sets, &format!("early-{number}"))));
        for round in 0..10 {
            sleep(Duration::from_secs(600)).await;
            let name = format!("late-{round}");
            writer.add_pod(pod(&name, "StatefulSet", &name)).unwrap();
            sleep(Duration::from_secs(1)).await;
            assert!(has(stateful_sets, &name), "round {round}");
        }
        let failed = failures.load(Ordering::Relaxed) - failed;
        assert!((300..=700).contains(&failed), "about three requests a minute: {failed}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_makes_no_old_snapshot_stay() {
        let asked = Arc::new(AtomicUsize::new(0));
        let server = Router::new().fallback({
            let asked = Arc::clone(&asked);
            async move |uri: axum::http::Uri| {
                asked.fetch_add(1, Ordering::Relaxed);
                sleep(PATIENCE / 2).await;
                let name = uri.path().rsplit('/').next().unwrap().to_owned();
                json!({ "metadata": { "name": name, "uid": name } }).to_string()
            }
        });
        let (mut writer, reader) = pod_index::new();
        let (follower, collections) = follower(server, &reader);
        ask(&collections);
        tokio::spawn(follower.run());
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            writer.add_pod(pod(name, "StatefulSet", name)).unwrap();
            while asked.load(Ordering::Relaxed) == number {
                sleep(PACE).await;
            }
            writer.add_pod(pod("other", "Node", name)).unwrap();
            writer.reclaim();
            assert_eq!(writer.retired_snapshots(), 0, "while {name} is requested");
            sleep(PATIENCE).await;
        }
    }
}
