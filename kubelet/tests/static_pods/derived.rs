//! Which pods a merge gives: static pods derived from mirror pods, and what each source is used for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_index::{ENDED_ANNOTATION, PodMeta};
use pod_index_kubelet::sources::static_pods::{CLAIMED_ANNOTATION, UNCONFIRMED_FOR};
use pod_index_kubelet::sources::{Merge, NodeName, Source};
use serde_json::json;

use super::support::{
    Merging, api_pod, deleted, is_unconfirmed, mirror, remove, set, static_pod, status, upsert,
};

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
fn an_unconfirmed_static_pod_ends_although_a_source_is_not_seen_yet() {
    let mut merging = Merging::new([Source::Api, Source::Http]);
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    merging.say(Source::Api, remove("m"));
    assert!(is_unconfirmed(&merging.pods["s"]));
    let expired = merging.merge.expire(merging.merge.next_deadline().expect("a deadline"));
    merging.take(&expired);
    assert!(!merging.pods.contains_key("s"));
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
    let mut merge = Merge::new([Source::Api]).derive_static_pods(NodeName::new("n1"));
    assert!(merge.manage_own_mirror_pods(true).is_empty());
    let mut merging = Merging { merge, ..Merging::new([]) };
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1"), mirror("o", "q", "t", "n2")]));
    assert_eq!(merging.uids(), ["m", "o", "t"]);
    for _ in 0..2 {
        let merged = merging.merge.manage_own_mirror_pods(false);
        assert_eq!(merging.take(&merged), "+s");
        let merged = merging.merge.manage_own_mirror_pods(true);
        assert_eq!(merging.take(&merged), "-s");
    }
    assert_eq!(merging.say(Source::Api, remove("m")), "-m");
    let mut never = Merging { merge: Merge::new([Source::Api]), ..Merging::new([]) };
    assert_eq!(never.say(Source::Api, set([mirror("m", "p", "s", "n1")])), "+m");
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
    assert_eq!(merged.due, [Source::File], "to learn whether a manifest describes it");
    merging.take(&merged);
    merging.read(Source::File);
    assert_eq!(image_of(&merging), shown("s", "mirror"));
    // The kubelet still runs the earlier one.
    merging.say(Source::File, set([static_pod("b", "p", "new", "Pending")]));
    merging.read(Source::File);
    assert_eq!(image_of(&merging), shown("s", "mirror"));
    assert_eq!(merging.refused(), [""; 0], "an edit is no forgery");
    // The kubelet deletes the old mirror pod and creates another one.
    assert_eq!(merging.say(Source::Api, remove("m")), "-m ~s");
    assert_eq!(image_of(&merging), shown("s", "mirror"));
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
    assert_eq!(merging.say(Source::Kubelet, set([api_pod("a", "p", "Running", 1)])), "+a ~s");
}

/// A manifest is removed. The kubelet has noticed, and the agent's own source of manifests has not: nobody may see the computed
/// UID, which no container and no log has.
#[test]
fn a_manifest_keeps_the_uid_that_the_kubelet_gave_its_pod_until_its_file_goes() {
    for is_trusted in [false, true] {
        let merge = Merge::new([Source::File, Source::Kubelet]).derive_static_pods(NodeName::new("n1"));
        let mut merging = Merging::of(if is_trusted { merge.trust_kubelet() } else { merge });
        let manifest = static_pod("f", "p", "manifest", "Pending");
        merging.say(Source::File, set([manifest.clone()]));
        merging.say(Source::Kubelet, set([static_pod("s", "p", "kubelet", "Running")]));
        assert_eq!(merging.say(Source::Kubelet, set([])), "~s");
        // It is the kubelet's pod, and holds no IP any more.
        assert_eq!((merging.image("s"), merging.phase("s")), ("kubelet", "Running"));
        assert!(merging.pods["s"].annotation(ENDED_ANNOTATION).is_some());
        assert_eq!(merging.say(Source::File, set([manifest.clone()])), "", "nothing has changed");
        assert_eq!(merging.say(Source::File, set([])), "-s");
        // The same file again is another one.
        assert_eq!(merging.say(Source::File, set([manifest])), "+f");
    }
}

#[test]
fn a_manifest_keeps_the_kubelets_uid_until_its_file_changes_or_the_kubelet_gives_another_one() {
    let mut merging = Merging::new([Source::File, Source::Kubelet]);
    merging.say(Source::File, set([static_pod("f", "p", "manifest", "Pending")]));
    let listed = |uid| set([static_pod(uid, "p", "kubelet", "Running")]);
    merging.say(Source::Kubelet, listed("s"));
    // A new kubelet computes it differently.
    assert_eq!(merging.say(Source::Kubelet, listed("t")), "-s +t");
    assert_eq!(merging.say(Source::Kubelet, set([])), "~t");
    assert_eq!(merging.say(Source::Kubelet, listed("t")), "~t");
    assert!(merging.pods["t"].annotation(ENDED_ANNOTATION).is_none(), "it runs again");
    merging.say(Source::Kubelet, set([]));
    assert_eq!(merging.say(Source::File, set([static_pod("g", "p", "edited", "Pending")])), "-t +g");
}

#[test]
fn a_manifest_keeps_the_uid_of_its_mirror_pod() {
    let mut merging = Merging::new([Source::Api, Source::File]);
    merging.say(Source::File, set([static_pod("f", "p", "manifest", "Pending")]));
    merging.say(Source::Api, set([mirror("m", "p", "s", "n1")]));
    assert_eq!(merging.uids(), ["m", "s"]);
    assert_eq!(merging.say(Source::Api, remove("m")), "-m ~s");
    let later = Instant::now() + 2 * UNCONFIRMED_FOR;
    let expired = merging.merge.expire(later);
    assert_eq!(merging.take(&expired), "~s", "no new mirror pod has come");
    assert_eq!(merging.say(Source::File, set([])), "-s");
}

/// A kubelet deletes a mirror pod that it has not created.
#[test]
fn a_manifest_keeps_no_uid_of_a_forged_mirror_pod() {
    let mut merging = Merging::new([Source::Api, Source::File]);
    merging.say(Source::Api, set([]));
    merging.say(Source::File, set([static_pod("f", "p", "manifest", "Pending")]));
    let mut forged = mirror("m", "p", "x", "n1");
    forged.metadata.creation_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::now()));
    assert_eq!(merging.say(Source::Api, upsert([forged])), "-f +m +x");
    assert_eq!(merging.say(Source::Api, remove("m")), "-m -x +f");
}

#[test]
fn a_kept_uid_that_becomes_another_pods_is_that_pods() {
    let mut merging = Merging::new(Source::ALL);
    for source in [Source::Http, Source::Api] {
        merging.say(source, set([]));
    }
    let both =
        || set([static_pod("f", "p", "manifest", "Pending"), static_pod("g", "q", "manifest", "Pending")]);
    merging.say(Source::File, both());
    merging.say(Source::Kubelet, set([static_pod("s", "p", "kubelet", "Running")]));
    merging.say(Source::Kubelet, set([]));
    assert_eq!(merging.uids(), ["g", "s"]);
    // A mirror pod of another name does not get it.
    merging.say(Source::Api, set([mirror("m", "evil", "s", "n1")]));
    assert_eq!((merging.uids(), merging.pods["s"].name()), (vec!["g", "m", "s"], "p"));
    assert!(
        merging.refused()[0].contains("the pod of another manifest had that UID"),
        "{:?}",
        merging.refused()
    );
    merging.say(Source::Api, set([]));
    // The kubelet's word decides.
    merging.say(Source::Kubelet, set([static_pod("s", "q", "kubelet", "Running")]));
    assert_eq!((merging.uids(), merging.pods["s"].name()), (vec!["f", "s"], "q"));
    merging.say(Source::Kubelet, set([]));
    assert_eq!((merging.uids(), merging.pods["s"].name()), (vec!["f", "s"], "q"));
}

#[test]
fn a_manifest_of_a_file_is_used_before_one_of_a_url() {
    for order in [[Source::File, Source::Http], [Source::Http, Source::File]] {
        let mut merging = Merging::new(order);
        for source in order {
            merging.say(source, set([static_pod("s", "web", source.as_str(), "Pending")]));
        }
        assert_eq!(merging.image("s"), "file", "{order:?}");
        assert_eq!(merging.say(Source::File, set([])), "~s");
        assert_eq!(merging.image("s"), "http");
    }
}
