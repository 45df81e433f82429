//! Writes for an index from the events of kube's own watcher.

use std::mem;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use pod_index::{Operation, PodMeta};

/// Turns the events of `kube::runtime::watcher` into operations for [`Writer::apply`](pod_index::Writer::apply).
///
/// A list arrives as one event for each pod. It becomes one [`Operation::Set`] when it is complete, so that readers see all
/// of it or nothing. `sources::api_server` needs no watcher, and reports its state.
///
/// # Complexity
/// O(1) for each event. It holds the pods of a list until the list is complete.
///
/// # Examples
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::runtime::watcher::Event;
/// use pod_index_kubelet::watcher::WatchedPods;
///
/// let (mut writer, reader) = pod_index::new::<Pod>();
/// let mut watched = WatchedPods::default();
/// let mut pod = Pod::default();
/// pod.metadata.uid = Some("u1".into());
/// pod.metadata.name = Some("web".into());
/// pod.metadata.namespace = Some("shop".into());
/// for event in [Event::Init, Event::InitApply(pod), Event::InitDone] {
///     let applied = writer.apply(watched.operation(event));
///     assert!(applied.refused.is_empty());
/// }
/// assert!(reader.get(("shop", "web")).is_some());
/// ```
#[derive(Debug)]
pub struct WatchedPods<P> {
    listed: Vec<Arc<P>>,
}

impl<P: PodMeta> WatchedPods<P> {
    /// The operation to apply after this event, if there is one.
    pub fn operation(&mut self, event: Event<P>) -> Option<Operation<P>> {
        match event {
            Event::Apply(pod) => return Some(Operation::Update(Arc::new(pod))),
            Event::Delete(pod) => return Some(Operation::Remove(pod.uid().into())),
            Event::InitDone => return Some(Operation::Set(mem::take(&mut self.listed))),
            // The list before may have been incomplete.
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => self.listed.push(Arc::new(pod)),
        }
        None
    }
}

// Not derived: a derive would require `P: Default`.
impl<P> Default for WatchedPods<P> {
    fn default() -> Self {
        Self { listed: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::watcher::Event;

    use super::WatchedPods;

    fn pod(uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.into());
        pod.metadata.name = Some(uid.into());
        pod.metadata.namespace = Some("default".into());
        pod
    }

    #[test]
    fn a_list_that_is_cut_off_changes_nothing_and_the_next_one_replaces_everything() {
        let (mut writer, reader) = pod_index::new();
        let mut watched = WatchedPods::default();
        let mut uids_after = |event: Event<Pod>| {
            assert!(writer.apply(watched.operation(event)).refused.is_empty());
            let mut uids: Vec<_> =
                reader.load().pods().map(|pod| pod.metadata.uid.clone().unwrap_or_default()).collect();
            uids.sort_unstable();
            uids.join(" ")
        };
        assert_eq!(uids_after(Event::Apply(pod("a"))), "a");
        assert_eq!(uids_after(Event::Init), "a");
        assert_eq!(uids_after(Event::InitApply(pod("cut off"))), "a");
        assert_eq!(uids_after(Event::Init), "a");
        assert_eq!(uids_after(Event::InitApply(pod("b"))), "a");
        assert_eq!(uids_after(Event::InitApply(pod("c"))), "a");
        assert_eq!(uids_after(Event::InitDone), "b c");
        assert_eq!(uids_after(Event::Delete(pod("b"))), "c");
    }
}
