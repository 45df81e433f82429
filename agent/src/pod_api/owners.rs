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

use super::collection::{Collection, Origin, Read};
use super::history::{History, uid};
use super::owner::{KINDS, Owner};
use super::resource::Resource;
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

/// What is known of the requests of an owner.
#[derive(Default)]
struct Asked {
    /// Whether it was ever read. It may not exist.
    is_read: bool,
    /// When to request it again.
    due: Option<Instant>,
    /// Why it could not be read last time.
    why: Option<String>,
    /// Whether its own request failed last time. Those are requested after all others.
    has_failed: bool,
}

/// A kind of owners.
struct Kind {
    history: Arc<History>,
    /// The index of the kind whose objects name those of this one.
    below: Option<usize>,
    reads: channel::Sender<Read>,
    /// Until when not to request it, and why: the agent may not read it.
    denied: Option<(Instant, String)>,
}

/// Follows the owners of the pods in the index.
pub(super) struct Follower {
    client: Client,
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
    kinds: Vec<Kind>,
    owners: Owners,
    asked: HashMap<Key, Asked>,
    /// When requests that failed may begin again.
    resumes: Instant,
    backoff: Backoff,
}

impl Follower {
    /// The follower, and the collections that it fills.
    pub(super) fn new(
        client: &Client,
        (reader, readiness): (&Reader<Pod>, &Arc<Readiness>),
        new_history: impl Fn(&'static Resource) -> Arc<History>,
    ) -> (Self, Vec<Arc<Collection>>) {
        let kinds = KINDS.iter().map(|(of, below)| {
            let (reads, read) = channel::channel(None);
            let kind = Kind { history: new_history(of), below: *below, reads, denied: None };
            let collection =
                Collection::new(Arc::clone(&kind.history), Origin::Server { read, status: None });
            (kind, collection)
        });
        let (kinds, collections) = kinds.unzip();
        let follower = Self {
            client: client.clone(),
            reader: reader.clone(),
            readiness: Arc::clone(readiness),
            kinds,
            owners: Owners::default(),
            asked: HashMap::new(),
            resumes: Instant::now(),
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
        };
        (follower, collections)
    }

    pub(super) fn owners(&self) -> Owners {
        self.owners.clone()
    }

    pub(super) async fn run(mut self) {
        let mut was_reported = false;
        loop {
            let was_complete = self.readiness.has_pods();
            let now = Instant::now();
            for kind in &mut self.kinds {
                kind.denied.take_if(|(until, _)| *until <= now);
            }
            let (needed, seen) = self.pass().await;
            let denied = self.kinds.iter().filter_map(|kind| Some(&kind.denied.as_ref()?.1));
            let why = self.asked.values().filter_map(|asked| asked.why.as_ref()).chain(denied).next();
            if let Some(why) = why.filter(|_| !was_reported) {
                tracing::warn!("owners of pods cannot be read; their names are derived: {why}");
            }
            was_reported = why.is_some();
            if was_complete {
                self.tell(&needed);
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
            let mut of_it = self.kinds.iter().enumerate().filter(|(of, _)| is_for_it(*of));
            let denied = of_it.find_map(|(_, kind)| kind.denied.as_ref());
            let is_unread = |name: &&Key| {
                is_for_it(name.kind) && self.asked.get(*name).is_none_or(|asked| !asked.is_read)
            };
            let mut unread = needed.iter().filter(is_unread).peekable();
            let now = if let Some((_, why)) = denied {
                Some(Err(why.clone()))
            } else if unread.peek().is_none() || matches!(*kind.reads.borrow(), Some(Ok(()))) {
                // What was read stays served without those that come later.
                Some(Ok(()))
            } else {
                unread.find_map(|name| self.asked.get(name)?.why.clone()).map(Err)
            };
            kind.reads.send_replace(now);
        }
    }

    /// A kind that was denied in this pass is for a later one.
    fn is_due(&self, name: &Key, now: Instant) -> bool {
        self.kinds[name.kind].denied.is_none() && self.due_at(name).is_none_or(|due| due <= now)
    }

    /// When an owner is to be requested. `None`: it never was.
    fn due_at(&self, name: &Key) -> Option<Instant> {
        let denied = self.kinds[name.kind].denied.as_ref().map(|(until, _)| *until);
        denied.max(self.asked.get(name).and_then(|asked| asked.due))
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
            let has_failed = |name: &&Key| self.asked.get(*name).is_some_and(|asked| asked.has_failed);
            let due = needed.iter().filter(|name| self.is_due(name, now));
            let Some(name) = due.min_by_key(has_failed).cloned() else {
                if was_complete {
                    self.forget(&needed);
                }
                return (needed, seen);
            };
            let (is_denied, why) = match timeout(PATIENCE, self.get(&name)).await {
                Ok(Ok(owner)) => {
                    self.put(&name, owner.as_ref());
                    let due = Some(Instant::now() + REFRESH.mul_f64(jitter()));
                    self.asked.insert(name, Asked { is_read: true, due, ..Asked::default() });
                    sleep(PACE).await;
                    continue;
                }
                Ok(Err(error)) => {
                    let is_denied = matches!(&error, Error::Api(status) if status.code == 403);
                    (is_denied, api_causes(&error))
                }
                Err(_) => (false, format!("no answer within {PATIENCE:?}")),
            };
            // All that failed becomes due at the same time. Then few requests show whether the server is back.
            let now = Instant::now();
            if self.resumes <= now {
                self.resumes = now + self.backoff.wait(std::time::Instant::now());
            }
            if is_denied {
                self.kinds[name.kind].denied = Some((self.resumes, why));
            } else {
                failures += 1;
                let others = needed.iter().filter(|name| failures >= FAILURES && self.is_due(name, now));
                let waiting: Vec<_> = others.chain([&name]).cloned().collect();
                for waiting in waiting {
                    let has_failed = waiting == name;
                    let asked = self.asked.entry(waiting).or_default();
                    (asked.due, asked.why) = (Some(self.resumes), Some(why.clone()));
                    asked.has_failed |= has_failed;
                }
            }
            sleep(PACE).await;
        }
    }

    /// Requests an owner: `None` if there is no such object.
    async fn get(&self, name: &Key) -> Result<Option<Arc<Owner>>, Error> {
        // An old one is refreshed from the API server's cache.
        let parameters = if self.asked.get(name).is_some_and(|asked| asked.is_read) {
            GetParams::any()
        } else {
            GetParams::default()
        };
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

    /// Forgets what no pod needs.
    fn forget(&mut self, needed: &HashSet<Key>) {
        let gone: Vec<_> = self.asked.extract_if(|name, _| !needed.contains(name)).collect();
        for (name, _) in gone {
            self.put(&name, None);
        }
    }

    /// The controllers of the pods, and the controllers of those; and the generation of the pods.
    fn needed(&self) -> (HashSet<Key>, u64) {
        let mut needed = HashSet::new();
        let snapshot = self.reader.load();
        for pod in snapshot.pods() {
            let Some(owner) = controller(&pod.metadata) else { continue };
            let Some(name) = Self::key(pod.namespace(), owner) else { continue };
            if let Some(known) = self.owners.of(pod)
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

    use super::super::history::LIMITS;
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
        let (readiness, seats) = (Arc::new(Readiness::new(&[], true)), Seats::new(1, 1));
        let new_history = |of| Arc::new(History::new(of, 1, LIMITS, &seats));
        Follower::new(&Client::new(server, "default"), (reader, &readiness), new_history)
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
