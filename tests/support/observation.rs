//! All results of all queries on one state, in a comparable form.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_index::{MirrorPodUid, PodUid, Snapshot};

use super::TestPod;
use super::keys::KeyAnswers;

/// The UIDs and full names to query: all that a history may use, and some that it never uses.
#[derive(Clone, Debug, Default)]
pub struct Universe {
    pub uids: Vec<String>,
    pub full_names: Vec<String>,
}

/// A pod's identity: its UID and its version.
pub type Id = (String, u64);

pub fn id(pod: &Arc<TestPod>) -> Id {
    (pod.uid.clone(), pod.version)
}

/// The results of all queries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observation {
    pub pods: BTreeSet<Id>,
    pub static_pods: BTreeSet<Id>,
    pub mirror_pods: BTreeSet<Id>,
    pub ephemeral_containers: usize,
    pub orphans: Vec<String>,
    pub static_to_mirror: BTreeMap<Id, Option<Id>>,
    pub pod_to_mirror: BTreeMap<PodUid, Option<MirrorPodUid>>,
    pub mirror_to_pod: BTreeMap<MirrorPodUid, PodUid>,
    pub by_uid: Vec<Asked<UidAnswers>>,
    pub by_full_name: Vec<Asked<FullNameAnswers>>,
    pub by_key: KeyAnswers,
}

/// The queried keys, and the results.
pub type Asked<T> = (String, T);

/// Results for a UID.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UidAnswers {
    pub pod: Option<Id>,
    pub mirror_pod: Option<Id>,
    pub translated: String,
    /// Both directions, as a single query.
    pub pod_uid: Option<PodUid>,
    pub mirror_pod_uid: Option<MirrorPodUid>,
}

/// Results for a full name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FullNameAnswers {
    pub pod: Option<Id>,
    pub mirror_pod: Option<Id>,
}

impl Observation {
    pub fn of(snapshot: &Snapshot<TestPod>, universe: &Universe) -> Self {
        let ids = |pods: &mut dyn Iterator<Item = &Arc<TestPod>>| {
            let mut ids = BTreeSet::new();
            for pod in pods {
                assert!(ids.insert(id(pod)), "{pod:?} is reported twice");
            }
            ids
        };
        let (mut pods, mut mirror_pods) = (snapshot.pods(), snapshot.mirror_pods());
        let orphans = snapshot.orphaned_mirror_pod_full_names();
        let mut orphans: Vec<_> = orphans.map(|full_name| full_name.to_string()).collect();
        orphans.sort_unstable();

        let observation = Self {
            pods: ids(&mut pods),
            static_pods: ids(&mut snapshot.static_pods()),
            mirror_pods: ids(&mut mirror_pods),
            ephemeral_containers: snapshot.ephemeral_container_count(),
            orphans,
            static_to_mirror: once_each(
                snapshot.static_pods_with_mirrors().map(|one| (id(one.pod), one.mirror.map(id))),
            ),
            pod_to_mirror: once_each(snapshot.pod_to_mirror_uids().map(|one| (one.pod, one.mirror))),
            mirror_to_pod: once_each(snapshot.mirror_to_pod_uids().map(|one| (one.mirror, one.pod))),
            by_uid: universe.uids.iter().map(|uid| (uid.clone(), by_uid(snapshot, uid))).collect(),
            by_full_name: universe
                .full_names
                .iter()
                .map(|full_name| (full_name.clone(), by_full_name(snapshot, full_name)))
                .collect(),
            by_key: KeyAnswers::of(snapshot),
        };
        assert_eq!(snapshot.pods().len(), observation.pods.len(), "len agrees");
        assert_eq!(snapshot.mirror_pods().len(), observation.mirror_pods.len(), "len agrees");
        observation
    }
}

fn once_each<K: Ord + std::fmt::Debug, V>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    let mut count = 0;
    for (key, value) in pairs {
        count += 1;
        map.insert(key, value);
        assert_eq!(map.len(), count, "something is reported twice, among {:?}", map.keys());
    }
    map
}

fn by_uid(snapshot: &Snapshot<TestPod>, uid: &str) -> UidAnswers {
    let answers = UidAnswers {
        pod: snapshot.pod_by_uid(uid).map(id),
        mirror_pod: snapshot.mirror_pod_by_uid(uid).map(id),
        translated: snapshot.translate_pod_uid(uid).to_string(),
        pod_uid: snapshot.pod_uid_of_mirror(uid),
        mirror_pod_uid: snapshot.mirror_uid_of_pod(uid),
    };
    // A UID in its own type gives the same result as its string.
    assert_eq!(snapshot.pod_by_uid(&PodUid::from(uid)).map(id), answers.pod);
    assert_eq!(snapshot.mirror_pod_by_uid(&MirrorPodUid::from(uid)).map(id), answers.mirror_pod);
    assert_eq!(snapshot.translate_pod_uid(&MirrorPodUid::from(uid)), answers.translated.as_str());
    answers
}

fn by_full_name(snapshot: &Snapshot<TestPod>, full_name: &str) -> FullNameAnswers {
    let answers = FullNameAnswers {
        pod: snapshot.pod_by_full_name(full_name).map(id),
        mirror_pod: snapshot.mirror_pod_by_full_name(full_name).map(id),
    };
    // All other lookups by full name.
    if let Some((name, namespace)) = full_name.split_once('_')
        && !namespace.contains('_')
    {
        assert_eq!(snapshot.pod_by_name(namespace, name).map(id), answers.pod, "by name: {full_name}");
        let pod = TestPod::plain("who-asks", full_name);
        let mirror = TestPod::mirror("who-asks", full_name, "");
        for asks in [&pod, &mirror] {
            assert_eq!(snapshot.pod_by_mirror_pod(asks).map(id), answers.pod, "by mirror: {full_name}");
            assert_eq!(snapshot.mirror_pod_by_pod(asks).map(id), answers.mirror_pod, "by pod: {full_name}");
        }
        let found = snapshot.pod_and_mirror_pod(&pod);
        let pair = (found.pod.map(id), found.mirror.map(id));
        assert_eq!(pair, (Some(id(&pod)), answers.mirror_pod.clone()), "the pair: {full_name}");
        let found = snapshot.pod_and_mirror_pod(&mirror);
        let pair = (found.pod.map(id), found.mirror.map(id));
        assert_eq!(pair, (answers.pod.clone(), Some(id(&mirror))), "the pair: {full_name}");
    }
    answers
}
