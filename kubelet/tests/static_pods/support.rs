//! One pod from several sources: static pods derived from mirror pods, which source is used for what, and
//! independence of the sources' order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_index::{PodMeta, PodUid};
use pod_index_kubelet::sources::static_pods::{
    CLAIMED_ANNOTATION, Derive, OwnNode, UNCONFIRMED_ANNOTATION, UNCONFIRMED_FOR,
};
use pod_index_kubelet::sources::{Merge, Merged, NodeName, ProblemKind, Source, SourceUpdate};
use pod_index_test_support::dice::Dice;
use serde_json::json;

fn read(value: serde_json::Value) -> Pod {
    serde_json::from_value(value).expect("a pod")
}

fn status(phase: &str) -> serde_json::Value {
    let container = json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}});
    json!({"phase": phase, "containerStatuses": [container]})
}

fn is_unconfirmed(pod: &Pod) -> bool {
    pod.annotation(UNCONFIRMED_ANNOTATION).is_some()
}

/// A mirror pod as a kubelet creates it.
fn mirror(uid: &str, name: &str, of: &str, node: &str) -> Pod {
    read(json!({
        "metadata": {
            "uid": uid, "name": name, "namespace": "ns", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:05Z",
            "annotations": {
                "kubernetes.io/config.hash": of, "kubernetes.io/config.mirror": of,
                "kubernetes.io/config.seen": "seen", "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": "node", "controller": true}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "mirror"}]},
        "status": status("Running"),
    }))
}

/// A static pod, from a manifest or as the kubelet lists it.
fn static_pod(uid: &str, name: &str, image: &str, phase: &str) -> Pod {
    read(json!({
        "metadata": {"uid": uid, "name": name, "namespace": "ns", "annotations": {
            "kubernetes.io/config.hash": uid, "kubernetes.io/config.seen": "seen", "kubernetes.io/config.source": "file",
        }},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": image}]},
        "status": status(phase),
    }))
}

/// A pod of the API server, from there or as the kubelet lists it.
fn api_pod(uid: &str, name: &str, phase: &str, version: u64) -> Pod {
    read(json!({
        "metadata": {"uid": uid, "name": name, "namespace": "ns", "resourceVersion": version.to_string(),
            "annotations": {"kubernetes.io/config.source": "api", "kubernetes.io/config.seen": "seen"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "api"}]},
        "status": status(phase),
    }))
}

fn set(pods: impl IntoIterator<Item = Pod>) -> SourceUpdate<Pod> {
    SourceUpdate::Set(pods.into_iter().map(Arc::new).collect())
}

fn upsert(pods: impl IntoIterator<Item = Pod>) -> SourceUpdate<Pod> {
    SourceUpdate::Upsert(pods.into_iter().map(Arc::new).collect())
}

fn remove(uid: &str) -> SourceUpdate<Pod> {
    SourceUpdate::Remove(vec![PodUid::from(uid)])
}

/// A merge on node `n1`, and the pods that should exist according to it.
struct Merging {
    merge: Merge,
    pods: BTreeMap<String, Arc<Pod>>,
}

impl Merging {
    fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        let own = NodeName::new("n1");
        let merge = Merge::new(sources).derive_static_pods(Derive::AllNodes { own });
        Self { merge, pods: BTreeMap::new() }
    }

    fn say(&mut self, source: Source, update: SourceUpdate<Pod>) -> String {
        let merged = self.merge.update(source, update);
        self.take(&merged)
    }

    /// `-` for removed, `+` for added, `~` for changed.
    fn take(&mut self, merged: &Merged) -> String {
        let mut summary = Vec::new();
        for pod in &merged.removed {
            assert!(self.pods.remove(pod.uid()).is_some(), "{} was not there", pod.uid());
            summary.push(format!("-{}", pod.uid()));
        }
        for pod in &merged.added {
            assert!(self.pods.insert(pod.uid().to_owned(), Arc::clone(pod)).is_none(), "{} twice", pod.uid());
            summary.push(format!("+{}", pod.uid()));
        }
        for pod in merged.updated.iter().chain(&merged.deleted).chain(&merged.reconciled) {
            assert!(
                self.pods.insert(pod.uid().to_owned(), Arc::clone(pod)).is_some(),
                "{} is new",
                pod.uid()
            );
            summary.push(format!("~{}", pod.uid()));
        }
        summary.join(" ")
    }

    /// The Node object was read with this UID, after everything so far.
    fn read_node(&mut self, uid: &str, created: &str) -> String {
        // The clock must advance before and after the request.
        std::thread::sleep(Duration::from_millis(1));
        let asked = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        let created = Some(created.parse().expect("a time"));
        let merged = self.merge.own_node(Some(OwnNode { uid: uid.to_owned(), created, asked }));
        self.take(&merged)
    }

    /// The source was read just now, and no problem hides a pod.
    fn read(&mut self, source: Source) -> String {
        self.read_at(source, Instant::now(), true)
    }

    fn read_at(&mut self, source: Source, began: Instant, whole: bool) -> String {
        let merged = self.merge.read(source, began, whole);
        self.take(&merged)
    }

    fn uids(&self) -> Vec<&str> {
        self.pods.keys().map(String::as_str).collect()
    }

    fn image(&self, uid: &str) -> &str {
        let spec = self.pods[uid].spec.as_ref().expect("a spec");
        spec.containers[0].image.as_deref().expect("an image")
    }

    fn phase(&self, uid: &str) -> &str {
        self.pods[uid].status.as_ref().and_then(|status| status.phase.as_deref()).expect("a phase")
    }

    fn refused(&self) -> Vec<String> {
        let all = self.merge.refused_claims();
        all.inspect(|problem| assert_eq!(problem.kind(), ProblemKind::Claim))
            .map(ToString::to_string)
            .collect()
    }
}

#[test]
fn a_mirror_pod_and_its_static_pod_are_added_and_removed_together() {
    let mut merging = Merging::new([Source::Api]);
    assert_eq!(
        merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), mirror("m2", "q", "s2", "n2")])),
        "+m +m2 +s +s2"
    );
    let static_pod = Arc::clone(&merging.pods["s"]);
    assert_eq!(static_pod.annotation("kubernetes.io/config.source"), Some("file"));
    assert_eq!(static_pod.annotation("kubernetes.io/config.seen"), Some("seen"));
    assert_eq!(static_pod.annotation("kubernetes.io/config.mirror"), None);
    assert_eq!((static_pod.metadata.owner_references.as_ref(), merging.image("s")), (None, "mirror"));
    assert_eq!(merging.pods["m"].annotation("kubernetes.io/config.source"), Some("api"));

    let mut changed = mirror("m", "p", "s", "n1");
    changed.status = Some(serde_json::from_value(status("Failed")).expect("a status"));
    assert_eq!(merging.say(Source::Api, upsert([changed.clone()])), "~m ~s");
    assert_eq!(merging.say(Source::Api, upsert([changed])), "");

    // The manifest was edited: another UID.
    assert_eq!(merging.say(Source::Api, upsert([mirror("m3", "p", "t", "n1")])), "-m -s +m3 +t");
    // The kubelet reports that the containers have ended, and deletes the mirror.
    let mut ended = mirror("m3", "p", "t", "n1");
    ended.status = Some(
        serde_json::from_value(json!({"containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
        ]}))
        .expect("a status"),
    );
    merging.say(Source::Api, upsert([ended]));
    assert_eq!(merging.say(Source::Api, remove("m3")), "-m3 -t");
    assert_eq!(merging.uids(), ["m2", "s2"]);
}

#[test]
fn a_static_pod_outlives_its_mirror_pod_for_half_a_minute() {
    let mut merging = Merging::new([Source::Api]);
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    assert_eq!(merging.merge.next_deadline(), None);
    assert_eq!(merging.say(Source::Api, remove("m")), "-m ~s");
    assert!(is_unconfirmed(&merging.pods["s"]));
    let before = Instant::now();
    let deadline = merging.merge.next_deadline().expect("a deadline");
    assert!(
        deadline <= before + UNCONFIRMED_FOR && deadline + Duration::from_secs(10) > before + UNCONFIRMED_FOR
    );

    // A new mirror pod confirms it.
    assert_eq!(merging.say(Source::Api, upsert([mirror("m2", "p", "s", "n1")])), "+m2 ~s");
    assert!(!is_unconfirmed(&merging.pods["s"]));
    assert_eq!(merging.merge.next_deadline(), None);

    merging.say(Source::Api, remove("m2"));
    let deadline = merging.merge.next_deadline().expect("a deadline");
    let early = merging.merge.expire(deadline.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!(merging.take(&early), "");
    let late = merging.merge.expire(deadline);
    assert_eq!(merging.take(&late), "-s");

    // Another static pod of that name replaces it at once.
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    merging.say(Source::Api, remove("m"));
    assert_eq!(merging.say(Source::Api, upsert([mirror("m", "p", "t", "n1")])), "-s +m +t");
    assert_eq!(merging.merge.next_deadline(), None, "an earlier mirror pod's time is over");
}

#[test]
fn the_kubelet_confirms_or_ends_its_own_pods() {
    let mut merging = Merging::new([Source::Api, Source::Kubelet]);
    merging.say(Source::Kubelet, set([]));
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), mirror("o", "q", "t", "n2")]));
    merging.say(Source::Api, set([]));
    assert_eq!(merging.uids(), ["s", "t"]);
    merging.say(Source::Kubelet, set([static_pod("x", "x", "kubelet", "Running")]));
    assert_eq!(merging.uids(), ["t", "x"], "the pod of the other node is not the kubelet's");
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    assert_eq!(merging.say(Source::Api, remove("m")), "-m -s");
}

#[test]
fn nothing_is_derived_for_the_own_node_while_its_mirror_pods_are_managed() {
    let own = NodeName::new("n1");
    let merge = Merge::new([Source::Api]).derive_static_pods(Derive::OtherNodes { own });
    let mut merging = Merging { merge, pods: BTreeMap::new() };
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), mirror("o", "q", "t", "n2")]));
    assert_eq!(merging.uids(), ["m", "o", "t"]);
    for _ in 0..2 {
        let merged = merging.merge.manage_own_mirror_pods(false);
        assert_eq!(merging.take(&merged), "+s");
        let merged = merging.merge.manage_own_mirror_pods(true);
        assert_eq!(merging.take(&merged), "-s");
    }
    assert_eq!(merging.say(Source::Api, remove("m")), "-m");
    let mut never = Merging { merge: Merge::new([Source::Api]), pods: BTreeMap::new() };
    assert_eq!(never.say(Source::Api, set([mirror("m", "p", "s", "n1")])), "+m");
}

#[test]
fn a_claim_never_displaces_a_uid_from_another_source() {
    for (source, known) in [
        (Source::Api, api_pod("u", "known", "Running", 1)),
        (Source::Api, mirror("u", "known", "x", "n1")),
        (Source::Kubelet, static_pod("u", "known", "known", "Running")),
        (Source::File, static_pod("u", "known", "known", "Running")),
        (Source::Http, static_pod("u", "known", "known", "Running")),
    ] {
        for known_first in [true, false] {
            let mut merging = Merging::new([Source::Api, source]);
            let forged = mirror("f", "forged", "u", "n1");
            merging.say(source, set([]));
            merging.say(Source::Api, set([]));
            if known_first {
                merging.say(
                    source,
                    if source == Source::Api { upsert([known.clone()]) } else { set([known.clone()]) },
                );
                merging.say(Source::Api, upsert([forged]));
            } else {
                merging.say(Source::Api, upsert([forged]));
                merging.say(
                    source,
                    if source == Source::Api { upsert([known.clone()]) } else { set([known.clone()]) },
                );
            }
            assert_eq!(merging.pods["u"].name(), "known", "{source}, known first: {known_first}");
            let refused = merging.refused();
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert!(
                refused[0].contains("mirror pod ns/forged") && refused[0].contains("with that UID"),
                "{refused:?}"
            );
            merging.say(Source::Api, remove("f"));
            assert_eq!(merging.refused(), [""; 0]);
        }
    }
}

#[test]
fn the_older_of_two_mirror_pods_with_one_claim_counts() {
    let aged = |uid: &str, name: &str, second: u32| {
        let mut pod = mirror(uid, name, "s", "n1");
        let time = format!("2026-01-01T00:00:{second:02}Z").parse().expect("a time");
        pod.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
        pod
    };
    for pods in
        [[aged("m2", "true", 1), aged("m1", "forged", 2)], [aged("m1", "forged", 2), aged("m2", "true", 1)]]
    {
        let mut merging = Merging::new([Source::Api]);
        for pod in pods {
            merging.say(Source::Api, upsert([pod]));
        }
        assert_eq!(merging.pods["s"].name(), "true");
        assert!(merging.refused()[0].contains("ns/forged"), "{:?}", merging.refused());
    }
}

#[test]
fn a_mirror_pod_unlike_a_kubelets_is_refused_with_its_field() {
    let mut merging = Merging::new([Source::Api]);
    let mut forged = mirror("m", "p", "s", "n1");
    forged.metadata.owner_references = None;
    assert_eq!(merging.say(Source::Api, upsert([forged])), "+m");
    assert!(merging.refused()[0].starts_with("api: metadata.ownerReferences: "), "{:?}", merging.refused());
    // The API server allows adding an owner.
    assert_eq!(merging.say(Source::Api, upsert([mirror("m", "p", "s", "n1")])), "+s ~m");
    assert_eq!(merging.refused(), [""; 0]);
}

const BEFORE_THE_MIRRORS: &str = "2026-01-01T00:00:04Z";

fn owned_by(mut mirror: Pod, owner: &str) -> Pod {
    owner.clone_into(&mut mirror.metadata.owner_references.as_mut().expect("owners")[0].uid);
    mirror
}

#[test]
fn a_mirror_pod_of_another_node_object_is_refused_once_the_node_was_read() {
    let mut merging = Merging::new([Source::Api]);
    let forged = owned_by(mirror("m2", "forged", "s2", "n1"), "other");
    let elsewhere = owned_by(mirror("m3", "elsewhere", "s3", "n2"), "other");
    assert!(!merging.merge.needs_own_node());
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), forged.clone(), elsewhere]));
    assert_eq!(merging.uids(), ["m", "m2", "m3", "s", "s2", "s3"], "nothing is known of the node");
    assert!(merging.merge.needs_own_node());

    assert_eq!(merging.read_node("node", BEFORE_THE_MIRRORS), "-s2", "other nodes are not checked");
    assert!(!merging.merge.needs_own_node());
    assert_eq!(
        merging.refused(),
        [
            "api: metadata.ownerReferences: no static pod is derived from the mirror pod ns/forged (UID \"m2\"): \
             must have the UID of the Node object"
        ]
    );
    // A new status does not make it credible again.
    let mut again = forged;
    again.status.as_mut().expect("a status").phase = Some("Pending".to_owned());
    assert_eq!(merging.say(Source::Api, upsert([again])), "~m2");
    assert_eq!((merging.refused().len(), merging.merge.needs_own_node()), (1, false));
    // Nor does a failed read.
    assert!(merging.merge.own_node(None).is_empty());
    assert_eq!(merging.refused().len(), 1);

    // What comes later waits for the next read, unless that fails.
    let late = owned_by(mirror("m4", "late", "s4", "n1"), "other");
    merging.read_node("node", BEFORE_THE_MIRRORS);
    assert_eq!(merging.say(Source::Api, upsert([late.clone()])), "+m4");
    assert_eq!((merging.refused().len(), merging.merge.needs_own_node()), (1, true));
    let merged = merging.merge.own_node(None);
    assert_eq!(merging.take(&merged), "+s4");
    assert_eq!(merging.read_node("node", BEFORE_THE_MIRRORS), "-s4");
    assert_eq!(merging.refused().len(), 2);
    // A Node object that is created later does not make them credible.
    assert_eq!(merging.read_node("node2", "2026-01-01T00:10:00Z"), "");
    assert_eq!((merging.refused().len(), merging.merge.needs_own_node()), (2, false));
    // Its deletion leaves nothing behind.
    assert_eq!(merging.say(Source::Api, remove("m4")), "-m4");
    assert_eq!((merging.refused().len(), merging.merge.next_deadline()), (1, None));
}

#[test]
fn a_node_created_again_loses_no_static_pod() {
    let mut merging = Merging::new([Source::Api]);
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), mirror("m2", "q", "s2", "n1")]));
    assert_eq!(merging.read_node("node", BEFORE_THE_MIRRORS), "");
    // The garbage collector has deleted only one of the old mirror pods when the kubelet creates a new one.
    assert_eq!(merging.say(Source::Api, remove("m")), "-m ~s");
    assert!(is_unconfirmed(&merging.pods["s"]));
    let mut new = owned_by(mirror("m3", "p", "s", "n1"), "new");
    let time = "2026-01-01T00:10:00Z";
    new.metadata.creation_timestamp = Some(Time(time.parse().expect("a time")));
    assert_eq!(merging.say(Source::Api, upsert([new])), "+m3");
    assert!(merging.merge.needs_own_node());
    assert!(merging.refused().is_empty() && is_unconfirmed(&merging.pods["s"]));

    assert_eq!(merging.read_node("new", "2026-01-01T00:09:00Z"), "~s");
    assert!(!is_unconfirmed(&merging.pods["s"]));
    assert_eq!(merging.uids(), ["m2", "m3", "s", "s2"]);
    assert_eq!((merging.refused(), merging.merge.needs_own_node()), (Vec::new(), false));
    assert_eq!(merging.merge.next_deadline(), None);
}

/// A mirror pod that is being deleted, for example because a kubelet does not know it.
fn deleted(mut mirror: Pod) -> Pod {
    mirror.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:06Z".parse().expect("a time")));
    mirror
}

#[test]
fn a_forged_mirror_pod_goes_when_the_kubelet_was_read_and_does_not_list_it() {
    let mut merging = Merging::new([Source::Api, Source::Kubelet]);
    merging.say(Source::Kubelet, set([static_pod("s", "p", "kubelet", "Running")]));
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    let before = Instant::now();
    let merged = merging.merge.update(Source::Api, upsert([mirror("f", "forged", "x", "n1")]));
    assert_eq!(merged.due, [Source::Kubelet]);
    assert_eq!(merging.take(&merged), "+f +x");
    assert_eq!(merging.pods["x"].annotation(CLAIMED_ANNOTATION), Some("f"));
    assert_eq!(merging.read_at(Source::Kubelet, before, true), "", "it was read before the pod was created");
    assert_eq!(merging.read(Source::Kubelet), "-x");
    assert!(
        merging.refused()[0].contains("the node's kubelet does not list its static pod"),
        "{:?}",
        merging.refused()
    );
    assert_eq!(merging.uids(), ["f", "m", "s"]);
    // Nothing brings it back: no status, no deletion that a finalizer holds.
    assert_eq!(merging.say(Source::Api, upsert([deleted(mirror("f", "forged", "x", "n1"))])), "~f");
    assert_eq!(merging.read(Source::Kubelet), "");
    assert_eq!(merging.say(Source::Api, remove("f")), "-f");
    assert_eq!((merging.uids(), merging.refused()), (vec!["m", "s"], Vec::new()));
}

#[test]
fn a_kubelet_that_lists_nothing_has_just_started_and_ends_only_deleted_mirror_pods() {
    let mut merging = Merging::new([Source::Api, Source::Kubelet]);
    merging.say(Source::Kubelet, set([]));
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), mirror("f", "q", "x", "n1")]));
    assert_eq!(merging.read(Source::Kubelet), "");
    assert_eq!(merging.say(Source::Api, upsert([deleted(mirror("f", "q", "x", "n1"))])), "-x ~f");
    assert_eq!(merging.uids(), ["f", "m", "s"]);
}

#[test]
fn a_forged_mirror_pod_that_a_finalizer_holds_goes_after_half_a_minute() {
    let mut merging = Merging::new([Source::Api]);
    merging.say(Source::Api, set([mirror("f", "forged", "x", "n1")]));
    assert_eq!(merging.say(Source::Api, upsert([deleted(mirror("f", "forged", "x", "n1"))])), "~x ~f");
    assert!(is_unconfirmed(&merging.pods["x"]));
    let deadline = merging.merge.next_deadline().expect("a deadline");
    assert!(deadline <= Instant::now() + Duration::from_secs(30));
    // A new status does not lengthen the time.
    let mut again = deleted(mirror("f", "forged", "x", "n1"));
    again.status.as_mut().expect("a status").phase = Some("Pending".to_owned());
    assert_eq!(merging.say(Source::Api, upsert([again.clone()])), "~f");
    assert_eq!(merging.merge.next_deadline(), Some(deadline));
    let merged = merging.merge.expire(deadline);
    assert_eq!(merging.take(&merged), "-x");
    assert!(merging.refused()[0].contains("it is being deleted"), "{:?}", merging.refused());
    again.status.as_mut().expect("a status").phase = Some("Running".to_owned());
    assert_eq!(merging.say(Source::Api, upsert([again])), "~f");
    assert_eq!((merging.say(Source::Api, remove("f")).as_str(), merging.refused().len()), ("-f", 0));
    assert_eq!((merging.uids(), merging.merge.next_deadline()), (Vec::new(), None));
}

#[test]
fn a_mirror_pod_that_is_deleted_and_created_again_loses_no_static_pod() {
    let mut merging = Merging::new([Source::Api]);
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    merging.say(Source::Api, upsert([deleted(mirror("m", "p", "s", "n1"))]));
    assert_eq!(merging.say(Source::Api, remove("m")), "-m");
    assert_eq!(merging.uids(), ["s"]);
    assert_eq!(merging.say(Source::Api, upsert([mirror("m2", "p", "s", "n1")])), "+m2 ~s");
    assert!(!is_unconfirmed(&merging.pods["s"]));
    assert_eq!(merging.merge.next_deadline(), None);
}

#[test]
fn where_manifests_are_read_a_mirror_pod_without_one_goes_at_the_next_read() {
    for source in [Source::File, Source::Http] {
        let mut merging = Merging::new([Source::Api, source]);
        merging.say(source, set([static_pod("a", "p", "manifest", "Pending")]));
        merging.read(source);
        // The kubelet was down while the manifest of `q` was removed.
        let stale = || mirror("n", "q", "t", "n1");
        assert_eq!(merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), stale()])), "-a +m +n +s");
        assert_eq!(merging.refused().len(), 1);
        assert!(
            merging.refused()[0].contains("no manifest describes its static pod"),
            "{:?}",
            merging.refused()
        );
        assert_eq!(merging.pods["s"].annotation(CLAIMED_ANNOTATION), None, "the manifest confirms it");
        // Another node's static pods are not in these manifests.
        assert_eq!(merging.say(Source::Api, upsert([mirror("o", "o", "u", "n2")])), "+o +u");

        // A mirror pod may be seen before its manifest.
        let merged = merging.merge.update(Source::Api, upsert([mirror("f", "forged", "x", "n1")]));
        assert_eq!(merged.due, [source]);
        assert_eq!(merging.take(&merged), "+f +x");
        assert_eq!(merging.read_at(source, Instant::now(), false), "", "a problem may hide the manifest");
        assert_eq!(merging.read(source), "-x");

        // Removed at once.
        merging.say(source, set([]));
        assert_eq!(merging.read(source), "");
        assert_eq!(merging.uids(), ["f", "m", "n", "o", "u"], "{source}");
    }
}

#[test]
fn an_edited_manifest_never_has_the_uid_of_the_earlier_one() {
    let image_of = |merging: &Merging| -> Vec<(String, String)> {
        let own = merging.uids().into_iter().filter(|uid| *uid != "m" && *uid != "m2");
        own.map(|uid| (uid.to_owned(), merging.image(uid).to_owned())).collect()
    };
    let shown = |uid: &str, image: &str| vec![(uid.to_owned(), image.to_owned())];
    let mut merging = Merging::new([Source::Api, Source::File]);
    merging.say(Source::Api, set([]));
    merging.say(Source::File, set([static_pod("a", "p", "old", "Pending")]));
    merging.read(Source::File);
    let merged = merging.merge.update(Source::Api, upsert([mirror("m", "p", "s", "n1")]));
    assert_eq!(merged.due, [Source::File], "to learn which manifest the mirror pod is about");
    merging.take(&merged);
    merging.read(Source::File);
    assert_eq!(image_of(&merging), shown("s", "mirror"));
    merging.say(Source::File, set([static_pod("b", "p", "new", "Pending")]));
    assert_eq!(image_of(&merging), shown("b", "new"), "at once");
    merging.read(Source::File);
    assert_eq!(image_of(&merging), shown("b", "new"));
    // Back again: the mirror pod is about this manifest.
    merging.say(Source::File, set([static_pod("a", "p", "old", "Pending")]));
    assert_eq!(image_of(&merging), shown("s", "mirror"));
    merging.say(Source::File, set([static_pod("b", "p", "new", "Pending")]));
    assert_eq!(merging.refused(), [""; 0], "an edit is no forgery");
    // The kubelet deletes the old mirror pod and creates another one.
    assert_eq!(merging.say(Source::Api, remove("m")), "-m");
    assert_eq!(image_of(&merging), shown("b", "new"));
    merging.say(Source::Api, upsert([mirror("m2", "p", "t", "n1")]));
    merging.read(Source::File);
    assert_eq!(image_of(&merging), shown("t", "mirror"));
    // Renamed.
    merging.say(Source::File, set([static_pod("c", "other", "new", "Pending")]));
    merging.read(Source::File);
    assert_eq!(image_of(&merging), shown("c", "new"));
}

#[test]
fn a_change_that_another_source_reports_is_due_in_the_kubelet() {
    let mut merging = Merging::new([Source::Api, Source::Kubelet, Source::File]);
    for source in [Source::Kubelet, Source::File, Source::Api] {
        merging.say(source, set([]));
    }
    let due = |merging: &mut Merging, source, update| merging.merge.update(source, update).due;
    let kubelet = [Source::Kubelet];
    assert_eq!(due(&mut merging, Source::Api, upsert([api_pod("a", "a", "Pending", 1)])), kubelet);
    let status = upsert([api_pod("a", "a", "Running", 2)]);
    assert_eq!(due(&mut merging, Source::Api, status), [], "the kubelet itself has reported it");
    assert_eq!(due(&mut merging, Source::File, set([static_pod("f", "p", "new", "Pending")])), kubelet);
    assert_eq!(due(&mut merging, Source::File, set([])), kubelet);
    assert_eq!(due(&mut merging, Source::Api, remove("a")), kubelet);
    let mut elsewhere = api_pod("b", "b", "Pending", 3);
    elsewhere.spec.as_mut().expect("a spec").node_name = Some("n2".to_owned());
    assert_eq!(due(&mut merging, Source::Api, upsert([elsewhere])), []);
    assert_eq!(due(&mut merging, Source::Kubelet, set([api_pod("c", "c", "Running", 4)])), []);
}

#[test]
fn each_source_is_used_for_what_it_knows_best() {
    let mut merging = Merging::new(Source::ALL);
    merging.say(Source::File, set([static_pod("f", "p", "manifest", "Pending")]));
    merging.say(Source::Http, set([]));
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), api_pod("a", "a", "Pending", 3)]));
    merging.say(Source::Kubelet, set([]));
    assert_eq!(merging.uids(), ["a", "m", "s"]);
    // The whole pod comes from the mirror pod: the manifest's spec belongs to another UID.
    assert_eq!((merging.image("s"), merging.phase("s")), ("mirror", "Running"));

    let of_kubelet = || [static_pod("s", "p", "kubelet", "Succeeded"), api_pod("a", "a", "Running", 4)];
    assert_eq!(merging.say(Source::Kubelet, set(of_kubelet())), "~s ~a");
    assert_eq!((merging.image("s"), merging.phase("s")), ("kubelet", "Succeeded"));
    assert_eq!((merging.image("a"), merging.phase("a")), ("api", "Running"));
    assert_eq!(merging.say(Source::Kubelet, set(of_kubelet())), "");

    // The API server's watch is ahead of the kubelet's.
    merging.say(Source::Api, upsert([api_pod("a", "a", "Failed", 5)]));
    assert_eq!(merging.phase("a"), "Failed");

    // It is removed when no source has it.
    assert_eq!(merging.say(Source::Api, remove("m")), "-m");
    assert_eq!(merging.say(Source::File, set([])), "");
    assert_eq!(merging.say(Source::Kubelet, set([])), "-s");
    assert_eq!(merging.say(Source::Api, remove("a")), "-a");
}

#[test]
fn a_manifest_takes_the_uid_that_the_kubelet_gave_its_pod() {
    let mut merging = Merging::new([Source::File, Source::Kubelet]);
    merging.say(Source::Kubelet, set([]));
    assert_eq!(merging.say(Source::File, set([static_pod("f", "p", "manifest", "Pending")])), "+f");
    let of_kubelet = static_pod("s", "p", "kubelet", "Running");
    assert_eq!(merging.say(Source::Kubelet, set([of_kubelet])), "-f +s");
    // An API server pod of that name is another pod.
    assert_eq!(merging.say(Source::Kubelet, set([api_pod("a", "p", "Running", 1)])), "-s +a +f");
}

fn pod_of(dice: &mut Dice, source: Source) -> Pod {
    let name = dice.pick(&["p", "q", "r"]);
    let phase = dice.pick(&["Running", "Failed"]);
    let image = dice.pick(&["one", "two"]);
    match (source, dice.roll(3)) {
        // One version is one state, as in an API server.
        (Source::Api, 0) => {
            let version = dice.roll(4);
            api_pod(dice.pick(&["a", "b", "s"]), name, &version.to_string(), version)
        }
        (Source::Api, _) => {
            let (uid, of) = (dice.pick(&["m", "n", "o", "s"]), dice.pick(&["s", "t", "a", "m"]));
            let mut pod = mirror(uid, name, of, dice.pick(&["n1", "n2"]));
            let time = format!("2026-01-01T00:00:0{}Z", dice.roll(2)).parse().expect("a time");
            pod.metadata.creation_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
            if dice.roll(6) == 0 {
                pod.metadata.owner_references = None;
            }
            pod
        }
        (Source::Kubelet, 0) => {
            let version = dice.roll(4);
            api_pod(dice.pick(&["a", "b"]), name, &version.to_string(), version)
        }
        (Source::Kubelet, _) => static_pod(dice.pick(&["s", "t", "u"]), name, image, phase),
        _ => static_pod(dice.pick(&["f", "g", "s"]), name, image, "Pending"),
    }
}

/// The last report of each source.
type Said = BTreeMap<Source, Vec<Pod>>;

/// The UIDs that should exist, according to the documentation alone.
fn wanted(said: &Said) -> BTreeSet<String> {
    let of = |source| said.get(&source).into_iter().flatten();
    let is_mirror = |pod: &&Pod| pod.annotation("kubernetes.io/config.mirror").is_some();
    let is_static = |pod: &&Pod| pod.annotation("kubernetes.io/config.source") == Some("file");
    let uid = |pod: &Pod| pod.uid().to_owned();
    let kubelets_static =
        |name: &str| of(Source::Kubelet).filter(|pod| pod.name() == name).filter(is_static).map(uid).min();
    // Which mirror pod represents which UID.
    let mut claims: BTreeMap<String, &Pod> = BTreeMap::new();
    let mut mirrors: Vec<_> =
        of(Source::Api).filter(is_mirror).filter(|pod| pod.metadata.owner_references.is_some()).collect();
    mirrors.sort_by_key(|pod| (pod.metadata.creation_timestamp.as_ref().map(|time| time.0), uid(pod)));
    for pod in mirrors {
        let claimed = pod.annotation("kubernetes.io/config.mirror").expect("a mirror pod").to_owned();
        let others = [Source::Kubelet, Source::File, Source::Http].into_iter().flat_map(of);
        let is_known_otherwise = of(Source::Api).any(|other| other.uid() == claimed)
            || others.into_iter().any(|other| other.uid() == claimed && other.name() != pod.name());
        let is_overruled = kubelets_static(pod.name()).is_some_and(|known| known != claimed);
        if pod.uid() != claimed && !is_known_otherwise && !is_overruled {
            claims.entry(claimed).or_insert(pod);
        }
    }
    let alias = |pod: &Pod| {
        let claimed =
            claims.iter().find(|(_, mirror)| mirror.name() == pod.name()).map(|(uid, _)| uid.clone());
        kubelets_static(pod.name()).or(claimed).unwrap_or_else(|| uid(pod))
    };
    let manifests = of(Source::File).chain(of(Source::Http)).map(alias);
    of(Source::Api)
        .chain(of(Source::Kubelet))
        .map(uid)
        .chain(manifests)
        .chain(claims.keys().cloned())
        .collect()
}

fn spelled(said: &Said) -> String {
    let pod = |pod: &Pod| {
        let of = pod
            .annotation("kubernetes.io/config.mirror")
            .map(|of| format!(" mirror of {of}"))
            .unwrap_or_default();
        format!("  {} {}{of} {:?}", pod.uid(), pod.name(), pod.metadata.creation_timestamp)
    };
    let source = |(source, pods): (&Source, &Vec<Pod>)| {
        format!("{source}:\n{}", pods.iter().map(pod).collect::<Vec<_>>().join("\n"))
    };
    said.iter().map(source).collect::<Vec<_>>().join("\n")
}

/// The pods without the time at which this process first saw them.
fn timeless(merging: &Merging) -> BTreeMap<String, Pod> {
    let strip = |pod: &Arc<Pod>| {
        let mut pod = Pod::clone(pod);
        pod.metadata.annotations.get_or_insert_default().remove("kubernetes.io/config.seen");
        // Not counted as a change, so an old value may stay.
        pod.metadata.resource_version = None;
        pod.metadata.creation_timestamp = None;
        pod.metadata.owner_references = None;
        pod
    };
    merging.pods.iter().map(|(uid, pod)| (uid.clone(), strip(pod))).collect()
}

#[test]
fn the_pods_are_a_function_of_each_sources_last_report() {
    let mut most = 0;
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut merging = Merging::new(Source::ALL);
        let mut said = Said::new();
        for step in 0..50 {
            let source = *dice.pick(&Source::ALL.each_ref());
            let pods = said.entry(source).or_default();
            if source == Source::Api && step > 0 && dice.roll(2) == 0 {
                if dice.roll(2) == 0 {
                    let pod = pod_of(&mut dice, source);
                    pods.retain(|other| other.name() != pod.name() && other.uid() != pod.uid());
                    pods.push(pod.clone());
                    merging.say(source, upsert([pod]));
                } else if !pods.is_empty() {
                    let gone = pods.remove(dice.index(pods.len()));
                    merging.say(source, remove(gone.uid()));
                }
            } else {
                pods.clear();
                for _ in 0..dice.roll(5) {
                    let pod = pod_of(&mut dice, source);
                    let is_free = |other: &Pod| {
                        other.uid() != pod.uid() && (source == Source::Kubelet || other.name() != pod.name())
                    };
                    if pods.iter().all(is_free) {
                        pods.push(pod);
                    }
                }
                merging.say(source, set(pods.clone()));
            }
            if !merging.merge.all_sources_seen() {
                continue;
            }
            // Skips the time in which a derived pod is unconfirmed.
            let expired = merging.merge.expire(Instant::now() + 2 * UNCONFIRMED_FOR);
            merging.take(&expired);
            let context = format!("seed {seed}, step {step}:\n{}", spelled(&said));
            let uids: BTreeSet<_> = merging.pods.keys().cloned().collect();
            assert_eq!(uids, wanted(&said), "{context}");
            most = most.max(uids.len());

            let mut fresh = Merging::new(Source::ALL);
            let mut order = Source::ALL.to_vec();
            while !order.is_empty() {
                let source = order.remove(dice.index(order.len()));
                let pods = said.get(&source).cloned().unwrap_or_default();
                fresh.say(source, set(pods));
            }
            let mut refused = [merging.refused(), fresh.refused()];
            for refused in &mut refused {
                refused.sort();
            }
            assert_eq!(refused[0], refused[1], "{context}");
            assert_eq!(timeless(&merging), timeless(&fresh), "{context}");
        }
    }
    assert!(most > 8, "the histories are too small: {most}");
}
