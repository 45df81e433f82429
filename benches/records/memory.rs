//! The memory of records, beside their pods: all 40 labels are attributes.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::Operation;
use pod_index_kubelet::records::{Change, Join, Record, Rules, RulesError};
use support::memory::allocated;

use super::pods::{self, REPLICAS};
use super::table;

const RULES: &str = "
extract:
  metadata: [k8s.pod.name, k8s.pod.uid, k8s.namespace.name, k8s.node.name, k8s.pod.ip, k8s.pod.start_time]
  labels: [{ key_regex: .* }, { key: team, from: namespace, tag_name: team }]
";
const NONE: &str = "extract: { metadata: [] }";

pub fn print(sizes: &[usize]) -> Result<(), RulesError> {
    println!("\nBytes a pod with 40 labels, beside the pod itself.");
    table::head(&[
        "pods",
        "index without records",
        "records without attributes",
        "47 attributes, shared",
        "not shared",
        "47 attributes as texts",
    ]);
    for n in sizes {
        let none = Rules::parse(NONE)?.extract;
        let rules = Rules::parse(RULES)?.extract;
        let cells = [
            plain(*n),
            joined(*n, REPLICAS, Join::new(none)),
            joined(*n, REPLICAS, Join::new(rules.clone())),
            joined(*n, 1, Join::new(rules.clone())),
            texts(*n, Join::new(rules)),
        ];
        table::row(&n.to_string(), cells.map(|bytes| bytes.to_string()));
    }
    Ok(())
}

/// What `make` allocates and keeps, for each of `n`.
fn bytes_each<T>(n: usize, make: impl FnOnce() -> T) -> (isize, T) {
    let before = allocated();
    let made = make();
    ((allocated() - before) / n.cast_signed(), made)
}

fn plain(n: usize) -> isize {
    let all: Vec<_> = (0..n).map(|number| pods::pod(number, REPLICAS)).collect();
    let (mut writer, _reader) = pod_index::new::<Pod>();
    bytes_each(n, || drop(writer.set_pods(all.iter().cloned()))).0
}

/// With the record's place in the index, and what the join keeps.
fn joined(n: usize, replicas: usize, mut join: Join) -> isize {
    let all: Vec<_> = (0..n).map(|number| pods::pod(number, replicas)).collect();
    let (mut writer, _reader) = pod_index::new();
    let set = [pods::namespace("a"), Change::Pod(Operation::Set(all.clone()))];
    bytes_each(n, || drop(join.write(&mut writer, set))).0
}

/// The attributes alone, each pod's as texts in a map of its own.
fn texts(n: usize, mut join: Join) -> isize {
    let all: Vec<_> = (0..n).map(|number| pods::pod(number, REPLICAS)).collect();
    let (mut writer, reader) = pod_index::new();
    let _ = join.write(&mut writer, [pods::namespace("a"), Change::Pod(Operation::Set(all))]);
    let snapshot = reader.load();
    let of = |record: &Arc<Record>| -> HashMap<String, String> {
        record.attributes().map(|one| (one.name.to_string(), one.value.to_string())).collect()
    };
    bytes_each(n, || snapshot.pods().map(of).collect::<Vec<_>>()).0
}
