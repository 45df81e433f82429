//! Follows the owners of the node's pods: requested one by one when a pod first names them, kept while a pod needs them,
//! and requested again now and then. There is never a list or a watch: a cluster can have 200,000 `ReplicaSets`.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DynamicObject, GetParams, GroupVersionKind};
use kube::{Client, Error};
use pod_index::workload::{controller, is_often_controlled};
use pod_index::{PodMeta, Reader};
use pod_index_kubelet::backoff::{Backoff, jitter};
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::text::api_causes;
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::collection::{Begin, Collection, Known, START};
use super::object::Object;
use super::owner::{KINDS, Owner};
use crate::pipeline::readiness::Readiness;

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
const REFRESH: Duration = Duration::from_secs(600);
/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// `kubectl apply` stores the whole object in it, which metadata clients do not expect, and which may hold passwords.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is known of owners, by namespace and UID: a pod may name the UID of an object in another namespace. Clones share
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Arc<RwLock<HashMap<String, Arc<Owner>>>>);

impl Owners {
    /// The pod's controller, if it is known and says more than the pod does.
    pub(crate) fn of(&self, pod: &Pod) -> Option<Arc<Owner>> {
        let owner = controller(&pod.metadata).filter(|owner| is_often_controlled(owner))?;
        let key = format!("{}/{}", pod.namespace(), owner.uid);
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    fn keep(&self, name: &Key, owner: Option<Arc<Owner>>) {
        let (namespace, _) = name.object.split_once('/').unwrap_or_default();
        let key = format!("{namespace}/{}", name.uid);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
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
}

impl Follower {
    /// The follower, and the collections that it fills.
    pub(super) fn new(
        client: &Client,
        (reader, readiness): (&Reader<Pod>, &Arc<Readiness>),
        begin: Begin<'_>,
    ) -> (Self, Vec<Arc<Collection>>) {
        let kinds: Vec<_> = KINDS.iter().map(|(of, _)| begin.restored(of, None)).collect();
        let collections: Vec<_> = kinds.iter().map(|(collection, _)| Arc::clone(collection)).collect();
        let follower = Self {
            client: client.clone(),
            reader: reader.clone(),
            readiness: Arc::clone(readiness),
            kinds,
            owners: Owners::default(),
            tried: HashMap::new(),
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
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
        let (mut was_reported, began) = (false, Instant::now());
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
            } else if began.elapsed() >= START {
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
            tokio::select! {
                change = newer => {
                    if change.is_none() {
                        return;
                    }
                }
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
        self.tried.get(name).and_then(|tried| tried.due_at).max(denied.get(&name.kind).copied())
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

    /// Requests an owner: `None` if there is no such object.
    async fn get(&self, name: &Key) -> Result<Option<Owner>, Error> {
        // One that is known, if only from the last run, is refreshed from the API server's cache.
        let parameters =
            if self.is_known(name) || self.is_read(name) { GetParams::any() } else { GetParams::default() };
        let (of, _) = &KINDS[name.kind];
        let kind = GroupVersionKind::gvk(of.group, "v1", of.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, of.name);
        let (namespace, object) = name.object.split_once('/').unwrap_or_default();
        let objects = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        let found = objects.get_metadata_opt_with(object, &parameters).await?;
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
        let due_at = Some(Instant::now() + REFRESH.mul_f64(jitter()));
        self.tried.insert(name, Tried { is_read: true, due_at, ..Tried::default() });
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
        Follower::new(&Client::new(server, "default"), (reader, &readiness), begin)
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_of_the_last_run_is_refreshed_from_the_api_servers_cache() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let server = Router::new().fallback({
            let asked = Arc::clone(&asked);
            async move |uri: axum::http::Uri| {
                let name = uri.path().rsplit('/').next().unwrap().to_owned();
                let is_cached = uri.query().is_some_and(|query| query.contains("resourceVersion=0"));
                asked.lock().unwrap().push((name.clone(), is_cached));
                json!({ "metadata": { "name": name, "uid": name } }).to_string()
            }
        });
        let (mut writer, reader) = pod_index::new();
        for name in ["new", "old", "renewed"] {
            writer.add_pod(pod(name, "ReplicaSet", name)).unwrap();
        }
        let (follower, collections) = follower(server, &reader);
        let restored = [("old", "old"), ("renewed", "of an earlier one")].map(|(name, uid)| {
            let owner = json!({ "metadata": { "namespace": "shop", "name": name, "uid": uid } });
            let owner: Owner = serde_json::from_value(owner).unwrap();
            (format!("shop/{name}").into(), Some((Arc::new(owner) as _, true)))
        });
        collections[0].history.show(restored.into());
        tokio::spawn(follower.run());
        sleep(Duration::from_secs(1)).await;
        let mut asked = asked.lock().unwrap().clone();
        asked.sort_unstable();
        let expected = [("new", false), ("old", true), ("renewed", false)];
        assert_eq!(asked, expected.map(|(name, is_cached)| (name.to_owned(), is_cached)));
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
        assert!((12..=20).contains(&asked) && is_known, "every ten minutes: {asked}");
        let (asked, is_known) = hours(1).await;
        assert!((100..=200).contains(&asked) && is_known, "every minute: {asked}");
        let (asked, _) = hours(0).await;
        assert!((12..=20).contains(&asked), "every ten minutes again: {asked}");
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
        tokio::spawn(follower.run());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(pods.iter().filter(|pod| owners.of(pod).is_some()).count(), 20, "all that may be read");
        collections[0].current(true).await.unwrap();
        assert!(collections[2].current(true).await.is_err());
        // New ones of a denied kind are not requested before its pause is over.
        let before = asked.lock().unwrap().len();
        put("Job", 40);
        sleep(Duration::from_millis(500)).await;
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
            async move || {
                asked.fetch_add(1, Ordering::Relaxed);
                sleep(PATIENCE / 2).await;
                json!({ "metadata": {} }).to_string()
            }
        });
        let (mut writer, reader) = pod_index::new();
        let (follower, _) = follower(server, &reader);
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
