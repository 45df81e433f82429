//! What an embedder's program takes in memory: pods as k8s-openapi decodes them, and records.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::Operation;
use pod_index_kubelet::records::{Change, Join, Record, Rules};
use pod_index_test_support::deployment::pod_of_a_deployment;

use crate::peak::memory_of;

const PODS: usize = 1_000;

/// As many attributes as an exporter often has, of which four differ between the pods of a Deployment.
const TEN: &str = "
extract:
  metadata: [k8s.namespace.name, k8s.pod.name, k8s.deployment.name, k8s.pod.uid, k8s.node.name, container.image.name, k8s.pod.ip, k8s.pod.start_time, k8s.replicaset.name]
  labels: [{ key: team, tag_name: team }]
";

/// The rules of the example in `docs/sources.md`, and three more that users often have.
const RULES: &str = "
extract:
  metadata: [k8s.namespace.name, k8s.pod.name, k8s.deployment.name, k8s.pod.uid, k8s.node.name, container.image.name]
  labels: [{ key: team, tag_name: team }]
";

/// What is made of a pod, in bytes.
struct Made {
    record: usize,
    /// What the join keeps besides.
    join: usize,
}

/// For each of these pods. Not as an index of them: its tables have more or less room, by the seed of its hashes.
fn made(pods: &[Arc<Pod>], rules: &str) -> Made {
    let kept = |keeps_join: bool| {
        let joined = || {
            let mut join = Join::new(Rules::parse(rules).unwrap().extract);
            let upserts = pods.iter().cloned().map(|pod| Change::Pod(Operation::Upsert(pod)));
            let records: Vec<Operation<Record>> = join.apply(upserts);
            (records, keeps_join.then_some(join))
        };
        memory_of(joined).1.kept / PODS
    };
    let records = kept(false);
    Made { record: records - size_of::<Operation<Record>>(), join: kept(true) - records }
}

fn kilobytes(bytes: usize) -> usize {
    (bytes + 500) / 1_000
}

/// Kilobytes with one decimal.
fn decimal(bytes: usize) -> String {
    let hundreds = (bytes + 50) / 100;
    format!("{}.{}", hundreds / 10, hundreds % 10)
}

#[test]
fn embedders_are_told_what_a_pod_and_a_record_take() {
    let texts: Vec<_> = (0..PODS).map(text_of).collect();
    let (pods, of_pods) = memory_of(|| -> Vec<Arc<Pod>> {
        texts.iter().map(|text| Arc::new(serde_json::from_str(text).unwrap())).collect()
    });

    let json = kilobytes(texts.iter().map(String::len).sum::<usize>() / PODS);
    let pod = kilobytes(of_pods.kept / PODS);
    let seven = made(&pods, RULES);
    let ten = made(&pods, TEN);
    let guide = include_str!("../../../docs/writing.md");
    for sentence in [
        format!("{json} kB of JSON, takes {pod} kB as k8s-openapi's `Pod`"),
        format!("its `Record` takes about {} kB more", decimal(seven.record + seven.join)),
        format!(
            "{} kB are the record and {} kB the join. With ten attributes, it is {} kB and {} kB",
            decimal(seven.record),
            decimal(seven.join),
            decimal(ten.record),
            decimal(ten.join)
        ),
    ] {
        assert!(guide.contains(&sentence), "docs/writing.md does not say: {sentence}");
    }
}

/// As a source keeps it: without `managedFields`.
fn text_of(number: usize) -> String {
    let mut pod = pod_of_a_deployment(number as u64);
    pod["metadata"].as_object_mut().unwrap().remove("managedFields");
    pod.to_string()
}
