//! Invariants of every visible snapshot, for any input.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_index::kubelet::{MirrorToPod, StaticPod};
use pod_index::{PodMeta, Snapshot, is_mirror_pod};

/// Panics with a reason unless I1 to I6 hold.
pub fn check<P: PodMeta>(snapshot: &Snapshot<P>) {
    a_translation_joins_one_full_name(snapshot);
    both_directions_agree(snapshot);
    names_lead_to_their_bearers(snapshot);
    worlds_are_apart(snapshot);
    let sum: usize = snapshot.pods().map(|pod| pod.ephemeral_container_count()).sum();
    assert_eq!(snapshot.ephemeral_container_count(), sum, "I5: the count of ephemeral containers");
}

/// I1: each UID with a translation is a known mirror. If its target is a known pod, it has the same full
/// name.
pub fn a_translation_joins_one_full_name<P: PodMeta>(snapshot: &Snapshot<P>) {
    for MirrorToPod { mirror, pod, .. } in snapshot.mirror_to_pod_uids() {
        let known = snapshot.mirror_pod_by_uid(&mirror).map(full_name);
        assert!(known.is_some(), "I1: {mirror} translates to {pod}, but is no known mirror");
        assert!(snapshot.mirror_pod_by_uid(&pod).is_none(), "I1: {mirror} translates to the mirror {pod}");
        if let Some(pod) = snapshot.pod_by_uid(&pod) {
            assert_eq!(known, Some(full_name(pod)), "I1: {mirror} and {} share a full name", pod.uid());
        }
    }
    for StaticPod { pod, mirror, .. } in snapshot.static_pods_with_mirrors() {
        if let Some(mirror) = mirror {
            assert_eq!(
                full_name(pod),
                full_name(mirror),
                "I1: a static pod and its mirror share a full name"
            );
        }
    }
}

/// I6: pod to mirror, and mirror to pod.
fn both_directions_agree<P: PodMeta>(snapshot: &Snapshot<P>) {
    let to_pod: BTreeMap<_, _> = snapshot.mirror_to_pod_uids().map(|one| (one.mirror, one.pod)).collect();
    let to_mirror: BTreeMap<_, _> = snapshot.pod_to_mirror_uids().map(|one| (one.pod, one.mirror)).collect();
    for (pod, mirror) in &to_mirror {
        assert_eq!(snapshot.mirror_uid_of_pod(pod), *mirror, "I6: {pod} asked for alone");
        if let Some(mirror) = mirror {
            assert_eq!(to_pod.get(mirror), Some(pod), "I6: {pod} to {mirror} and back");
        }
    }
    for (mirror, pod) in &to_pod {
        assert_eq!(snapshot.pod_uid_of_mirror(mirror).as_ref(), Some(pod), "I6: {mirror} asked for alone");
        assert_eq!(
            snapshot.translate_pod_uid(mirror).to_string(),
            pod.to_string(),
            "I6: {mirror} translated"
        );
        let back = to_mirror.get(pod).and_then(Option::as_ref);
        let holder = back.and_then(|back| snapshot.mirror_pod_by_uid(back)).map(full_name);
        let own = snapshot.mirror_pod_by_uid(mirror).map(full_name);
        assert_eq!(holder, own, "I6: {mirror} to {pod} and back to one of the same full name");
    }
    for pod in snapshot.static_pods() {
        assert!(to_mirror.contains_key(&pod.uid().into()), "I6: the static pod {} is listed", pod.uid());
    }
}

/// I2 and I3: a full name that some pod has leads to an existing pod of that name, for pods and for mirrors.
fn names_lead_to_their_bearers<P: PodMeta>(snapshot: &Snapshot<P>) {
    for pod in snapshot.pods() {
        let held = snapshot.pod_by_full_name(full_name(pod)).map(|holder| {
            snapshot.pod_by_uid(holder.uid()).is_some_and(|known| Arc::ptr_eq(known, holder))
                && full_name(holder) == full_name(pod)
        });
        assert_eq!(held, Some(true), "I2, I3: the full name of {}", pod.uid());
    }
    for mirror in snapshot.mirror_pods() {
        let held = snapshot.mirror_pod_by_full_name(full_name(mirror)).map(|holder| {
            snapshot.mirror_pod_by_uid(holder.uid()).is_some_and(|known| Arc::ptr_eq(known, holder))
                && full_name(holder) == full_name(mirror)
        });
        assert_eq!(held, Some(true), "I2, I3: the full name of the mirror {}", mirror.uid());
    }
}

/// I4: each UID is found once, as a pod or as a mirror.
fn worlds_are_apart<P: PodMeta>(snapshot: &Snapshot<P>) {
    let mut seen = BTreeSet::new();
    for pod in snapshot.pods() {
        assert!(!is_mirror_pod(&**pod), "I4: {} is a mirror", pod.uid());
        assert!(seen.insert(pod.uid()), "I4: {} is there twice", pod.uid());
        assert!(snapshot.pod_by_uid(pod.uid()).is_some_and(|known| Arc::ptr_eq(known, pod)), "I4");
        assert!(snapshot.mirror_pod_by_uid(pod.uid()).is_none(), "I4: {} is in both worlds", pod.uid());
    }
    for mirror in snapshot.mirror_pods() {
        assert!(is_mirror_pod(&**mirror), "I4: {} is no mirror", mirror.uid());
        assert!(seen.insert(mirror.uid()), "I4: {} is there twice", mirror.uid());
        assert!(
            snapshot.mirror_pod_by_uid(mirror.uid()).is_some_and(|known| Arc::ptr_eq(known, mirror)),
            "I4"
        );
        assert!(snapshot.pod_by_uid(mirror.uid()).is_none(), "I4: {} is in both worlds", mirror.uid());
    }
}

fn full_name<P: PodMeta>(pod: &Arc<P>) -> String {
    format!("{}_{}", pod.name(), pod.namespace())
}
