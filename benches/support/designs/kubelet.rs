//! The kubelet's pod manager, line by line: five hash maps behind one lock, whole-set reads that copy under it.

use std::sync::Arc;

use ahash::AHashMap;
use parking_lot::RwLock;
use pod_index::{PodMeta, is_mirror_pod, is_static_pod};

use super::{Design, Read, Write, at, uid};
use crate::workload::Pod;

type ByString = AHashMap<Box<str>, Arc<Pod>>;

/// `basicManager` of `pkg/kubelet/pod/pod_manager.go`.
#[derive(Clone, Default)]
pub struct Kubelet(Arc<RwLock<Maps>>);

#[derive(Default)]
struct Maps {
    pods: ByString,
    mirror_pods: ByString,
    pods_by_full_name: ByString,
    mirror_pods_by_full_name: ByString,
    translations: AHashMap<Box<str>, Box<str>>,
}

fn full_name(pod: &Pod) -> Box<str> {
    format!("{}_{}", pod.name(), pod.namespace()).into()
}

impl Maps {
    fn update(&mut self, pod: &Arc<Pod>) {
        let full_name = full_name(pod);
        if is_mirror_pod(&**pod) {
            if let Some(of) = self.pods_by_full_name.get(&full_name) {
                self.translations.insert(uid(pod), uid(of));
            }
            self.mirror_pods.insert(uid(pod), Arc::clone(pod));
            self.mirror_pods_by_full_name.insert(full_name, Arc::clone(pod));
        } else {
            if let Some(mirror) = self.mirror_pods_by_full_name.get(&full_name) {
                self.translations.insert(uid(mirror), uid(pod));
            }
            self.pods.insert(uid(pod), Arc::clone(pod));
            self.pods_by_full_name.insert(full_name, Arc::clone(pod));
        }
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        let full_name = full_name(pod);
        if is_mirror_pod(&**pod) {
            self.mirror_pods.remove(pod.uid());
            self.mirror_pods_by_full_name.remove(&full_name);
            self.translations.remove(pod.uid());
        } else {
            self.pods.remove(pod.uid());
            self.pods_by_full_name.remove(&full_name);
        }
    }
}

impl Design for Kubelet {
    const NAME: &'static str = "kubelet's maps, parking_lot RwLock";
    type Key = Box<str>;
    type Reader = Self;
    type Writer = Self;

    fn new(pods: Vec<Arc<Pod>>) -> (Self, Self) {
        let mut new = Self::default();
        new.set(pods);
        (new.clone(), new)
    }
}

impl Read<Box<str>> for Kubelet {
    fn find(&mut self, uid: &Box<str>) -> usize {
        at(self.0.read().pods.get(uid))
    }

    fn scan(&mut self) -> usize {
        let pods = self.0.read().pods.values().cloned().collect::<Vec<_>>();
        let maps = self.0.read();
        let mirror_to_pod = maps.translations.clone();
        let mut pod_to_mirror: AHashMap<Box<str>, Box<str>> = maps
            .pods
            .values()
            .filter(|pod| is_static_pod(&***pod))
            .map(|pod| (uid(pod), "".into()))
            .collect();
        for (mirror, pod) in &maps.translations {
            pod_to_mirror.insert(pod.clone(), mirror.clone());
        }
        drop(maps);
        pods.len() + mirror_to_pod.len() + pod_to_mirror.len()
    }
}

impl Write for Kubelet {
    fn update(&mut self, pod: &Arc<Pod>) {
        self.0.write().update(pod);
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        self.0.write().remove(pod);
    }

    fn set(&mut self, pods: Vec<Arc<Pod>>) {
        let mut maps = self.0.write();
        *maps = Maps::default();
        pods.iter().for_each(|pod| maps.update(pod));
    }

    fn batch(&mut self, pods: &[Arc<Pod>]) {
        let mut maps = self.0.write();
        pods.iter().for_each(|pod| maps.update(pod));
    }
}
