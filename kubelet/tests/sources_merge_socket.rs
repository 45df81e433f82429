//! The merge of the kubelet's Pods API with the API server: which source is used for which part of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{ENDED_ANNOTATION, PodMeta};
use pod_index_kubelet::sources::static_pods::OwnNode;
use pod_index_kubelet::sources::{Merge, NodeName, Source, SourceUpdate};
use pod_index_test_support::dice::Dice;
use serde_json::json;

use crate::updates::{remove, set, upsert};

/// A version of a pod: what others may change of it, and what the kubelet knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Version {
    label: u64,
    ip: u64,
}

fn pod(uid: &str, Version { label, ip }: &Version) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"uid": uid, "name": uid, "namespace": "ns", "labels": {"a": label.to_string()}, "resourceVersion": "7"},
        "spec": {"nodeName": "n1"}, "status": {"podIP": format!("10.0.0.{ip}")},
    }))
    .unwrap()
}

fn version(pod: &Pod) -> Version {
    let ip = pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap();
    Version {
        label: pod.metadata.labels.as_ref().unwrap()["a"].parse().unwrap(),
        ip: ip.rsplit('.').next().unwrap().parse().unwrap(),
    }
}

fn merge() -> Merge {
    Merge::new([Source::Kubelet, Source::Api]).derive_static_pods(NodeName::new("n1")).trust_kubelet()
}

struct Index {
    merge: Merge,
    writer: pod_index::Writer<Pod>,
}

impl Index {
    fn new() -> Self {
        Self { merge: merge(), writer: pod_index::new().0 }
    }

    fn update(&mut self, source: Source, update: SourceUpdate<Pod>) {
        let merged = self.merge.update(source, update);
        let _ = self.writer.apply(merged.into_operations());
    }

    fn version(&self, uid: &str) -> Option<Version> {
        self.writer.current().pod_by_uid(uid).map(|pod| version(pod))
    }
}

#[test]
fn the_status_is_the_kubelets_whatever_another_client_has_written() {
    let mut index = Index::new();
    let right = Version { label: 1, ip: 1 };
    index.update(Source::Kubelet, set([pod("1", &right)]));
    let mut forged = pod("1", &Version { label: 1, ip: 66 });
    forged.metadata.resource_version = Some("8".to_owned());
    index.update(Source::Api, set([forged]));
    assert_eq!(index.version("1"), Some(right));
}

#[test]
fn labels_are_those_of_the_source_that_saw_the_later_change() {
    let mut index = Index::new();
    let labelled = |label| pod("1", &Version { label, ip: 1 });
    index.update(Source::Kubelet, set([labelled(1)]));
    index.update(Source::Api, set([labelled(2)]));
    assert_eq!(index.version("1").unwrap().label, 2, "the kubelet was asked before");
    index.update(Source::Kubelet, set([labelled(2)]));
    index.update(Source::Api, upsert([labelled(3)]));
    assert_eq!(index.version("1").unwrap().label, 3);
    // The API server is away for the agent alone.
    index.update(Source::Kubelet, set([labelled(4)]));
    assert_eq!(index.version("1").unwrap().label, 4);
    index.update(Source::Api, upsert([labelled(4)]));
    assert_eq!(index.version("1").unwrap().label, 4);
}

#[test]
fn the_end_of_a_pod_is_the_kubelets_to_tell() {
    let mut index = Index::new();
    let mut ended = pod("1", &Version { label: 1, ip: 1 });
    ended.metadata.annotations = Some([(ENDED_ANNOTATION.to_owned(), String::new())].into());
    // Another client.
    index.update(Source::Api, set([ended.clone()]));
    index.update(Source::Kubelet, set([pod("1", &Version { label: 1, ip: 1 })]));
    let ip = "10.0.0.1".parse().unwrap();
    assert!(index.writer.current().pod_by_ip(ip).is_some());
    index.update(Source::Kubelet, set([ended]));
    assert!(index.writer.current().pod_by_ip(ip).is_none() && index.version("1").is_some());
    // The API server's later change does not give it back.
    index.update(Source::Api, upsert([pod("1", &Version { label: 2, ip: 1 })]));
    assert!(index.writer.current().pod_by_ip(ip).is_none());
    assert_eq!(index.version("1").unwrap().label, 2);
}

#[test]
fn a_forged_mirror_pod_is_not_believed_beside_the_socket() {
    let mirror: Pod = serde_json::from_value(json!({
        "metadata": {
            "uid": "m", "name": "evil-n1", "namespace": "ns",
            "annotations": {"kubernetes.io/config.mirror": "s", "kubernetes.io/config.hash": "s", "kubernetes.io/config.source": "file"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": true}],
        },
        "spec": {"nodeName": "n1", "containers": []},
    }))
    .unwrap();
    // Without the kubelet's word, a mirror pod is all that is known.
    let mut index = Index::new();
    index.update(Source::Api, set([mirror.clone()]));
    assert!(index.writer.current().pod_by_uid("s").is_some());
    index.update(Source::Kubelet, set([]));
    assert!(index.writer.current().pod_by_uid("s").is_none());
    // Not even until the kubelet is read next.
    let mut index = Index::new();
    index.update(Source::Kubelet, set([]));
    index.update(Source::Api, set([mirror]));
    assert!(index.writer.current().pod_by_uid("s").is_none());
    let node = OwnNode { uid: "n".to_owned(), created: None, asked: std::time::Instant::now() };
    let _ = index.merge.own_node(Some(node));
    assert!(index.writer.current().pod_by_uid("s").is_none());
}

/// Lists, events, restarts of the kubelet and the API server's watch, in any order and with any delay: no status that the
/// kubelet did not report is ever shown, and once both sources have caught up, the index is what the kubelet has.
#[test]
fn any_interleaving_ends_with_the_kubelets_pods() {
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let mut index = Index::new();
        let mut kubelet: BTreeMap<&str, Version> = BTreeMap::new();
        // What each source was told last.
        let mut told: BTreeMap<&str, Version> = BTreeMap::new();
        let mut reported = Vec::new();
        index.update(Source::Kubelet, set([]));
        index.update(Source::Api, set([]));
        for _ in 0..80 {
            let uid = dice.pick(&["1", "2", "3"]);
            match dice.roll(9) {
                0 => {
                    kubelet.entry(uid).or_default().ip = 1 + dice.roll(99);
                }
                1 => {
                    kubelet.entry(uid).or_default().label = dice.roll(9);
                }
                2 => {
                    kubelet.remove(uid);
                }
                // An event, or a list, of the kubelet.
                3 | 4 => {
                    match kubelet.get(uid) {
                        Some(version) => told.insert(uid, version.clone()),
                        None => told.remove(uid),
                    };
                    reported.extend(told.values().map(|version| version.ip));
                    index.update(Source::Kubelet, all(&told, true));
                }
                5 => {
                    told.clone_from(&kubelet);
                    reported.extend(told.values().map(|version| version.ip));
                    index.update(Source::Kubelet, all(&told, true));
                }
                // A restart: it lists nothing, or some, and then everything.
                6 => {
                    let mut some = kubelet.clone();
                    some.retain(|_, _| dice.roll(2) == 0);
                    reported.extend(some.values().map(|version| version.ip));
                    told.clone_from(&some);
                    index.update(Source::Kubelet, all(&some, false));
                }
                // The API server, whose status another client may have written.
                7 => match kubelet.get(uid) {
                    Some(version) if told.contains_key(uid) => {
                        let ip = if dice.roll(2) == 0 { 200 + dice.roll(50) } else { version.ip };
                        let label = version.label;
                        index.update(Source::Api, upsert([pod(uid, &Version { label, ip })]));
                    }
                    _ => {}
                },
                _ => {
                    if !kubelet.contains_key(uid) {
                        index.update(Source::Api, remove(uid));
                    }
                }
            }
            for uid in told.keys() {
                let shown = index.version(uid).map(|version| version.ip);
                assert!(shown.is_some_and(|ip| reported.contains(&ip)), "seed {seed}: {uid} has {shown:?}");
            }
        }
        if dice.roll(2) == 0 {
            index.update(Source::Kubelet, all(&kubelet, true));
        }
        index.update(Source::Api, set(kubelet.iter().map(|(uid, version)| pod(uid, version))));
        index.update(Source::Kubelet, all(&kubelet, true));
        let snapshot = index.writer.current();
        let shown: BTreeMap<_, _> = snapshot.pods().map(|pod| (pod.uid(), version(pod))).collect();
        assert_eq!(shown, kubelet, "seed {seed}");
    }
}

fn all(pods: &BTreeMap<&str, Version>, is_complete: bool) -> SourceUpdate<Pod> {
    let pods: Vec<_> = pods.iter().map(|(uid, version)| Arc::new(pod(uid, version))).collect();
    if is_complete { SourceUpdate::Set(pods) } else { SourceUpdate::Incomplete(pods) }
}
