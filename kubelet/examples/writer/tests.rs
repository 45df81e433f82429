//! What the loop writes, without an API server.

#![cfg(test)]

use k8s_openapi::api::core::v1::{Namespace, Pod};
use pod_index::{Holder, Reader, Time};
use pod_index_kubelet::sources::{SourceUpdate, StatusWriter};
use serde_json::json;

use super::*;

fn index() -> (Index, Reader<Record>, StatusWriter) {
    let options = Options::new().keep_removed(Duration::from_secs(300), 1_000).keep_times(true);
    let (writer, reader) = pod_index::with_options(options);
    let source = StatusWriter::new(Source::Api, "a test");
    let reported = Reported::new(vec![source.subscribe()]);
    let merge = Merge::new([Source::Api]).derive_static_pods(NodeName::new("n1"));
    let join = Join::new(Rules::parse(RULES).unwrap().extract);
    (Index { merge, join, writer, reported }, reader, source)
}

fn etcd(owner: &str) -> Pod {
    let marks = json!({
        "kubernetes.io/config.mirror": "s", "kubernetes.io/config.hash": "s",
        "kubernetes.io/config.source": "file",
    });
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": owner, "controller": true});
    let started = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let container = json!({
        "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": started,
    });
    let pod = json!({
        "metadata": {
            "uid": "m", "name": "etcd-n1", "namespace": "kube-system", "annotations": marks,
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": {"podIP": "10.0.0.7", "phase": "Running", "containerStatuses": [container]},
    });
    serde_json::from_value(pod).unwrap()
}

#[test]
fn a_mirror_pods_static_pod_is_found_by_its_ip_with_its_namespaces_label() {
    let (mut index, reader, source) = index();
    let batch = [7, 8].map(|number| IpAddr::from([10, 0, 0, number]));
    index.hear(News::Pods(SourceUpdate::Set(vec![etcd("node").into()])));
    assert_eq!(tags(&reader.load(), &batch), ["kube-system/etcd-n1 k8s.node.name=n1", "unknown"]);
    let namespace = json!({"metadata": {"uid": "k", "name": "kube-system", "labels": {"team": "base"}}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    index.hear(News::Namespaces(SourceUpdate::Set(vec![namespace.into()])));
    assert_eq!(tags(&reader.load(), &batch), ["kube-system/etcd-n1 k8s.node.name=n1 team=base", "unknown"]);

    // Once the source has answered later than the event, the pod is certain. The writer hears of an answer one look later.
    let event = Time::now();
    let uid_then = || match reader.load().at(event).skew(Duration::ZERO).delay(Duration::ZERO).get(batch[0]) {
        Holder::Pod(found) => Some(found.pod.uid().to_owned()),
        _ => None,
    };
    std::thread::sleep(Duration::from_millis(2));
    source.reported(Instant::now());
    index.look();
    assert_eq!(uid_then(), None);
    index.look();
    assert_eq!(uid_then().as_deref(), Some("s"));
}

#[test]
fn a_mirror_pod_that_this_node_does_not_own_is_no_static_pod() {
    let (mut index, reader, _source) = index();
    index.hear(News::Pods(SourceUpdate::Set(vec![etcd("another").into()])));
    assert!(index.merge.needs_own_node() && reader.pod("s").is_some());
    let node = OwnNode { uid: "node".to_owned(), created: None, asked: Instant::now() };
    index.hear(News::OwnNode(Some(node)));
    assert!(!index.merge.needs_own_node() && reader.pod("s").is_none());
    assert_eq!(index.merge.refused_claims().count(), 1);
}
