//! A literal copy of the kubelet's pod manager (`pkg/kubelet/pod/pod_manager.go`, 1.29 to 1.36): five maps,
//! and no restrictions on input. The index equals both this copy and the recordings of `tests/conformance.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_index::{is_mirror_pod, is_static_pod};

use super::TestPod;
use super::keys::KeyAnswers;
use super::observation::{FullNameAnswers, Observation, UidAnswers, Universe, id};

#[derive(Clone, Debug, Default)]
pub struct Kubelet {
    pod_by_uid: BTreeMap<String, Arc<TestPod>>,
    mirror_pod_by_uid: BTreeMap<String, Arc<TestPod>>,
    pod_by_full_name: BTreeMap<String, Arc<TestPod>>,
    mirror_pod_by_full_name: BTreeMap<String, Arc<TestPod>>,
    translation_by_uid: BTreeMap<String, String>,
}

impl Kubelet {
    pub fn update_pod(&mut self, pod: &Arc<TestPod>) {
        let (uid, full_name) = (pod.uid.clone(), full_name(pod));
        if is_mirror_pod(&**pod) {
            self.mirror_pod_by_uid.insert(uid.clone(), Arc::clone(pod));
            self.mirror_pod_by_full_name.insert(full_name.clone(), Arc::clone(pod));
            if let Some(pod) = self.pod_by_full_name.get(&full_name) {
                self.translation_by_uid.insert(uid, pod.uid.clone());
            }
        } else {
            self.pod_by_uid.insert(uid.clone(), Arc::clone(pod));
            self.pod_by_full_name.insert(full_name.clone(), Arc::clone(pod));
            if let Some(mirror) = self.mirror_pod_by_full_name.get(&full_name) {
                self.translation_by_uid.insert(mirror.uid.clone(), uid);
            }
        }
    }

    pub fn remove_pod(&mut self, pod: &TestPod) {
        let full_name = format!("{}_{}", pod.name, pod.namespace);
        if is_mirror_pod(pod) {
            self.mirror_pod_by_uid.remove(&pod.uid);
            self.mirror_pod_by_full_name.remove(&full_name);
            self.translation_by_uid.remove(&pod.uid);
        } else {
            self.pod_by_uid.remove(&pod.uid);
            self.pod_by_full_name.remove(&full_name);
        }
    }

    pub fn set_pods(&mut self, pods: &[Arc<TestPod>]) {
        *self = Self::default();
        for pod in pods {
            self.update_pod(pod);
        }
    }

    fn by_uid(&self, uid: &str) -> UidAnswers {
        let target = self.translation_by_uid.get(uid);
        let mirror = self.translation_by_uid.iter().find(|(_, pod)| *pod == uid).map(|(mirror, _)| mirror);
        UidAnswers {
            pod: self.pod_by_uid.get(uid).map(id),
            mirror_pod: self.mirror_pod_by_uid.get(uid).map(id),
            translated: target.map_or(uid, String::as_str).to_owned(),
            pod_uid: target.map(|uid| uid.as_str().into()),
            mirror_pod_uid: mirror.map(|uid| uid.as_str().into()),
        }
    }

    fn by_full_name(&self, full_name: &str) -> FullNameAnswers {
        FullNameAnswers {
            pod: self.pod_by_full_name.get(full_name).map(id),
            mirror_pod: self.mirror_pod_by_full_name.get(full_name).map(id),
        }
    }

    pub fn observe(&self, universe: &Universe) -> Observation {
        let statics: Vec<_> = self.pod_by_uid.values().filter(|pod| is_static_pod(&***pod)).collect();
        let mut pod_to_mirror: BTreeMap<_, _> =
            statics.iter().map(|pod| (pod.uid.as_str().into(), None)).collect();
        for (mirror, pod) in &self.translation_by_uid {
            pod_to_mirror.insert(pod.as_str().into(), Some(mirror.as_str().into()));
        }
        Observation {
            pods: self.pod_by_uid.values().map(id).collect(),
            static_pods: statics.iter().copied().map(id).collect(),
            mirror_pods: self.mirror_pod_by_uid.values().map(id).collect(),
            ephemeral_containers: self.pod_by_uid.values().map(|pod| pod.ephemeral).sum(),
            orphans: self
                .mirror_pod_by_full_name
                .keys()
                .filter(|full_name| !self.pod_by_full_name.contains_key(*full_name))
                .cloned()
                .collect(),
            static_to_mirror: statics
                .iter()
                .map(|pod| (id(pod), self.by_full_name(&full_name(pod)).mirror_pod))
                .collect(),
            pod_to_mirror,
            mirror_to_pod: self
                .translation_by_uid
                .iter()
                .map(|(mirror, pod)| (mirror.as_str().into(), pod.as_str().into()))
                .collect(),
            by_uid: universe.uids.iter().map(|uid| (uid.clone(), self.by_uid(uid))).collect(),
            by_full_name: universe
                .full_names
                .iter()
                .map(|full_name| (full_name.clone(), self.by_full_name(full_name)))
                .collect(),
            // Not the kubelet's: it finds no pod by additional keys.
            by_key: KeyAnswers::expected(self.pod_by_uid.values().chain(self.mirror_pod_by_uid.values())),
        }
    }
}

fn full_name(pod: &Arc<TestPod>) -> String {
    format!("{}_{}", pod.name, pod.namespace)
}
