//! Random reports of all sources: the pods depend only on the last one of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_index::{ENDED_ANNOTATION, PodMeta};
use pod_index_kubelet::sources::Source;
use pod_index_kubelet::sources::static_pods::UNCONFIRMED_FOR;
use pod_index_test_support::dice::Dice;

use super::support::{Merging, api_pod, mirror, remove, set, static_pod, upsert};

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
            pod.metadata.creation_timestamp = Some(Time(time));
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

/// The UIDs that manifests keep, by name: those under which the kubelet, or a mirror pod, told of their pods last.
type Kept = BTreeMap<String, KeptUid>;

#[derive(Debug)]
struct KeptUid {
    /// The manifest. A changed one keeps nothing.
    source: Source,
    manifest: Pod,
    uid: String,
}

/// What the sources' reports mean, according to the documentation alone.
struct Meaning {
    /// The UIDs that should exist.
    uids: BTreeSet<String>,
    /// By name, the UIDs of static pods that the kubelet or a mirror pod tells of.
    told: BTreeMap<String, String>,
}

/// Which manifest of this name is used.
fn manifest<'a>(said: &'a Said, name: &str) -> Option<(Source, &'a Pod)> {
    let of = |source| said.get(&source).into_iter().flatten().map(move |pod| (source, pod));
    of(Source::File).chain(of(Source::Http)).find(|(_, pod)| pod.name() == name)
}

/// Remembers the UIDs that manifests keep after these reports.
fn keep(kept: &mut Kept, said: &Said) {
    kept.retain(|name, kept| manifest(said, name) == Some((kept.source, &kept.manifest)));
    // A UID that one manifest no longer keeps may be that of another one's mirror pod.
    loop {
        let before = spelled_kept(kept);
        for (name, uid) in meaning(said, kept).told {
            let Some((source, manifest)) = manifest(said, &name) else { continue };
            if manifest.uid() == uid {
                kept.remove(&name);
            } else {
                // A UID is that of one name.
                kept.retain(|_, kept| kept.uid != uid);
                kept.insert(name, KeptUid { source, manifest: manifest.clone(), uid });
            }
        }
        if spelled_kept(kept) == before {
            return;
        }
    }
}

fn meaning(said: &Said, kept: &Kept) -> Meaning {
    let of = |source| said.get(&source).into_iter().flatten();
    let is_mirror = |pod: &&Pod| pod.annotation("kubernetes.io/config.mirror").is_some();
    let is_static = |pod: &&Pod| pod.annotation("kubernetes.io/config.source") == Some("file");
    let uid = |pod: &Pod| pod.uid().to_owned();
    let kubelets_static =
        |name: &str| of(Source::Kubelet).filter(|pod| pod.name() == name).filter(is_static).map(uid).min();
    let kept_uid = |name: &str| {
        let uid = &kept.get(name)?.uid;
        let is_taken = of(Source::Api).chain(of(Source::Kubelet)).any(|pod| pod.uid() == uid)
            || of(Source::File).chain(of(Source::Http)).any(|pod| pod.uid() == uid && pod.name() != name);
        (!is_taken).then(|| uid.clone())
    };
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
        let is_kept = kept.keys().any(|name| name != pod.name() && kept_uid(name).as_ref() == Some(&claimed));
        if pod.uid() != claimed && !is_known_otherwise && !is_overruled && !is_kept {
            claims.entry(claimed).or_insert(pod);
        }
    }
    let told = |name: &str| {
        let claimed = claims.iter().find(|(_, mirror)| mirror.name() == name).map(|(uid, _)| uid.clone());
        kubelets_static(name).or(claimed)
    };
    let alias = |pod: &Pod| told(pod.name()).or_else(|| kept_uid(pod.name())).unwrap_or_else(|| uid(pod));
    let names: BTreeSet<_> = said.values().flatten().map(|pod| pod.name().to_owned()).collect();
    let told_by_name = names.into_iter().filter_map(|name| told(&name).map(|uid| (name, uid))).collect();
    let manifests = of(Source::File).chain(of(Source::Http)).map(alias);
    let uids = of(Source::Api)
        .chain(of(Source::Kubelet))
        .map(uid)
        .chain(manifests)
        .chain(claims.keys().cloned())
        .collect();
    Meaning { uids, told: told_by_name }
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

fn spelled_kept(kept: &Kept) -> String {
    kept.iter()
        .map(|(name, kept)| format!("{name} {} ({})", kept.uid, kept.source))
        .collect::<Vec<_>>()
        .join(", ")
}

fn told_by_anyone(said: &Said, uid: &str) -> bool {
    let is_told = |pod: &Pod| pod.uid() == uid || pod.annotation("kubernetes.io/config.mirror") == Some(uid);
    said.values().flatten().any(is_told)
}

/// The pods without the time at which this process first saw them. Of those that manifests keep, only the identities: they are
/// as an earlier report told of them.
fn timeless(merging: &Merging, kept: &BTreeSet<&str>) -> BTreeMap<String, Pod> {
    let strip = |pod: &Arc<Pod>| {
        let mut pod = Pod::clone(pod);
        pod.metadata.annotations.get_or_insert_default().remove("kubernetes.io/config.seen");
        // Not counted as a change, so an old value may stay.
        pod.metadata.resource_version = None;
        pod.metadata.creation_timestamp = None;
        pod.metadata.owner_references = None;
        if kept.contains(pod.uid()) && pod.annotation(ENDED_ANNOTATION).is_some() {
            return static_pod(pod.uid(), pod.name(), "told", "Running");
        }
        pod
    };
    merging.pods.iter().map(|(uid, pod)| (uid.clone(), strip(pod))).collect()
}

#[test]
fn the_pods_are_a_function_of_each_sources_last_report_and_of_the_kept_uids() {
    let mut most = 0;
    let mut times_kept = 0;
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut merging = Merging::new(Source::ALL);
        let mut said = Said::new();
        let mut kept = Kept::new();
        for step in 0..50 {
            let before = format!("{}\nkept: {}", spelled(&said), spelled_kept(&kept));
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
                for _ in 0..dice.roll(7) {
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
            // Skips the time in which a derived pod is unconfirmed.
            let expired = merging.merge.expire(Instant::now() + 2 * UNCONFIRMED_FOR);
            merging.take(&expired);
            keep(&mut kept, &said);
            if !merging.merge.all_sources_seen() {
                continue;
            }
            let context = format!(
                "seed {seed}, step {step}:\n{}\nkept: {}\nbefore:\n{before}",
                spelled(&said),
                spelled_kept(&kept)
            );
            let uids: BTreeSet<_> = merging.pods.keys().cloned().collect();
            assert_eq!(uids, meaning(&said, &kept).uids, "{context}");
            times_kept += kept.values().filter(|kept| !told_by_anyone(&said, &kept.uid)).count();
            most = most.max(uids.len());

            let mut fresh = Merging::new(Source::ALL);
            // It had told of the pods whose UIDs are kept.
            for source in [Source::File, Source::Http] {
                fresh.say(source, set(said.get(&source).cloned().unwrap_or_default()));
            }
            let told = kept.iter().map(|(name, kept)| static_pod(&kept.uid, name, "told", "Running"));
            fresh.say(Source::Kubelet, set(told));
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
            let kept: BTreeSet<_> = kept.values().map(|kept| &*kept.uid).collect();
            assert_eq!(timeless(&merging, &kept), timeless(&fresh, &kept), "{context}");
        }
    }
    assert!(most > 8, "the histories are too small: {most}");
    assert!(times_kept > 100, "hardly a UID was kept: {times_kept}");
}
