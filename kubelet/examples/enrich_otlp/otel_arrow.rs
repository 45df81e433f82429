//! Answers the `interface` of otel-arrow's planned resource enricher by an index of records.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use pod_index::identity::ContainerId;
use pod_index::{Key, Life, OwnedSnapshot, PodKeys, PodMeta, Reader, UidRef};
use pod_index_kubelet::records::{FromRecord, Record, Rules, Value};

use super::interface::{ConnectionLookup, EnrichmentRecord, EnrichmentValue, LookupKey, MetadataLookup};

/// What the index stores: made once, when a pod or what belongs to it changes.
struct Enriched {
    record: Arc<Record>,
    flat: EnrichmentRecord,
}

impl PodMeta for Enriched {
    fn uid(&self) -> &str {
        self.record.uid()
    }
    fn name(&self) -> &str {
        self.record.name()
    }
    fn namespace(&self) -> &str {
        self.record.namespace()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.record.annotation(key)
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        self.record.keys(keys);
    }
    fn life(&self) -> Life {
        self.record.life()
    }
}

impl FromRecord for Enriched {
    fn from_record(record: &Arc<Record>) -> Arc<Self> {
        let value = |value: &Value| match value {
            Value::Texts(texts) => EnrichmentValue::Array(texts.iter().map(ToString::to_string).collect()),
            value => EnrichmentValue::Scalar(value.to_string()),
        };
        let flat = record.attributes().map(|one| (one.name.to_string(), value(&one.value))).collect();
        Arc::new(Self { record: Arc::clone(record), flat })
    }
}

type MetadataSnapshot = OwnedSnapshot<Enriched>;

struct Provider(Reader<Enriched>);

/// A key that several pods claim is ambiguous, and a miss.
fn certain<'a>(snapshot: &'a MetadataSnapshot, key: Key<'_>) -> Option<&'a EnrichmentRecord> {
    Some(&snapshot.get(key).filter(|_| !snapshot.is_contested(key))?.pod.flat)
}

impl MetadataLookup for Provider {
    type Snapshot = MetadataSnapshot;

    fn snapshot(&self) -> MetadataSnapshot {
        self.0.snapshot()
    }
    fn lookup<'a>(&self, snapshot: &'a MetadataSnapshot, key: LookupKey<'_>) -> Option<&'a EnrichmentRecord> {
        match *key {
            [("k8s.pod.uid", uid)] => certain(snapshot, UidRef::from(uid).into()),
            [("k8s.pod.ip", ip)] => certain(snapshot, ip.parse::<IpAddr>().ok()?.into()),
            [("container.id", id)] => certain(snapshot, id.parse::<ContainerId>().ok()?.into()),
            [("k8s.pod.name", name), ("k8s.namespace.name", namespace)] => {
                certain(snapshot, (namespace, name).into())
            }
            _ => None,
        }
    }
    fn as_connection_lookup(&self) -> Option<&dyn ConnectionLookup<MetadataSnapshot>> {
        Some(self)
    }
}

impl ConnectionLookup<MetadataSnapshot> for Provider {
    fn lookup_by_connection<'a>(
        &self,
        snapshot: &'a MetadataSnapshot,
        peer: IpAddr,
    ) -> Option<&'a EnrichmentRecord> {
        certain(snapshot, peer.into())
    }
}

pub fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let provider = Provider(super::index(&Rules::parse(super::RULES)?)?);
    let snapshot = provider.snapshot();
    let by_peer = provider.as_connection_lookup().expect("it finds pods by IP");
    let found = [
        provider
            .lookup(&snapshot, &[("k8s.pod.name", "web-6d4b75cb6d-x7k2p"), ("k8s.namespace.name", "shop")]),
        by_peer.lookup_by_connection(&snapshot, [10, 0, 0, 7].into()),
        by_peer.lookup_by_connection(&snapshot, [192, 0, 2, 1].into()),
    ];
    Ok(found.iter().map(|record| format!("{:?}", record.and_then(|record| record.get("team")))).collect())
}

#[cfg(test)]
#[test]
fn the_provider_answers_by_attributes_and_by_the_peers_address() {
    let team = r#"Some(Scalar("checkout"))"#;
    assert_eq!(run().expect("no error"), [team, team, "None"]);
}
