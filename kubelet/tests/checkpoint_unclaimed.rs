//! How long restored pods stay, and which pods of manifests wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use pod_index::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, Operation, PodMeta, PodUid, Reader, Writer,
};
use pod_index_kubelet::checkpoint::{RESTORED_ANNOTATION, Restored, Unclaimed};
use pod_index_kubelet::sources::{Merge, NodeName, Source, SourceUpdate};
use pod_index_test_support::dice::Dice;
use serde_json::json;

/// An index with the pods of the last run, written as by a program that merges its sources.
struct Run {
    unclaimed: Unclaimed,
    writer: Writer<Pod>,
    reader: Reader<Pod>,
}

impl Run {
    fn after(pods: impl IntoIterator<Item = Pod>, sources: &[Source]) -> Self {
        let pods = pods.into_iter().map(restored).map(Arc::new).collect();
        let restored = Restored { pods, ..Restored::default() };
        let unclaimed = Unclaimed::new(restored, sources.iter().copied());
        let (mut writer, reader) = pod_index::new();
        assert_eq!(writer.apply(unclaimed.operations()).refused, []);
        Self { unclaimed, writer, reader }
    }

    /// A write of the merge's operations, after these sources have reported all. Returns the restored pods that it removes.
    fn write(&mut self, operations: Vec<Operation<Pod>>, reported_all: &[Source]) -> Vec<PodUid> {
        for source in reported_all {
            self.unclaimed.reported_all(*source);
        }
        let operations = self.unclaimed.hold_back(operations, self.writer.current());
        let _ = self.writer.apply(operations);
        let gone = self.unclaimed.gone(self.writer.current());
        assert_eq!(self.writer.apply(gone.iter().cloned().map(Operation::Remove)).refused, []);
        gone
    }

    /// The same. Returns the UIDs that the index then has.
    fn uids_after(&mut self, operations: Vec<Operation<Pod>>, reported_all: &[Source]) -> String {
        let _ = self.write(operations, reported_all);
        let uids = self.reader.load().pods().map(|pod| pod.uid().to_owned()).collect::<BTreeSet<_>>();
        uids.into_iter().collect::<Vec<_>>().join(" ")
    }
}

fn restored(mut pod: Pod) -> Pod {
    pod.metadata
        .annotations
        .get_or_insert_default()
        .insert(RESTORED_ANNOTATION.to_owned(), "true".to_owned());
    pod
}

fn named(uid: &str, name: &str, source: &str) -> Pod {
    let annotations = [(CONFIG_SOURCE_ANNOTATION.to_owned(), source.to_owned())];
    let metadata = ObjectMeta {
        uid: Some(uid.to_owned()),
        name: Some(name.to_owned()),
        namespace: Some("ns".to_owned()),
        annotations: Some(annotations.into()),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}

/// The static pod `web`, as a manifest describes it.
fn manifest(uid: &str) -> Operation<Pod> {
    add(named(uid, "web", "file"))
}

/// The static pod `web`, as a kubelet reports it.
fn running(uid: &str) -> Pod {
    let status = PodStatus { start_time: Some(Time(Timestamp::UNIX_EPOCH)), ..PodStatus::default() };
    Pod { status: Some(status), ..named(uid, "web", "file") }
}

/// The mirror pod of the static pod `web` that has this UID on its node.
fn mirror_of(uid: &str) -> Pod {
    let mut mirror = named("mirror", "web", "api");
    mirror.metadata.annotations.as_mut().unwrap().insert(CONFIG_MIRROR_ANNOTATION.to_owned(), uid.to_owned());
    mirror
}

fn add(pod: Pod) -> Operation<Pod> {
    Operation::Upsert(Arc::new(pod))
}

fn remove(uid: &str) -> Operation<Pod> {
    Operation::Remove(uid.into())
}

#[test]
fn a_source_decides_its_restored_pods_and_the_last_one_all_that_remain() {
    let pods = [("f1", "file"), ("f2", "file"), ("a1", "api"), ("a2", "api"), ("h1", "http")];
    let pods = pods.map(|(uid, source)| named(uid, uid, source));
    let mut run = Run::after(pods, &[Source::File, Source::Api]);
    let update = |uid: &str| add(named(uid, uid, "file"));
    let none = Vec::<PodUid>::new();
    assert_eq!(run.write(vec![update("f1"), update("other")], &[]), none);
    // A rejected pod claims nothing.
    let metadata = ObjectMeta { uid: Some("a1".to_owned()), ..ObjectMeta::default() };
    let nameless = add(Pod { metadata, ..Pod::default() });
    assert_eq!(run.write(vec![nameless], &[Source::File]), [PodUid::from("f2")]);
    assert_eq!(run.write(vec![remove("a2"), update("f2")], &[Source::File]), none);
    // It is not followed, so it decides nothing.
    assert_eq!(run.write(Vec::new(), &[Source::Http]), none);
    assert!(!run.unclaimed.is_over());
    assert_eq!(run.write(Vec::new(), &[Source::Api]), [PodUid::from("a1"), PodUid::from("h1")]);
    assert!(run.unclaimed.is_over());
    assert_eq!(run.uids_after(Vec::new(), &[]), "f1 f2 other");
}

/// The last run knew the kubelet's UID from the mirror pod.
#[test]
fn a_restored_static_pod_keeps_the_kubelets_uid_until_the_api_server_or_the_kubelet_has_reported() {
    for (operations, reported_all, expected) in [
        (vec![], &[][..], "kubelets"),
        (vec![remove("edited")], &[], ""),
        (vec![remove("mirror")], &[Source::Api], "edited"),
        (vec![remove("edited"), manifest("kubelets")], &[Source::Kubelet], "kubelets"),
    ] {
        let pods = [named("kubelets", "web", "file"), mirror_of("kubelets")];
        let mut run = Run::after(pods, &[Source::File, Source::Api, Source::Kubelet]);
        assert_eq!(run.uids_after(vec![manifest("read")], &[Source::File]), "kubelets");
        assert_eq!(run.uids_after(vec![remove("read"), manifest("edited")], &[]), "kubelets");
        assert_eq!(run.uids_after(operations, reported_all), expected, "after {reported_all:?}");
    }
}

/// The API server has said which UIDs hold. That the kubelet is away does not matter any more.
#[test]
fn after_one_source_has_said_the_uids_of_the_node_no_manifest_waits() {
    let pods = [named("kubelets", "web", "file"), mirror_of("kubelets")];
    let mut run = Run::after(pods, &[Source::File, Source::Api, Source::Kubelet]);
    assert_eq!(run.uids_after(vec![add(mirror_of("kubelets"))], &[Source::Api]), "kubelets");
    assert_eq!(run.uids_after(vec![manifest("read")], &[Source::File]), "read");
}

/// A program with manifests and a kubelet has no mirror pods. That a kubelet has reported the restored pod shows in its status: a
/// manifest has none.
#[test]
fn a_restored_static_pod_keeps_the_kubelets_uid_without_a_mirror_pod_if_a_kubelet_has_run_it() {
    let sources = [Source::File, Source::Kubelet];
    let mut run = Run::after([running("kubelets")], &sources);
    assert_eq!(run.uids_after(vec![manifest("read")], &[Source::File]), "kubelets");
    assert_eq!(
        run.uids_after(vec![add(running("kubelets")), remove("read")], &[Source::Kubelet]),
        "kubelets"
    );

    let mut run = Run::after([running("kubelets")], &sources);
    assert_eq!(run.uids_after(Vec::new(), &[Source::File]), "", "its manifest is gone");

    let mut run = Run::after([named("manifests", "web", "file")], &sources);
    assert_eq!(run.uids_after(vec![manifest("edited")], &[Source::File]), "edited", "no kubelet has run it");

    let of_api_server = Pod { status: running("").status, ..named("ordinary", "web", "api") };
    let mut run = Run::after([of_api_server], &[Source::File, Source::Api]);
    assert_eq!(
        run.uids_after(vec![manifest("read")], &[Source::File]),
        "ordinary read",
        "it is no static pod"
    );
}

/// What exists on a node: static pods and pods of the API server, by name, with a number that each pod of a name has for itself.
#[derive(Clone, Default)]
struct Truth {
    manifests: BTreeMap<String, u64>,
    api_pods: BTreeMap<String, u64>,
    pods_so_far: u64,
}

impl Truth {
    fn at_random(dice: &mut Dice) -> Self {
        let mut truth = Self::default();
        (0..30).for_each(|_| truth.change(dice));
        truth
    }

    fn change(&mut self, dice: &mut Dice) {
        self.pods_so_far += 1;
        let number = dice.roll(4);
        let (pods, name) = match dice.roll(2) {
            0 => (&mut self.manifests, format!("static-{number}")),
            _ => (&mut self.api_pods, format!("ordinary-{number}")),
        };
        if dice.roll(2) == 0 {
            pods.remove(&name);
        } else {
            pods.insert(name, self.pods_so_far);
        }
    }

    /// All that this source has.
    fn of(&self, source: Source) -> Vec<Arc<Pod>> {
        let manifests = self.manifests.iter();
        let api_pods = self.api_pods.iter().map(|(name, number)| of_api_server(name, *number));
        match source {
            Source::File => manifests.map(|(name, number)| of_manifest(name, *number)).collect(),
            Source::Kubelet => {
                manifests.map(|(name, number)| of_kubelet(name, *number)).chain(api_pods).collect()
            }
            Source::Api => manifests.map(|(name, number)| mirror(name, *number)).chain(api_pods).collect(),
            Source::Http => Vec::new(),
        }
    }

    /// The UIDs on the node.
    fn uids(&self) -> BTreeSet<String> {
        let of_kubelet = self.manifests.iter().map(|(name, number)| kubelets_uid(name, *number));
        let of_api_server = self.api_pods.iter().map(|(name, number)| format!("{name}-{number}"));
        of_kubelet.chain(of_api_server).collect()
    }
}

fn kubelets_uid(name: &str, number: u64) -> String {
    format!("kubelets-{name}-{number}")
}

fn parsed(metadata: &serde_json::Value) -> Arc<Pod> {
    let container = json!({
        "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": { "running": {} },
    });
    let status = json!({
        "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [container],
    });
    let spec = json!({ "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap())
}

fn of_api_server(name: &str, number: u64) -> Arc<Pod> {
    let annotations = json!({ CONFIG_SOURCE_ANNOTATION: "api", "kubernetes.io/config.seen": "seen" });
    let uid = format!("{name}-{number}");
    parsed(&json!({
        "uid": uid, "name": name, "namespace": "ns", "resourceVersion": "5", "annotations": annotations,
    }))
}

fn of_kubelet(name: &str, number: u64) -> Arc<Pod> {
    let uid = kubelets_uid(name, number);
    let annotations = json!({
        CONFIG_SOURCE_ANNOTATION: "file", "kubernetes.io/config.seen": "seen", "kubernetes.io/config.hash": uid,
    });
    parsed(&json!({ "uid": uid, "name": name, "namespace": "ns", "annotations": annotations }))
}

fn of_manifest(name: &str, number: u64) -> Arc<Pod> {
    let mut pod = Arc::unwrap_or_clone(of_kubelet(name, number));
    pod.metadata.uid = Some(format!("manifests-{name}-{number}"));
    pod.status = None;
    Arc::new(pod)
}

fn mirror(name: &str, number: u64) -> Arc<Pod> {
    let of = kubelets_uid(name, number);
    let annotations = json!({
        "kubernetes.io/config.hash": of, CONFIG_MIRROR_ANNOTATION: of,
        "kubernetes.io/config.seen": "seen", CONFIG_SOURCE_ANNOTATION: "file",
    });
    let owner =
        json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node", "controller": true });
    parsed(&json!({
        "uid": format!("mirror-{name}-{number}"), "name": name, "namespace": "ns", "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:05Z", "annotations": annotations, "ownerReferences": [owner],
    }))
}

/// A program that merges these sources, and its index.
struct Program {
    merge: Merge,
    run: Run,
}

impl Program {
    fn after(pods: impl IntoIterator<Item = Pod>, sources: &[Source]) -> Self {
        let merge = Merge::new(sources.iter().copied()).derive_static_pods(NodeName::new("n1"));
        Self { merge, run: Run::after(pods, sources) }
    }

    /// A source reports. `is_complete`: these are all pods that it has.
    fn told(&mut self, source: Source, pods: Vec<Arc<Pod>>, is_complete: bool) {
        let update = if is_complete { SourceUpdate::Set(pods) } else { SourceUpdate::Incomplete(pods) };
        let mut operations: Vec<_> = self.merge.update(source, update).into_operations().collect();
        operations.extend(self.merge.read(source, Instant::now(), is_complete).into_operations());
        let reported_all = if is_complete { &[source][..] } else { &[] };
        let _ = self.run.write(operations, reported_all);
    }

    fn uids(&self) -> BTreeSet<String> {
        self.run.reader.load().pods().map(|pod| pod.uid().to_owned()).collect()
    }
}

/// Pods come, change and go while the program is away. Then its sources answer, in any order, a kubelet perhaps with a part first.
#[test]
fn after_a_restart_no_running_pod_is_missing_and_none_is_left_that_has_gone() {
    let mut held_back = 0;
    for seed in 0..2000 {
        let mut dice = Dice(seed);
        let mut sources = match dice.roll(3) {
            0 => vec![Source::File, Source::Api],
            1 => vec![Source::File, Source::Kubelet],
            _ => vec![Source::File, Source::Kubelet, Source::Api],
        };
        let before = Truth::at_random(&mut dice);
        let mut last_run = Program::after([], &sources);
        for source in &sources {
            last_run.told(*source, before.of(*source), true);
        }
        let checkpoints: Vec<_> = {
            let snapshot = last_run.run.reader.load();
            snapshot.pods().chain(snapshot.mirror_pods()).map(|pod| Pod::clone(pod)).collect()
        };
        let mut now = before.clone();
        (0..dice.roll(6)).for_each(|_| now.change(&mut dice));
        let lasting: BTreeSet<_> = before.uids().intersection(&now.uids()).cloned().collect();

        let mut program = Program::after(checkpoints, &sources);
        let mut history = vec![format!("seed {seed}: {:?}, lasting {lasting:?}", program.uids())];
        while !sources.is_empty() {
            let source = sources.remove(dice.index(sources.len()));
            let all = now.of(source);
            if source == Source::Kubelet && dice.roll(2) == 0 {
                // As one that has just started, which lists its static pods and then the others, one after the other.
                let part = all.iter().take(dice.index(all.len() + 1)).cloned().collect();
                program.told(source, part, false);
                sources.push(source);
                history.push(format!("a part of {source}: {:?}", program.uids()));
            } else {
                program.told(source, all, true);
                history.push(format!("{source}: {:?}", program.uids()));
            }
            let known = program.uids();
            let missing: Vec<_> = lasting.difference(&known).collect();
            assert!(missing.is_empty(), "{missing:?} run:\n{}", history.join("\n"));
            let names: BTreeSet<_> =
                program.run.reader.load().pods().map(|pod| pod.name().to_owned()).collect();
            assert_eq!(names.len(), known.len(), "a name is there twice:\n{}", history.join("\n"));
            held_back += usize::from(!program.run.unclaimed.is_over());
        }
        assert!(program.run.unclaimed.is_over());
        assert_eq!(program.uids(), now.uids(), "{}", history.join("\n"));
    }
    assert!(held_back > 1000, "hardly a restored pod waited for its source: {held_back}");
}
