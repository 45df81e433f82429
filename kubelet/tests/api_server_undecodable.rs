//! Pods that cannot be decoded: each one is a separate problem, and all others are indexed.

use pod_index_test_support::api_server;

use crate::followed;
use crate::node_followed::encoded;

use std::time::Duration;

use api_server::{ApiServer, Verb};
use followed::{Followed, Said};
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_kubelet::Pauses;
use pod_index_kubelet::sources::api_server::{ApiServer as Source, Times};
use pod_index_kubelet::sources::{ProblemKind, SourceStatus};
use serde_json::{Value, json};

const QUICK: Duration = Duration::from_millis(20);
const CANARY: &str = "hunter2";

fn pod(name: &str, version: u64) -> Value {
    json!({
        "metadata": { "namespace": "a", "name": name, "labels": { "version": version.to_string() } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] },
    })
}

fn bad(name: &str, version: u64) -> Value {
    let mut pod = pod(name, version);
    pod["spec"]["containers"][0]["stdin"] = json!(CANARY);
    pod
}

fn source(server: &ApiServer) -> Source {
    let times = Times {
        backoff: Pauses::new(QUICK, 4 * QUICK),
        compare_after: QUICK,
        http1_watch: Duration::from_secs(600),
        ..Times::default()
    };
    Source { times, ..Source::new(server.client()) }
}

/// The problems of pods: the pod and the field of each.
fn problems(status: &SourceStatus) -> Vec<(&str, &str)> {
    let of_pods = status.problems.iter().filter(|problem| problem.kind == ProblemKind::Syntax);
    of_pods.map(|problem| (&*problem.origin, problem.field.as_deref().unwrap_or_default())).collect()
}

const FIELD: &str = "spec.containers[0].stdin";

impl Followed<Pod> {
    async fn until_bad(&mut self, pods: &[&str]) {
        let expected: Vec<_> = pods.iter().map(|pod| (*pod, FIELD)).collect();
        let holds = |status: &SourceStatus| {
            assert!(!format!("{:?}", status.problems).contains(CANARY), "{status:?}");
            let mut problems = problems(status);
            problems.sort_unstable();
            problems == expected
        };
        self.until_status(&format!("{pods:?} alone are named"), holds).await;
    }

    /// Waits until the index holds these pods, in these versions.
    async fn until_held(&mut self, expected: &[(&str, u64)]) {
        let version = |pod: &Pod| pod.metadata.labels.as_ref().unwrap()["version"].parse().unwrap();
        self.until(&format!("{expected:?}"), |snapshot| {
            let mut held: Vec<(&str, u64)> = snapshot.pods().map(|pod| (pod.name(), version(pod))).collect();
            held.sort_unstable();
            held == expected
        })
        .await;
    }
}

#[tokio::test]
async fn a_list_with_undecodable_pods_keeps_all_others() {
    list_with_undecodable_pods(ApiServer::start().await).await;
}

#[tokio::test]
async fn a_list_in_protobuf_with_undecodable_pods_keeps_all_others() {
    let server = ApiServer::start().await;
    server.speak_protobuf(encoded);
    list_with_undecodable_pods(server).await;
}

async fn list_with_undecodable_pods(server: ApiServer) {
    for number in 0..7 {
        let name = format!("p{number}");
        server.put("pods", &if number % 3 == 0 { bad(&name, 1) } else { pod(&name, 1) });
    }
    let mut followed = Followed::whole(source(&server).pods());
    followed.until_held(&[("p1", 1), ("p2", 1), ("p4", 1), ("p5", 1)]).await;
    followed.until_bad(&["a/p0", "a/p3", "a/p6"]).await;
    assert_eq!(followed.said(), [Said::Set(4)]);
    let mut status = followed.status.clone();
    status.wait_for(|status| status.pods == 4).await.unwrap();
    // Pods left out of the list are followed like all others.
    server.put("pods", &pod("p3", 2));
    followed.until_held(&[("p1", 1), ("p2", 1), ("p3", 2), ("p4", 1), ("p5", 1)]).await;
    followed.until_bad(&["a/p0", "a/p6"]).await;
}

#[tokio::test]
async fn a_pod_keeps_its_last_good_state_until_it_can_be_decoded_again_or_is_removed() {
    pod_that_cannot_be_decoded_for_a_while(ApiServer::start().await).await;
}

#[tokio::test]
async fn a_pod_in_protobuf_keeps_its_last_good_state_until_it_can_be_decoded_again_or_is_removed() {
    let server = ApiServer::start().await;
    server.speak_protobuf(encoded);
    pod_that_cannot_be_decoded_for_a_while(server).await;
}

async fn pod_that_cannot_be_decoded_for_a_while(server: ApiServer) {
    for name in ["goes", "heals", "stays-0"] {
        server.put("pods", &pod(name, 1));
    }
    let mut followed = Followed::whole(source(&server).pods());
    followed.until_held(&[("goes", 1), ("heals", 1), ("stays-0", 1)]).await;
    server.watched_by(1).await;
    for (name, seen) in [
        ("goes", &["a/goes"][..]),
        ("heals", &["a/goes", "a/heals"]),
        ("new", &["a/goes", "a/heals", "a/new"]),
    ] {
        server.put("pods", &bad(name, 2));
        followed.until_bad(seen).await;
    }
    server.put("pods", &pod("stays-0", 2));
    followed.until_held(&[("goes", 1), ("heals", 1), ("stays-0", 2)]).await;
    assert_eq!(followed.status.borrow().pods, 3, "the new one was never held");

    // Another list changes nothing.
    server.expire_watches();
    server.put("pods", &pod("stays-0", 3));
    followed.until_held(&[("goes", 1), ("heals", 1), ("stays-0", 3)]).await;
    followed.until_bad(&["a/goes", "a/heals", "a/new"]).await;

    server.put("pods", &pod("heals", 3));
    followed.until_held(&[("goes", 1), ("heals", 3), ("stays-0", 3)]).await;
    server.remove("pods", "a", "goes");
    followed.until_held(&[("heals", 3), ("stays-0", 3)]).await;
    followed.until_bad(&["a/new"]).await;
    let said = followed.said().len();
    server.remove("pods", "a", "new");
    followed.until_bad(&[]).await;
    assert_eq!(followed.said().len(), said, "nobody had heard of it");
    // Removed while there was no watch.
    server.put("pods", &bad("heals", 4));
    followed.until_bad(&["a/heals"]).await;
    server.hold();
    server.remove("pods", "a", "heals");
    server.expire_watches();
    server.release();
    followed.until_held(&[("stays-0", 3)]).await;
    followed.until_bad(&[]).await;
    // The same with one that nobody had heard of.
    server.put("pods", &bad("never", 1));
    followed.until_bad(&["a/never"]).await;
    let said = followed.said().len();
    server.hold();
    server.remove("pods", "a", "never");
    server.put("pods", &pod("stays-0", 4));
    server.expire_watches();
    server.release();
    followed.until_held(&[("stays-0", 4)]).await;
    followed.until_bad(&[]).await;
    server.put("pods", &pod("stays-0", 5));
    followed.until_held(&[("stays-0", 5)]).await;
    let said = followed.said().split_off(said);
    assert!(!said.contains(&Said::Remove(1)), "{said:?}");
}

#[tokio::test]
async fn a_pod_that_takes_too_much_memory_is_held_in_part_with_a_warning() {
    let server = ApiServer::start().await;
    large_pod(&server).await;
    let server = ApiServer::start().await;
    server.speak_protobuf(encoded);
    large_pod(&server).await;
    assert_eq!(server.answers_in_protobuf(), 2);
}

async fn large_pod(server: &ApiServer) {
    let mut large = pod("large", 1);
    large["spec"]["containers"][0]["env"] = vec![json!({ "name": "a" }); 9_000].into();
    server.put("pods", &large);
    let mut followed = Followed::whole(source(server).pods());
    followed.until_held(&[("large", 1)]).await;
    let is_warning = |status: &SourceStatus| {
        let problems = status.problems.iter().map(|problem| (problem.kind, problem.field.as_deref()));
        problems.eq([(ProblemKind::Warning, Some("spec.containers"))])
    };
    followed.until_status("the warning", is_warning).await;
    server.watched_by(1).await;
}

/// The comparison after a cut uses versions, which are known even for a pod that cannot be decoded.
#[tokio::test]
async fn a_cut_causes_no_relist_for_a_pod_that_cannot_be_decoded() {
    let server = ApiServer::start().await;
    for name in ["held", "stays-0"] {
        server.put("pods", &pod(name, 1));
    }
    server.put("pods", &bad("never", 1));
    let mut followed = Followed::whole(source(&server).pods());
    followed.until_held(&[("held", 1), ("stays-0", 1)]).await;
    server.watched_by(1).await;
    server.put("pods", &bad("held", 2));
    followed.until_bad(&["a/held", "a/never"]).await;
    let lists = server.requests(Verb::List);
    for round in 1..=3 {
        server.cut_connections();
        server.until("a comparison", |server| server.comparisons() >= round).await;
        server.put("pods", &pod("stays-0", 1 + round));
        followed.until_held(&[("held", 1), ("stays-0", 1 + round)]).await;
    }
    assert_eq!(server.requests(Verb::List) - lists, server.comparisons(), "{:?}", followed.said());
    followed.until_bad(&["a/held", "a/never"]).await;
}

/// The restored server has no earlier state: the pod is named but not held.
#[tokio::test]
async fn a_restored_server_leaves_no_earlier_state_of_a_pod_that_cannot_be_decoded() {
    let server = ApiServer::start().await;
    server.put("pods", &bad("once", 1));
    server.put("pods", &pod("stays-0", 1));
    let backup = server.backup();
    server.put("pods", &pod("once", 2));
    let mut followed = Followed::whole(source(&server).pods());
    followed.until_held(&[("once", 2), ("stays-0", 1)]).await;
    server.watched_by(1).await;
    server.put("pods", &bad("once", 3));
    followed.until_bad(&["a/once"]).await;
    followed.until_held(&[("once", 2), ("stays-0", 1)]).await;
    server.restore(&backup);
    followed.until_held(&[("stays-0", 1)]).await;
    followed.until_bad(&["a/once"]).await;
    assert_eq!(followed.status.borrow().pods, 1);
}
