//! Mirror pods against an API server with the rules of a real one: who may create what, what a delete may touch, and every
//! failure in between. The static pods come from manifests, the mirrors back through the API-server source and the merge.
#![cfg(feature = "kube")]

#[path = "support/api_server/mod.rs"]
mod api_server;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use api_server::{ApiServer, DEADLINE, Fault, Verb};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use pod_index::mirror::{
    KubeMirrorClient, MirrorClient, MirrorErrorKind, MirrorState, Mirrored, Mirrors, MirrorsStatus,
    has_live_kubelet,
};
use pod_index::sources::api_server::ApiServer as PodsOfServer;
use pod_index::sources::manifest::{self, Origin};
use pod_index::sources::{Merge, NodeName, Source, SourceUpdate};
use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, MirrorPodUid, PodMeta, Reader};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const NODE: &str = "n1";
const QUICK: Duration = Duration::from_millis(20);

/// A manifest directory: versions of static pods, by name.
type Manifests = BTreeMap<String, u64>;

/// A static pod as the file source makes it. Each version has another hash.
fn static_pod(name: &str, version: u64) -> Arc<Pod> {
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: 'i:{version}'}}]}}}}"
    );
    let path = format!("/manifests/{name}.yaml");
    let decoded = manifest::decode(text.as_bytes(), Origin::File(Path::new(&path)), &NodeName::new(NODE));
    assert!(decoded.problems.is_empty(), "{:?}", decoded.problems);
    Arc::new(decoded.pods.into_iter().next().unwrap())
}

fn on_server(name: &str) -> String {
    format!("{name}-{NODE}")
}

/// An agent: an index fed with manifests and with the API server's pods, and what keeps its mirrors.
struct Agent {
    manifests: mpsc::UnboundedSender<Manifests>,
    status: watch::Receiver<MirrorsStatus>,
    reader: Reader<Pod>,
    tasks: Vec<JoinHandle<()>>,
}

impl Agent {
    fn start(server: &ApiServer) -> Self {
        let (manifests, mut changed_manifests) = mpsc::unbounded_channel::<Manifests>();
        let (mut writer, reader) = pod_index::new();
        let (seen, sources_seen) = watch::channel(false);
        let (stepped, steps) = watch::channel(0_u64);
        let source = PodsOfServer::new(server.client()).backoff(QUICK, 4 * QUICK);
        let mut pods = source.node(&NodeName::new(NODE)).pods();
        let feed = async move {
            let mut merge = Merge::new([Source::File, Source::Api]);
            loop {
                let merged = tokio::select! {
                    Some(update) = pods.next() => merge.update(Source::Api, update),
                    Some(manifests) = changed_manifests.recv() => {
                        let pods = manifests.iter().map(|(name, version)| static_pod(name, *version));
                        merge.update(Source::File, SourceUpdate::Set(pods.collect()))
                    }
                };
                assert_eq!(writer.apply(merged.into_operations()).refused, []);
                seen.send_replace(merge.all_sources_seen());
                stepped.send_modify(|steps| *steps += 1);
            }
        };
        let mirrors =
            Mirrors::new(KubeMirrorClient::new(server.client(), NODE), NODE).backoff(QUICK, 4 * QUICK);
        let status = mirrors.status();
        let changes = stream::unfold(steps, async |mut steps| {
            steps.changed().await.ok()?;
            Some(((), steps))
        });
        let keep = mirrors.run(reader.clone(), sources_seen, changes);
        Self { manifests, status, reader, tasks: vec![tokio::spawn(feed), tokio::spawn(keep)] }
    }

    fn has(&self, manifests: &Manifests) {
        self.manifests.send(manifests.clone()).unwrap();
    }

    /// Dies as if it were killed, whatever it was doing.
    async fn kill(mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
            let _ = task.await;
        }
    }

    async fn until(&mut self, what: &str, holds: impl FnMut(&MirrorsStatus) -> bool) {
        let came = tokio::time::timeout(DEADLINE, self.status.wait_for(holds)).await;
        let came = came.is_ok_and(|status| status.is_ok());
        assert!(came, "never came: {what}; {:?}", *self.status.borrow());
    }

    /// Waits until it sees that all is in order, and looks a few more times.
    async fn rests(&mut self, pods: usize) {
        let in_order = |status: &MirrorsStatus| {
            status.pods.len() == pods && status.pods.iter().all(|pod| pod.state == MirrorState::InSync)
        };
        self.until("all in order", in_order).await;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A server that knows the node and lets it do no more than a node may.
async fn server() -> ApiServer {
    let server = ApiServer::start().await;
    server.put("nodes", &json!({ "metadata": { "name": NODE } }));
    server.restrict_to_node(NODE);
    server
}

fn manifests(pods: &[(&str, u64)]) -> Manifests {
    pods.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

async fn agent(server: &ApiServer, pods: &Manifests) -> Agent {
    let mut agent = Agent::start(server);
    agent.has(pods);
    mirrored(server, pods).await;
    agent.rests(pods.len()).await;
    agent
}

/// Mirrors on the server: name and hash.
fn mirrors(server: &ApiServer) -> BTreeMap<String, String> {
    let pods = server.objects("pods").into_iter();
    let mirrors = pods.filter_map(|pod| {
        let hash = pod["metadata"]["annotations"][CONFIG_MIRROR_ANNOTATION].as_str()?.to_owned();
        Some((pod["metadata"]["name"].as_str()?.to_owned(), hash))
    });
    mirrors.collect()
}

fn wanted(pods: &Manifests) -> BTreeMap<String, String> {
    let pods = pods.iter().map(|(name, version)| static_pod(name, *version));
    pods.map(|pod| (pod.name().to_owned(), pod.annotation(CONFIG_HASH_ANNOTATION).unwrap().to_owned()))
        .collect()
}

/// Waits until the mirrors on the server are those of these static pods.
async fn mirrored(server: &ApiServer, pods: &Manifests) {
    let wanted = wanted(pods);
    server.until("the mirrors", |server| mirrors(server) == wanted).await;
}

fn uid(server: &ApiServer, name: &str) -> String {
    server.object("pods", "default", &on_server(name)).unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn plain(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "other" }] },
    })
}

#[tokio::test]
async fn a_hundred_static_pods_take_a_hundred_creations_none_at_rest_and_two_requests_for_an_edit() {
    let server = server().await;
    let names: Vec<_> = (0..100).map(|number| format!("p{number}")).collect();
    let mut pods = manifests(&names.iter().map(|name| (name.as_str(), 1)).collect::<Vec<_>>());
    let mut agent = agent(&server, &pods).await;
    let counts =
        |server: &ApiServer| [Verb::Create, Verb::Delete, Verb::Get].map(|verb| server.requests(verb));
    assert_eq!(counts(&server), [100, 0, 1], "one get: of the node");
    let passes = agent.status.borrow().passes;
    agent.until("two more looks", |status| status.passes >= passes + 2).await;
    assert_eq!(counts(&server), [100, 0, 1]);

    pods.insert("p7".to_owned(), 2);
    agent.has(&pods);
    mirrored(&server, &pods).await;
    agent.until("the count", |status| status.created == 101).await;
    agent.rests(100).await;
    assert_eq!(counts(&server), [101, 1, 1]);
    let status = agent.status.borrow().clone();
    assert_eq!((status.deleted, status.failed), (1, 0));
}

#[tokio::test]
async fn a_mirror_deleted_by_hand_comes_back() {
    let server = server().await;
    let pods = manifests(&[("web", 1), ("etcd", 1)]);
    let _agent = agent(&server, &pods).await;
    let before = uid(&server, "web");
    server.remove("pods", "default", &on_server("web"));
    mirrored(&server, &pods).await;
    assert_ne!(uid(&server, "web"), before);
}

#[tokio::test]
async fn a_mirror_that_is_being_deleted_is_replaced() {
    let server = server().await;
    let pods = manifests(&[("web", 1)]);
    let mut agent = agent(&server, &pods).await;
    let before = uid(&server, "web");
    let mut terminating = server.object("pods", "default", &on_server("web")).unwrap();
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    server.put("pods", &terminating);
    server.until("another", |server| mirrors(server).len() == 1 && uid(server, "web") != before).await;
    agent.rests(1).await;
    assert_eq!(server.requests(Verb::Delete), 1);
}

#[tokio::test]
async fn a_static_pod_edited_while_the_server_is_away_is_mirrored_when_it_is_back() {
    let server = server().await;
    let mut pods = manifests(&[("web", 1), ("etcd", 1)]);
    let mut agent = agent(&server, &pods).await;
    server.refuse();
    pods = manifests(&[("web", 2), ("new", 1)]);
    agent.has(&pods);
    agent
        .until("a failure", |status| {
            status.failed > 0 && status.pods.iter().any(|pod| pod.last_error.is_some())
        })
        .await;
    server.accept().await;
    mirrored(&server, &pods).await;
    agent.rests(2).await;
}

#[tokio::test]
async fn an_agent_killed_between_delete_and_create_leaves_nothing_that_the_next_one_does_not_mend() {
    let server = server().await;
    let mut pods = manifests(&[("web", 1)]);
    let agent_one = agent(&server, &pods).await;
    server.fail_always(Verb::Create, Fault::Delay(2 * DEADLINE));
    pods.insert("web".to_owned(), 2);
    agent_one.has(&pods);
    server.seen(Verb::Create, 2).await;
    agent_one.kill().await;
    assert_eq!(mirrors(&server), BTreeMap::new());
    server.heal();
    let _next = agent(&server, &pods).await;
}

#[tokio::test]
async fn an_answer_that_is_lost_makes_no_second_mirror() {
    let server = server().await;
    server.fail(Verb::Create, Fault::DropAfter);
    let pods = manifests(&[("web", 1)]);
    let mut agent = agent(&server, &pods).await;
    agent.until("the failure", |status| status.failed == 1).await;
    agent.rests(1).await;
    // Once, or twice: the index may know the mirror before the second attempt, which then would find it.
    assert!(server.requests(Verb::Create) <= 2);
    assert_eq!((server.requests(Verb::Delete), mirrors(&server)), (0, wanted(&pods)));
}

#[tokio::test]
async fn two_agents_by_mistake_come_to_agree_on_the_same_manifests() {
    let server = server().await;
    let mut pods = manifests(&[("web", 1), ("etcd", 1), ("dns", 1)]);
    let mut agents = [agent(&server, &pods).await, agent(&server, &pods).await];
    pods.insert("web".to_owned(), 2);
    for agent in &agents {
        agent.has(&pods);
    }
    mirrored(&server, &pods).await;
    for agent in &mut agents {
        agent.rests(3).await;
    }
    mirrored(&server, &pods).await;
    assert!(server.writes() <= 3 + 4, "one replacement each at most: {}", server.writes());
}

#[tokio::test]
async fn a_server_that_takes_five_seconds_is_not_asked_twice() {
    let server = server().await;
    server.fail_always(Verb::Create, Fault::Delay(Duration::from_secs(5)));
    let pods = manifests(&[("web", 1), ("etcd", 1)]);
    let _agent = agent(&server, &pods).await;
    assert_eq!(server.writes(), 2);
}

#[tokio::test]
async fn a_plain_pod_of_the_same_name_is_left_alone_and_reported() {
    let server = server().await;
    let stranger = server.put("pods", &plain(&on_server("web"), "n2")).value.clone();
    let pods = manifests(&[("web", 1), ("etcd", 1)]);
    let mut agent = Agent::start(&server);
    agent.has(&pods);
    let reported = |status: &MirrorsStatus| {
        let web = status.pods.iter().find(|pod| pod.full_name == format!("{}_default", on_server("web")));
        let error = web.and_then(|web| web.last_error.as_deref());
        status.failed >= 2
            && error.is_some_and(|error| error.contains("a pod that is no mirror bears its name"))
    };
    agent.until("a report", reported).await;
    server.until("the other", |server| mirrors(server).contains_key(&on_server("etcd"))).await;
    assert_eq!(server.object("pods", "default", &on_server("web")), Some(stranger));
    assert_eq!(server.requests(Verb::Delete), 0);
}

#[tokio::test]
async fn orphans_go_when_all_sources_have_been_seen_and_not_before() {
    let server = server().await;
    let pods = manifests(&[("web", 1), ("etcd", 1)]);
    agent(&server, &pods).await.kill().await;
    let mut next = Agent::start(&server);
    server.watched_by(1).await;
    // The API server has been seen, the manifests have not: every mirror is an orphan, as far as is known.
    let reader = next.reader.clone();
    server.put("nodes", &json!({ "metadata": { "name": "n2" } }));
    assert_eq!((next.status.borrow().passes, server.requests(Verb::Delete)), (0, 0), "{:?}", reader.load());
    let left = manifests(&[("web", 1)]);
    next.has(&left);
    mirrored(&server, &left).await;
    next.rests(1).await;
    assert_eq!((server.requests(Verb::Delete), server.requests(Verb::Create)), (1, 2));
}

#[tokio::test]
async fn what_the_index_does_not_know_yet_is_not_deleted_in_its_place() {
    let server = server().await;
    let pods = manifests(&[("web", 1)]);
    let mut agent = agent(&server, &pods).await;
    // Behind the agent's back the mirror was replaced; it deletes what it saw, and that is gone.
    server.hold();
    server.remove("pods", "default", &on_server("web"));
    let mut new =
        server.object("pods", "default", &on_server("web")).unwrap_or(plain(&on_server("web"), NODE));
    new["metadata"]["labels"] = json!({ "made": "by somebody else" });
    let stranger = server.put("pods", &new).value.clone();
    agent.has(&Manifests::new());
    server.seen(Verb::Delete, 1).await;
    server.release();
    agent.until("nothing to keep", |status| status.pods.is_empty()).await;
    assert_eq!(server.object("pods", "default", &on_server("web")), Some(stranger));
}

#[tokio::test]
async fn mirrors_and_pods_of_others_are_never_touched() {
    let server = server().await;
    let mut mirror = plain("web-n2", "n2");
    mirror["metadata"]["annotations"] =
        json!({ CONFIG_MIRROR_ANNOTATION: "hash", "kubernetes.io/config.source": "file" });
    server.put("pods", &mirror);
    server.put("pods", &plain("job", NODE));
    let before = server.objects("pods");
    let mut agent = agent_of_all(&server);
    agent.has(&Manifests::new());
    agent.until("a look", |status| status.passes >= 2).await;
    assert_eq!((server.objects("pods"), server.writes()), (before, 0));
}

/// An agent that, against all advice, sees the pods of all nodes.
fn agent_of_all(server: &ApiServer) -> Agent {
    let (mut writer, reader) = pod_index::new();
    for pod in server.objects("pods") {
        writer.add_pod(serde_json::from_value::<Pod>(pod).unwrap()).unwrap();
    }
    let (seen, sources_seen) = watch::channel(true);
    let mirrors = Mirrors::new(KubeMirrorClient::new(server.client(), NODE), NODE);
    let status = mirrors.status();
    let keep = mirrors.run(reader.clone(), sources_seen, stream::pending());
    let (manifests, mut ignored) = mpsc::unbounded_channel();
    let hold = tokio::spawn(async move {
        let _kept = (writer, seen);
        while ignored.recv().await.is_some() {}
    });
    Agent { manifests, status, reader, tasks: vec![tokio::spawn(keep), hold] }
}

#[tokio::test]
async fn a_static_pod_that_has_ended_gets_no_new_mirror() {
    let server = server().await;
    let (mut writer, reader) = pod_index::new();
    for (name, phase) in [("done", "Succeeded"), ("broken", "Failed"), ("web", "Running")] {
        let mut pod = Pod::clone(&static_pod(name, 1));
        pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        writer.add_pod(pod).unwrap();
    }
    let (_seen, sources_seen) = watch::channel(true);
    let mirrors_of = Mirrors::new(KubeMirrorClient::new(server.client(), NODE), NODE);
    let mut status = mirrors_of.status();
    let keep = tokio::spawn(mirrors_of.run(reader, sources_seen, stream::pending()));
    status.wait_for(|status| status.created >= 1).await.unwrap();
    assert_eq!(mirrors(&server).into_keys().collect::<Vec<_>>(), [on_server("web")]);
    assert_eq!(server.requests(Verb::Create), 1);
    keep.abort();
}

#[tokio::test]
async fn the_mirror_of_a_pod_that_is_still_ending_stays_until_it_has_ended() {
    let server = server().await;
    let mut mirror = plain(&on_server("web"), NODE);
    mirror["metadata"]["annotations"] = json!({ CONFIG_MIRROR_ANNOTATION: "hash" });
    let mirror = server.put("pods", &mirror);
    let (mut writer, reader) = pod_index::new();
    writer.add_pod(serde_json::from_value::<Pod>(mirror.value.clone()).unwrap()).unwrap();
    let ending = Arc::new(AtomicBool::new(true));
    let is_ending = Arc::clone(&ending);
    let mirrors = Mirrors::new(KubeMirrorClient::new(server.client(), NODE), NODE)
        .keep_while(move |name| name.as_str() == "web-n1_default" && is_ending.load(Relaxed));
    let mut status = mirrors.status();
    let (_seen, sources_seen) = watch::channel(true);
    let keep = tokio::spawn(mirrors.run(reader, sources_seen, stream::pending()));
    status.wait_for(|status| status.passes >= 2).await.unwrap();
    assert_eq!(server.requests(Verb::Delete), 0);
    ending.store(false, Relaxed);
    status.wait_for(|status| status.deleted == 1).await.unwrap();
    assert_eq!(server.objects("pods"), Vec::<Value>::new());
    keep.abort();
}

#[tokio::test]
async fn a_node_that_is_unknown_is_waited_for_and_one_registered_anew_is_believed() {
    let server = ApiServer::start().await;
    server.restrict_to_node(NODE);
    let mut pods = manifests(&[("web", 1)]);
    let mut agent = Agent::start(&server);
    agent.has(&pods);
    agent
        .until("a report", |status| {
            let error = status.pods.first().and_then(|pod| pod.last_error.as_deref());
            error.is_some_and(|error| error.contains(r#"the node "n1" is unknown to the API server"#))
        })
        .await;
    server.put("nodes", &json!({ "metadata": { "name": NODE } }));
    mirrored(&server, &pods).await;

    server.remove("nodes", "", NODE);
    server.put("nodes", &json!({ "metadata": { "name": NODE } }));
    pods.insert("new".to_owned(), 1);
    agent.has(&pods);
    mirrored(&server, &pods).await;
    agent.rests(2).await;
}

#[tokio::test]
async fn the_client_says_what_became_of_each_request() {
    let server = server().await;
    let client = KubeMirrorClient::new(server.client(), NODE);
    let pod = static_pod("web", 1);
    let Ok(Mirrored::Created(uid)) = client.create_mirror_pod(&pod).await else { panic!("not created") };
    assert_eq!(client.create_mirror_pod(&pod).await, Ok(Mirrored::Existed(uid.clone())));
    let other = client.create_mirror_pod(&static_pod("web", 2)).await.unwrap_err();
    assert_eq!(other.kind(), MirrorErrorKind::Taken);
    let stored = server.object("pods", "default", "web-n1").unwrap();
    let node = server.object("nodes", "", NODE).unwrap();
    let owner = json!([{
        "apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["metadata"]["uid"], "controller": true,
    }]);
    assert_eq!(stored["metadata"]["ownerReferences"], owner);

    let wrong = MirrorPodUid::from("another");
    assert_eq!(client.delete_mirror_pod("web-n1_default", Some(&wrong)).await, Ok(false), "409");
    assert_eq!(client.delete_mirror_pod("web-n1_default", Some(&uid)).await, Ok(true));
    assert_eq!(client.delete_mirror_pod("web-n1_default", None).await, Ok(false), "404");
    for name in ["barfoo", "bar_foo_foo", "", "bar_", "_foo"] {
        let refused = client.delete_mirror_pod(name, None).await.unwrap_err();
        assert_eq!(refused.kind(), MirrorErrorKind::Name, "{name}");
    }
    server.fail(Verb::Delete, Fault::Status(500));
    let failed = client.delete_mirror_pod("web-n1_default", None).await.unwrap_err();
    assert_eq!((failed.kind(), failed.pod()), (MirrorErrorKind::Request, "web-n1_default"));
}

#[tokio::test]
async fn a_kubelet_that_renews_its_lease_is_seen() {
    let server = ApiServer::start().await;
    let client = server.client();
    assert!(!has_live_kubelet(&client, NODE).await.unwrap(), "no lease");
    let lease = |renewed: &str| {
        json!({
            "metadata": { "namespace": "kube-node-lease", "name": NODE },
            "spec": { "holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": renewed },
        })
    };
    server.put("leases", &lease("2020-01-01T00:00:00.000000Z"));
    assert!(!has_live_kubelet(&client, NODE).await.unwrap(), "long over");
    server.put("leases", &lease("2999-01-01T00:00:00.000000Z"));
    assert!(has_live_kubelet(&client, NODE).await.unwrap());
    server.fail(Verb::Get, Fault::Status(403));
    assert!(has_live_kubelet(&client, NODE).await.is_err());
}

/// A generator of numbers that look random: the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

#[tokio::test]
async fn once_quiet_the_mirrors_are_those_of_the_static_pods_whatever_happened() {
    for seed in 0..8 {
        let mut dice = Dice(seed);
        let server = server().await;
        let strangers =
            [plain("job", NODE), plain("elsewhere", "n2")].map(|pod| server.put("pods", &pod).value.clone());
        let mut pods = manifests(&[("p0", 0), ("p1", 0)]);
        let mut agent = agent(&server, &pods).await;
        for step in 1..40 {
            let name = format!("p{}", dice.roll(5));
            match dice.roll(14) {
                0..4 => drop(pods.insert(name, step)),
                4..6 => drop(pods.remove(&name)),
                6 => drop(server.remove("pods", "default", &on_server(&name))),
                7 => server.fail(Verb::Create, [Fault::DropAfter, Fault::Status(500)][dice.roll(2)].clone()),
                8 => server.fail(Verb::Delete, [Fault::DropAfter, Fault::Drop][dice.roll(2)].clone()),
                9 => server.expire_watches(),
                10 => server.cut_connections(),
                11 if dice.roll(2) == 0 => server.refuse(),
                11 => server.accept_again().await,
                _ => tokio::time::sleep(Duration::from_millis(dice.roll(30) as u64)).await,
            }
            agent.has(&pods);
        }
        server.accept_again().await;
        server.heal();
        mirrored(&server, &pods).await;
        agent.rests(pods.len()).await;
        mirrored(&server, &pods).await;
        for stranger in strangers {
            let name = stranger["metadata"]["name"].as_str().unwrap();
            assert_eq!(server.object("pods", "default", name).as_ref(), Some(&stranger));
        }
    }
}
