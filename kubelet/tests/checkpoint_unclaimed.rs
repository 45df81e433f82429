//! How long restored pods stay, and which pods of manifests wait for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use pod_index::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, Operation, PodMeta, PodUid, Reader, Writer,
};
use pod_index_kubelet::checkpoint::{RESTORED_ANNOTATION, Restored, Unclaimed};
use pod_index_kubelet::sources::Source;

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
