//! A pod with what was joined to it, as the index stores it.

use std::fmt;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::identity::ContainerId;
use pod_index::{Life, PodKeys, PodMeta, claim_keys, workload};

use super::attributes::{Attribute, Layer};
use crate::HasPod;

/// A pod, and what was joined to it when it was written. See the [module](super).
///
/// It dereferences to its pod, and has the pod's keys. One differs: the [`WORKLOAD`](pod_index::workload::WORKLOAD) is
/// the one that was read, if the pod's owner was.
#[derive(Clone)]
pub struct Record {
    pub(super) pod: Arc<Pod>,
    pub(super) namespace: Option<Arc<ObjectMeta>>,
    pub(super) node: Option<Arc<ObjectMeta>>,
    pub(super) workload: Option<Workload>,
    pub(super) layers: Layers,
    pub(super) containers: Arc<[Container]>,
}

/// Attributes, by what they change with. If two layers had the same name, the later one was left without it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Layers {
    /// What no other pod has, such as its UID.
    pub(super) own: Option<Layer>,
    /// What pods of one workload have in common.
    pub(super) common: Option<Layer>,
    pub(super) namespace: Option<Layer>,
    pub(super) node: Option<Layer>,
    /// Of the pod's owners.
    pub(super) owners: Option<Layer>,
}

/// The workload of a pod, such as its Deployment. See [`pod_index::workload::Workload`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Such as `Deployment`.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID. Unknown if it is derived.
    pub uid: Option<Arc<str>>,
    /// Whether kind and name follow from names and labels, because the pod's owner was not read.
    pub derived: bool,
}

/// A container of a pod, of any kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// The image's name, with its registry. Empty if the pod's spec names none.
    pub image_name: Arc<str>,
    /// The image's tag; `latest` if the spec has neither a tag nor a digest.
    pub image_tag: Option<Arc<str>>,
    /// Its runs that the pod's status knows: the latest, and the one before.
    pub runs: Box<[Run]>,
    pub(super) attributes: Option<Layer>,
}

/// A run of a container: each restart is another one, with another ID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// How often the container had been restarted before.
    pub restart_count: u32,
    /// The container ID, without the runtime's name. Empty before the container has started.
    pub id: Arc<str>,
    /// The image with its digest, if the runtime says so.
    pub repo_digest: Option<Arc<str>>,
    pub(super) attributes: Option<Layer>,
}

impl Record {
    /// The pod.
    #[must_use]
    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// The metadata of its Namespace, if that is known: name, UID, labels and annotations.
    #[must_use]
    pub fn namespace_object(&self) -> Option<&ObjectMeta> {
        self.namespace.as_deref()
    }

    /// The metadata of its Node, if that is known: name, UID, labels and annotations.
    #[must_use]
    pub fn node_object(&self) -> Option<&ObjectMeta> {
        self.node.as_deref()
    }

    /// Its workload. `None` for a pod without a controller, and for a static pod.
    #[must_use]
    pub fn workload(&self) -> Option<&Workload> {
        self.workload.as_ref()
    }

    /// Its containers of all kinds.
    #[must_use]
    pub fn containers(&self) -> &[Container] {
        &self.containers
    }

    /// The container with this name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| *container.name == *name)
    }

    /// The container, and its run, with this ID as text, which may begin with the runtime's name.
    ///
    /// An event that has a [`ContainerId`] asks [`container_run`](Self::container_run), which needs no text.
    ///
    /// # Complexity
    /// O(containers); no allocation.
    #[must_use]
    pub fn container_by_id(&self, id: &str) -> Option<(&Container, &Run)> {
        let id = bare_id(id);
        // A container that has not started has an empty one.
        self.run_where(|run| !id.is_empty() && *run.id == *id)
    }

    /// The container, and its run, with this ID: of the run that an event names, and not of the latest one.
    ///
    /// A cgroup has such an ID (`pod_index::identity::Cgroup::container_id`), and so has what the resolvers in
    /// `pod_index_kubelet::process` return.
    ///
    /// # Complexity
    /// O(containers), each of whose IDs is parsed; no allocation.
    ///
    /// # Examples
    /// ```
    /// use pod_index::identity::ContainerId;
    /// use pod_index_kubelet::records::Record;
    ///
    /// fn tags(record: &Record, id: ContainerId) -> Vec<String> {
    ///     let (container, run) = record.container_run(id).unzip();
    ///     record.attributes_of(container, run).map(ToString::to_string).collect()
    /// }
    /// ```
    #[must_use]
    pub fn container_run(&self, id: ContainerId) -> Option<(&Container, &Run)> {
        self.run_where(|run| run.id.parse() == Ok(id))
    }

    fn run_where(&self, is_it: impl Fn(&Run) -> bool) -> Option<(&Container, &Run)> {
        self.containers
            .iter()
            .find_map(|container| Some((container, container.runs.iter().find(|run| is_it(run))?)))
    }

    /// The attributes of the pod, for an event of which the container is unknown. Those of the container are included if
    /// the pod has only one.
    ///
    /// # Complexity
    /// O(1) to obtain; no allocation.
    #[inline]
    #[must_use]
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::new(self, Subject::Pod)
    }

    /// The attributes of an event of this container of the pod, and of this run of it.
    ///
    /// # Complexity
    /// O(1) to obtain; no allocation.
    ///
    /// # Examples
    /// ```
    /// # use pod_index_kubelet::records::Record;
    /// fn tags(record: &Record, container: Option<&str>) -> Vec<String> {
    ///     let container = container.and_then(|name| record.container(name));
    ///     let run = container.and_then(|container| container.latest());
    ///     record.attributes_of(container, run).map(ToString::to_string).collect()
    /// }
    /// ```
    #[inline]
    #[must_use]
    pub fn attributes_of<'a>(
        &'a self,
        container: Option<&'a Container>,
        run: Option<&'a Run>,
    ) -> Attributes<'a> {
        Attributes::new(self, Subject::Container { container, run })
    }
}

/// The ID without `runtime://`.
pub(super) fn bare_id(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

impl Container {
    /// The run with the most restarts, if the container has started.
    #[must_use]
    pub fn latest(&self) -> Option<&Run> {
        self.runs.first()
    }

    /// The run after this many restarts.
    #[must_use]
    pub fn run(&self, restart_count: u32) -> Option<&Run> {
        self.runs.iter().find(|run| run.restart_count == restart_count)
    }
}

/// The attributes of an event, each name once. Obtained from a [`Record`].
#[derive(Clone)]
pub struct Attributes<'a> {
    current: slice::Iter<'a, Attribute>,
    record: &'a Record,
    subject: Subject<'a>,
    /// The number of the next layer.
    next: u8,
}

/// Of what an event is.
#[derive(Clone, Copy)]
enum Subject<'a> {
    /// Of the pod, and of its container if it has only one.
    Pod,
    Container {
        container: Option<&'a Container>,
        run: Option<&'a Run>,
    },
}

impl<'a> Attributes<'a> {
    /// Has the first layer at hand. The others, and the container of a pod that has only one, are read when it is their turn:
    /// whoever needs the pod's own attributes alone does not wait for that memory.
    #[inline]
    fn new(record: &'a Record, subject: Subject<'a>) -> Self {
        let own = record.layers.own.as_deref().unwrap_or_default();
        Attributes { current: own.iter(), record, subject, next: 1 }
    }

    /// The layer with this number, in the order of the processor: what comes first counts. [`new`](Self::new) has read the
    /// first one, which has the number 0.
    #[inline]
    fn layer(&self, number: u8) -> Option<&'a [Attribute]> {
        let layers = &self.record.layers;
        let layer = match number {
            1 => layers.common.as_deref(),
            2 => self.container().and_then(|container| container.attributes.as_deref()),
            3 => self.run().and_then(|run| run.attributes.as_deref()),
            4 => layers.namespace.as_deref(),
            5 => layers.node.as_deref(),
            6 => layers.owners.as_deref(),
            _ => return None,
        };
        Some(layer.unwrap_or_default())
    }

    #[inline]
    fn container(&self) -> Option<&'a Container> {
        match (self.subject, self.record.containers()) {
            (Subject::Container { container, .. }, _) => container,
            (Subject::Pod, [only]) => Some(only),
            (Subject::Pod, _) => None,
        }
    }

    #[inline]
    fn run(&self) -> Option<&'a Run> {
        match self.subject {
            Subject::Container { run, .. } => run,
            Subject::Pod => self.container()?.latest(),
        }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = &'a Attribute;

    #[inline]
    fn next(&mut self) -> Option<&'a Attribute> {
        loop {
            if let Some(attribute) = self.current.next() {
                return Some(attribute);
            }
            self.current = self.layer(self.next)?.iter();
            self.next += 1;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest: usize = (self.next..).map_while(|number| self.layer(number)).map(<[_]>::len).sum();
        let left = self.current.len() + rest;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Attributes<'_> {}

/// The names and values of the attributes: a pod's content.
impl fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.clone().map(|attribute| (&attribute.name, &attribute.value))).finish()
    }
}

impl Deref for Record {
    type Target = Pod;

    fn deref(&self) -> &Pod {
        &self.pod
    }
}

/// Shows the name and the UID, and nothing of the content.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Record");
        shown.field("namespace", &self.namespace()).field("name", &self.name()).field("uid", &self.uid());
        shown.finish_non_exhaustive()
    }
}

impl HasPod for Record {
    fn pod(stored: &Arc<Self>) -> &Arc<Pod> {
        &stored.pod
    }
}

impl PodMeta for Record {
    fn uid(&self) -> &str {
        self.pod.uid()
    }
    fn name(&self) -> &str {
        self.pod.name()
    }
    fn namespace(&self) -> &str {
        self.pod.namespace()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.pod.annotation(key)
    }
    fn ephemeral_container_count(&self) -> usize {
        self.pod.ephemeral_container_count()
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        let workload = self.workload.as_ref();
        let workload = workload.map(|Workload { kind, name, derived, .. }| workload::Workload {
            kind,
            name,
            derived: *derived,
        });
        claim_keys(&self.pod, workload, keys);
    }
    fn life(&self) -> Life {
        self.pod.life()
    }
}
