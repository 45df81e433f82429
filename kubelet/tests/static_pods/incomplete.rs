//! A kubelet that has just started lists its pods before it has read its own sources.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::sources::{Source, SourceUpdate};

use super::support::{Merging, api_pod, is_unconfirmed, mirror, remove, set, static_pod};

fn incomplete(pods: impl IntoIterator<Item = Pod>) -> SourceUpdate<Pod> {
    SourceUpdate::Incomplete(pods.into_iter().map(Into::into).collect())
}

/// The kubelet's pods: two static ones and two of the API server.
fn all() -> [Pod; 4] {
    [web(), dns(), api_pod("a", "a", "Running", 1), api_pod("b", "b", "Running", 1)]
}

fn web() -> Pod {
    static_pod("s", "web", "i", "Running")
}

fn dns() -> Pod {
    static_pod("t", "dns", "i", "Running")
}

fn unconfirmed(merging: &Merging) -> Vec<&str> {
    merging.pods.iter().filter(|(_, pod)| is_unconfirmed(pod)).map(|(uid, _)| uid.as_str()).collect()
}

/// A merge of the kubelet alone, whose kubelet has been restarted.
fn restarted() -> Merging {
    let mut merging = Merging::new([Source::Kubelet]);
    merging.say(Source::Kubelet, set(all()));
    assert_eq!(merging.say(Source::Kubelet, incomplete([])), "~a ~b ~t ~s", "none is removed");
    merging
}

#[test]
fn pods_that_a_restarted_kubelet_does_not_list_yet_stay_unconfirmed_until_its_list_is_complete() {
    let mut merging = restarted();
    assert_eq!(unconfirmed(&merging), ["a", "b", "s", "t"]);
    assert_eq!(merging.say(Source::Kubelet, incomplete([web(), dns()])), "~s ~t");
    assert_eq!(merging.say(Source::Kubelet, incomplete([web(), dns()])), "", "nothing new");
    assert_eq!(unconfirmed(&merging), ["a", "b"]);
    // Meanwhile, b was deleted.
    assert_eq!(merging.say(Source::Kubelet, set([web(), dns(), api_pod("a", "a", "Running", 1)])), "-b ~a");
    assert_eq!(unconfirmed(&merging), [""; 0]);
}

#[test]
fn a_new_pod_of_an_incomplete_list_counts_and_ends_the_one_whose_name_it_has() {
    let mut merging = restarted();
    let new = [static_pod("s2", "web", "edited", "Pending"), api_pod("c", "c", "Pending", 1)];
    assert_eq!(merging.say(Source::Kubelet, incomplete(new)), "-s +s2 +c");
    assert_eq!(unconfirmed(&merging), ["a", "b", "t"]);
}

#[test]
fn the_api_server_ends_an_unconfirmed_pod_that_it_had_and_confirms_one_that_it_has() {
    let mut merging = Merging::new([Source::Kubelet, Source::Api]);
    merging.say(Source::Kubelet, set(all()));
    merging.say(Source::Api, set(["a", "b"].map(|uid| api_pod(uid, uid, "Running", 1))));
    assert_eq!(merging.say(Source::Kubelet, incomplete([web(), dns()])), "", "the API server has them");
    assert_eq!(unconfirmed(&merging), [""; 0]);
    assert_eq!(merging.say(Source::Api, remove("a")), "-a");
    // Gone while the kubelet was away, and while it listed all.
    merging.say(Source::Kubelet, set([web(), dns(), api_pod("b", "b", "Running", 1)]));
    assert_eq!(merging.say(Source::Api, remove("b")), "~b", "the kubelet still lists it");
    assert_eq!(merging.say(Source::Kubelet, incomplete([web(), dns()])), "-b");
}

#[test]
fn a_pod_that_incomplete_lists_lack_stays_however_long_until_the_source_says_that_it_is_gone() {
    let mut merging = restarted();
    merging.say(Source::Kubelet, incomplete([web()]));
    assert_eq!(merging.read_at(Source::Kubelet, Instant::now() + Duration::from_secs(3000), false), "");
    assert_eq!(merging.say(Source::Kubelet, remove("t")), "-t");
    assert_eq!(merging.say(Source::Kubelet, incomplete([web()])), "");
    assert_eq!(unconfirmed(&merging), ["a", "b"]);
}

/// Its mirror pod, and a forged one.
#[test]
fn a_restarted_kubelet_refutes_no_mirror_pod_before_it_lists_a_pod() {
    let mut merging = Merging::new([Source::Kubelet, Source::Api]);
    merging.say(Source::Kubelet, set([web()]));
    merging.say(Source::Api, set([mirror("m", "web", "s", "n1")]));
    assert_eq!(merging.say(Source::Kubelet, incomplete([])), "~s");
    merging.say(Source::Api, SourceUpdate::Upsert(vec![mirror("n", "forged", "f", "n1").into()]));
    assert!(merging.pods.contains_key("f"));
    assert_eq!(merging.read_at(Source::Kubelet, Instant::now() + Duration::from_secs(1), false), "");
    assert_eq!(merging.say(Source::Kubelet, incomplete([web()])), "~s");
    assert_eq!(merging.read_at(Source::Kubelet, Instant::now() + Duration::from_secs(2), false), "");
    assert_eq!(merging.read_at(Source::Kubelet, Instant::now() + Duration::from_secs(4), false), "-f");
    assert_eq!(merging.uids(), ["m", "n", "s"]);
}

/// It lists its static pods one after the other.
#[test]
fn a_new_kubelet_refutes_no_mirror_pod_within_a_second_of_its_first_static_pod() {
    let mut merging = Merging::new([Source::Kubelet, Source::Api]);
    merging.say(Source::Api, set([mirror("m", "web", "s", "n1"), mirror("o", "dns", "t", "n1")]));
    merging.say(Source::Kubelet, incomplete([]));
    let first = Instant::now();
    assert_eq!(merging.read_at(Source::Kubelet, first, false), "");
    merging.say(Source::Kubelet, incomplete([web()]));
    let spoke = first + Duration::from_millis(300);
    assert_eq!(merging.read_at(Source::Kubelet, spoke, false), "");
    assert_eq!(merging.read_at(Source::Kubelet, spoke + Duration::from_millis(999), false), "");
    assert_eq!(merging.uids(), ["m", "o", "s", "t"]);
    assert_eq!(merging.read_at(Source::Kubelet, spoke + Duration::from_secs(1), false), "-t");
}

#[test]
fn a_mark_that_a_pod_brings_along_is_removed() {
    let mut merging = Merging::new([Source::Kubelet]);
    let mut forged = api_pod("a", "a", "Running", 1);
    let annotations = forged.metadata.annotations.as_mut().expect("annotations");
    annotations.insert("pod-index/unconfirmed".to_owned(), "x".to_owned());
    merging.say(Source::Kubelet, set([forged]));
    assert_eq!(unconfirmed(&merging), [""; 0]);
}
