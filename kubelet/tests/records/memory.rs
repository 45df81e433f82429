//! What an embedder's program takes in memory: pods as k8s-openapi decodes them, and records.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Operation, Options};
use pod_index_kubelet::records::{Change, Join, Record, Rules};
use pod_index_test_support::deployment::pod_of_a_deployment;

use crate::peak::memory_of;

const PODS: usize = 1_000;

/// The rules of the example in `docs/sources.md`, and three more that users often have.
const RULES: &str = "
extract:
  metadata: [k8s.namespace.name, k8s.pod.name, k8s.deployment.name, k8s.pod.uid, k8s.node.name, container.image.name]
  labels: [{ key: team, tag_name: team }]
";

fn kilobytes(bytes: usize) -> usize {
    (bytes + 500) / 1_000
}

#[test]
fn embedders_are_told_what_a_pod_and_a_record_take() {
    let texts: Vec<_> = (0..PODS).map(text_of).collect();
    let (pods, of_pods) = memory_of(|| -> Vec<Arc<Pod>> {
        texts.iter().map(|text| Arc::new(serde_json::from_str(text).unwrap())).collect()
    });

    // The index of pods, and the index of records of the same pods.
    let (_index, of_index) = memory_of(|| {
        let (mut writer, reader) = pod_index::with_options::<Pod>(Options::new());
        let _ = writer.apply(pods.iter().cloned().map(Operation::Upsert));
        (writer, reader)
    });
    let (_records, of_records) = memory_of(|| {
        let (mut writer, reader) = pod_index::new::<Record>();
        let mut join = Join::new(Rules::parse(RULES).unwrap().extract);
        let _ = join.write(&mut writer, pods.iter().cloned().map(|pod| Change::Pod(Operation::Upsert(pod))));
        assert_eq!(reader.load().pods().len(), PODS);
        (writer, reader, join)
    });
    let json = kilobytes(texts.iter().map(String::len).sum::<usize>() / PODS);
    let pod = kilobytes(of_pods.kept / PODS);
    let record = (of_records.kept - of_index.kept) / PODS;
    println!(
        "JSON {json} kB, the pod {pod} kB, its record {record} bytes more, the index {} bytes",
        of_index.kept / PODS
    );

    // The tables of an index have room for more, which depends on the seed of its hashes.
    assert!((1_500..2_000).contains(&record), "{record} bytes");
    let guide = include_str!("../../../docs/embedders.md");
    for sentence in [
        format!("{json} kB of JSON, takes {pod} kB as k8s-openapi's `Pod`"),
        "its `Record` takes about 1.7 kB more".to_owned(),
    ] {
        assert!(guide.contains(&sentence), "docs/embedders.md does not say: {sentence}");
    }
}

/// As a source keeps it: without `managedFields`.
fn text_of(number: usize) -> String {
    let mut pod = pod_of_a_deployment(number as u64);
    pod["metadata"].as_object_mut().unwrap().remove("managedFields");
    pod.to_string()
}
