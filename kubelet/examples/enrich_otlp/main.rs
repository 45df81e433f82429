//! Enriches a batch of OTLP resources with the attributes of their pods: `cargo run -p pod-index-kubelet --example
//! enrich_otlp`
//!
//! This file is plain Rust. `otel_arrow.rs` answers the interface that otel-arrow's resource enricher asks for.

mod interface;
mod otel_arrow;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::{Operation, Reader};
use pod_index_kubelet::records::{Change, FromRecord, Join, Record, Resource, Rules, Tally};
use pod_index_kubelet::sources::SourceUpdate;
use serde_json::json;

/// The processor's configuration, as users of OpenTelemetry's collector have it.
const RULES: &str = "
extract:
  metadata: [k8s.pod.name, k8s.namespace.name, k8s.deployment.name, container.image.tag]
  labels: [{ key: team, from: namespace, tag_name: team }]
pod_association:
  - sources: [{ from: resource_attribute, name: k8s.pod.uid }]
  - sources: [{ from: connection }]
";

/// A resource of a batch, and from where it came.
#[derive(Default)]
struct OtlpResource {
    attributes: BTreeMap<String, String>,
    peer: Option<IpAddr>,
}

impl Resource for OtlpResource {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
    fn connection(&self) -> Option<IpAddr> {
        self.peer
    }
}

/// Adds the attributes of the pods. One load serves the batch, so all of it is from one moment.
fn enrich(batch: &mut [OtlpResource], reader: &Reader<Record>, rules: &Rules, tally: &mut Tally) {
    let snapshot = reader.load();
    for resource in batch {
        let found = rules.associations.find(&snapshot, resource);
        tally.add(&found);
        for attribute in found.attributes().into_iter().flatten() {
            // As in the collector: what the event says itself stays.
            resource
                .attributes
                .entry(attribute.name.to_string())
                .or_insert_with(|| attribute.value.to_string());
        }
    }
}

/// An index of one pod and its Namespace. In an agent, sources do this: see `sources::api_server::ApiServer`.
fn index<P: FromRecord>(rules: &Rules) -> Result<Reader<P>, Box<dyn Error>> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "web-6d4b75cb6d-x7k2p", "namespace": "shop", "uid": "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
            "labels": { "pod-template-hash": "6d4b75cb6d" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4b75cb6d", "uid": "r", "controller": true }],
        },
        "spec": { "containers": [{ "name": "nginx", "image": "nginx:1.29" }] },
        "status": { "podIP": "10.0.0.7" },
    }))?;
    let namespace = json!({ "name": "shop", "uid": "n", "labels": { "team": "checkout" } });
    let namespace: ObjectMeta = serde_json::from_value(namespace)?;
    let (mut writer, reader) = pod_index::new();
    let mut join = Join::new(rules.extract.clone());
    let changes = [
        Change::Pod(Operation::Upsert(pod.into())),
        Change::Namespaces(SourceUpdate::Set(vec![namespace.into()])),
    ];
    let applied = join.write(&mut writer, changes);
    assert!(applied.refused.is_empty(), "the pod has a UID, a name and a namespace");
    Ok(reader)
}

fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let rules = Rules::parse(RULES)?;
    let reader = index(&rules)?;
    let uid = ("k8s.pod.uid".to_owned(), "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".to_owned());
    let mut batch = [
        OtlpResource { attributes: [uid].into(), peer: None },
        OtlpResource { peer: Some([10, 0, 0, 7].into()), ..OtlpResource::default() },
        OtlpResource { peer: Some([192, 0, 2, 1].into()), ..OtlpResource::default() },
    ];
    let mut tally = Tally::default();
    enrich(&mut batch, &reader, &rules, &mut tally);
    let mut lines: Vec<_> = batch.iter().map(|resource| format!("{:?}", resource.attributes)).collect();
    lines.push(format!("{} found, {} missing, {} ambiguous", tally.found, tally.missing, tally.ambiguous));
    Ok(lines)
}

fn main() -> Result<(), Box<dyn Error>> {
    run()?.iter().chain(&otel_arrow::run()?).for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(test)]
#[test]
fn every_resource_gets_the_attributes_of_its_pod() {
    let added = r#""container.image.tag": "1.29", "k8s.deployment.name": "web", "k8s.namespace.name": "shop", "k8s.pod.name": "web-6d4b75cb6d-x7k2p""#;
    let uid = r#""k8s.pod.uid": "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "#;
    let expected = [
        format!(r#"{{{added}, {uid}"team": "checkout"}}"#),
        format!(r#"{{{added}, "team": "checkout"}}"#),
        "{}".to_owned(),
        "2 found, 1 missing, 0 ambiguous".to_owned(),
    ];
    assert_eq!(run().expect("no error"), expected);
}
