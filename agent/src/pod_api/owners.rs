//! Follows the owners of the node's pods: requested one by one when a pod first names them, kept while a pod needs them,
//! and requested again now and then. There is never a list or a watch: a cluster can have 200,000 `ReplicaSets`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, ApiResource, DynamicObject, GetParams};
use kube::{Client, Error};
use pod_index::workload::{controller, is_often_controlled};
use pod_index::{PodMeta, Reader};
use pod_index_kubelet::backoff::{Backoff, jitter};
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::text::api_causes;
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::collection::{Begin, Collection, Known, Origin, START};
use super::history::{History, uid};
use super::object::Content;
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

    fn keep(&self, name: &Key, owner: Option<&Arc<Owner>>) {
        let key = format!("{}/{}", name.namespace, name.uid);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match owner {
            Some(owner) => known.insert(key, Arc::clone(owner)),
            None => known.remove(&key),
        };
    }
}

/// The name of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// The index of its kind.
    kind: usize,
    namespace: String,
    name: String,
    uid: String,
}

/// What was received of an owner.
struct Received {
    /// `None` if it does not exist.
    owner: Option<Arc<Owner>>,
    /// It is of the last run, and was not requested in this one.
    is_restored: bool,
    refresh_at: Instant,
}

/// A kind of owners.
struct Kind {
    history: Arc<History>,
    /// The index of the kind whose objects name those of this one.
    below: Option<usize>,
    known: channel::Sender<Known>,
}

/// When to try again, and why.
type Pause = (Instant, String);

/// Follows the owners of the pods in the index.
pub(super) struct Follower {
    client: Client,
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
    kinds: Vec<Kind>,
    owners: Owners,
    received: HashMap<Key, Received>,
    /// The owners whose last request failed, until they are requested again.
    failed: HashMap<Key, Pause>,
    /// The owners that were never read since they failed. They are requested after all others.
    unreadable: HashSet<Key>,
    /// The kinds that the agent may not read.
    denied: HashMap<usize, Pause>,
    backoff: Backoff,
}

impl Follower {
    /// The follower, and the collections that it fills.
    pub(super) fn new(
        client: &Client,
        (reader, readiness): (&Reader<Pod>, &Arc<Readiness>),
        begin: Begin<'_>,
    ) -> (Self, Vec<Arc<Collection>>) {
        let mut follower = Self {
            client: client.clone(),
            reader: reader.clone(),
            readiness: Arc::clone(readiness),
            kinds: Vec::new(),
            owners: Owners::default(),
            received: HashMap::new(),
            failed: HashMap::new(),
            unreadable: HashSet::new(),
            denied: HashMap::new(),
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
        };
        let mut collections = Vec::new();
        for (kind, (of, below)) in KINDS.iter().enumerate() {
            let (history, known) = begin.restored(of);
            for object in history.now().0.values() {
                let Content::Live(object) = object.content() else { continue };
                let metadata = object.metadata().clone();
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let [namespace, name, uid] = [&metadata.namespace, &metadata.name, &metadata.uid].map(text);
                let (name, owner) = (Key { kind, namespace, name, uid }, Some(Arc::new(Owner { metadata })));
                follower.owners.keep(&name, owner.as_ref());
                let refresh_at = Instant::now();
                follower.received.insert(name, Received { owner, is_restored: true, refresh_at });
            }
            let origin = Origin::Server { known: known.subscribe(), status: None };
            collections.push(Collection::new(Arc::clone(&history), origin));
            follower.kinds.push(Kind { history, below: *below, known });
        }
        (follower, collections)
    }

    pub(super) fn owners(&self) -> Owners {
        self.owners.clone()
    }

    pub(super) async fn run(mut self) {
        let (mut was_reported, began) = (false, Instant::now());
        loop {
            let was_complete = self.readiness.has_pods();
            let now = Instant::now();
            self.failed.retain(|_, (until, _)| *until > now);
            self.denied.retain(|_, (until, _)| *until > now);
            let (needed, seen) = self.pass().await;
            let why = self.failed.values().chain(self.denied.values()).next();
            if let Some((_, why)) = why.filter(|_| !was_reported) {
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
                self.kinds.iter().for_each(|kind| kind.known.send_modify(tell));
            }
            let next = needed.iter().filter_map(|name| self.due_at(name)).min();
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

    /// Says which kinds are read. Without all objects of a kind, those that they name are unknown as well.
    fn tell(&self, needed: &HashSet<Key>) {
        for (at, kind) in self.kinds.iter().enumerate() {
            let is_for_it = |of: usize| of == at || Some(of) == kind.below;
            let denied = self.denied.iter().find(|(of, _)| is_for_it(**of)).map(|(_, (_, why))| why.clone());
            let is_read = |name: &&Key| self.received.get(*name).is_some_and(|known| !known.is_restored);
            let mut unread = needed.iter().filter(|name| is_for_it(name.kind) && !is_read(name)).peekable();
            let now = if let Some(why) = denied {
                Known { stored: None, read: Some(Err(why)) }
            } else if unread.peek().is_none() {
                Known::READ
            } else {
                let known = kind.known.borrow().clone();
                match unread.find_map(|name| self.failed.get(name)) {
                    // What was read stays served without those that come later.
                    Some((_, why)) if known != Known::READ => Known { read: Some(Err(why.clone())), ..known },
                    _ => known,
                }
            };
            kind.known.send_replace(now);
        }
    }

    /// When an owner is to be requested. `None`: it never was.
    fn due_at(&self, name: &Key) -> Option<Instant> {
        let refresh = self.received.get(name).map(|received| received.refresh_at);
        let paused = [self.failed.get(name), self.denied.get(&name.kind)].into_iter().flatten();
        let paused = paused.map(|(until, _)| *until);
        refresh.into_iter().chain(paused).max()
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
            let now = Instant::now();
            // What failed or was denied in this pass is for a later one.
            let is_open =
                |name: &&Key| !self.failed.contains_key(*name) && !self.denied.contains_key(&name.kind);
            let is_old = |name: &&Key| self.received.get(*name).is_none_or(|known| known.refresh_at <= now);
            let due = || needed.iter().filter(is_open).filter(is_old);
            let Some(name) = due().min_by_key(|name| self.unreadable.contains(name)).cloned() else {
                // Asked again: the pods of a source may go while another one joins.
                if was_complete && self.readiness.has_pods() {
                    self.forget(&needed);
                }
                return (needed, seen);
            };
            let why = match timeout(PATIENCE, self.get(&name)).await {
                Ok(Ok(owner)) => {
                    self.received(name, owner);
                    sleep(PACE).await;
                    continue;
                }
                Ok(Err(error)) => {
                    let is_denied = matches!(&error, Error::Api(status) if status.code == 403);
                    (is_denied, api_causes(&error))
                }
                Err(_) => (false, format!("no answer within {PATIENCE:?}")),
            };
            // All owners that failed become due at the same time. Then few requests show whether the server is back.
            let now = Instant::now();
            let paused = self.failed.values().map(|(until, _)| *until).max().filter(|until| *until > now);
            let until = paused.unwrap_or_else(|| now + self.backoff.wait(std::time::Instant::now()));
            match why {
                (true, why) => drop(self.denied.insert(name.kind, (until, why))),
                (false, why) => {
                    failures += 1;
                    self.unreadable.insert(name.clone());
                    let others: Vec<_> = due().filter(|_| failures >= FAILURES).cloned().collect();
                    self.failed
                        .extend(others.into_iter().chain([name]).map(|name| (name, (until, why.clone()))));
                }
            }
            sleep(PACE).await;
        }
    }

    /// Requests an owner: `None` if there is no such object.
    async fn get(&self, name: &Key) -> Result<Option<Arc<Owner>>, Error> {
        // An old one is refreshed from the API server's cache.
        let parameters =
            if self.received.contains_key(name) { GetParams::any() } else { GetParams::default() };
        let of = self.kinds[name.kind].history.of;
        let resource = ApiResource {
            group: of.group.to_owned(),
            version: "v1".to_owned(),
            api_version: of.api_version.to_owned(),
            kind: of.kind.to_owned(),
            plural: of.name.to_owned(),
        };
        let objects = Api::<DynamicObject>::namespaced_with(self.client.clone(), &name.namespace, &resource);
        let found = objects.get_metadata_opt_with(&name.name, &parameters).await?;
        let metadata = found.map(|found| found.metadata);
        let metadata = metadata.filter(|metadata| metadata.uid.as_ref() == Some(&name.uid));
        Ok(metadata.map(|metadata| Arc::new(Owner { metadata: slim(metadata) })))
    }

    fn received(&mut self, name: Key, owner: Option<Arc<Owner>>) {
        self.unreadable.remove(&name);
        self.put(&name, owner.as_ref());
        let refresh_at = Instant::now() + REFRESH.mul_f64(jitter());
        self.received.insert(name, Received { owner, is_restored: false, refresh_at });
    }

    /// Forgets what no pod needs. What was restored stays until all that may name it was read.
    fn forget(&mut self, needed: &HashSet<Key>) {
        self.unreadable.retain(|name| needed.contains(name));
        let unread = needed.iter().filter(|name| !self.received.contains_key(*name));
        let unread: HashSet<_> = unread.map(|name| name.kind).collect();
        for (name, known) in std::mem::take(&mut self.received) {
            let below = self.kinds[name.kind].below.filter(|_| known.is_restored);
            if needed.contains(&name) || below.is_some_and(|below| unread.contains(&below)) {
                self.received.insert(name, known);
            } else {
                self.put(&name, None);
            }
        }
    }

    /// The controllers of the pods, and the controllers of those; and the generation of the pods.
    fn needed(&self) -> (HashSet<Key>, u64) {
        let mut needed = HashSet::new();
        let snapshot = self.reader.load();
        for pod in snapshot.pods() {
            let Some(owner) = controller(&pod.metadata) else { continue };
            let Some(name) = Self::key(pod.namespace(), owner) else { continue };
            if is_often_controlled(owner)
                && let Some(Received { owner: Some(known), .. }) = self.received.get(&name)
                && let Some(upper) = controller(&known.metadata)
            {
                needed.extend(Self::key(pod.namespace(), upper));
            }
            needed.insert(name);
        }
        (needed, snapshot.pods_generation())
    }

    /// What to request. `None` for a kind that is not followed, and for a name that no object can have: it would become
    /// part of the path of a request, and whoever creates pods chooses it.
    fn key(namespace: &str, owner: &OwnerReference) -> Option<Key> {
        let OwnerReference { api_version, kind, name, uid, .. } = owner;
        let group = api_version.split('/').next();
        let kind = KINDS.iter().position(|(of, _)| of.kind == kind && Some(of.group) == group)?;
        let is_valid = dns_subdomain(name).is_none() && dns_subdomain(namespace).is_none();
        let [namespace, name, uid] = [namespace, name, uid].map(str::to_owned);
        is_valid.then_some(Key { kind, namespace, name, uid })
    }

    fn put(&self, name: &Key, owner: Option<&Arc<Owner>>) {
        self.owners.keep(name, owner);
        let history = &self.kinds[name.kind].history;
        let key: Arc<str> = format!("{}/{}", name.namespace, name.name).into();
        let there = history.now().0.get(&key).and_then(|object| uid(object));
        // A newer object may already have the name.
        if owner.is_some() || there.as_ref() == Some(&name.uid) {
            history.show(vec![(key, owner.map(|owner| (Arc::clone(owner) as _, true)))]);
        }
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
    use futures_util::FutureExt;
    use serde_json::json;

    use super::super::seats::Seats;
    use super::*;

    fn pod(name: &str, kind: &str, owner: &str) -> Pod {
        let pod = json!({ "metadata": { "namespace": "shop", "name": name, "uid": name, "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": true },
        ] } });
        serde_json::from_value(pod).unwrap()
    }

    /// A follower of the owners on this server, and what it fills.
    fn follower(server: Router, reader: &Reader<Pod>) -> (Follower, Vec<Arc<Collection>>) {
        let (readiness, seats) = (Arc::new(Readiness::new([], true)), Seats::new(1, 1));
        let begin = Begin { version: 1, seats: &seats, directory: None };
        Follower::new(&Client::new(server, "default"), (reader, &readiness), begin)
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
