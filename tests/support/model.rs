//! The index as plain maps, simple enough to be obviously correct. Its rules:
//!
//! 1. Which pods exist: one object for each UID, the last one upserted. A UID belongs either to the pods or
//!    to the mirrors, as its object does.
//! 2. Which UID holds a full name, among pods and among mirrors: the last one upserted under it. If the
//!    holder is removed or renamed: the existing one of that name with the smallest UID.
//! 3. What the mirrors of a full name translate to: the pod that holds the name. If none does: the last
//!    holder, as long as the name always has a mirror and that UID is not added again as something else.
//! 4. Which pods a key finds: see `keys`.
//! 5. Which removed pods are kept, and what finds them: see `removed`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_index::{is_mirror_pod, is_static_pod};

use super::TestPod;
use super::keys::KeyAnswers;
use super::observation::{FullNameAnswers, Id, Observation, UidAnswers, Universe, id};
use super::removed::Removals;

#[derive(Clone, Debug, Default)]
pub struct Model {
    live: BTreeMap<String, Arc<TestPod>>,
    pods: Holders,
    mirrors: Holders,
    /// What the mirrors of a full name translate to.
    targets: BTreeMap<String, String>,
    pub removals: Removals,
}

/// By full name, the UID of its holder.
type Holders = BTreeMap<String, String>;

/// The result of an upsert.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upsert {
    Unchanged,
    Added,
    Replaced(Id),
    /// Refused because of this field.
    Refused(&'static str),
}

impl Model {
    pub fn upsert(&mut self, pod: &Arc<TestPod>) -> Upsert {
        if pod.uid.is_empty() {
            return Upsert::Refused("metadata.uid");
        }
        if pod.name.is_empty() {
            return Upsert::Refused("metadata.name");
        }
        if pod.namespace.is_empty() {
            return Upsert::Refused("metadata.namespace");
        }
        if pod.name.contains('_') {
            return Upsert::Refused("metadata.name");
        }
        if pod.namespace.contains('_') {
            return Upsert::Refused("metadata.namespace");
        }
        let holders = if is_mirror_pod(&**pod) { &mut self.mirrors } else { &mut self.pods };
        let held = holders.insert(full_name(pod), pod.uid.clone()).is_some_and(|uid| uid == pod.uid);
        let old = self.live.insert(pod.uid.clone(), Arc::clone(pod));
        self.settle();
        self.removals.returned(&pod.uid);
        match old {
            None => Upsert::Added,
            Some(old) if held && Arc::ptr_eq(&old, pod) => Upsert::Unchanged,
            Some(old) => Upsert::Replaced(id(&old)),
        }
    }

    pub fn remove(&mut self, uid: &str) -> Option<Arc<TestPod>> {
        let target = self.target(uid);
        let removed = self.live.remove(uid);
        self.settle();
        if let Some(pod) = &removed {
            self.removals.keep(pod, target);
        }
        removed
    }

    /// The same as upserting one by one into an empty index. Returns the refused pods and the reasons.
    pub fn set(&mut self, pods: &[Arc<TestPod>]) -> Vec<(usize, &'static str)> {
        let mut before: Vec<_> = self.live.values().map(|pod| (pod.clone(), self.target(&pod.uid))).collect();
        *self = Self { removals: std::mem::take(&mut self.removals), ..Self::default() };
        let mut refused = Vec::new();
        for (position, pod) in pods.iter().enumerate() {
            if let Upsert::Refused(field) = self.upsert(pod) {
                refused.push((position, field));
            }
        }
        before.retain(|(pod, _)| !self.live.contains_key(&pod.uid));
        self.removals.keep_all(before);
        refused
    }

    /// What a mirror's UID translates to.
    fn target(&self, uid: &str) -> Option<String> {
        let mirror = self.live.get(uid).filter(|pod| is_mirror_pod(&***pod))?;
        self.targets.get(&full_name(mirror)).cloned()
    }

    pub fn live(&self) -> impl Iterator<Item = &Arc<TestPod>> {
        self.live.values()
    }

    /// Updates rules 2 and 3 after one change of rule 1.
    fn settle(&mut self) {
        let (mirrors, pods): (Vec<_>, Vec<_>) = self.live.values().partition(|pod| is_mirror_pod(&***pod));
        settle_holders(&mut self.pods, &pods);
        settle_holders(&mut self.mirrors, &mirrors);

        for full_name in self.mirrors.keys() {
            if let Some(holder) = self.pods.get(full_name) {
                self.targets.insert(full_name.clone(), holder.clone());
            }
        }
        // If a pod holds the name, it is the target. If none does, the target's UID must not exist.
        let (live, pods, mirrors) = (&self.live, &self.pods, &self.mirrors);
        self.targets.retain(|full_name, target| {
            mirrors.contains_key(full_name) && (pods.contains_key(full_name) || !live.contains_key(target))
        });
    }

    pub fn observe(&self, universe: &Universe) -> Observation {
        let by_uid = |uid: &str| {
            let known = self.live.get(uid);
            let (mirror, pod) =
                (known.filter(|pod| is_mirror_pod(&***pod)), known.filter(|pod| !is_mirror_pod(&***pod)));
            let target = mirror.and_then(|mirror| self.targets.get(&full_name(mirror)));
            let name = self.targets.iter().find(|(_, target)| *target == uid).map(|(full_name, _)| full_name);
            UidAnswers {
                pod: pod.map(id),
                mirror_pod: mirror.map(id),
                translated: target.map_or(uid, String::as_str).to_owned(),
                pod_uid: target.map(|uid| uid.as_str().into()),
                mirror_pod_uid: name.map(|full_name| self.mirrors[full_name].as_str().into()),
            }
        };
        let by_full_name = |full_name: &str| FullNameAnswers {
            pod: self.pods.get(full_name).map(|uid| id(&self.live[uid])),
            mirror_pod: self.mirrors.get(full_name).map(|uid| id(&self.live[uid])),
        };
        let (mirrors, pods): (Vec<_>, Vec<_>) = self.live.values().partition(|pod| is_mirror_pod(&***pod));
        let statics: Vec<_> = pods.iter().copied().filter(|pod| is_static_pod(&***pod)).collect();

        let mut pod_to_mirror: BTreeMap<_, _> =
            statics.iter().map(|pod| (pod.uid.as_str().into(), None)).collect();
        for (full_name, target) in &self.targets {
            let mirror = self.mirrors[full_name].as_str().into();
            pod_to_mirror.insert(target.as_str().into(), Some(mirror));
        }
        let mut mirror_to_pod = BTreeMap::new();
        for mirror in &mirrors {
            if let Some(target) = self.targets.get(&full_name(mirror)) {
                mirror_to_pod.insert(mirror.uid.as_str().into(), target.as_str().into());
            }
        }

        Observation {
            pods: pods.iter().copied().map(id).collect(),
            static_pods: statics.iter().copied().map(id).collect(),
            mirror_pods: mirrors.iter().copied().map(id).collect(),
            ephemeral_containers: pods.iter().map(|pod| pod.ephemeral).sum(),
            orphans: self.mirrors.keys().filter(|name| !self.pods.contains_key(*name)).cloned().collect(),
            static_to_mirror: statics
                .iter()
                .map(|pod| (id(pod), by_full_name(&full_name(pod)).mirror_pod))
                .collect(),
            pod_to_mirror,
            mirror_to_pod,
            by_uid: universe.uids.iter().map(|uid| (uid.clone(), by_uid(uid))).collect(),
            by_full_name: universe
                .full_names
                .iter()
                .map(|full_name| (full_name.clone(), by_full_name(full_name)))
                .collect(),
            by_key: KeyAnswers::expected(self.live()),
        }
    }
}

/// Among pods or among mirrors: a holder without the name loses it to the smallest UID that has the name.
fn settle_holders(holders: &mut Holders, live: &[&Arc<TestPod>]) {
    let mut bearers: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for pod in live {
        bearers.entry(full_name(pod)).or_default().insert(&pod.uid);
    }
    holders.retain(|full_name, _| bearers.contains_key(full_name));
    for (full_name, bearers) in bearers {
        let smallest = bearers.first().map(|uid| (*uid).to_owned()).unwrap_or_default();
        let holder = holders.entry(full_name).or_insert_with(|| smallest.clone());
        if !bearers.contains(holder.as_str()) {
            *holder = smallest;
        }
    }
}

fn full_name(pod: &Arc<TestPod>) -> String {
    format!("{}_{}", pod.name, pod.namespace)
}
