//! kube-runtime's real reflector store.
//!
//! In its favour: keys are created beforehand, and each pod is behind its own `Arc`, so that the store's
//! clone of every object costs nothing.

use std::borrow::Cow;
use std::sync::Arc;

use kube_runtime::reflector::store::Writer;
use kube_runtime::reflector::{Lookup, ObjectRef, Store};
use kube_runtime::watcher::Event;
use pod_index::PodMeta;

use super::{Design, Read, Write};
use crate::workload::Pod;

/// `kube_runtime::reflector::Store`.
pub struct KubeStore;

/// A pod as the store requires it.
pub struct Object<P>(pub Arc<P>);

impl<P> Clone for Object<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: PodMeta> Lookup for Object<P> {
    type DynamicType = ();

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }
    fn name(&self) -> Option<Cow<'_, str>> {
        Some(self.0.name().into())
    }
    fn namespace(&self) -> Option<Cow<'_, str>> {
        Some(self.0.namespace().into())
    }
    fn resource_version(&self) -> Option<Cow<'_, str>> {
        None
    }
    fn uid(&self) -> Option<Cow<'_, str>> {
        Some(self.0.uid().into())
    }
}

impl Design for KubeStore {
    const NAME: &'static str = "kube-runtime Store";
    type Key = ObjectRef<Object<Pod>>;
    type Reader = Store<Object<Pod>>;
    type Writer = Writer<Object<Pod>>;

    fn new(pods: Vec<Arc<Pod>>) -> (Writer<Object<Pod>>, Store<Object<Pod>>) {
        let mut writer = Writer::new(());
        Write::set(&mut writer, pods);
        let reader = writer.as_reader();
        (writer, reader)
    }
}

impl From<&Pod> for ObjectRef<Object<Pod>> {
    fn from(pod: &Pod) -> Self {
        Self::new_with(pod.name(), ()).within(pod.namespace())
    }
}

impl Read<ObjectRef<Object<Pod>>> for Store<Object<Pod>> {
    fn find(&mut self, key: &ObjectRef<Object<Pod>>) -> usize {
        self.get(key).map_or(0, |pod| Arc::as_ptr(&pod).addr())
    }

    fn scan(&mut self) -> usize {
        self.state().len()
    }
}

impl Write for Writer<Object<Pod>> {
    fn update(&mut self, pod: &Arc<Pod>) {
        self.apply_watcher_event(&Event::Apply(Object(Arc::clone(pod))));
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        self.apply_watcher_event(&Event::Delete(Object(Arc::clone(pod))));
    }

    fn set(&mut self, pods: Vec<Arc<Pod>>) {
        self.apply_watcher_event(&Event::Init);
        for pod in pods {
            self.apply_watcher_event(&Event::InitApply(Object(pod)));
        }
        self.apply_watcher_event(&Event::InitDone);
    }
}
