//! What an embedder's program takes in memory: pods as k8s-openapi decodes them, and records.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Operation, Options};
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

/// What an index of the records of these pods takes for each, and what its join takes in addition.
fn index_and_join(pods: &[Arc<Pod>], rules: &str) -> (usize, usize) {
    let kept = |keeps_join: bool| {
        let built = || {
            let (mut writer, reader) = pod_index::new::<Record>();
            let mut join = Join::new(Rules::parse(rules).unwrap().extract);
            let _ =
                join.write(&mut writer, pods.iter().cloned().map(|pod| Change::Pod(Operation::Upsert(pod))));
            (writer, reader, keeps_join.then_some(join))
        };
        memory_of(built).1.kept / PODS
    };
    let index = kept(false);
    (index, kept(true) - index)
}

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
    let record = (of_records.kept - of_index.kept) / PODS; // the join included
    println!(
        "JSON {json} kB, the pod {pod} kB, its record {record} bytes more, the index {} bytes",
        of_index.kept / PODS
    );

    let of_index = of_index.kept / PODS;
    for (rules, about) in [(RULES, 1_180), (TEN, 1_340)] {
        let (index, join) = index_and_join(&pods, rules);
        let record = index - of_index;
        println!("records {record} bytes more, the join {join} bytes");
        assert!(record.abs_diff(about) < 200 && (400..700).contains(&join), "{record} and {join} bytes");
    }

    // The tables of an index have room for more, which depends on the seed of its hashes.
    assert!((1_500..2_000).contains(&record), "{record} bytes");
    let guide = include_str!("../../../docs/embedders.md");
    for sentence in [
        format!("{json} kB of JSON, takes {pod} kB as k8s-openapi's `Pod`"),
        "its `Record` takes about 1.7 kB more".to_owned(),
        "1.2 kB are the record and 0.6 kB the join. With ten attributes, it is 1.3 kB and 0.6 kB".to_owned(),
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
