//! Joins pods with their Namespaces, Nodes and owners: changes in, writes of one publication out.
//!
//! This module knows which object belongs to which pod. It does not know sources, and it reads nothing.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pod_index::workload::{self, controller};
use pod_index::{Applied, FullName, Operation, PodMeta, PodUid, Writer};

use super::LAST_APPLIED;
use super::attributes::{Layer, Shared};
use super::extract::{Around, Extract, FromKind, Owner, UidAttribute, is_ignored, without};
use super::record::{Layers, Record, Workload};
use crate::sources::SourceUpdate;
use crate::text::PANICKED;

/// Maximum number of owners of a pod that are joined. Pods have one; the API server accepts 20,000.
const OWNERS: usize = 8;
/// Its UID counts as the cluster's.
const CLUSTER: &str = "kube-system";

/// What an index stores of a [`Record`]. Implement it for a type of your own to store that instead.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use pod_index::{Life, PodKeys, PodMeta};
/// use pod_index_kubelet::records::{FromRecord, Record};
///
/// struct Tags { record: Arc<Record>, line: String }
///
/// impl PodMeta for Tags {
///     fn uid(&self) -> &str { self.record.uid() }
///     fn name(&self) -> &str { self.record.name() }
///     fn namespace(&self) -> &str { self.record.namespace() }
///     fn annotation(&self, key: &str) -> Option<&str> { self.record.annotation(key) }
///     fn keys(&self, keys: &mut PodKeys<'_>) { self.record.keys(keys) }
///     // Without it, an index that keeps times knows less of when the pod had its IP.
///     fn life(&self) -> Life { self.record.life() }
/// }
///
/// impl FromRecord for Tags {
///     fn from_record(record: &Arc<Record>) -> Arc<Self> {
///         let tags: Vec<_> = record.attributes().map(ToString::to_string).collect();
///         Arc::new(Self { record: record.clone(), line: tags.join(",") })
///     }
/// }
/// ```
pub trait FromRecord: PodMeta {
    /// What to store. Called once for each record.
    fn from_record(record: &Arc<Record>) -> Arc<Self>;
}

impl FromRecord for Record {
    fn from_record(record: &Arc<Record>) -> Arc<Self> {
        Arc::clone(record)
    }
}

/// A change of what records are made of.
pub enum Change {
    /// A write of pods.
    Pod(Operation<Pod>),
    /// Metadata of Namespaces.
    Namespaces(SourceUpdate<ObjectMeta>),
    /// Metadata of Nodes.
    Nodes(SourceUpdate<ObjectMeta>),
    /// Metadata of the pods' owners, and of the owners of those.
    Owners(SourceUpdate<ObjectMeta>),
}

impl Change {
    /// The metadata of the objects of an update, such as one of Namespaces.
    #[must_use]
    pub fn metadata<K: Metadata<Ty = ObjectMeta>>(update: &SourceUpdate<K>) -> SourceUpdate<ObjectMeta> {
        let of =
            |objects: &[Arc<K>]| objects.iter().map(|object| Arc::new(object.metadata().clone())).collect();
        match update {
            SourceUpdate::Set(objects) => SourceUpdate::Set(of(objects)),
            SourceUpdate::Upsert(objects) => SourceUpdate::Upsert(of(objects)),
            SourceUpdate::Incomplete(objects) => SourceUpdate::Incomplete(of(objects)),
            SourceUpdate::Remove(uids) => SourceUpdate::Remove(uids.clone()),
        }
    }
}

/// Joins pods with what belongs to them. See the [module](super).
///
/// # Consistency
/// The operations of one [`apply`](Self::apply) belong together: written in one batch, the index goes from the join of the
/// inputs before to the join of the inputs after, without a state between.
///
/// # Complexity
/// O(1) for each changed pod, besides its rules. A changed Namespace, Node or owner costs O(1) for each of its pods: their
/// own attributes are not made again, and those of the object once. Memory: a few hundred bytes for each pod,
/// besides its record, which the index shares.
pub struct Join<P = Record> {
    extract: Extract,
    namespaces: Objects,
    nodes: Objects,
    owners: Objects,
    pods: HashMap<PodUid, Joined<P>>,
    /// The pods that depend on an input.
    dependents: HashMap<Input, HashSet<PodUid>>,
    shared: Shared,
}

/// A pod as it was joined last.
struct Joined<P> {
    record: Arc<Record>,
    stored: Arc<P>,
    inputs: Vec<Input>,
}

/// An object that records depend on, known or not.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Input {
    /// By its name.
    Namespace(Arc<str>),
    /// By its name.
    Node(Arc<str>),
    /// By its namespace and its UID: a pod may name the UID of an object in another namespace.
    Owner(Arc<str>),
}

/// The key of an owner.
fn owner_key(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

/// The objects of one kind.
#[derive(Default)]
struct Objects {
    by_key: HashMap<Arc<str>, Object>,
    keys: HashMap<PodUid, Arc<str>>,
}

struct Object {
    metadata: Arc<ObjectMeta>,
    /// Its attributes, if they depend on nothing else.
    layer: Option<Layer>,
}

impl Objects {
    fn metadata(&self, key: &str) -> Option<&Arc<ObjectMeta>> {
        self.by_key.get(key).map(|object| &object.metadata)
    }

    /// An owner of a pod, or of an owner of it, if it was read.
    fn of_pod(&self, pod: &Pod, reference: &OwnerReference) -> Option<&ObjectMeta> {
        self.metadata(&owner_key(pod.namespace(), &reference.uid)).map(|owner| &**owner)
    }

    fn layer(&self, key: &str) -> Option<Layer> {
        self.by_key.get(key)?.layer.clone()
    }

    /// Applies an update. Returns the keys of the objects that differ afterwards.
    fn update(
        &mut self,
        update: SourceUpdate<ObjectMeta>,
        key: impl Fn(&ObjectMeta) -> String,
        mut layer: impl FnMut(&ObjectMeta) -> Option<Layer>,
    ) -> Vec<Arc<str>> {
        let mut changed = Vec::new();
        let objects = match update {
            SourceUpdate::Remove(uids) => {
                changed.extend(uids.iter().filter_map(|uid| self.remove(uid)));
                return changed;
            }
            // What an incomplete list lacks is not gone.
            SourceUpdate::Upsert(objects) | SourceUpdate::Incomplete(objects) => objects,
            SourceUpdate::Set(objects) => {
                let there: HashSet<_> = objects.iter().map(|object| uid_of(object)).collect();
                let gone: Vec<_> = self.keys.keys().filter(|uid| !there.contains(*uid)).cloned().collect();
                changed.extend(gone.iter().filter_map(|uid| self.remove(uid)));
                objects
            }
        };
        for object in objects {
            let object = relevant(&object);
            let key = key(&object);
            let known = self.by_key.get_key_value(&*key);
            if known.is_some_and(|(_, known)| *known.metadata == object) {
                continue;
            }
            let key: Arc<str> = known.map_or_else(|| key.into(), |(key, _)| Arc::clone(key));
            let uid = uid_of(&object);
            let object = Object { layer: layer(&object), metadata: Arc::new(object) };
            if let Some(before) = self.by_key.insert(Arc::clone(&key), object) {
                // Created again with the same name.
                let before = uid_of(&before.metadata);
                if before != uid {
                    self.keys.remove(&before);
                }
            }
            self.keys.insert(uid, Arc::clone(&key));
            changed.push(key);
        }
        changed
    }

    fn remove(&mut self, uid: &PodUid) -> Option<Arc<str>> {
        let key = self.keys.remove(uid)?;
        self.by_key.remove(&key);
        Some(key)
    }
}

fn uid_of(object: &ObjectMeta) -> PodUid {
    object.uid.as_deref().unwrap_or_default().into()
}

/// The parts of an object that a record may show. A Node's heartbeat, for example, changes none of them.
fn relevant(object: &ObjectMeta) -> ObjectMeta {
    let mut annotations = object.annotations.clone();
    if let Some(annotations) = &mut annotations {
        annotations.remove(LAST_APPLIED);
    }
    ObjectMeta {
        name: object.name.clone(),
        namespace: object.namespace.clone(),
        uid: object.uid.clone(),
        labels: object.labels.clone(),
        annotations,
        owner_references: controller(object).map(|controller| vec![controller.clone()]),
        ..ObjectMeta::default()
    }
}

fn name_of(object: &ObjectMeta) -> String {
    object.name.clone().unwrap_or_default()
}

impl<P: FromRecord> Join<P> {
    /// A join that knows nothing yet.
    #[must_use]
    pub fn new(extract: Extract) -> Self {
        Self {
            extract,
            namespaces: Objects::default(),
            nodes: Objects::default(),
            owners: Objects::default(),
            pods: HashMap::new(),
            dependents: HashMap::new(),
            shared: Shared::default(),
        }
    }

    /// Applies the changes, and writes what follows from them in one publication. The positions in
    /// [`Applied::refused`] count the operations on pods among the changes.
    ///
    /// # Complexity
    /// As [`apply`](Self::apply), and one publication.
    pub fn write(&mut self, writer: &mut Writer<P>, changes: impl IntoIterator<Item = Change>) -> Applied {
        let operations = self.apply(changes);
        writer.apply(operations)
    }

    /// Applies the changes. Returns the operations that bring an index to the join of all inputs: first those on pods, in
    /// their order, then updates of pods whose Namespace, Node or owner has changed. Apply them in one batch.
    ///
    /// Pods that an index refuses are passed on, for it to refuse them, and are not joined.
    ///
    /// # Complexity
    /// O(changes + pods that name a Namespace, a Node or an owner among them). An object that comes again with the
    /// same UID, labels, annotations and owner writes no pod.
    #[must_use = "the index has to get these operations"]
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Vec<Operation<P>> {
        let mut of_pods = Vec::new();
        let mut touched = Vec::new();
        for change in changes {
            match change {
                Change::Pod(operation) => of_pods.push(operation),
                Change::Namespaces(update) => {
                    let layer = |object: &ObjectMeta| {
                        let layer = || {
                            #[cfg(test)]
                            tests::panic_if_asked("layer", object);
                            self.extract.objects.layer(FromKind::Namespace, object, None, &mut self.shared)
                        };
                        contained("Namespace", object, layer).flatten()
                    };
                    touched.extend(
                        self.namespaces.update(update, name_of, layer).into_iter().map(Input::Namespace),
                    );
                }
                Change::Nodes(update) => {
                    let uid = |object: &ObjectMeta| {
                        object.uid.clone().filter(|_| self.extract.fields.has("k8s.node.uid"))
                    };
                    let layer = |object: &ObjectMeta| {
                        let uid = uid(object);
                        let of_uid = uid.as_deref().map(|uid| UidAttribute { name: "k8s.node.uid", uid });
                        let layer =
                            || self.extract.objects.layer(FromKind::Node, object, of_uid, &mut self.shared);
                        contained("Node", object, layer).flatten()
                    };
                    touched.extend(self.nodes.update(update, name_of, layer).into_iter().map(Input::Node));
                }
                Change::Owners(update) => {
                    let key = |object: &ObjectMeta| {
                        owner_key(
                            object.namespace.as_deref().unwrap_or_default(),
                            object.uid.as_deref().unwrap_or_default(),
                        )
                    };
                    touched.extend(self.owners.update(update, key, |_| None).into_iter().map(Input::Owner));
                }
            }
        }
        let mut written = HashSet::new();
        let of_pods = of_pods.into_iter();
        let mut operations: Vec<_> =
            of_pods.map(|operation| self.operation(operation, &mut written)).collect();
        operations.extend(self.joined_again(&touched, &written).into_iter().map(Operation::Upsert));
        operations
    }

    fn operation(&mut self, operation: Operation<Pod>, written: &mut HashSet<PodUid>) -> Operation<P> {
        match operation {
            Operation::Upsert(pod) => Operation::Upsert(self.pod(&pod, written)),
            Operation::Remove(uid) => {
                self.forget(&uid);
                Operation::Remove(uid)
            }
            Operation::Set(pods) => {
                let there: HashSet<PodUid> = pods.iter().map(|pod| pod.uid().into()).collect();
                let gone: Vec<_> = self.pods.keys().filter(|uid| !there.contains(*uid)).cloned().collect();
                for uid in &gone {
                    self.forget(uid);
                }
                Operation::Set(pods.iter().map(|pod| self.pod(pod, written)).collect())
            }
        }
    }

    /// Joins a pod. The very pod that was joined before is stored as before.
    fn pod(&mut self, pod: &Arc<Pod>, written: &mut HashSet<PodUid>) -> Arc<P> {
        let uid: PodUid = pod.uid().into();
        if let Some(known) = self.pods.get(&uid).filter(|known| Arc::ptr_eq(&known.record.pod, pod)) {
            return Arc::clone(&known.stored);
        }
        let is_refused = pod.uid().is_empty() || FullName::new(pod.namespace(), pod.name()).is_err();
        let record = self.joined(pod);
        if is_refused {
            return P::from_record(&Arc::new(record));
        }
        written.insert(uid.clone());
        self.keep(uid, record)
    }

    /// Keeps a record, and what it depends on.
    fn keep(&mut self, uid: PodUid, record: Record) -> Arc<P> {
        let inputs = self.inputs(&record);
        let record = Arc::new(record);
        let stored = P::from_record(&record);
        let before = self.pods.get(&uid).map(|before| &before.inputs);
        if before.is_none_or(|before| *before != inputs) {
            self.forget(&uid);
            for input in &inputs {
                self.dependents.entry(input.clone()).or_default().insert(uid.clone());
            }
        }
        self.pods.insert(uid, Joined { record, stored: Arc::clone(&stored), inputs });
        stored
    }

    fn forget(&mut self, uid: &PodUid) {
        let Some(Joined { inputs, .. }) = self.pods.remove(uid) else { return };
        for input in inputs {
            if let Some(dependents) = self.dependents.get_mut(&input) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&input);
                }
            }
        }
    }

    /// The pods that depend on these inputs, joined again, without those that were written with them.
    fn joined_again(&mut self, touched: &[Input], written: &HashSet<PodUid>) -> Vec<Arc<P>> {
        // Whether the pod's own attributes have to be made again.
        let mut due: HashMap<PodUid, bool> = HashMap::new();
        for input in touched {
            let is_of_the_pod = match input {
                Input::Namespace(name) => **name == *CLUSTER && self.extract.fields.has("k8s.cluster.uid"),
                Input::Node(_) => false,
                Input::Owner(_) => true,
            };
            for uid in self.dependents.get(input).into_iter().flatten().filter(|uid| !written.contains(*uid))
            {
                *due.entry(uid.clone()).or_default() |= is_of_the_pod;
            }
        }
        let mut again = Vec::with_capacity(due.len());
        for (uid, is_of_the_pod) in due {
            let Some(known) = self.pods.get(&uid) else { continue };
            let pod = Arc::clone(&known.record.pod);
            let record = if is_of_the_pod {
                Some(self.joined(&pod))
            } else {
                let mut record = Record::clone(&known.record);
                let surrounded = || {
                    self.surround(&mut record);
                    record
                };
                contained("pod", &pod.metadata, surrounded)
            };
            // After a panic, the record stays as it was.
            again.extend(record.map(|record| self.keep(uid, record)));
        }
        again
    }

    /// The inputs that a record depends on.
    fn inputs(&self, record: &Record) -> Vec<Input> {
        let pod = &*record.pod;
        let name = |known: &Objects, key: &str| -> Arc<str> {
            known.by_key.get_key_value(key).map_or_else(|| key.into(), |(key, _)| Arc::clone(key))
        };
        let mut inputs = vec![Input::Namespace(name(&self.namespaces, pod.namespace()))];
        if self.extract.fields.has("k8s.cluster.uid") && pod.namespace() != CLUSTER {
            inputs.push(Input::Namespace(name(&self.namespaces, CLUSTER)));
        }
        inputs.extend(node_of(pod).map(|node| Input::Node(name(&self.nodes, node))));
        for reference in owners_of(pod) {
            let key = owner_key(pod.namespace(), &reference.uid);
            let above = self.owners.metadata(&key).and_then(|owner| controller(owner));
            let above = above.map(|above| owner_key(pod.namespace(), &above.uid));
            inputs.extend(
                [Some(key), above].into_iter().flatten().map(|key| Input::Owner(name(&self.owners, &key))),
            );
        }
        inputs
    }

    /// The record of a pod, from what is known now. Of a pod on which that panics, the pod alone.
    fn joined(&mut self, pod: &Arc<Pod>) -> Record {
        contained("pod", &pod.metadata, || self.made(pod)).unwrap_or_else(|| Record {
            pod: Arc::clone(pod),
            namespace: None,
            node: None,
            workload: None,
            layers: Layers::default(),
            containers: Arc::default(),
        })
    }

    fn made(&mut self, pod: &Arc<Pod>) -> Record {
        #[cfg(test)]
        tests::panic_if_asked("made", &pod.metadata);
        let owners: Vec<_> = owners_of(pod)
            .map(|reference| Owner { reference, read: self.owners.of_pod(pod, reference) })
            .collect();
        let cluster_uid = self.namespaces.metadata(CLUSTER).and_then(|cluster| cluster.uid.clone());
        let around = Around { owners: &owners, cluster_uid: cluster_uid.as_deref() };
        let read = controller(&pod.metadata).and_then(|reference| self.owners.of_pod(pod, reference));
        let found = workload::Workload::of(&pod.metadata, read);
        let uid = found.filter(|found| !found.derived).and_then(|_| {
            let of = read.and_then(controller).or_else(|| controller(&pod.metadata))?;
            Some(&*of.uid)
        });
        let shared = &mut self.shared;
        let workload = found.map(|workload::Workload { kind, name, derived }| Workload {
            kind: shared.name(kind),
            name: shared.name(name),
            uid: uid.map(|uid| shared.name(uid)),
            derived,
        });
        let layers = self.extract.pod(pod, &around, shared);
        let containers = self.extract.containers(pod, &layers, shared);
        let mut record = Record {
            pod: Arc::clone(pod),
            namespace: None,
            node: None,
            workload,
            layers: Layers { own: layers.own, common: layers.common, ..Layers::default() },
            containers: containers.into(),
        };
        self.surround(&mut record);
        record
    }

    /// Adds what is known of the pod's Namespace, Node and owners.
    fn surround(&mut self, record: &mut Record) {
        let pod = Arc::clone(&record.pod);
        let node = node_of(&pod).unwrap_or_default();
        #[cfg(test)]
        tests::panic_if_asked("surrounded", &pod.metadata);
        record.namespace = self.namespaces.metadata(pod.namespace()).cloned();
        record.node = self.nodes.metadata(node).cloned();
        if is_ignored(&pod) {
            return;
        }
        let layers = &mut record.layers;
        let namespace = self.namespaces.layer(pod.namespace());
        layers.namespace = without(namespace, &[&layers.own, &layers.common], &mut self.shared);
        let earlier = [&layers.own, &layers.common, &layers.namespace];
        layers.node = without(self.nodes.layer(node), &earlier, &mut self.shared);
        let owners = self.owners_layer(&pod);
        let layers = &record.layers;
        let earlier = [&layers.own, &layers.common, &layers.namespace, &layers.node];
        record.layers.owners = without(owners, &earlier, &mut self.shared);
    }

    /// The attributes of the pod's owners and of the owners of those.
    fn owners_layer(&mut self, pod: &Pod) -> Option<Layer> {
        if !self.extract.objects.has_owners() {
            return None;
        }
        let mut owners: Vec<(FromKind, &ObjectMeta)> = Vec::new();
        for reference in owners_of(pod) {
            let Some(read) = self.owners.of_pod(pod, reference) else { continue };
            owners.extend(FromKind::of_owner(&reference.kind).map(|kind| (kind, read)));
            let above = controller(read)
                .and_then(|above| Some((FromKind::of_owner(&above.kind)?, self.owners.of_pod(pod, above)?)));
            owners.extend(above);
        }
        let order = |kind: FromKind| FromKind::OWNERS.iter().position(|other| *other == kind);
        owners.sort_by_key(|(kind, _)| order(*kind));
        let mut attributes = Vec::new();
        let mut earlier: Vec<Option<Layer>> = Vec::new();
        for (kind, owner) in owners {
            let layer = self.extract.objects.layer(kind, owner, None, &mut self.shared);
            let layer = without(layer, &earlier.iter().collect::<Vec<_>>(), &mut self.shared);
            attributes.extend(layer.iter().flat_map(|layer| layer.iter().cloned()));
            earlier.push(layer);
        }
        self.shared.layer(attributes)
    }
}

/// Does what follows from an object that a stranger may have written. If that panics, then without what follows from this
/// object: others, and who calls this, go on. `None` after a panic, which is logged with the object's name.
///
/// What a panic leaves behind is right: the caches of [`Shared`] are changed by single insertions, and all else is made anew.
fn contained<T>(kind: &str, object: &ObjectMeta, make: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(make));
    if done.is_err() {
        let namespace = object.namespace.as_deref();
        let name = object.name.as_deref();
        tracing::error!(namespace, name, "a {kind} is not joined: {PANICKED}");
    }
    done.ok()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The pod's owners, the controller first.
fn owners_of(pod: &Pod) -> impl Iterator<Item = &OwnerReference> {
    let controller = controller(&pod.metadata);
    let others = pod.metadata.owner_references.iter().flatten();
    let others =
        others.filter(move |other| controller.is_none_or(|controller| !std::ptr::eq(controller, *other)));
    controller.into_iter().chain(others).take(OWNERS)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::records::Rules;

    /// The annotation of an object on which the join panics, and where.
    const PANIC: &str = "test/panic";

    pub(super) fn panic_if_asked(place: &str, object: &ObjectMeta) {
        let asked = object.annotations.as_ref().and_then(|all| all.get(PANIC));
        assert!(asked.is_none_or(|asked| asked != place), "the test's panic");
    }

    fn metadata(name: &str, label: &str, panics: &str) -> ObjectMeta {
        from_value(json!({
            "uid": name, "namespace": "shop", "name": name,
            "labels": { "team": label }, "annotations": { PANIC: panics },
        }))
        .unwrap()
    }

    fn pod(name: &str, panics: &str) -> Change {
        let pod = Pod { metadata: metadata(name, "pods", panics), ..Pod::default() };
        Change::Pod(Operation::Upsert(Arc::new(pod)))
    }

    /// The Namespace `shop`. This panics with `layer`.
    fn namespace(label: &str, panics: &str) -> Change {
        let object = ObjectMeta { namespace: None, ..metadata("shop", label, panics) };
        Change::Namespaces(SourceUpdate::Upsert(vec![object.into()]))
    }

    /// What the pods are tagged with, by their names.
    fn tags(snapshot: &pod_index::Snapshot<Record>) -> Vec<String> {
        let mut all: Vec<_> = snapshot
            .pods()
            .map(|pod| {
                let tags: Vec<_> = pod.attributes().map(ToString::to_string).collect();
                format!("{}: {}", pod.name(), tags.join(" "))
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_panic_on_one_object_costs_what_follows_from_it_and_nothing_else() {
        let rules =
            "extract: {metadata: [k8s.pod.name], labels: [{key: team, from: namespace, tag_name: team}]}";
        let mut join = Join::new(Rules::parse(rules).unwrap().extract);
        let (mut writer, reader) = pod_index::new::<Record>();
        let mut written = |changes: Vec<Change>| {
            assert!(join.write(&mut writer, changes).refused.is_empty());
            tags(&reader.load())
        };

        let all = vec![pod("a", ""), pod("b", "made"), namespace("one", ""), pod("c", "")];
        assert_eq!(written(all), ["a: k8s.pod.name=a team=one", "b: ", "c: k8s.pod.name=c team=one"]);

        // Another version of a pod is joined as any other.
        let again = vec![pod("b", ""), pod("c", "surrounded")];
        assert_eq!(written(again), ["a: k8s.pod.name=a team=one", "b: k8s.pod.name=b team=one", "c: "]);
        // Joined again with its Namespace, it stays as it was, and the others do not.
        let expected = ["a: k8s.pod.name=a team=two", "b: k8s.pod.name=b team=two", "c: "];
        assert_eq!(written(vec![namespace("two", "")]), expected);

        // Without the Namespace's label, and no longer with the label before.
        let expected = ["a: k8s.pod.name=a", "b: k8s.pod.name=b", "c: k8s.pod.name=c"];
        assert_eq!(written(vec![pod("c", ""), namespace("three", "layer")]), expected);
        let expected =
            ["a: k8s.pod.name=a team=four", "b: k8s.pod.name=b team=four", "c: k8s.pod.name=c team=four"];
        assert_eq!(written(vec![namespace("four", "")]), expected);
    }
}
