//! Concurrent hash maps.

use std::sync::Arc;

use ahash::RandomState;
use pod_index::PodMeta;

use super::{Design, Read, Write, at, uid};
use crate::workload::Pod;

/// Shards, each behind a lock of its own.
#[derive(Clone)]
pub struct DashMap(Arc<dashmap::DashMap<Box<str>, Arc<Pod>, RandomState>>);

/// Lock-free, with epoch-like reclamation; pinned for each lookup.
#[derive(Clone)]
pub struct Papaya(Arc<papaya::HashMap<Box<str>, Arc<Pod>, RandomState>>);

impl Design for DashMap {
    const NAME: &'static str = "DashMap";
    type Key = Box<str>;
    type Reader = Self;
    type Writer = Self;

    fn new(pods: Vec<Arc<Pod>>) -> (Self, Self) {
        let new = Self(Arc::new(pods.into_iter().map(|pod| (uid(&pod), pod)).collect()));
        (new.clone(), new)
    }
}

impl Read<Box<str>> for DashMap {
    fn find(&mut self, uid: &Box<str>) -> usize {
        at(self.0.get(uid).as_deref())
    }

    fn scan(&mut self) -> usize {
        self.0.iter().map(|entry| Arc::clone(entry.value())).collect::<Vec<_>>().len()
    }
}

impl Write for DashMap {
    fn update(&mut self, pod: &Arc<Pod>) {
        match self.0.get_mut(pod.uid()) {
            Some(mut known) => known.clone_from(pod),
            None => drop(self.0.insert(uid(pod), Arc::clone(pod))),
        }
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        self.0.remove(pod.uid());
    }

    fn set(&mut self, pods: Vec<Arc<Pod>>) {
        self.0.clear();
        self.batch(&pods);
    }
}

impl Design for Papaya {
    const NAME: &'static str = "papaya";
    type Key = Box<str>;
    type Reader = Self;
    type Writer = Self;

    fn new(pods: Vec<Arc<Pod>>) -> (Self, Self) {
        let new = Self(Arc::new(pods.into_iter().map(|pod| (uid(&pod), pod)).collect()));
        (new.clone(), new)
    }
}

impl Read<Box<str>> for Papaya {
    fn find(&mut self, uid: &Box<str>) -> usize {
        at(self.0.pin().get(uid))
    }

    fn scan(&mut self) -> usize {
        self.0.pin().values().cloned().collect::<Vec<_>>().len()
    }
}

impl Write for Papaya {
    fn update(&mut self, pod: &Arc<Pod>) {
        self.0.pin().insert(uid(pod), Arc::clone(pod));
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        self.0.pin().remove(pod.uid());
    }

    fn set(&mut self, pods: Vec<Arc<Pod>>) {
        self.0.pin().clear();
        self.batch(&pods);
    }
}
