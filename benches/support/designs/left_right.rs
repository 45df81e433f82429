//! Two copies of one hash map: readers use one, the writer the other, alternating.

use std::sync::Arc;

use ::left_right::{Absorb, ReadHandle, WriteHandle};
use ahash::AHashMap;
use pod_index::PodMeta;

use super::{Design, Read, Write, at, uid};
use crate::workload::Pod;

/// The `left-right` crate, published after every update or batch.
pub struct LeftRight;

type Map = AHashMap<Box<str>, Arc<Pod>>;

/// The writer's operations, applied to both copies.
pub enum Change {
    /// Stores a pod.
    Update(Arc<Pod>),
    /// Removes a pod.
    Remove(Box<str>),
    /// Replaces everything.
    Set(Vec<Arc<Pod>>),
}

impl Absorb<Change> for Map {
    fn absorb_first(&mut self, change: &mut Change, _: &Self) {
        match change {
            Change::Update(pod) => match self.get_mut(pod.uid()) {
                Some(known) => known.clone_from(pod),
                None => drop(self.insert(uid(pod), Arc::clone(pod))),
            },
            Change::Remove(uid) => drop(self.remove(uid)),
            Change::Set(pods) => *self = pods.iter().map(|pod| (uid(pod), Arc::clone(pod))).collect(),
        }
    }

    fn sync_with(&mut self, first: &Self) {
        self.clone_from(first);
    }
}

impl Design for LeftRight {
    const NAME: &'static str = "left-right";
    type Key = Box<str>;
    type Reader = ReadHandle<Map>;
    type Writer = WriteHandle<Map, Change>;

    fn new(pods: Vec<Arc<Pod>>) -> (Self::Writer, Self::Reader) {
        let (mut writer, reader) = ::left_right::new();
        Write::set(&mut writer, pods);
        // So that both copies have them.
        writer.publish();
        (writer, reader)
    }
}

impl Read<Box<str>> for ReadHandle<Map> {
    fn find(&mut self, uid: &Box<str>) -> usize {
        self.enter().map_or(0, |map| at(map.get(uid)))
    }

    fn scan(&mut self) -> usize {
        self.enter().map_or(0, |map| map.values().cloned().collect::<Vec<_>>().len())
    }
}

impl Write for WriteHandle<Map, Change> {
    fn update(&mut self, pod: &Arc<Pod>) {
        self.append(Change::Update(Arc::clone(pod))).publish();
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        self.append(Change::Remove(uid(pod))).publish();
    }

    fn set(&mut self, pods: Vec<Arc<Pod>>) {
        self.append(Change::Set(pods)).publish();
    }

    fn batch(&mut self, pods: &[Arc<Pod>]) {
        self.extend(pods.iter().cloned().map(Change::Update));
        self.publish();
    }
}
