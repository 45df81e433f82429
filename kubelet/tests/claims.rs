//! Forged mirror pods beside one of a kubelet: what they claim changes nothing of the real static pod.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, PodUid};
use pod_index_kubelet::sources::static_pods::{Derive, OwnNode};
use pod_index_kubelet::sources::{Merge, Merged, NodeName, Source, SourceUpdate};
use serde_json::json;

/// A mirror pod of the static pod `of`, whose owner is the Node object with the UID `owner`.
fn mirror(uid: &str, name: &str, of: &str, owner: &str) -> Arc<Pod> {
    let pod = serde_json::from_value(json!({
        "metadata": {
            "uid": uid, "name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:05Z",
            "annotations": {
                "kubernetes.io/config.hash": of, "kubernetes.io/config.mirror": of, "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": owner, "controller": true}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    }));
    Arc::new(pod.expect("a pod"))
}

/// A merge that knows the mirror pod `m`, named `p`, of the static pod `s`.
fn merge_of(sources: &[Source]) -> Merge {
    let derive = Derive::AllNodes { own: NodeName::new("n1") };
    let mut merge = Merge::new(sources.iter().copied()).derive_static_pods(derive);
    let merged = merge.update(Source::Api, SourceUpdate::Set(vec![mirror("m", "p", "s", "node")]));
    assert_eq!(merged.added.len(), 2);
    merge
}

fn has_removed(merged: &Merged, uid: &str) -> bool {
    merged.removed.iter().any(|pod| pod.uid() == uid)
}

/// The Node object was read after everything so far.
fn read_node(merge: &mut Merge) -> Merged {
    std::thread::sleep(Duration::from_millis(1));
    let created = Some("2026-01-01T00:00:00Z".parse().expect("a time"));
    merge.own_node(Some(OwnNode { uid: "node".to_owned(), created, asked: Instant::now() }))
}

#[test]
fn a_refuted_mirror_pod_does_not_end_the_static_pod_whose_name_it_takes() {
    let mut merge = merge_of(&[Source::Api]);
    assert!(read_node(&mut merge).is_empty());
    let gone = merge.update(Source::Api, SourceUpdate::Remove(vec![PodUid::from("m")]));
    assert!(!has_removed(&gone, "s"), "its containers may still run");
    let _ = merge.update(Source::Api, SourceUpdate::Upsert(vec![mirror("forged", "p", "x", "other")]));
    assert!(!has_removed(&read_node(&mut merge), "s"));
    assert_eq!(merge.refused_claims().count(), 1);
}

/// Of two mirror pods of the same second, the one with the smaller UID would count.
#[test]
fn the_uid_of_a_static_pod_whose_mirror_pod_is_gone_is_not_free_yet() {
    let mut merge = merge_of(&[Source::Api]);
    let _ = merge.update(Source::Api, SourceUpdate::Remove(vec![PodUid::from("m")]));
    let merged = merge.update(Source::Api, SourceUpdate::Upsert(vec![mirror("a", "q", "s", "node")]));
    assert!(merged.updated.iter().all(|pod| pod.uid() != "s"), "{merged:?}");
    assert_eq!(merge.refused_claims().count(), 1);
}

#[test]
fn a_kubelet_that_does_not_list_a_static_pod_ends_it_only_once_all_sources_are_seen() {
    let mut merge = merge_of(&[Source::Api, Source::File, Source::Kubelet]);
    let mut listed = Pod::clone(&mirror("k", "k", "k", "node"));
    listed.metadata.annotations = None;
    let merged = merge.update(Source::Kubelet, SourceUpdate::Set(vec![Arc::new(listed)]));
    assert!(!has_removed(&merged, "s"));
    assert!(!has_removed(&merge.read(Source::Kubelet, Instant::now(), true), "s"), "a file may describe it");
    let merged = merge.update(Source::File, SourceUpdate::Set(Vec::new()));
    assert!(
        has_removed(&merged, "s") || has_removed(&merge.read(Source::Kubelet, Instant::now(), true), "s")
    );
}
