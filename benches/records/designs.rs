//! The designs: each finds the attributes of an event, and takes a changed pod.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Pod;
use pod_index::identity::{ContainerId, Identity};
use pod_index::{CachedReader, Operation, PodMeta, Reader, Snapshot, Writer};
use pod_index_kubelet::records::{Change, Extract, Join, Record};

use super::pods::{self, Event, REPLICAS};

/// All designs, with the same pods.
pub struct Designs {
    pub pods: Vec<Arc<Pod>>,
    pub records: Records,
    pub plain: Plain,
    pub map: Map,
}

impl Designs {
    pub fn new(n: usize, rules: &Extract) -> Self {
        let pods: Vec<_> = (0..n).map(|number| pods::pod(number, REPLICAS)).collect();
        let records = Records::new(&pods, rules);
        let map = Map::new(&records.reader.load());
        Self { records, plain: Plain::new(&pods), map, pods }
    }
}

/// An index of records.
pub struct Records {
    pub writer: Writer<Record>,
    pub join: Join,
    pub reader: Reader<Record>,
}

impl Records {
    fn new(pods: &[Arc<Pod>], rules: &Extract) -> Self {
        let (mut writer, reader) = pod_index::new();
        let mut join = Join::new(rules.clone());
        let all = [pods::namespace("a"), Change::Pod(Operation::Set(pods.to_vec()))];
        let _ = join.write(&mut writer, all);
        Self { writer, join, reader }
    }

    pub fn update(&mut self, pod: Arc<Pod>) {
        let _ = self.join.write(&mut self.writer, [Change::Pod(Operation::Upsert(pod))]);
    }
}

/// An index of pods: what users have without records.
pub struct Plain {
    writer: Writer<Pod>,
    pub reader: Reader<Pod>,
}

impl Plain {
    fn new(pods: &[Arc<Pod>]) -> Self {
        let (mut writer, reader) = pod_index::new();
        let _ = writer.set_pods(pods.iter().cloned());
        Self { writer, reader }
    }

    pub fn update(&mut self, pod: Arc<Pod>) {
        self.writer.upsert_pod(pod).expect("a good pod");
    }
}

/// The pod of an event. A path is parsed each time, as in every design.
pub fn found<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, event: &'s Event) -> Option<&'s Arc<P>> {
    Some(match event {
        Event::Ip(ip) => snapshot.pod_by_ip(*ip)?,
        Event::ContainerId(id) => Identity::parse(id).ok()?.resolve(snapshot)?.pod,
        Event::Cgroup(path) => Identity::parse(path).ok()?.resolve(snapshot)?.pod,
    })
}

/// What users write without records: the attributes of an event, made for it.
pub fn made(pod: &Pod) -> BTreeMap<Cow<'static, str>, String> {
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let metadata = &pod.metadata;
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let mut all: BTreeMap<Cow<'static, str>, String> = BTreeMap::new();
    all.insert("k8s.pod.name".into(), text(metadata.name.as_ref()));
    all.insert("k8s.pod.uid".into(), text(metadata.uid.as_ref()));
    all.insert("k8s.namespace.name".into(), text(metadata.namespace.as_ref()));
    all.insert("k8s.node.name".into(), text(spec.and_then(|spec| spec.node_name.as_ref())));
    all.insert("k8s.pod.ip".into(), text(status.and_then(|status| status.pod_ip.as_ref())));
    let created = metadata.creation_timestamp.as_ref();
    all.insert("k8s.pod.start_time".into(), created.map(|created| created.0.to_string()).unwrap_or_default());
    let labels = metadata.labels.iter().flatten().filter(|(key, _)| key.starts_with("label-0"));
    all.extend(labels.map(|(key, value)| (format!("k8s.pod.labels.{key}").into(), value.clone())));
    all
}

/// One map of records by each key, replaced whole: what otel-arrow plans.
#[derive(Clone)]
pub struct Map {
    all: Arc<ArcSwap<HashMap<MapKey, Arc<Record>>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum MapKey {
    Ip(IpAddr),
    Container(ContainerId),
    Uid(Box<str>),
}

impl Map {
    fn new(records: &Snapshot<Record>) -> Self {
        let all = records.pods().flat_map(|record| Self::keys(record).map(|key| (key, Arc::clone(record))));
        Self { all: Arc::new(ArcSwap::from_pointee(all.collect())) }
    }

    fn keys(record: &Record) -> impl Iterator<Item = MapKey> {
        let status = record.status.as_ref();
        let ip = status.and_then(|status| status.pod_ip.as_ref()?.parse().ok()).map(MapKey::Ip);
        let runs = record.containers().iter().filter_map(|container| container.latest());
        let containers: Vec<_> = runs.filter_map(|run| container_key(&run.id)).collect();
        let uid = MapKey::Uid(record.uid().into());
        ip.into_iter().chain(containers).chain([uid])
    }

    /// Makes the map again, with this record in the place of the one with the same keys.
    pub fn update(&self, record: &Arc<Record>) {
        let mut all = HashMap::clone(&self.all.load());
        all.extend(Self::keys(record).map(|key| (key, Arc::clone(record))));
        self.all.store(Arc::new(all));
    }

    /// Calls `look` with the record of each event, with one load for all.
    pub fn each<'e>(&self, events: impl Iterator<Item = &'e Event>, mut look: impl FnMut(&Record)) {
        let all = self.all.load();
        for event in events {
            let key = match event {
                Event::Ip(ip) => Some(MapKey::Ip(*ip)),
                Event::ContainerId(text) | Event::Cgroup(text) => container_key(text),
            };
            look(key.and_then(|key| all.get(&key)).expect("it is there"));
        }
    }
}

fn container_key(text: &str) -> Option<MapKey> {
    match Identity::parse(text).ok()? {
        Identity::ContainerId(id) => Some(MapKey::Container(id)),
        Identity::Cgroup(cgroup) => cgroup.container_id.map(MapKey::Container),
        _ => None,
    }
}

/// Looks at each attribute, as an exporter does that writes them.
pub fn walk(record: &Record) {
    for attribute in record.attributes() {
        black_box(attribute);
    }
}

/// A reader of one thread.
pub fn reader<P: PodMeta>(reader: &Reader<P>) -> CachedReader<P> {
    reader.cached()
}
