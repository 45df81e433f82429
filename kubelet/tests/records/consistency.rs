//! Every record that a reader can see equals the join of the inputs of one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::{Operation, PodMeta, Reader, Writer};
use pod_index_kubelet::records::{Change, Extract, Join, Record, Rules};
use pod_index_kubelet::sources::SourceUpdate;
use proptest::prelude::*;
use serde_json::json;

use crate::seeded::seeded;

const RULES: &str = "
extract:
  metadata: [k8s.pod.name, k8s.pod.uid, k8s.namespace.name, k8s.deployment.name, k8s.deployment.uid, k8s.replicaset.name,
    k8s.node.uid, k8s.cluster.uid, service.name, container.image.name, container.image.tag, container.id]
  labels:
    - { key_regex: .*, from: namespace }
    - { key: a, tag_name: of-the-namespace, from: namespace }
    # The same names as of the Namespace.
    - { key: a, tag_name: k8s.namespace.labels.a }
    - { key: a, tag_name: of-the-pod }
    - { key: a, tag_name: of-the-node, from: node }
    - { key: b, tag_name: of-the-deployment, from: deployment }
  otel_annotations: true
";
const NAMESPACES: [&str; 3] = ["kube-system", "shop", "other"];

fn extract() -> Extract {
    // Compiling expressions takes long without optimisation.
    static EXTRACT: LazyLock<Extract> = LazyLock::new(|| Rules::parse(RULES).unwrap().extract);
    EXTRACT.clone()
}

/// A change of one input.
#[derive(Clone, Debug)]
enum Step {
    Pod {
        number: u8,
        namespace: u8,
        label: u8,
        owner: u8,
        node: u8,
    },
    /// The pod as it is, once more.
    Again {
        number: u8,
    },
    Refused {
        number: u8,
    },
    RemovePod {
        number: u8,
    },
    SetPods {
        numbers: BTreeSet<u8>,
    },
    Namespace {
        number: u8,
        label: u8,
    },
    RemoveNamespace {
        number: u8,
    },
    SetNamespaces {
        numbers: BTreeSet<u8>,
        label: u8,
    },
    Node {
        number: u8,
        label: u8,
    },
    ReplicaSet {
        number: u8,
        deployment: Option<u8>,
    },
    Deployment {
        number: u8,
        label: u8,
    },
    RemoveOwner {
        number: u8,
        is_deployment: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let small = 0..4u8;
    let namespace = 0..3u8;
    let numbers = || proptest::collection::btree_set(0..6u8, 0..5);
    prop_oneof![
        4 => (0..6u8, namespace.clone(), small.clone(), small.clone(), small.clone())
            .prop_map(|(number, namespace, label, owner, node)| Step::Pod { number, namespace, label, owner, node }),
        1 => (0..6u8).prop_map(|number| Step::Again { number }),
        1 => (0..6u8).prop_map(|number| Step::Refused { number }),
        1 => (0..6u8).prop_map(|number| Step::RemovePod { number }),
        1 => numbers().prop_map(|numbers| Step::SetPods { numbers }),
        3 => (namespace.clone(), small.clone()).prop_map(|(number, label)| Step::Namespace { number, label }),
        1 => namespace.prop_map(|number| Step::RemoveNamespace { number }),
        1 => (numbers(), small.clone()).prop_map(|(numbers, label)| Step::SetNamespaces { numbers, label }),
        2 => (small.clone(), small.clone()).prop_map(|(number, label)| Step::Node { number, label }),
        3 => (small.clone(), proptest::option::of(small.clone()))
            .prop_map(|(number, deployment)| Step::ReplicaSet { number, deployment }),
        2 => (small.clone(), small.clone()).prop_map(|(number, label)| Step::Deployment { number, label }),
        1 => (small, any::<bool>()).prop_map(|(number, is_deployment)| Step::RemoveOwner { number, is_deployment }),
    ]
}

/// All inputs at one moment.
#[derive(Default, Clone)]
struct Inputs {
    pods: BTreeMap<String, Arc<Pod>>,
    namespaces: BTreeMap<String, Arc<ObjectMeta>>,
    nodes: BTreeMap<String, Arc<ObjectMeta>>,
    owners: BTreeMap<String, Arc<ObjectMeta>>,
}

fn object(name: &str, uid: &str, label: u8, key: &str) -> Arc<ObjectMeta> {
    let labels = if label == 0 { json!({}) } else { json!({ key: format!("{label}") }) };
    Arc::new(serde_json::from_value(json!({ "name": name, "uid": uid, "labels": labels })).unwrap())
}

fn pod(number: u8, name: &str, namespace: u8, label: u8, owner: u8, node: u8) -> Arc<Pod> {
    let owners = if owner == 0 {
        json!([])
    } else {
        let name = format!("web-{owner}");
        json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": format!("r-{owner}"), "controller": true }])
    };
    let labels = json!({ "a": format!("{label}"), "pod-template-hash": format!("{owner}") });
    let pod = json!({
        "metadata": {
            "name": name, "namespace": NAMESPACES[usize::from(namespace)], "uid": format!("p-{number}"), "labels": labels,
            "annotations": { "resource.opentelemetry.io/of-the-namespace": "the pod's" }, "ownerReferences": owners,
        },
        "spec": { "nodeName": format!("node-{node}"), "containers": [{ "name": "c", "image": "web:1" }] },
    });
    let mut pod: Pod = serde_json::from_value(pod).unwrap();
    if label == 3 {
        pod.metadata.annotations = None;
    }
    Arc::new(pod)
}

impl Inputs {
    /// Applies a step to the inputs. Returns it as a change.
    fn step(&mut self, step: &Step) -> Option<Change> {
        Some(match step {
            Step::Pod { number, namespace, label, owner, node } => {
                let pod = pod(*number, &format!("pod-{number}"), *namespace, *label, *owner, *node);
                self.pods.insert(pod.uid().to_owned(), Arc::clone(&pod));
                Change::Pod(Operation::Upsert(pod))
            }
            Step::Again { number } => {
                Change::Pod(Operation::Upsert(self.pods.get(&format!("p-{number}"))?.clone()))
            }
            // The index keeps the earlier version.
            Step::Refused { number } => {
                Change::Pod(Operation::Upsert(pod(*number, "not_a_name", 1, 1, 1, 1)))
            }
            Step::RemovePod { number } => {
                self.pods.remove(&format!("p-{number}"));
                Change::Pod(Operation::Remove(format!("p-{number}").as_str().into()))
            }
            Step::SetPods { numbers } => {
                let pods: Vec<_> = numbers
                    .iter()
                    .map(|number| pod(*number, &format!("pod-{number}"), number % 3, 1, 1, 1))
                    .collect();
                self.pods = pods.iter().map(|pod| (pod.uid().to_owned(), Arc::clone(pod))).collect();
                Change::Pod(Operation::Set(pods))
            }
            Step::Namespace { number, label } => {
                let name = NAMESPACES[usize::from(*number)];
                // Now and then, it was created again.
                let object = object(name, &format!("n-{number}-{}", label % 2), *label, "a");
                self.namespaces.insert(name.to_owned(), Arc::clone(&object));
                Change::Namespaces(SourceUpdate::Upsert(vec![object]))
            }
            Step::RemoveNamespace { number } => {
                let gone = self.namespaces.remove(NAMESPACES[usize::from(*number)])?;
                Change::Namespaces(SourceUpdate::Remove(vec![gone.uid.as_deref()?.into()]))
            }
            Step::SetNamespaces { numbers, label } => {
                let names = numbers
                    .iter()
                    .filter_map(|number| Some((number, *NAMESPACES.get(usize::from(*number))?)));
                let objects: Vec<_> =
                    names.map(|(number, name)| object(name, &format!("n-{number}-s"), *label, "b")).collect();
                let by_name = objects.iter().map(|object| (object.name.clone().unwrap(), Arc::clone(object)));
                self.namespaces = by_name.collect();
                Change::Namespaces(SourceUpdate::Set(objects))
            }
            Step::Node { number, label } => {
                let name = format!("node-{number}");
                let object = object(&name, &format!("node-uid-{number}"), *label, "a");
                self.nodes.insert(name, Arc::clone(&object));
                Change::Nodes(SourceUpdate::Upsert(vec![object]))
            }
            Step::ReplicaSet { number, deployment } => {
                let mut object = ObjectMeta::clone(&object("web", &format!("r-{number}"), 1, "a"));
                object.owner_references = deployment.map(|deployment| {
                    let name = format!("deployment-{deployment}");
                    let reference = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": format!("d-{deployment}"), "controller": true });
                    vec![serde_json::from_value(reference).unwrap()]
                });
                self.owner(&object)
            }
            Step::Deployment { number, label } => {
                let object = object("deployment", &format!("d-{number}"), *label, "b");
                self.owner(&object)
            }
            Step::RemoveOwner { number, is_deployment } => {
                let uid = format!("{}-{number}", if *is_deployment { "d" } else { "r" });
                let key = format!("shop/{uid}");
                self.owners.remove(&key)?;
                Change::Owners(SourceUpdate::Remove(vec![uid.as_str().into()]))
            }
        })
    }

    /// Owners are of the Namespace `shop`: in another one, they have no pods.
    fn owner(&mut self, object: &ObjectMeta) -> Change {
        let object = Arc::new(ObjectMeta { namespace: Some("shop".to_owned()), ..object.clone() });
        self.owners.insert(format!("shop/{}", object.uid.as_deref().unwrap()), Arc::clone(&object));
        Change::Owners(SourceUpdate::Upsert(vec![object]))
    }

    /// The join of these inputs alone.
    fn expected(&self) -> BTreeMap<String, String> {
        let set = |objects: &BTreeMap<String, Arc<ObjectMeta>>| {
            SourceUpdate::Set(objects.values().cloned().collect())
        };
        let (mut writer, reader) = pod_index::new::<Record>();
        let _ = Join::new(extract()).write(
            &mut writer,
            [
                Change::Namespaces(set(&self.namespaces)),
                Change::Nodes(set(&self.nodes)),
                Change::Owners(set(&self.owners)),
                Change::Pod(Operation::Set(self.pods.values().cloned().collect())),
            ],
        );
        shown(&reader)
    }
}

/// Everything that the records of an index say.
fn shown(reader: &Reader<Record>) -> BTreeMap<String, String> {
    let of = |record: &Arc<Record>| {
        let attributes: Vec<_> = record.attributes().map(ToString::to_string).collect();
        let objects = (record.namespace_object(), record.node_object(), record.workload());
        (record.uid().to_owned(), format!("{:?} {attributes:?} {objects:?}", Arc::as_ptr(record.pod())))
    };
    reader.load().pods().map(of).collect()
}

/// Writes a batch of operations. Calls `look` at each moment between two publications.
type Write = fn(&mut Writer<Record>, Vec<Operation<Record>>, &mut dyn FnMut());

fn publish_once(writer: &mut Writer<Record>, operations: Vec<Operation<Record>>, look: &mut dyn FnMut()) {
    let _ = writer.apply(operations);
    look();
}

/// The planted fault.
fn publish_twice(
    writer: &mut Writer<Record>,
    mut operations: Vec<Operation<Record>>,
    look: &mut dyn FnMut(),
) {
    let second = operations.split_off(operations.len() / 2);
    for half in [operations, second] {
        let _ = writer.apply(half);
        look();
    }
}

/// Applies the steps in batches. Fails if a reader could have seen anything else than the join of the inputs before or
/// after a batch.
fn check(batches: &[Vec<Step>], write: Write) -> Result<(), String> {
    let (mut writer, reader) = pod_index::new::<Record>();
    let (mut join, mut inputs) = (Join::new(extract()), Inputs::default());
    let mut before = BTreeMap::<String, String>::new();
    for (number, batch) in batches.iter().enumerate() {
        let changes: Vec<_> = batch.iter().filter_map(|step| inputs.step(step)).collect();
        let operations = join.apply(changes);
        let after = inputs.expected();
        let mut wrong = None;
        let mut check = |is_right: bool, seen: &BTreeMap<String, String>| {
            if !is_right {
                wrong
                    .get_or_insert(format!("batch {number}: {batch:?}\nseen {seen:#?}\nexpected {after:#?}"));
            }
        };
        write(&mut writer, operations, &mut || {
            let seen = shown(&reader);
            check(seen == before || seen == after, &seen);
        });
        let seen = shown(&reader);
        check(seen == after, &seen);
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        before = after;
    }
    Ok(())
}

proptest! {
    #![proptest_config(seeded(128))]

    #[test]
    fn a_record_equals_the_join_of_the_inputs_of_one_moment(
        batches in proptest::collection::vec(proptest::collection::vec(step(), 1..4), 1..20),
    ) {
        check(&batches, publish_once).map_err(TestCaseError::fail)?;
    }

    /// By the join's own method for it, as an embedder writes.
    #[test]
    fn a_join_writes_a_batch_in_one_publication(
        batches in proptest::collection::vec(proptest::collection::vec(step(), 1..4), 1..20),
    ) {
        let (mut writer, reader) = pod_index::new::<Record>();
        let mut join = Join::new(extract());
        let mut inputs = Inputs::default();
        for batch in &batches {
            let changes: Vec<_> = batch.iter().filter_map(|step| inputs.step(step)).collect();
            let before = reader.load().generation();
            let applied = join.write(&mut writer, changes);
            prop_assert_eq!(applied.generation, before + u64::from(applied.published));
            prop_assert_eq!(shown(&reader), inputs.expected());
        }
    }
}

#[test]
fn a_join_that_publishes_twice_is_caught() {
    let pod = |number| Step::Pod { number, namespace: 1, label: 1, owner: 1, node: 1 };
    let batches = [vec![pod(0)], vec![pod(1)], vec![Step::Namespace { number: 1, label: 2 }]];
    assert_eq!(check(&batches, publish_once), Ok(()));
    let caught = check(&batches, publish_twice).unwrap_err();
    assert!(caught.starts_with("batch 2"), "{caught}");
}

#[test]
fn a_change_that_no_record_shows_publishes_nothing() {
    let (mut writer, reader) = pod_index::new::<Record>();
    let (mut join, mut inputs) = (Join::new(extract()), Inputs::default());
    let steps = [
        Step::Pod { number: 0, namespace: 1, label: 1, owner: 1, node: 1 },
        Step::Namespace { number: 1, label: 2 },
    ];
    let changes: Vec<_> = steps.iter().filter_map(|step| inputs.step(step)).collect();
    let _ = join.write(&mut writer, changes);
    let generation = reader.load().generation();
    let mut namespace = ObjectMeta::clone(&inputs.namespaces["shop"]);
    namespace.resource_version = Some("2".to_owned());
    namespace.managed_fields = Some(Vec::new());
    let again = Change::Pod(Operation::Upsert(Arc::clone(&inputs.pods["p-0"])));
    let unrelated = inputs.step(&Step::Namespace { number: 2, label: 1 }).unwrap();
    let changes = [Change::Namespaces(SourceUpdate::Upsert(vec![namespace.into()])), again, unrelated];
    assert!(!join.write(&mut writer, changes).published);
    assert_eq!(reader.load().generation(), generation);
}

/// A Namespace of 10,000 pods: their records are replaced by one publication, and their own attributes are not made again.
#[test]
fn a_relabelled_namespace_of_10_000_pods_is_one_publication() {
    let (mut writer, reader) = pod_index::new::<Record>();
    let mut join = Join::new(extract());
    let pods = (0..10_000).map(|number| {
        let mut pod = Pod::clone(&pod(0, &format!("pod-{number}"), 1, 1, 1, 1));
        pod.metadata.uid = Some(format!("p-{number}"));
        Arc::new(pod)
    });
    let _ = join.write(&mut writer, [Change::Pod(Operation::Set(pods.collect()))]);
    let before = reader.load().pod_by_uid("p-7").unwrap().clone();
    let generation = reader.load().generation();
    let namespace = object("shop", "n", 2, "b");
    let applied = join.write(&mut writer, [Change::Namespaces(SourceUpdate::Upsert(vec![namespace]))]);
    assert_eq!(applied.generation, generation + 1);
    let value = |record: &Record, name: &str| {
        record.attributes().find(|attribute| *attribute.name == *name).map(|found| found.value.clone())
    };
    let snapshot = reader.load();
    let name = "k8s.namespace.labels.b";
    assert!(snapshot.pods().all(|record| value(record, name).is_some()));
    // Shared in memory.
    let at = |record: &Record| {
        record.attributes().find(|attribute| *attribute.name == *name).map(std::ptr::from_ref)
    };
    assert_eq!(at(snapshot.pod_by_uid("p-1").unwrap()), at(snapshot.pod_by_uid("p-9999").unwrap()));
    let own = |record: &Record| record.attributes().next().map(std::ptr::from_ref);
    assert_eq!(own(&before), own(snapshot.pod_by_uid("p-7").unwrap()));
    assert_eq!(value(&before, name), None, "an old snapshot's record stays as it was");
}
