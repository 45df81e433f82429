//! The follower against an API server of this file, in simulated time.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response, StatusCode, Uri};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use pod_index::Reader;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::rate::PACE;
use super::refresh::SPREAD;
use super::request::PATIENCE;
use super::*;

fn pod(name: &str, kind: &str, owner: &str) -> Pod {
    let pod = json!({ "metadata": { "namespace": "shop", "name": name, "uid": name, "ownerReferences": [
        { "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": true },
    ] } });
    serde_json::from_value(pod).unwrap()
}

/// A client of an API server that answers so.
fn server<A, F>(answer: A) -> Client
where
    A: FnOnce(Uri) -> F + Clone + Send + 'static,
    F: Future<Output = (StatusCode, String)> + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone()(request.uri().clone());
        async move {
            let (status, body) = answer.await;
            Response::builder().status(status).body(Body::from(body.into_bytes()))
        }
    });
    Client::new(service, "default")
}

/// What a follower tells, as a client of it sees it.
#[derive(Clone)]
struct Told {
    owners: Owners,
    /// The UIDs of the owners, by kind and name.
    shown: Arc<Mutex<HashMap<(OwnerKind, String), String>>>,
    states: Arc<HashMap<OwnerKind, watch::Sender<OwnersState>>>,
}

impl Told {
    fn new() -> Self {
        let states = OwnerKind::ALL.map(|kind| (kind, watch::Sender::new(OwnersState::Waiting)));
        Self { owners: Owners::default(), shown: Arc::default(), states: Arc::new(states.into()) }
    }

    fn tell(&self, update: OwnerUpdate) {
        let mut shown = self.shown.lock().unwrap();
        match update {
            OwnerUpdate::Read { id, .. } => {
                shown.insert((id.kind, id.name.to_string()), id.uid.to_string());
            }
            OwnerUpdate::Gone { id } => shown.retain(|_, uid| **uid != *id.uid),
            OwnerUpdate::State { kind, state: OwnersState::Failed(_) }
                if *self.states[&kind].borrow() == OwnersState::Read => {}
            OwnerUpdate::State { kind, state } => drop(self.states[&kind].send_replace(state)),
        }
    }

    /// Asks for the owners of a kind, and waits until all are read. Fails with the reason, or after five seconds.
    async fn current(&self, kind: OwnerKind) -> Result<(), String> {
        self.owners.ask(kind);
        let mut states = self.states[&kind].subscribe();
        let is_known = |state: &OwnersState| *state != OwnersState::Waiting;
        let _ = timeout(Duration::from_secs(5), states.wait_for(is_known)).await;
        match states.borrow().clone() {
            OwnersState::Read => Ok(()),
            OwnersState::Waiting => Err("waiting".to_owned()),
            OwnersState::Failed(why) | OwnersState::Denied(why) => Err(why),
        }
    }

    fn uid(&self, kind: OwnerKind, name: &str) -> Option<String> {
        self.shown.lock().unwrap().get(&(kind, name.to_owned())).cloned()
    }

    /// As if somebody had asked for objects of every kind.
    fn ask(&self) {
        for kind in OwnerKind::ALL {
            self.owners.ask(kind);
        }
    }
}

/// A follower of the owners on this server, and what it tells.
fn follower(server: Client, reader: &Reader<Pod>) -> (Follower<Pod>, Told) {
    let told = Told::new();
    let tell = told.clone();
    let owners = told.owners.clone();
    let follower =
        Follower::new(server, reader.clone(), owners, Options::default(), move |update| tell.tell(update));
    (follower, told)
}

/// A request: the object's name, and whether the cache may answer.
type Asked = Arc<Mutex<Vec<(String, bool)>>>;

/// A server that notes each request. Its cache lacks objects whose names begin with `late`.
fn noting() -> (Client, Asked) {
    let asked = Asked::default();
    let server = server({
        let asked = Arc::clone(&asked);
        async move |uri: Uri| {
            let name = uri.path().rsplit('/').next().unwrap().to_owned();
            let is_cached = uri.query().is_some_and(|query| query.contains("resourceVersion=0"));
            asked.lock().unwrap().push((name.clone(), is_cached));
            if is_cached && name.starts_with("late") {
                let status = json!({ "status": "Failure", "reason": "NotFound", "code": 404, "message": "" });
                return (StatusCode::NOT_FOUND, status.to_string());
            }
            let owner = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true }]);
            let owner = if uri.path().contains("replicasets") { owner } else { json!([]) };
            (
                StatusCode::OK,
                json!({ "metadata": { "name": name, "uid": name, "ownerReferences": owner } }).to_string(),
            )
        }
    });
    (server, asked)
}

#[tokio::test(start_paused = true)]
async fn the_api_servers_cache_is_asked_first_and_etcd_for_what_it_lacks() {
    let (server, asked) = noting();
    let (mut writer, reader) = pod_index::new();
    for name in ["new", "late", "old", "renewed"] {
        writer.upsert_pod(pod(name, "StatefulSet", name)).unwrap();
    }
    let (mut follower, told) = follower(server, &reader);
    for (name, uid) in [("old", "old"), ("renewed", "of an earlier one")] {
        let owner = json!({ "metadata": { "namespace": "shop", "name": name, "uid": uid } });
        follower.restore(OwnerKind::StatefulSet, Arc::new(serde_json::from_value(owner).unwrap()));
    }
    told.ask();
    tokio::spawn(follower.run());
    sleep(Duration::from_secs(1)).await;
    let mut asked = asked.lock().unwrap().clone();
    asked.sort_unstable();
    let expected = [("late", false), ("late", true), ("new", true), ("old", true), ("renewed", true)];
    assert_eq!(asked, expected.map(|(name, is_cached)| (name.to_owned(), is_cached)));
    for name in ["late", "new", "old", "renewed"] {
        assert_eq!(told.uid(OwnerKind::StatefulSet, name).as_deref(), Some(name));
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_is_requested_late_and_what_pods_name_not_at_all() {
    let (server, asked) = noting();
    let (mut writer, reader) = pod_index::new();
    for (name, kind) in [("a", "ReplicaSet"), ("b", "ReplicaSet"), ("c", "StatefulSet"), ("d", "DaemonSet")] {
        writer.upsert_pod(pod(name, kind, name)).unwrap();
    }
    let (follower, told) = follower(server, &reader);
    let owners = told.owners.clone();
    tokio::spawn(follower.run());
    let requests = || asked.lock().unwrap().drain(..).map(|(name, _)| name).collect::<Vec<_>>().join(" ");
    sleep(SPREAD + Duration::from_secs(1)).await;
    let mut first: Vec<_> = requests().split(' ').map(str::to_owned).collect();
    first.sort_unstable();
    assert_eq!(first, ["a", "b"]);
    // A new pod's owner is requested at once, also by somebody's question.
    let new = pod("e", "ReplicaSet", "e");
    writer.upsert_pod(new.clone()).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(requests(), "e");
    assert!(owners.asked_of(&new).is_some());
    // The Deployment, which all three name, and the others, once somebody asks for their kinds.
    told.current(OwnerKind::StatefulSet).await.unwrap();
    assert_eq!(requests(), "c");
    told.current(OwnerKind::Deployment).await.unwrap();
    assert_eq!(requests(), "web");
    // Hourly; and every ten minutes while somebody asks.
    sleep(Duration::from_secs(30 * 60)).await;
    assert_eq!(requests(), "");
    told.current(OwnerKind::StatefulSet).await.unwrap();
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
    let (follower, told) = follower(server, &reader);
    let owners = told.owners.clone();
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
/// an hour, in which each owner is renewed once, and are upgraded, a tenth at a time, each minute. `docs/sizing.md` has the figures.
#[tokio::test(start_paused = true)]
async fn the_requests_of_two_thousand_agents_are_few_and_spread() {
    const AGENTS: usize = 100;
    const SCALE: usize = 2_000 / AGENTS;
    let times = Arc::new(Mutex::new(Vec::new()));
    let server = server({
        let times = Arc::clone(&times);
        async move |uri: Uri| {
            let is_quorum = uri.query().is_none_or(|query| !query.contains("resourceVersion=0"));
            times.lock().unwrap().push((Instant::now(), is_quorum));
            let name = uri.path().rsplit('/').next().unwrap().to_owned();
            (StatusCode::OK, json!({ "metadata": { "name": name, "uid": name } }).to_string())
        }
    });
    // Since the last call.
    let count = || {
        let times = std::mem::take(&mut *times.lock().unwrap());
        let mut by_second = HashMap::new();
        for (time, _) in &times {
            *by_second.entry(time.duration_since(times[0].0).as_secs()).or_insert(0) += SCALE;
        }
        InTheCluster {
            requests: times.len() * SCALE,
            most_in_a_second: by_second.into_values().max().unwrap_or_default(),
            from_etcd: times.iter().filter(|(_, is_quorum)| *is_quorum).count() * SCALE,
        }
    };
    let mut indices = Vec::new();
    for agent in 0..AGENTS {
        let (mut writer, reader) = pod_index::new();
        let pods =
            (0..30).map(|number| pod(&format!("p-{number}"), "ReplicaSet", &format!("r-{agent}-{number}")));
        let _ = writer.set_pods(pods);
        indices.push((writer, reader));
    }
    let start = |reader: &Reader<Pod>| tokio::spawn(follower(server.clone(), reader).0.run());
    let mut agents: Vec<_> = indices.iter().map(|(_, reader)| start(reader)).collect();
    sleep(Duration::from_secs(300)).await;
    let at_the_start = count();
    sleep(Duration::from_secs(3600)).await;
    let in_the_first_hour = count();
    for tenth in 0..10 {
        for number in tenth * AGENTS / 10..(tenth + 1) * AGENTS / 10 {
            agents[number].abort();
            agents[number] = start(&indices[number].1);
        }
        sleep(Duration::from_secs(60)).await;
    }
    sleep(SPREAD).await;
    let in_a_roll_out = count();
    println!("at the start: {at_the_start:?}");
    println!("in the first hour: {in_the_first_hour:?}");
    println!("in a roll-out: {in_a_roll_out:?}");
    for counted in [&at_the_start, &in_the_first_hour, &in_a_roll_out] {
        assert_eq!(counted.from_etcd, 0, "{counted:?}");
    }
    assert_eq!(at_the_start.requests, 60_000);
    assert!(at_the_start.most_in_a_second <= 1_000, "{at_the_start:?}");
    assert!((60_000..=100_000).contains(&in_the_first_hour.requests), "{in_the_first_hour:?}");
    assert!(in_the_first_hour.most_in_a_second <= 400, "{in_the_first_hour:?}");
    assert!((60_000..=66_000).contains(&in_a_roll_out.requests), "{in_a_roll_out:?}");
    assert!(in_a_roll_out.most_in_a_second <= 600, "{in_a_roll_out:?}");
}

/// The requests of all agents.
#[derive(Debug)]
struct InTheCluster {
    requests: usize,
    most_in_a_second: usize,
    /// Not answered from the API server's cache.
    from_etcd: usize,
}

/// An hour after a start is no measure: each owner is renewed once in it. All were read within three minutes, and it takes hours
/// until their renewals have spread over the time.
#[tokio::test(start_paused = true)]
async fn at_rest_an_owner_is_renewed_six_times_in_five_hours() {
    const AGENTS: usize = 5;
    const OWNERS: usize = 30;
    const FIVE_HOURS: Duration = Duration::from_secs(5 * 3600);
    let requests = Arc::new(AtomicUsize::new(0));
    let server = server({
        let requests = Arc::clone(&requests);
        async move |uri: Uri| {
            requests.fetch_add(1, Ordering::Relaxed);
            let name = uri.path().rsplit('/').next().unwrap().to_owned();
            (StatusCode::OK, json!({ "metadata": { "name": name, "uid": name } }).to_string())
        }
    });
    let mut writers = Vec::new();
    for _ in 0..AGENTS {
        let (mut writer, reader) = pod_index::new();
        let pods =
            (0..OWNERS).map(|number| pod(&format!("p-{number}"), "ReplicaSet", &format!("r-{number}")));
        let _ = writer.set_pods(pods);
        writers.push(writer);
        tokio::spawn(follower(server.clone(), &reader).0.run());
    }
    sleep(FIVE_HOURS).await;
    let before = requests.load(Ordering::Relaxed);
    sleep(FIVE_HOURS).await;
    let renewed = requests.load(Ordering::Relaxed) - before;
    let expected = 6 * AGENTS * OWNERS;
    assert!(renewed.abs_diff(expected) <= expected / 25, "{renewed} instead of about {expected}");
}

/// A denied owner is due since its refresh, and is not requested before the pause is over.
#[tokio::test(start_paused = true)]
async fn a_right_that_is_withdrawn_after_the_start_costs_a_request_a_minute() {
    let requests = Arc::new(AtomicUsize::new(0));
    let is_denied = Arc::new(AtomicUsize::new(0));
    let server = server({
        let requests = Arc::clone(&requests);
        let is_denied = Arc::clone(&is_denied);
        async move |_: Uri| {
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
    writer.upsert_pod(pod("p", "ReplicaSet", "web-1")).unwrap();
    let (follower, told) = follower(server, &reader);
    let owners = told.owners.clone();
    let mut run = follower.run().boxed();
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
    assert!((2..=4).contains(&asked) && is_known, "every 40 to 60 minutes: {asked}");
    let (asked, is_known) = hours(1).await;
    assert!((50..=200).contains(&asked) && is_known, "every minute: {asked}");
    let (asked, _) = hours(0).await;
    assert!((1..=4).contains(&asked), "every 40 to 60 minutes again: {asked}");
}

#[tokio::test(start_paused = true)]
async fn kinds_without_a_right_hold_up_no_other_and_cost_one_request_each() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let server = server({
        let asked = Arc::clone(&asked);
        async move |uri: Uri| {
            let mut parts = uri.path().rsplit('/').map(str::to_owned);
            let name = parts.next().unwrap();
            let kind = parts.next().unwrap();
            asked.lock().unwrap().push(kind.clone());
            let found = json!({ "metadata": { "name": name, "uid": name } });
            let refused = json!({ "status": "Failure", "reason": "Forbidden", "code": 403 });
            let may = kind == "replicasets";
            let (code, body) = if may { (StatusCode::OK, found) } else { (StatusCode::FORBIDDEN, refused) };
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
            writer.upsert_pod(pod).unwrap();
        }
        writer.current().pods().cloned().collect::<Vec<_>>()
    };
    for kind in ["StatefulSet", "DaemonSet", "Job"] {
        put(kind, 10);
    }
    let pods = put("ReplicaSet", 20);
    let (follower, told) = follower(server, &reader);
    let owners = told.owners.clone();
    told.ask();
    tokio::spawn(follower.run());
    // Before the shortest pause after a failure, 1.3 s, is over.
    sleep(Duration::from_millis(700)).await;
    assert_eq!(pods.iter().filter(|pod| owners.of(pod).is_some()).count(), 20, "all that may be read");
    told.current(OwnerKind::ReplicaSet).await.unwrap();
    assert!(told.current(OwnerKind::StatefulSet).await.is_err());
    // New ones of a denied kind are not requested before its pause is over.
    let before = asked.lock().unwrap().len();
    put("Job", 40);
    sleep(Duration::from_millis(300)).await;
    assert_eq!((before, asked.lock().unwrap().len()), (23, 23));
}

/// Every GET of one `StatefulSet` fails, later of five.
#[tokio::test(start_paused = true)]
async fn an_owner_that_cannot_be_read_holds_up_no_other_and_only_its_own_list() {
    let failures = Arc::new(AtomicUsize::new(0));
    let is_healed = Arc::new(AtomicUsize::new(0));
    let server = server({
        let failures = Arc::clone(&failures);
        let is_healed = Arc::clone(&is_healed);
        async move |uri: Uri| {
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
        writer.upsert_pod(pod(name, kind, owner)).unwrap();
    }
    let (follower, told) = follower(server, &reader);
    let [replica_sets, deployments, stateful_sets, ..] = OwnerKind::ALL;
    let has = |kind, name: &str| told.uid(kind, name).is_some();
    tokio::spawn(follower.run());
    for read in [replica_sets, deployments] {
        told.current(read).await.unwrap();
    }
    let asked = Instant::now();
    let refused = told.current(stateful_sets).await.unwrap_err();
    assert!(refused.contains("500"), "{refused}");
    assert!(asked.elapsed() < Duration::from_secs(1), "it is known that it fails");
    // For hours, others are served as soon as they come.
    for round in 0..20 {
        sleep(Duration::from_secs(600)).await;
        for kind in ["ReplicaSet", "StatefulSet"] {
            let name = format!("{}-{round}", kind.to_lowercase());
            writer.upsert_pod(pod(&name, kind, &name)).unwrap();
        }
        sleep(Duration::from_secs(1)).await;
        assert!(has(replica_sets, &format!("replicaset-{round}")), "round {round}");
        assert!(has(stateful_sets, &format!("statefulset-{round}")) && has(stateful_sets, "good"));
        told.current(replica_sets).await.unwrap();
    }
    let failed = failures.load(Ordering::Relaxed);
    assert!((180..=320).contains(&failed), "about one request a minute: {failed}");
    is_healed.store(1, Ordering::Relaxed);
    sleep(Duration::from_secs(61)).await;
    told.current(stateful_sets).await.unwrap();
    assert!(has(stateful_sets, "bad"));
    // A list that was whole stays served.
    is_healed.store(0, Ordering::Relaxed);
    sleep(Duration::from_secs(3600)).await;
    told.current(stateful_sets).await.unwrap();
    // After several failures the others wait, and new ones do not.
    let failed = failures.load(Ordering::Relaxed);
    for number in 0..40 {
        for name in ["bad", "early"].map(|start| format!("{start}-{number}")) {
            writer.upsert_pod(pod(&name, "StatefulSet", &name)).unwrap();
        }
    }
    // Each pass finds out three that fail, and then they are last.
    sleep(Duration::from_secs(1200)).await;
    assert!((0..40).all(|number| has(stateful_sets, &format!("early-{number}"))));
    for round in 0..10 {
        sleep(Duration::from_secs(600)).await;
        let name = format!("late-{round}");
        writer.upsert_pod(pod(&name, "StatefulSet", &name)).unwrap();
        sleep(Duration::from_secs(1)).await;
        assert!(has(stateful_sets, &name), "round {round}");
    }
    let failed = failures.load(Ordering::Relaxed) - failed;
    assert!((300..=700).contains(&failed), "about three requests a minute: {failed}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_makes_no_old_snapshot_stay() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = server({
        let asked = Arc::clone(&asked);
        async move |uri: Uri| {
            asked.fetch_add(1, Ordering::Relaxed);
            sleep(PATIENCE / 2).await;
            let name = uri.path().rsplit('/').next().unwrap().to_owned();
            (StatusCode::OK, json!({ "metadata": { "name": name, "uid": name } }).to_string())
        }
    });
    let (mut writer, reader) = pod_index::new();
    let (follower, told) = follower(server, &reader);
    told.ask();
    tokio::spawn(follower.run());
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        writer.upsert_pod(pod(name, "StatefulSet", name)).unwrap();
        while asked.load(Ordering::Relaxed) == number {
            sleep(PACE).await;
        }
        writer.upsert_pod(pod("other", "Node", name)).unwrap();
        writer.reclaim();
        assert_eq!(writer.retired_snapshots(), 0, "while {name} is requested");
        sleep(PATIENCE).await;
    }
}
