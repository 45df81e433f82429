//! The index against the kubelet: every field of every state of every recorded history.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_index::{Snapshot, Writer, is_mirror_pod, is_mirror_pod_of};
use serde_json::{Map, Value, json};
use support::{TestPod, mirror_to_pod, pod_to_mirror};

const HISTORIES: &str = include_str!("conformance/histories.jsonl");

/// All UIDs and names that a history has used so far.
#[derive(Default)]
struct Seen {
    /// The newest object given under each UID.
    newest: BTreeMap<String, Arc<TestPod>>,
    full_names: BTreeSet<String>,
    objects: u64,
}

impl Seen {
    fn pod(&mut self, json: &Value) -> Arc<TestPod> {
        let text = |field: &str| json[field].as_str().expect("a string").to_owned();
        let annotations = json["annotations"].as_object().expect("annotations");
        self.objects += 1;
        let pod = Arc::new(TestPod {
            uid: text("uid"),
            name: text("name"),
            namespace: text("namespace"),
            annotations: annotations
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().expect("a string").to_owned()))
                .collect(),
            ephemeral: usize::try_from(json["ephemeral"].as_u64().expect("a number")).expect("small"),
            version: self.objects,
            ..TestPod::default()
        });
        self.newest.insert(pod.uid.clone(), Arc::clone(&pod));
        self.full_names.insert(format!("{}_{}", pod.name, pod.namespace));
        pod
    }
}

/// A pod in the histories' format.
fn id_of(pod: Option<&Arc<TestPod>>) -> Value {
    pod.map_or(Value::Null, |pod| json!([pod.uid, pod.version]))
}

fn told_all<'a>(pods: impl IntoIterator<Item = &'a Arc<TestPod>>) -> Value {
    let mut all: Vec<_> = pods.into_iter().map(|pod| (pod.uid.clone(), pod.version)).collect();
    all.sort_unstable();
    json!(all)
}

/// The complete observable state, in the fields of the histories.
fn state(snapshot: &Snapshot<TestPod>, seen: &Seen) -> BTreeMap<&'static str, Value> {
    let by_uid = |ask: &dyn Fn(&Arc<TestPod>) -> Value| {
        Value::Object(seen.newest.iter().map(|(uid, pod)| (uid.clone(), ask(pod))).collect())
    };
    let orphans = snapshot.orphaned_mirror_pod_full_names();
    let mut orphans: Vec<_> = orphans.map(|full_name| full_name.to_string()).collect();
    orphans.sort_unstable();

    let mut statics: Vec<_> = snapshot.static_pods_with_mirrors().collect();
    statics.sort_by(|a, b| a.pod.uid.cmp(&b.pod.uid));

    let by_full_name: Map<String, Value> = seen
        .full_names
        .iter()
        .map(|full_name| {
            let (name, namespace) = full_name.split_once('_').expect("a full name");
            let pod = snapshot.pod_by_full_name(full_name);
            assert_eq!(id_of(pod), id_of(snapshot.pod_by_name(namespace, name)), "GetPodByName agrees");
            (full_name.clone(), id_of(pod))
        })
        .collect();

    BTreeMap::from([
        ("gauge", json!(snapshot.ephemeral_container_count())),
        ("pods", told_all(snapshot.pods())),
        ("allMirrorPods", told_all(snapshot.mirror_pods())),
        ("orphans", json!(orphans)),
        ("podToMirror", json!(pod_to_mirror(snapshot))),
        ("mirrorToPod", json!(mirror_to_pod(snapshot))),
        (
            "staticToMirror",
            statics.into_iter().map(|one| json!([id_of(Some(one.pod)), id_of(one.mirror)])).collect(),
        ),
        ("byUID", by_uid(&|pod| id_of(snapshot.pod_by_uid(&pod.uid)))),
        ("translate", by_uid(&|pod| json!(snapshot.translate_pod_uid(&pod.uid).to_string()))),
        ("byFullName", Value::Object(by_full_name)),
        ("mirrorByPod", by_uid(&|pod| id_of(snapshot.mirror_pod_by_pod(pod)))),
        ("podByMirror", by_uid(&|pod| id_of(snapshot.pod_by_mirror_pod(pod)))),
        (
            "podAndMirror",
            by_uid(&|pod| {
                let found = snapshot.pod_and_mirror_pod(pod);
                json!([id_of(found.pod), id_of(found.mirror), is_mirror_pod(&**pod)])
            }),
        ),
        ("isMirrorOf", is_mirror_of(seen)),
    ])
}

fn is_mirror_of(seen: &Seen) -> Value {
    let mut pairs = Vec::new();
    for (a, mirror) in &seen.newest {
        for (b, pod) in &seen.newest {
            if is_mirror_pod_of(&**mirror, &**pod) {
                pairs.push([a, b]);
            }
        }
    }
    json!(pairs)
}

#[test]
fn every_recorded_state_of_the_kubelet_is_matched_in_every_field() {
    let (mut writer, reader) = pod_index::new();
    let mut seen = Seen::default();
    let mut history = u64::MAX;
    let (mut states, mut fields) = (0, 0);
    for line in HISTORIES.lines() {
        let recorded: Value = serde_json::from_str(line).expect("a line of JSON");
        if recorded["history"] != history {
            history = recorded["history"].as_u64().expect("a number");
            seen = Seen::default();
            drop(writer.set_pods(Vec::<Arc<TestPod>>::new()));
        }
        let pods = recorded["pods"].as_array().expect("pods").iter().map(|pod| seen.pod(pod)).collect();
        apply(&mut writer, recorded["op"].as_str().expect("an operation"), pods);
        let have = state(&reader.load(), &seen);

        let want = recorded["state"].as_object().expect("a state");
        assert_eq!(want.len(), have.len(), "every field is compared");
        for (field, value) in have {
            assert_eq!(value, want[field], "history {history}, step {}, {field}", recorded["step"]);
            fields += 1;
        }
        states += 1;
    }
    assert_eq!((states, fields), (30 * 40, 30 * 40 * 14));
}

fn apply(writer: &mut Writer<TestPod>, operation: &str, pods: Vec<Arc<TestPod>>) {
    if operation == "set" {
        let applied = writer.set_pods(pods);
        assert_eq!(applied.refused, []);
        return;
    }
    for pod in pods {
        match operation {
            "add" | "update" => drop(writer.upsert_pod(pod).expect("a good pod")),
            "remove" => drop(writer.remove_pod(&pod).expect("a known pod")),
            other => panic!("no such operation: {other}"),
        }
    }
}
