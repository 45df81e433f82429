//! Failures on a node, and recovery from them.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::Pauses;
use pod_index_kubelet::mirror::{MirrorErrorKind, MirrorState, MirrorsStatus, WaitsFor};
use serde_json::json;

use super::support::{
    Agent, Manifests, NODE, QUICK, agent, manifests, mirrored, mirrors, mirrors_of, on_server, server,
    static_pod, status_of, strict_server, wanted,
};
use pod_index_test_support::api_server::{ApiServer, DEADLINE, Fault, Verb};

/// How long the agent waits until its index shows a mirror, before it asks for the same one again.
const EXPECTATION: Duration = Duration::from_secs(30);

/// The numbers of requests for the node, for a mirror and for a deletion must be these. On a machine where the index is late,
/// there may be more, rightly: the server then says that the mirror exists.
fn assert_requests(server: &ApiServer, since: Instant, expected: [u64; 3]) {
    let requests = [Verb::Get, Verb::Create, Verb::Delete].map(|verb| server.requests(verb));
    let is_late = since.elapsed() >= EXPECTATION;
    let enough = requests.iter().zip(&expected).all(|(requests, expected)| requests >= expected);
    assert!(requests == expected || is_late && enough, "{requests:?}, not {expected:?}");
}

#[tokio::test]
async fn a_hundred_static_pods_take_a_hundred_creations_none_at_rest_and_two_requests_for_an_edit() {
    let began = Instant::now();
    let server = server().await;
    let names: Vec<_> = (0..100).map(|number| format!("p{number}")).collect();
    let mut pods = manifests(&names.iter().map(|name| (name.as_str(), 1)).collect::<Vec<_>>());
    let mut agent = agent(&server, &pods).await;
    // Each creation asks for the node.
    assert_requests(&server, began, [100, 100, 0]);
    agent.looks(2).await;
    assert_requests(&server, began, [100, 100, 0]);
    assert_eq!(agent.status.borrow().created, 100);

    pods.insert("p7".to_owned(), 2);
    agent.has(&pods);
    mirrored(&server, &pods).await;
    agent.until("the count", |status| status.created == 101).await;
    agent.rests(100).await;
    assert_requests(&server, began, [101, 101, 1]);
    let status = agent.status.borrow().clone();
    assert_eq!((status.created, status.deleted, status.failed), (101, 1, 0));
}

#[tokio::test]
async fn a_mirror_created_while_its_manifest_is_removed_is_pending_until_it_is_deleted() {
    let (server, mut pods) = (server().await, manifests(&[("stays", 1)]));
    let mut agent = agent(&server, &pods).await;
    server.fail(Verb::Create, Fault::Delay(100 * QUICK));
    pods.insert("goes".to_owned(), 1);
    agent.has(&pods);
    server.seen(Verb::Create, 2).await;
    pods.remove("goes");
    agent.has(&pods);
    // No manifest has the name, but the request continues.
    agent.until("the manifest to go", |status| status.pods.len() == 1 && status.pending == 1).await;
    agent.rests(1).await;
    assert_eq!([Verb::Create, Verb::Delete].map(|verb| server.requests(verb)), [2, 1]);
    mirrored(&server, &pods).await;
}

#[tokio::test]
async fn an_answer_that_is_lost_makes_no_second_mirror() {
    let server = server().await;
    server.fail(Verb::Create, Fault::DropAfter);
    let pods = manifests(&[("web", 1)]);
    let mut agent = agent(&server, &pods).await;
    agent.until("the failure", |status| status.failed == 1).await;
    agent.rests(1).await;
    // One attempt, or two: the index may show the mirror before the second attempt, which would then find it.
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

/// Two agents by mistake, with these manifests. Each waits an hour before it undoes the other's change again.
fn contending(server: &ApiServer, manifests: [&Manifests; 2]) -> [Agent; 2] {
    manifests.map(|manifests| {
        let mut mirrors = mirrors_of(server);
        let hour = Duration::from_secs(3600);
        mirrors.contention = Pauses::new(hour, hour);
        let agent = Agent::start_with(server, mirrors);
        agent.has(manifests);
        agent
    })
}

/// Checks that they write nothing any more. Returns the number of writes until then.
async fn come_to_rest(server: &ApiServer, agents: &mut [Agent; 2]) -> u64 {
    for agent in &mut *agents {
        agent.looks(5).await;
    }
    let writes = server.writes();
    for agent in agents {
        agent.looks(5).await;
    }
    assert_eq!(server.writes(), writes, "nothing is written any more");
    writes
}

/// Each of them takes the other's mirror for a wrong one.
#[tokio::test]
async fn two_agents_with_different_manifests_come_to_rest_and_say_why() {
    let server = server().await;
    let [one, two] = [1, 2].map(|version| manifests(&[("web", version), ("etcd", 1)]));
    let mut agents = contending(&server, [&one, &two]);
    for agent in &mut agents {
        let contended = |status: &MirrorsStatus| {
            let failure = status_of(status, "web").and_then(|web| web.last_failure.as_ref());
            failure.is_some_and(|failure| failure.kind == MirrorErrorKind::Contended)
        };
        agent.until("a report", contended).await;
    }
    // One of them prevails for now, and the other waits.
    let has_lost = |agent: &Agent| {
        let status = agent.status.borrow().clone();
        let web = status_of(&status, "web").unwrap();
        let (lost, holds) =
            ((MirrorState::WrongHash, Some(WaitsFor::Contention)), (MirrorState::InSync, None));
        assert!([lost, holds].contains(&(web.state, web.waits_for)), "{web:?}");
        web.state == MirrorState::WrongHash
    };
    come_to_rest(&server, &mut agents).await;
    assert_eq!(agents.each_ref().map(has_lost).iter().filter(|lost| **lost).count(), 1);
    // Mirrors that both agree on are not touched.
    let etcd = agents.each_ref().map(|agent| status_of(&agent.status.borrow(), "etcd").unwrap().clone());
    assert!(etcd.iter().all(|etcd| etcd.state == MirrorState::InSync && etcd.last_failure.is_none()));

    // An edit is applied at once, even with another agent. Edit the last loser's pod, so that it has
    // something to do.
    let [one, two] = &mut agents;
    let loser = if has_lost(one) { one } else { two };
    let edited = manifests(&[("web", 3), ("etcd", 1)]);
    loser.has(&edited);
    mirrored(&server, &edited).await;
}

/// One agent's static pod is an orphan to the other, which lacks the manifest.
#[tokio::test]
async fn two_agents_of_which_one_lacks_a_manifest_come_to_rest_too() {
    let server = server().await;
    let mut agents = contending(&server, [&manifests(&[("web", 1)]), &Manifests::new()]);
    agents[0].until("three creations", |status| status.created == 3).await;
    let writes = come_to_rest(&server, &mut agents).await;
    assert!(writes <= 6, "{writes}");
}

#[tokio::test]
async fn a_request_that_takes_long_holds_back_no_other_pod() {
    let server = server().await;
    let mut pods = manifests(&[("web", 1)]);
    let agent = agent(&server, &pods).await;
    server.fail(Verb::Create, Fault::Delay(2 * DEADLINE));
    pods.insert("slow".to_owned(), 1);
    agent.has(&pods);
    server.seen(Verb::Create, 2).await;
    for version in 2..5 {
        pods.insert("web".to_owned(), version);
        agent.has(&pods);
        let others = manifests(&[("web", version)]);
        mirrored(&server, &others).await;
    }
    let status = agent.status.borrow().clone();
    assert_eq!(status_of(&status, "slow").unwrap().waits_for, Some(WaitsFor::Answer));
    assert_eq!((status.failed, server.requests(Verb::Create)), (0, 5), "it is still waited for");
}

#[tokio::test]
async fn permanently_failing_pods_do_not_starve_others() {
    let server = server().await;
    server.fail_always(Verb::Create, Fault::Status(403));
    // No waits: a failed name may be, and is, retried at once.
    let mut mirrors = mirrors_of(&server);
    mirrors.backoff = Pauses::new(Duration::ZERO, Duration::ZERO);
    let pods = (0..30).map(|number| Pod::clone(&static_pod(&format!("p{number}"), 1)));
    let mut agent = Agent::of_fixed_index(mirrors, pods);
    let is_tried = |status: &MirrorsStatus| {
        status.failed > 60 && status.pods.iter().all(|pod| pod.last_failure.is_some())
    };
    agent.until("an attempt for each pod", is_tried).await;
}

#[tokio::test]
async fn an_edited_manifest_is_tried_at_once_after_any_failure() {
    let server = server().await;
    let hour = Duration::from_secs(3600);
    let mut mirrors = mirrors_of(&server);
    mirrors.backoff = Pauses::new(hour, hour);
    let mut agent = Agent::start_with(&server, mirrors);
    server.fail(Verb::Create, Fault::Status(422));
    agent.has(&manifests(&[("web", 1)]));
    let waits = |status: &MirrorsStatus| {
        status_of(status, "web").is_some_and(|web| web.waits_for == Some(WaitsFor::BackOff))
    };
    agent.until("a refusal", waits).await;
    agent.looks(2).await;
    assert_eq!(server.requests(Verb::Create), 1, "this version waits");
    let edited = manifests(&[("web", 2)]);
    agent.has(&edited);
    mirrored(&server, &edited).await;
    agent.rests(1).await;
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
async fn an_unknown_node_is_waited_for_and_one_registered_again_is_used() {
    let server = strict_server().await;
    let mut pods = manifests(&[("web", 1)]);
    let mut agent = Agent::start(&server);
    agent.has(&pods);
    agent
        .until("a report", |status| {
            let error = status.pods.first().and_then(|pod| pod.last_failure.as_ref());
            error.is_some_and(|error| error.message.contains(r#"the node "n1" is unknown to the API server"#))
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

/// The kubelet deletes it first, because it needs not ask for its node. One that is being deleted goes here, too.
#[tokio::test]
async fn an_edited_static_pod_keeps_its_mirror_while_the_node_cannot_be_looked_up() {
    let (server, mut pods) = (server().await, manifests(&[("web", 1), ("going", 1)]));
    let mut agent = agent(&server, &pods).await;
    let going = on_server("going");
    server.fail_always(Verb::Get, Fault::Status(403));
    pods.insert("web".to_owned(), 2);
    agent.has(&pods);
    let reported = |status: &MirrorsStatus| {
        let failure = status_of(status, "web").and_then(|web| web.last_failure.as_ref());
        status.failed >= 2 && failure.is_some_and(|failure| failure.kind == MirrorErrorKind::Node)
    };
    agent.until("a report", reported).await;
    let mut mirror = server.object("pods", "default", &going).unwrap();
    mirror["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    server.put("pods", &mirror);
    agent.until("its end", |status| status.deleted == 1).await;
    assert_eq!(mirrors(&server).keys().collect::<Vec<_>>(), [&on_server("web")]);
    server.heal();
    mirrored(&server, &pods).await;
    agent.until("the replacement", |status| status.deleted == 2).await;
}
