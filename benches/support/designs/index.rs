//! This crate's index, with each handle.

use std::sync::Arc;

use pod_index::{CachedReader, Operation, PodMeta, PodUid, Reader, Snapshot, Writer};

use super::{Design, Read, Write, at};
use crate::workload::Pod;

/// A handle per thread, UIDs as strings.
pub struct Cached;
/// A guard per lookup, UIDs as strings.
pub struct Load;
/// A handle per thread, parsed UIDs.
pub struct Parsed;

impl Design for Cached {
    const NAME: &'static str = "pod-index, cached";
    type Key = Box<str>;
    type Reader = CachedReader<Pod>;
    type Writer = Writer<Pod>;

    fn new(pods: Vec<Arc<Pod>>) -> (Writer<Pod>, CachedReader<Pod>) {
        let (writer, reader) = filled(pods);
        (writer, reader.cached())
    }
}

impl Design for Load {
    const NAME: &'static str = "pod-index, load()";
    type Key = Box<str>;
    type Reader = Reader<Pod>;
    type Writer = Writer<Pod>;

    fn new(pods: Vec<Arc<Pod>>) -> (Writer<Pod>, Reader<Pod>) {
        filled(pods)
    }
}

impl Design for Parsed {
    const NAME: &'static str = "pod-index, cached, parsed UID";
    type Key = PodUid;
    type Reader = CachedReader<Pod>;
    type Writer = Writer<Pod>;

    fn new(pods: Vec<Arc<Pod>>) -> (Writer<Pod>, CachedReader<Pod>) {
        Cached::new(pods)
    }
}

impl From<&Pod> for PodUid {
    fn from(pod: &Pod) -> Self {
        pod.uid().into()
    }
}

/// An index of these pods, filled like that of a starting agent.
fn filled(pods: Vec<Arc<Pod>>) -> (Writer<Pod>, Reader<Pod>) {
    let (mut writer, reader) = pod_index::new();
    Write::set(&mut writer, pods);
    (writer, reader)
}

impl Read<Box<str>> for CachedReader<Pod> {
    fn find(&mut self, uid: &Box<str>) -> usize {
        at(self.load().pod_by_uid(&**uid))
    }

    fn scan(&mut self) -> usize {
        scan(self.load())
    }
}

impl Read<PodUid> for CachedReader<Pod> {
    fn find(&mut self, uid: &PodUid) -> usize {
        at(self.load().pod_by_uid(uid))
    }

    fn scan(&mut self) -> usize {
        scan(self.load())
    }
}

impl Read<Box<str>> for Reader<Pod> {
    fn find(&mut self, uid: &Box<str>) -> usize {
        at(self.load().pod_by_uid(&**uid))
    }

    fn scan(&mut self) -> usize {
        scan(&self.load())
    }
}

/// Iterates over everything that the kubelet's `GetPods` and `GetUIDTranslations` copy.
fn scan(snapshot: &Snapshot<Pod>) -> usize {
    let pods = snapshot.pods().filter(|pod| !pod.uid().is_empty()).count();
    pods + snapshot.mirror_to_pod_uids().count() + snapshot.pod_to_mirror_uids().count()
}

impl Write for Writer<Pod> {
    fn update(&mut self, pod: &Arc<Pod>) {
        self.upsert_pod(Arc::clone(pod)).expect("a good pod");
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        self.remove_pod(pod);
    }

    fn set(&mut self, pods: Vec<Arc<Pod>>) {
        let applied = self.set_pods(pods);
        assert!(applied.refused.is_empty(), "good pods");
    }

    fn batch(&mut self, pods: &[Arc<Pod>]) {
        let applied = self.apply(pods.iter().cloned().map(Operation::Upsert));
        assert!(applied.refused.is_empty(), "good pods");
    }
}
