//! Mirror pods that are not a kubelet's: no static pod is derived from them, and what they claim changes nothing of
//! the real ones.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_index::PodMeta;
use pod_index_kubelet::sources::Source;
use pod_index_kubelet::sources::static_pods::CLAIMED_ANNOTATION;

use super::support::{
    Merging, api_pod, deleted, is_unconfirmed, mirror, owned_by, remove, set, static_pod, upsert,
};

const BEFORE_THE_MIRRORS: &str = "2026-01-01T00:00:04Z";

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
            let known = if source == Source::Api { upsert([known.clone()]) } else { set([known.clone()]) };
            let mut updates = [(source, known), (Source::Api, upsert([forged]))];
            if !known_first {
                updates.reverse();
            }
            for (source, update) in updates {
                merging.say(source, update);
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
        pod.metadata.creation_timestamp = Some(Time(time));
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
    // Another mirror pod with that UID is judged anew.
    let on = |node| owned_by(mirror("m2", "forged", "s2", node), "other");
    assert_eq!(merging.say(Source::Api, upsert([on("n2")])), "+s2 ~m2");
    assert_eq!(merging.say(Source::Api, upsert([on("n1")])), "~m2 ~s2", "the last read failed");
    assert_eq!(merging.read_node("node", BEFORE_THE_MIRRORS), "-s2");
    assert_eq!(merging.refused().len(), 1);

    // What comes later waits for the next read, unless that fails.
    let late = owned_by(mirror("m4", "late", "s4", "n1"), "other");
    let before = Instant::now();
    merging.read_node("node", BEFORE_THE_MIRRORS);
    assert_eq!(merging.say(Source::Api, upsert([late.clone()])), "+m4");
    assert_eq!((merging.refused().len(), merging.merge.needs_own_node()), (1, true));
    assert_eq!(merging.read_node_at("node", BEFORE_THE_MIRRORS, before), "");
    assert!(merging.merge.needs_own_node(), "it was asked for before the mirror pod came");
    let elsewhere = owned_by(mirror("m5", "later", "s5", "n2"), "other");
    assert_eq!(merging.say(Source::Api, upsert([elsewhere])), "+m5 +s5", "other nodes do not wait");
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
    assert_eq!(merging.say(Source::Api, remove("m")), "-m ~s");
    assert_eq!(merging.say(Source::Kubelet, set([])), "");
    // It returns, for example because a server lists an older state.
    assert_eq!(merging.say(Source::Api, upsert([mirror("m", "p", "s", "n1")])), "+m ~s");
    assert!(!is_unconfirmed(&merging.pods["s"]));
    assert_eq!(merging.say(Source::Api, remove("m")), "-m ~s");
    assert_eq!(merging.say(Source::Api, upsert([deleted(mirror("m", "p", "s", "n1"))])), "-s +m");
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
fn a_refuted_mirror_pod_does_not_end_the_static_pod_whose_name_it_takes() {
    let mut merging = Merging::new([Source::Api]);
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    assert_eq!(merging.read_node("node", BEFORE_THE_MIRRORS), "");
    assert_eq!(merging.say(Source::Api, remove("m")), "-m ~s", "its containers may still run");
    merging.say(Source::Api, upsert([owned_by(mirror("forged", "p", "x", "n1"), "other")]));
    merging.read_node("node", BEFORE_THE_MIRRORS);
    assert_eq!((merging.uids(), merging.refused().len()), (vec!["forged", "s"], 1));
}

/// Of two mirror pods of the same second, the one with the smaller UID would count.
#[test]
fn the_uid_of_a_static_pod_whose_mirror_pod_is_gone_is_not_free_yet() {
    let mut merging = Merging::new([Source::Api]);
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    merging.say(Source::Api, remove("m"));
    assert_eq!(merging.say(Source::Api, upsert([mirror("a", "q", "s", "n1")])), "+a");
    assert_eq!(merging.refused().len(), 1);
}

#[test]
fn a_kubelet_that_does_not_list_a_static_pod_ends_it_only_once_all_sources_are_seen() {
    let mut merging = Merging::new([Source::Api, Source::File, Source::Kubelet]);
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    merging.say(Source::Kubelet, set([api_pod("k", "k", "Running", 1)]));
    merging.read(Source::Kubelet);
    assert_eq!(merging.uids(), ["k", "m", "s"], "a file may describe it");
    merging.say(Source::File, set([]));
    merging.read(Source::Kubelet);
    assert_eq!(merging.uids(), ["k", "m"]);
}

#[test]
fn a_claim_removes_no_pod_that_waits_for_the_other_sources() {
    let mut merging = Merging::new([Source::File, Source::Api]);
    merging.say(Source::File, set([static_pod("s", "p", "manifest", "Pending")]));
    assert_eq!(merging.say(Source::File, set([])), "", "not all sources were seen");
    // Not judged before the next read of the node.
    merging.read_node("node", BEFORE_THE_MIRRORS);
    let forged = owned_by(mirror("m", "q", "s", "n1"), "other");
    assert_eq!(merging.say(Source::Api, upsert([forged])), "+m");
    assert_eq!(merging.say(Source::Api, set([])), "-m -s", "now all were");
}

#[test]
fn a_claim_that_the_kubelet_does_not_confirm_goes_when_the_last_source_is_seen() {
    let mut merging = Merging::new([Source::Http, Source::Kubelet, Source::Api]);
    assert_eq!(merging.say(Source::Api, set([mirror("m", "p", "s", "n1")])), "+m +s");
    merging.say(Source::Kubelet, set([api_pod("a", "a", "Running", 1)]));
    assert_eq!(merging.read(Source::Kubelet), "");
    assert_eq!(merging.say(Source::Http, set([])), "-s");
}

/// A kubelet deletes it after a second. That is all the evidence there is with the API server alone.
#[test]
fn a_mirror_pod_that_is_deleted_right_after_its_creation_leaves_no_static_pod() {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let created = |mut mirror: k8s_openapi::api::core::v1::Pod, at: &str| {
        mirror.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at.parse().expect("a time")));
        mirror
    };
    let mut merging = Merging::new([Source::Api]);
    merging.say(Source::Api, set([]));
    let forged = created(mirror("m", "forged", "f", "n1"), &now);
    assert_eq!(merging.say(Source::Api, upsert([forged.clone()])), "+m +f");
    assert_eq!(merging.say(Source::Api, remove("m")), "-m -f");
    // If a finalizer holds it.
    merging.say(Source::Api, upsert([forged.clone()]));
    merging.say(Source::Api, upsert([deleted(forged)]));
    assert!(!merging.pods.contains_key("f"));
    // No kubelet has ever reported its status.
    let mut without_status = mirror("o", "old", "g", "n1");
    without_status.status = None;
    merging.say(Source::Api, upsert([without_status]));
    assert_eq!(merging.say(Source::Api, remove("o")), "-o -g");
    // An old one, seen only now.
    merging.say(Source::Api, upsert([mirror("k", "kept", "h", "n1")]));
    assert_eq!(merging.say(Source::Api, remove("k")), "-k ~h");
    assert!(is_unconfirmed(&merging.pods["h"]));
}
