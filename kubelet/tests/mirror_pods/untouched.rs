//! What must not be changed: other programs' pods and mirrors, orphans before all sources were seen, and
//! mirrors that should not be created.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, PodMeta};
use pod_index_kubelet::mirror::{MirrorErrorKind, MirrorFailure, MirrorState, MirrorsStatus, WaitsFor};
use serde_json::json;
use tokio::sync::watch;

use super::support::{
    Agent, Manifests, NODE, agent, manifests, mirrored, mirrors, mirrors_of, on_server, plain, server,
    static_pod, status_of,
};
use pod_index_test_support::api_server::{Fault, Verb};

/// Both if this agent sees the pod on its own node and if only the API server's refusal reveals it.
#[tokio::test]
async fn a_plain_pod_of_the_same_name_is_left_alone_and_reported() {
    for node in [NODE, "n2"] {
        let server = server().await;
        let stranger = server.put("pods", &plain(&on_server("web"), node)).value.clone();
        let pods = manifests(&[("web", 1), ("etcd", 1)]);
        let mut agent = Agent::start(&server);
        agent.has(&pods);
        let reported = |status: &MirrorsStatus| {
            let error = status_of(status, "web").and_then(|web| web.last_failure.as_ref());
            let why = if node == NODE {
                "a pod that is not a mirror has its name"
            } else {
                "a pod that this client may not read has its name"
            };
            let status_of =
                |error: &MirrorFailure| error.kind == MirrorErrorKind::Taken && error.message.contains(why);
            status.failed >= 2 && error.is_some_and(status_of)
        };
        agent.until("a report", reported).await;
        server.until("the other", |server| mirrors(server).contains_key(&on_server("etcd"))).await;
        assert_eq!(server.object("pods", "default", &on_server("web")), Some(stranger), "on {node}");
        // Refused writes count too.
        let written = server.written().into_iter().filter(|write| write.key.name == on_server("web"));
        let outcomes: BTreeSet<_> = written.map(|write| (format!("{:?}", write.verb), write.code)).collect();
        assert_eq!(outcomes, [("Create".to_owned(), 409)].into());
    }
}

#[tokio::test]
async fn orphans_are_deleted_only_after_all_sources_were_seen() {
    let server = server().await;
    let pods = manifests(&[("web", 1), ("etcd", 1)]);
    agent(&server, &pods).await.kill().await;
    let mut next = Agent::start(&server);
    server.watched_by(1).await;
    // The API server's pods are known but the manifests are not: so far, every mirror looks like an orphan.
    server.put("pods", &plain("seen", NODE));
    next.knows("seen").await;
    assert_eq!((next.status.borrow().passes, server.requests(Verb::Delete)), (0, 0));
    let left = manifests(&[("web", 1)]);
    next.has(&left);
    mirrored(&server, &left).await;
    next.rests(1).await;
    assert_eq!((server.requests(Verb::Delete), server.requests(Verb::Create)), (1, 2));
}

#[tokio::test]
async fn a_replaced_mirror_that_the_index_does_not_show_yet_is_not_deleted() {
    let server = server().await;
    let pods = manifests(&[("web", 1)]);
    let mut agent = agent(&server, &pods).await;
    // The mirror was replaced without the agent's knowledge. The agent deletes the one it saw, which is
    // already gone.
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
    // An agent that sees the pods of all nodes, although that is discouraged.
    let pods = before.iter().map(|pod| serde_json::from_value::<Pod>(pod.clone()).unwrap());
    let mut agent = Agent::of_fixed_index(mirrors_of(&server), pods);
    agent.looks(2).await;
    assert_eq!((server.objects("pods"), server.writes()), (before, 0));
}

#[tokio::test]
async fn a_static_pod_that_has_ended_gets_no_new_mirror() {
    let server = server().await;
    let pods = [("done", "Succeeded"), ("broken", "Failed"), ("web", "Running")].map(|(name, phase)| {
        let mut pod = Pod::clone(&static_pod(name, 1));
        pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        pod
    });
    let mut agent = Agent::of_fixed_index(mirrors_of(&server), pods);
    agent.until("a mirror", |status| status.created >= 1).await;
    agent.looks(2).await;
    assert_eq!(mirrors(&server).into_keys().collect::<Vec<_>>(), [on_server("web")]);
    assert_eq!(server.requests(Verb::Create), 1);
    let finished = agent.status.borrow().pods.iter().filter(|pod| pod.state == MirrorState::Finished).count();
    assert_eq!(finished, 2);
}

/// The kubelet leaves both unchanged. Here, nothing else would finish the deletion of the first, and the
/// second describes a pod that does not exist.
#[tokio::test]
async fn a_mirror_of_an_ended_pod_goes_if_it_is_being_deleted_or_of_another_version_and_stays_if_it_is_right()
{
    let server = server().await;
    let hash = |name: &str, version| {
        static_pod(name, version).annotation(CONFIG_HASH_ANNOTATION).unwrap().to_owned()
    };
    let mut index = Vec::new();
    for (name, of_version, is_terminating) in [("right", 1, false), ("old", 0, false), ("going", 1, true)] {
        let mut mirror = plain(&on_server(name), NODE);
        mirror["metadata"]["annotations"] = json!({ CONFIG_MIRROR_ANNOTATION: hash(name, of_version) });
        if is_terminating {
            mirror["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
        }
        let stored = server.put("pods", &mirror).value.clone();
        index.push(serde_json::from_value::<Pod>(stored).unwrap());
        let mut pod = Pod::clone(&static_pod(name, 1));
        pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        index.push(pod);
    }
    let mut agent = Agent::of_fixed_index(mirrors_of(&server), index);
    agent.until("two deletions", |status| status.deleted == 2).await;
    agent.looks(2).await;
    let left: Vec<_> = server.objects("pods").iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(left, [on_server("right")]);
    assert_eq!(server.requests(Verb::Create), 0);
}

/// A source that was added later, and has not been read, may name the static pod.
#[tokio::test]
async fn an_added_source_makes_only_orphans_wait_again() {
    let server = server().await;
    let mut mirror = plain(&on_server("gone"), NODE);
    mirror["metadata"]["annotations"] = json!({ CONFIG_MIRROR_ANNOTATION: "hash" });
    let orphan = serde_json::from_value::<Pod>(server.put("pods", &mirror).value.clone()).unwrap();
    let (seen, sources_seen) = watch::channel(true);
    server.fail_always(Verb::Create, Fault::Status(500));
    server.fail_always(Verb::Delete, Fault::Status(500));
    let index = [orphan, Pod::clone(&static_pod("web", 1))];
    let mut agent = Agent::of_seen_index(mirrors_of(&server), index, sources_seen);
    agent.until("attempts", |status| status.failed >= 2).await;
    seen.send_replace(false);
    let waits = |status: &MirrorsStatus| {
        status_of(status, "gone").is_some_and(|gone| gone.waits_for == Some(WaitsFor::Sources))
    };
    agent.until("the wait", waits).await;
    let deletions = server.requests(Verb::Delete);
    server.heal();
    agent.until("the other's mirror", |status| status.created == 1).await;
    agent.looks(3).await;
    assert_eq!(server.requests(Verb::Delete), deletions);
    seen.send_replace(true);
    agent.until("its end", |status| status.deleted == 1).await;
}
