//! The API server source and a server without failures: lists, changes and selections.
//! After each step the index is compared with the server's pods, field by field. No change may be emitted twice,
//! and no pod may be missing for a moment.

use crate::followed;
use crate::node_followed;
use pod_index_test_support::api_server;

use api_server::{ApiServer, Verb};
use followed::{Followed, Said};
use k8s_openapi::api::core::v1::Pod;
use node_followed::{changed, follow, followed, follows_on, of_n1, pod, source};
use pod_index::{ENDED_ANNOTATION, PodMeta, is_static_pod};
use pod_index_kubelet::sources::NodeName;
use pod_index_kubelet::sources::api_server::ApiServer as Source;
use serde_json::json;

#[tokio::test]
async fn the_first_list_is_one_set_and_comes_from_the_servers_cache() {
    let server = ApiServer::start().await;
    server.put_all("pods", (0..25).map(|number| pod(&format!("p{number}"), "n1")));
    let mut followed = Followed::whole(source(&server).pods());
    followed.equals(&server, |_| true).await;
    assert_eq!(followed.said(), [Said::Set(25)]);
    assert_eq!((server.listed_versions(), followed.reader.load().generation()), (vec![Some(0)], 1));
    let status = followed.status.borrow().clone();
    assert!(status.seen && status.pods == 25 && status.origin == "/api/v1/pods", "{status:?}");
}

/// A server's cache may be older than what was received.
#[tokio::test]
async fn a_later_list_is_not_older_than_what_was_received() {
    let (server, mut followed) = followed().await;
    server.fall_behind();
    server.put("pods", &changed("stays-0", 2));
    followed.equals(&server, of_n1).await;
    let said = followed.said().len();
    let watches = server.requests(Verb::Watch);
    server.expire_watches();
    server.seen(Verb::Watch, watches + 1).await;
    assert!(matches!(&server.listed_versions()[..], [Some(0), Some(1..)]), "{:?}", server.listed_versions());
    assert_eq!(followed.said().len(), said, "nothing went back: {:?}", followed.said());
    server.catch_up();
    follows_on(&server, &mut followed).await;
}

#[tokio::test]
async fn an_empty_list_makes_the_source_seen() {
    let server = ApiServer::start().await;
    let mut followed = Followed::whole(source(&server).pods());
    followed.until_status("seen", |status| status.seen).await;
    assert!(followed.status.borrow().silence().is_some(), "a list is a sign of life");
    assert_eq!(followed.said(), [Said::Set(0)]);
}

#[tokio::test]
async fn changes_follow_and_simultaneous_ones_are_emitted_together() {
    let (server, mut followed) = followed().await;
    server.hold();
    server.put_all("pods", (0..10).map(|number| pod(&format!("p{number}"), "n1")));
    server.put("pods", &pod("elsewhere-too", "n2"));
    server.release();
    followed.equals(&server, of_n1).await;
    server.hold();
    for number in 0..10 {
        server.remove("pods", "a", &format!("p{number}"));
    }
    server.release();
    followed.equals(&server, of_n1).await;
    let total = |kind: fn(&Said) -> Option<usize>| followed.said().iter().filter_map(kind).sum::<usize>();
    assert_eq!(total(|said| if let Said::Upsert(pods) = said { Some(*pods) } else { None }), 10);
    assert_eq!(total(|said| if let Said::Remove(pods) = said { Some(*pods) } else { None }), 10);
    assert!(followed.said().len() < 20, "one by one: {:?}", followed.said());
}

#[tokio::test]
async fn selectors_narrow_what_is_followed() {
    let server = ApiServer::start().await;
    for (namespace, name, phase) in [("a", "one", "Running"), ("a", "two", "Failed"), ("b", "one", "Running")]
    {
        let mut pod = pod(name, "n1");
        pod["metadata"]["namespace"] = json!(namespace);
        pod["status"] = json!({ "phase": phase });
        server.put("pods", &pod);
    }
    let mut narrowed = source(&server).node(&NodeName::new("n1"));
    narrowed.namespace = Some("a".to_owned());
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let labels = Some("app!=one".to_owned());
    let mut labelled = Followed::whole(Source { labels, ..narrowed.clone() }.pods());
    narrowed.fields.push("status.phase=Running".to_owned());
    let mut running = Followed::whole(narrowed.pods());
    running.equals(&server, |pod| pod.namespace() == "a" && phase(pod).as_deref() == Some("Running")).await;
    labelled.equals(&server, |pod| pod.namespace() == "a" && pod.name() != "one").await;
    assert_eq!((running.reader.load().pods().len(), labelled.reader.load().pods().len()), (1, 1));
}

#[tokio::test]
async fn a_node_may_follow_its_own_pods() {
    let (server, followed) = followed().await;
    drop(followed);
    server.restrict_to_node("n1");
    let mut followed = follow(&server).await;
    let mut everything = Followed::whole(source(&server).pods());
    everything
        .until_status("forbidden, in the server's words and no others", |status| {
            status.problems.iter().any(|problem| {
                let message = &problem.message;
                message.contains("can only list/watch pods with spec.nodeName")
                    && message.ends_with(" (403)")
                    && !message.contains('{')
            })
        })
        .await;
    server.put("pods", &changed("stays-0", 2));
    followed.equals(&server, of_n1).await;
}

#[tokio::test]
async fn pods_are_slimmed_before_they_are_stored() {
    let (server, _whole) = followed().await;
    let slim = source(&server).pods_with(|pod| Pod { spec: None, status: None, ..pod });
    let mut slim = Followed::new(slim, |_| None);
    slim.until("all of them", |snapshot| snapshot.pods().len() == 4).await;
    assert!(slim.reader.load().pods().all(|pod| pod.spec.is_none()));
    server.remove("pods", "a", "elsewhere");
    slim.until("one less", |snapshot| snapshot.pod_by_full_name("elsewhere_a").is_none()).await;
}

#[tokio::test]
async fn a_pod_of_the_api_server_is_never_static_nor_ended_and_its_managed_fields_are_not_kept() {
    let server = ApiServer::start().await;
    let mut forged = pod("forged", "n1");
    forged["metadata"]["annotations"] = json!({ "kubernetes.io/config.source": "file", "pod-index/ended": "", "pod-index/workload": "Deployment/payroll" });
    forged["metadata"]["managedFields"] = json!([{ "manager": "kubelet", "operation": "Update" }]);
    server.put("pods", &forged);
    let mut followed = Followed::whole(source(&server).pods());
    followed.until("the pod", |snapshot| snapshot.pods().len() == 1).await;
    let snapshot = followed.reader.snapshot();
    let pod = snapshot.pod_by_full_name("forged_a").unwrap();
    assert!(!is_static_pod(&**pod) && pod.metadata.managed_fields.is_none());
    assert_eq!(pod.annotation(ENDED_ANNOTATION), None, "it would hide its IP");
    assert_eq!(pod.annotation("pod-index/workload"), None);
    assert!(snapshot.static_pods().next().is_none());
}
