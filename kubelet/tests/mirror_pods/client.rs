//! The client's results for each answer, and the rights it needs.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pod_index::MirrorPodUid;
use pod_index_kubelet::checkpoint::RESTORED_ANNOTATION;
use pod_index_kubelet::mirror::{
    KubeMirrorClient, Kubelet, KubeletWatch, MirrorErrorKind, MirrorState, Mirrored, plan,
};
use serde_json::json;

use super::support::{NODE, agent, manifests, mirrored, on_server, plain, server, static_pod};
use pod_index_test_support::api_server::{ApiServer, Fault, Right, Verb, shipped};

#[tokio::test]
async fn the_client_reports_the_result_of_each_request() {
    let server = server().await;
    let client = KubeMirrorClient::new(server.client(), NODE);
    let pod = static_pod("web", 1);
    let Ok(Mirrored::Created(uid)) = client.create_mirror_pod(&pod).await else { panic!("not created") };
    assert_eq!(client.create_mirror_pod(&pod).await, Ok(Mirrored::Existed(uid.clone())));
    let other = client.create_mirror_pod(&static_pod("web", 2)).await.unwrap_err();
    assert_eq!(other.kind, MirrorErrorKind::Taken);
    let stored = server.object("pods", "default", "web-n1").unwrap();
    let node = server.object("nodes", "", NODE).unwrap();
    let owner = json!([{
        "apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["metadata"]["uid"], "controller": true,
    }]);
    assert_eq!(stored["metadata"]["ownerReferences"], owner);
    assert_eq!(stored["metadata"]["managedFields"][0]["manager"], "pod-index");

    let wrong = MirrorPodUid::from("another");
    let name = "web-n1_default".parse().unwrap();
    assert_eq!(client.delete_mirror_pod(&name, Some(&wrong)).await, Ok(false), "409");
    assert_eq!(client.delete_mirror_pod(&name, Some(&uid)).await, Ok(true));
    assert_eq!(client.delete_mirror_pod(&name, None).await, Ok(false), "404");
    server.fail(Verb::Delete, Fault::Status(500));
    let failed = client.delete_mirror_pod(&name, None).await.unwrap_err();
    assert_eq!(failed.kind, MirrorErrorKind::Request);
    let requests = server.requests(Verb::Create);
    for name in ["", "a_b"] {
        let mut pod = Pod::clone(&pod);
        pod.metadata.name = Some(name.to_owned());
        let refused = client.create_mirror_pod(&pod).await.unwrap_err();
        assert_eq!(refused.kind, MirrorErrorKind::Refused, "{name}");
    }
    assert_eq!(server.requests(Verb::Create), requests, "no request has such a name");
}

#[tokio::test]
async fn a_node_just_deleted_and_a_name_used_on_another_node_are_reported_as_such() {
    let server = server().await;
    let client = KubeMirrorClient::new(server.client(), NODE);
    assert!(matches!(client.create_mirror_pod(&static_pod("web", 1)).await, Ok(Mirrored::Created(_))));
    server.put("pods", &plain(&on_server("other"), "n2"));
    let taken = client.create_mirror_pod(&static_pod("other", 1)).await.unwrap_err();
    assert_eq!(taken.kind, MirrorErrorKind::Taken, "{taken}");
    assert!(taken.to_string().contains("no relationship found"), "{taken}");
    server.remove("nodes", "", NODE);
    let unknown = client.create_mirror_pod(&static_pod("etcd", 1)).await.unwrap_err();
    assert_eq!(unknown.kind, MirrorErrorKind::Node, "{unknown}");
}

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_named_and_one_created_again_is_used() {
    let server = server().await;
    let client = KubeMirrorClient::new(server.client(), NODE);
    client.create_mirror_pod(&static_pod("web", 1)).await.unwrap();
    let namespace = |phase| json!({ "metadata": { "name": "default" }, "status": { "phase": phase } });
    server.put("namespaces", &namespace("Terminating"));
    let refused = client.create_mirror_pod(&static_pod("etcd", 1)).await.unwrap_err();
    assert_eq!(refused.kind, MirrorErrorKind::Refused);
    assert!(refused.to_string().contains("namespace default because it is being terminated"), "{refused}");
    server.put("namespaces", &namespace("Active"));
    assert!(matches!(client.create_mirror_pod(&static_pod("etcd", 1)).await, Ok(Mirrored::Created(_))));
}

#[tokio::test]
async fn nothing_belongs_to_a_node_that_is_being_deleted_and_a_mirror_of_another_node_is_not_ones_own() {
    let server = ApiServer::start().await;
    server.put("nodes", &json!({ "metadata": { "name": NODE } }));
    let client = KubeMirrorClient::new(server.client(), NODE);
    let mut restored = Pod::clone(&static_pod("web", 1));
    restored.metadata.annotations.as_mut().unwrap().insert(RESTORED_ANNOTATION.to_owned(), "true".to_owned());
    client.create_mirror_pod(&restored).await.unwrap();
    let mut stored = server.object("pods", "default", "web-n1").unwrap();
    assert_eq!(stored["metadata"]["annotations"].get(RESTORED_ANNOTATION), None);

    stored["spec"]["nodeName"] = json!("n2");
    let (mut writer, reader) = pod_index::new();
    for pod in [restored.clone(), serde_json::from_value(stored.clone()).unwrap()] {
        writer.upsert_pod(pod).unwrap();
    }
    let planned = plan(&reader.load(), NODE);
    assert_eq!(planned.len(), 1);
    assert_eq!((planned[0].state, planned[0].mirror.is_none()), (MirrorState::Missing, true));
    server.put("pods", &stored);
    let taken = client.create_mirror_pod(&restored).await.unwrap_err();
    assert!(taken.to_string().contains("a mirror of another node has its name"), "{taken}");

    let time = "2026-01-01T00:00:00Z";
    server.put("nodes", &json!({ "metadata": { "name": NODE, "deletionTimestamp": time } }));
    let refused = client.create_mirror_pod(&static_pod("etcd", 1)).await.unwrap_err();
    assert_eq!(refused.kind, MirrorErrorKind::Node, "{refused}");
}

#[tokio::test]
async fn a_lease_without_a_usable_duration_lasts_as_long_as_a_kubelets() {
    let server = server().await;
    for seconds in [json!(0), json!(-1), json!(null)] {
        let spec = json!({ "leaseDurationSeconds": seconds, "renewTime": "2026-01-01T00:00:00.000000Z" });
        let metadata = json!({ "namespace": "kube-node-lease", "name": NODE });
        server.put("leases", &json!({ "metadata": metadata, "spec": spec }));
        let look = KubeletWatch::new(server.client(), NODE).look().await.unwrap();
        assert_eq!(look, Kubelet::Unclear(Duration::from_secs(5)), "{seconds}");
    }
}

/// It no longer counts as a mirror: if it did, the agent would delete and create it endlessly.
#[tokio::test]
async fn a_mirror_that_a_finalizer_keeps_is_reported() {
    let server = server().await;
    let client = KubeMirrorClient::new(server.client(), NODE);
    let mut pod = Pod::clone(&static_pod("web", 1));
    pod.metadata.finalizers = Some(vec!["example.com/of-the-manifest".to_owned()]);
    let Ok(Mirrored::Created(uid)) = client.create_mirror_pod(&pod).await else { panic!("not created") };
    let mut stored = server.object("pods", "default", "web-n1").unwrap();
    assert_eq!(stored["metadata"]["finalizers"], json!(null), "a manifest's are left out");

    stored["metadata"]["finalizers"] = json!(["example.com/somebody"]);
    server.put("pods", &stored);
    let kept = client.delete_mirror_pod(&"web-n1_default".parse().unwrap(), Some(&uid)).await.unwrap_err();
    assert_eq!(kept.kind, MirrorErrorKind::Taken);
    assert!(kept.to_string().contains("finalizer"), "{kept}");
    assert!(server.object("pods", "default", "web-n1").is_some(), "it lingers");
    let refused = client.create_mirror_pod(&pod).await.unwrap_err();
    assert_eq!(refused.kind, MirrorErrorKind::Taken);
}

#[tokio::test]
async fn the_shipped_rights_are_necessary_and_sufficient() {
    let server = server().await;
    // As in the other tests, `server` refuses what is not granted; here, everything granted is used.
    let mut watch = KubeletWatch::new(server.client(), NODE);
    assert_eq!(watch.look().await.unwrap(), Kubelet::Absent);
    let mut pods = manifests(&[("web", 1)]);
    let agent = agent(&server, &pods).await;
    pods.insert("web".to_owned(), 2);
    agent.has(&pods);
    mirrored(&server, &pods).await;
    // The name is used by a pod that the agent may not see.
    server.put("pods", &plain(&on_server("taken"), "n2"));
    pods.insert("taken".to_owned(), 1);
    agent.has(&pods);
    // The lease, the node for each of three creations, and the pod.
    server.seen(Verb::Get, 5).await;
    let granted = shipped("pod-index-mirrors", &["base", "components/mirror-pods"]);
    let asked = server.asked();
    for right in &granted {
        assert!(asked.iter().any(|asked| right.covers(asked)), "granted, and never asked for: {right:?}");
    }
    let kinds = |rights: BTreeSet<Right>| {
        rights.into_iter().map(|right| (right.group, right.resource, right.verb)).collect::<BTreeSet<_>>()
    };
    assert_eq!(kinds(granted), kinds(asked));
}
