//! The merge: order, differences, duplicates, readiness; and the resulting index, compared with a model.

use crate::updates;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use pod_index::{Operation, PodMeta, is_static_pod};
use pod_index_kubelet::sources::{Merge, Merged, ProblemKind, Source, SourceUpdate};
use pod_index_test_support::dice::Dice;
use updates::{remove, set, upsert};

fn pod(uid: &str, name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            uid: Some(uid.to_owned()),
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec::default()),
        status: Some(PodStatus::default()),
    }
}

fn annotated(mut pod: Pod, key: &str, value: &str) -> Pod {
    pod.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    pod
}

fn on_node(mut pod: Pod, node: &str) -> Pod {
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    pod
}

fn in_phase(mut pod: Pod, phase: &str) -> Pod {
    pod.status.get_or_insert_default().phase = Some(phase.to_owned());
    pod
}

fn terminating(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    pod
}

fn uids(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.uid()).collect()
}

/// `removed | added | updated | deleted | reconciled`
fn summary(merged: &Merged) -> String {
    [&merged.removed, &merged.added, &merged.updated, &merged.deleted, &merged.reconciled]
        .map(|pods| uids(pods).join(" "))
        .join("|")
}

fn of_the_api() -> Merge {
    Merge::new([Source::Api])
}

#[test]
fn one_set_becomes_operations_in_the_kubelets_order() {
    let mut merge = of_the_api();
    let first = set(["gone", "changed", "dying", "status", "same"].map(|uid| pod(uid, uid)));
    assert_eq!(summary(&merge.update(Source::Api, first)), "|gone changed dying status same|||");
    let second = set([
        in_phase(pod("status", "status"), "Running"),
        terminating(pod("dying", "dying")),
        on_node(pod("changed", "changed"), "n"),
        pod("new", "new"),
        pod("same", "same"),
    ]);
    let merged = merge.update(Source::Api, second);
    assert_eq!(summary(&merged), "gone|new|changed|dying|status");
    let operations: Vec<_> = merged
        .into_operations()
        .map(|operation| match operation {
            Operation::Remove(uid) => format!("remove {uid}"),
            Operation::Upsert(pod) => format!("upsert {}", pod.uid()),
            Operation::Set(_) => "set".to_owned(),
        })
        .collect();
    assert_eq!(operations, ["remove gone", "upsert new", "upsert changed", "upsert dying", "upsert status"]);
}

#[test]
fn only_what_the_kubelet_counts_as_a_change_is_one() {
    let label = |mut pod: Pod| {
        pod.metadata.labels.get_or_insert_default().insert("a".to_owned(), "b".to_owned());
        pod
    };
    let grace = |mut pod: Pod| {
        pod.metadata.deletion_grace_period_seconds = Some(1);
        pod
    };
    let version = |mut pod: Pod| {
        pod.metadata.resource_version = Some("2".to_owned());
        pod.metadata.labels = Some(BTreeMap::new());
        pod
    };
    let finalizer = |mut pod: Pod| {
        pod.metadata.finalizers = Some(vec!["x/y".to_owned()]);
        pod
    };
    let adopted = |mut pod: Pod| {
        pod.metadata.owner_references = Some(vec![OwnerReference::default()]);
        pod
    };
    for (newer, wanted) in vec![
        (pod("u", "p"), "||||"),
        (finalizer(pod("u", "p")), "||u||"),
        (adopted(pod("u", "p")), "||u||"),
        (version(pod("u", "p")), "||||"),
        (annotated(pod("u", "p"), "kubernetes.io/config.source", "file"), "||||"),
        (annotated(pod("u", "p"), "kubernetes.io/config.seen", "x"), "||||"),
        (annotated(pod("u", "p"), "kubernetes.io/config.mirror", "x"), "||||"),
        (annotated(pod("u", "p"), "kubernetes.io/config.hash", "x"), "||u||"),
        (annotated(pod("u", "p"), "mine", "x"), "||u||"),
        (on_node(pod("u", "p"), "n"), "||u||"),
        (label(pod("u", "p")), "||u||"),
        (grace(pod("u", "p")), "||u||"),
        (terminating(pod("u", "p")), "|||u|"),
        (terminating(in_phase(pod("u", "p"), "Running")), "|||u|"),
        (in_phase(pod("u", "p"), "Running"), "||||u"),
        (pod("u", "renamed"), "||u||"),
    ] {
        let mut merge = of_the_api();
        let _ = merge.update(Source::Api, set([pod("u", "p")]));
        let summary_of_first = summary(&merge.update(Source::Api, set([newer.clone()])));
        assert_eq!(summary_of_first, wanted, "{:?}", newer.metadata);
        // And only once.
        assert_eq!(summary(&merge.update(Source::Api, upsert([newer]))), "||||");
    }
}

#[test]
fn every_pod_is_marked_with_its_source_and_with_the_time_it_was_first_seen() {
    let mut merge = of_the_api();
    // A mirror pod: it carries its static pod's marks.
    let mirror = |node| {
        let pod = annotated(pod("m", "mirror"), "kubernetes.io/config.source", "file");
        let pod = annotated(pod, "kubernetes.io/config.seen", "long ago");
        on_node(annotated(pod, "kubernetes.io/config.mirror", "hash"), node)
    };
    let merged = merge.update(Source::Api, set([mirror("1")]));
    let first = Arc::clone(&merged.added[0]);
    assert_eq!(first.annotation("kubernetes.io/config.source"), Some("api"));
    assert!(!is_static_pod(&*first));
    let seen = first.annotation("kubernetes.io/config.seen").expect("the time").to_owned();
    assert!(seen.parse::<Timestamp>().is_ok(), "{seen}");

    let merged = merge.update(Source::Api, upsert([mirror("2")]));
    assert_eq!(merged.updated[0].annotation("kubernetes.io/config.source"), Some("api"));
    assert_eq!(merged.updated[0].annotation("kubernetes.io/config.seen"), Some(seen.as_str()));
    for pod in [&first, &merged.updated[0]] {
        assert_eq!(
            pod.annotation("pod-index/api-server-config.source"),
            Some("file"),
            "as on the API server"
        );
        assert_eq!(pod.annotation("pod-index/api-server-config.seen"), Some("long ago"));
    }
    // Emitted pods are never changed afterwards.
    assert_eq!(first.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("1"));
}

/// A source of one's own may pass them on.
#[test]
fn a_pod_brings_no_marks_along() {
    for source in [Source::File, Source::Http, Source::Kubelet, Source::Api] {
        let mut merge = Merge::new([source]);
        let mut forged = pod("u", "p");
        for mark in [
            "claimed-by",
            "unconfirmed",
            "workload",
            "derived-workload",
            "restored",
            "api-server-config.seen",
        ] {
            forged = annotated(forged, &format!("pod-index/{mark}"), "forged");
        }
        let merged = merge.update(source, set([annotated(forged, "pod-index.example/team", "a")]));
        let annotations = merged.added[0].metadata.annotations.as_ref().expect("annotations");
        let forged: Vec<_> = annotations.iter().filter(|(_, value)| *value == "forged").collect();
        assert!(forged.is_empty(), "{source:?}: {forged:?}");
        assert!(annotations.contains_key("pod-index.example/team"), "a user's own");
    }
}

#[test]
fn in_a_set_the_first_of_several_namesakes_counts_and_the_others_are_reported() {
    let mut merge = of_the_api();
    let merged = merge.update(Source::Api, set([pod("1", "a"), pod("2", "a"), pod("1", "b"), pod("3", "c")]));
    assert_eq!(summary(&merged), "|1 3|||");
    let fields: Vec<_> =
        merged.problems.iter().map(|problem| (problem.kind, problem.field.as_deref())).collect();
    assert_eq!(
        fields,
        [(ProblemKind::Duplicate, Some("metadata.name")), (ProblemKind::Duplicate, Some("metadata.uid"))]
    );
    assert!(merged.problems[0].message.contains("ns/a (UID \"2\")"), "{}", merged.problems[0]);
}

#[test]
fn pods_without_a_name_are_skipped_and_reported() {
    let mut merge = of_the_api();
    let merged = merge.update(
        Source::Api,
        upsert([
            pod("", "a"),
            pod("1", ""),
            pod("2", "a_b"),
            pod(&"u".repeat(10_000_000), "b"),
            pod("3", "c"),
            pod("4", "\0"),
        ]),
    );
    assert_eq!(uids(&merged.added), ["3", "4"]);
    assert_eq!(merged.problems.len(), 4);
    assert!(merged.problems.iter().all(|problem| problem.to_string().len() < 1000));
}

#[test]
fn nothing_is_removed_before_all_sources_are_seen() {
    let mut merge = Merge::new(Source::ALL);
    assert_eq!(
        summary(&merge.update(Source::File, set([pod("1", "a"), pod("2", "b"), pod("3", "c")]))),
        "|1 2 3|||"
    );
    assert_eq!(summary(&merge.update(Source::File, set([pod("3", "c")]))), "||||");
    assert_eq!(
        summary(&merge.update(Source::File, set([pod("1", "a"), pod("3", "c")]))),
        "||1||",
        "it never left, and is seen anew"
    );
    assert_eq!(summary(&merge.update(Source::Api, upsert([pod("4", "d")]))), "|4|||");
    assert_eq!(summary(&merge.update(Source::Api, remove("4"))), "||||");
    // An upsert does not make the source seen.
    assert_eq!(summary(&merge.update(Source::Kubelet, set([]))), "||||");
    assert_eq!(summary(&merge.update(Source::Http, set([]))), "||||");
    assert!(!merge.all_sources_seen());
    let merged = merge.update(Source::Api, set([pod("5", "e")]));
    assert!(merge.all_sources_seen());
    let mut removed = uids(&merged.removed);
    removed.sort_unstable();
    assert_eq!((removed, uids(&merged.added)), (vec!["2", "4"], vec!["5"]));
    assert_eq!(summary(&merge.update(Source::File, set([]))), "1 3||||");
    assert!(merge.all_sources_seen());
}

#[test]
fn a_pod_that_returns_before_all_sources_are_seen_was_never_removed() {
    let mut merge = Merge::new([Source::File, Source::Http]);
    let same = Arc::new(pod("1", "a"));
    let set_of = |pods: &[&Arc<Pod>]| SourceUpdate::Set(pods.iter().copied().map(Arc::clone).collect());
    // Already marked, so that it stays the same object.
    let same = Arc::clone(&merge.update(Source::File, set_of(&[&same])).added[0]);
    assert_eq!(summary(&merge.update(Source::File, set([]))), "||||");
    assert_eq!(summary(&merge.update(Source::File, set_of(&[&same]))), "||||");
    assert_eq!(summary(&merge.update(Source::Http, set([]))), "||||");
}

#[test]
fn an_empty_first_set_marks_its_source_seen() {
    let mut merge = Merge::new([Source::File]);
    assert!(!merge.all_sources_seen());
    assert!(merge.update(Source::File, set([])).is_empty());
    assert!(merge.all_sources_seen());
    assert!(Merge::new([]).all_sources_seen());
}

#[test]
fn a_pod_that_one_source_drops_stays_as_another_source_names_it() {
    let source_of =
        |merged: &Merged| merged.updated[0].annotation("kubernetes.io/config.source").map(str::to_owned);
    let mut merge = Merge::new([Source::File, Source::Api]);
    let _ = merge.update(Source::File, set([pod("u", "p")]));
    let merged = merge.update(Source::Api, set([on_node(pod("u", "p"), "n")]));
    assert_eq!((summary(&merged).as_str(), source_of(&merged).as_deref()), ("||u||", Some("api")));
    assert_eq!(
        summary(&merge.update(Source::File, set([]))),
        "||||",
        "the API server's version was there already"
    );
    assert_eq!(summary(&merge.update(Source::File, set([pod("u", "p")]))), "||||");
    let merged = merge.update(Source::Api, remove("u"));
    assert_eq!((summary(&merged).as_str(), source_of(&merged).as_deref()), ("||u||", Some("file")));
    assert_eq!(summary(&merge.update(Source::File, set([]))), "u||||");
    assert_eq!(summary(&merge.update(Source::Api, remove("u"))), "||||");
}

#[test]
fn the_next_pod_with_a_name_replaces_the_last_one_also_within_one_batch() {
    let mut merge = of_the_api();
    let _ = merge.update(Source::Api, set([pod("1", "web-0")]));
    assert_eq!(summary(&merge.update(Source::Api, upsert([pod("2", "web-0")]))), "1|2|||");
    let batch = upsert([
        on_node(pod("2", "web-0"), "n"),
        pod("3", "web-0"),
        pod("4", "web-0"),
        in_phase(pod("4", "web-0"), "Running"),
    ]);
    let merged = merge.update(Source::Api, batch);
    assert_eq!(summary(&merged), "2|4|||");
    assert_eq!(merged.added[0].status.as_ref().and_then(|status| status.phase.as_deref()), Some("Running"));
    assert_eq!(summary(&merge.update(Source::Api, remove("1"))), "||||");
}

#[test]
fn whatever_the_sources_say_the_index_holds_what_they_name() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let (mut writer, reader) = pod_index::new();
        let mut merge = Merge::new(Source::ALL);
        // What each source reports: UID to name and version.
        let mut truth: BTreeMap<Source, BTreeMap<u64, (u64, u64)>> = BTreeMap::new();
        let mut ever = BTreeSet::new();
        for step in 0..60 {
            let source = *dice.pick(&Source::ALL.each_ref());
            let named = truth.entry(source).or_default();
            let make = |uid: u64, (name, version): (u64, u64)| {
                on_node(pod(&format!("u{uid}"), &format!("p{name}")), &version.to_string())
            };
            let update = if step < 4 || dice.roll(2) == 0 {
                named.clear();
                for _ in 0..dice.roll(6) {
                    let (uid, name) = (dice.roll(8), dice.roll(8));
                    if named.values().all(|(other, _)| *other != name) && !named.contains_key(&uid) {
                        named.insert(uid, (name, dice.roll(3)));
                    }
                }
                set(named.iter().map(|(uid, rest)| make(*uid, *rest)))
            } else if dice.roll(2) == 0 {
                let batch: Vec<_> =
                    (0..dice.roll(4)).map(|_| (dice.roll(8), (dice.roll(8), dice.roll(3)))).collect();
                for (uid, rest) in &batch {
                    named.retain(|other, (name, _)| other == uid || *name != rest.0);
                    named.insert(*uid, *rest);
                }
                upsert(batch.into_iter().map(|(uid, rest)| make(uid, rest)))
            } else {
                let uid = dice.roll(8);
                named.remove(&uid);
                remove(&format!("u{uid}"))
            };
            ever.extend(truth.values().flat_map(BTreeMap::keys).copied());
            let applied = writer.apply(merge.update(source, update).into_operations());
            assert!(applied.refused.is_empty(), "{:?}", applied.refused);

            let snapshot = reader.load();
            let held: BTreeSet<_> = snapshot.pods().map(|pod| pod.uid().to_owned()).collect();
            let spell =
                |uids: &BTreeSet<u64>| uids.iter().map(|uid| format!("u{uid}")).collect::<BTreeSet<_>>();
            let named: BTreeSet<u64> = truth.values().flat_map(BTreeMap::keys).copied().collect();
            let wanted = if merge.all_sources_seen() { named } else { ever.clone() };
            assert_eq!(held, spell(&wanted), "seed {seed}, step {step}");
            // A UID that only one source reports is as that source reports it.
            for pod in snapshot.pods() {
                let holders: Vec<_> = truth
                    .values()
                    .flatten()
                    .filter(|(uid, _)| format!("u{uid}") == pod.uid())
                    .map(|(_, (name, version))| (format!("p{name}"), version.to_string()))
                    .collect();
                let version = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
                if !holders.is_empty() {
                    assert!(
                        holders.contains(&(pod.name().to_owned(), version)),
                        "seed {seed}, step {step}: {} among {holders:?}",
                        pod.name()
                    );
                }
            }
        }
    }
}

/// A set that reuses the previous set's objects takes a shorter path; the result must be the same.
#[test]
fn objects_of_the_last_set_are_merged_like_copies_of_them() {
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let mut by_edits = Merge::new([Source::File, Source::Http]);
        let mut by_copies = Merge::new([Source::File, Source::Http]);
        let mut said: Vec<Arc<Pod>> = Vec::new();
        for step in 0..60 {
            let pick = |dice: &mut Dice, said: &[Arc<Pod>]| dice.index(said.len() + 1);
            // Few names and UIDs, so that they collide, and some pods without them.
            for _ in 0..dice.roll(4) {
                let at = pick(&mut dice, &said);
                let (uid, name) = (dice.roll(9), dice.roll(8));
                let uid = if uid == 0 { String::new() } else { format!("u{uid}") };
                let new = on_node(pod(&uid, &format!("p{name}")), &dice.roll(2).to_string());
                // Marked like manifests; otherwise the merge would have to copy them.
                let new = annotated(new, "kubernetes.io/config.source", "file");
                let new = annotated(new, "kubernetes.io/config.seen", "long ago");
                match dice.roll(4) {
                    0 | 1 => said.insert(at, Arc::new(new)),
                    2 if at < said.len() => said[at] = Arc::new(new),
                    _ if at < said.len() => drop(said.remove(at)),
                    _ => {}
                }
            }
            let copies = said.iter().map(|pod| Arc::new(Pod::clone(pod))).collect();
            let context = format!("seed {seed}, step {step}");
            let (one, other) = match dice.roll(12) {
                // At some point the other source is seen, and pods that were held back are removed.
                0 => {
                    let other = pod("u1", "p1");
                    (
                        by_edits.update(Source::Http, set([other.clone()])),
                        by_copies.update(Source::Http, set([other])),
                    )
                }
                1 => {
                    let one = pod(&format!("u{}", dice.roll(9) + 1), &format!("p{}", dice.roll(8)));
                    (
                        by_edits.update(Source::File, upsert([one.clone()])),
                        by_copies.update(Source::File, upsert([one])),
                    )
                }
                2 => {
                    let uid = format!("u{}", dice.roll(9) + 1);
                    (
                        by_edits.update(Source::File, remove(&uid)),
                        by_copies.update(Source::File, remove(&uid)),
                    )
                }
                _ => (
                    by_edits.update(Source::File, SourceUpdate::Set(said.clone())),
                    by_copies.update(Source::File, SourceUpdate::Set(copies)),
                ),
            };
            assert_eq!(summary(&one), summary(&other), "{context}");
            assert_eq!(one.problems, other.problems, "{context}");
        }
    }
}
