//! Pods as a node has them, and the events that ask for them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodIP, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index_kubelet::records::Change;
use pod_index_kubelet::sources::SourceUpdate;

/// Six fields and ten labels, as the trial that began this had; the Namespace's label is the 17th.
pub const RULES: &str = "
extract:
  metadata: [k8s.pod.name, k8s.pod.uid, k8s.namespace.name, k8s.node.name, k8s.pod.ip, k8s.pod.start_time]
  labels: [{ key_regex: label-0.* }, { key: team, from: namespace, tag_name: team }]
";
const LABELS: usize = 40;
/// Pods of one workload, which have the same labels.
pub const REPLICAS: usize = 50;

/// The pod with this number. So many pods share its labels.
pub fn pod(number: usize, replicas: usize) -> Arc<Pod> {
    let workload = number / replicas;
    let labels = (0..LABELS).map(|label| (format!("label-{label:02}"), format!("value-{workload}-{label}")));
    let ip = ip(number).to_string();
    let container = Container {
        name: "app".to_owned(),
        image: Some("registry.example/app:1.2.3".to_owned()),
        ..Container::default()
    };
    let status = ContainerStatus {
        name: "app".to_owned(),
        container_id: Some(format!("containerd://{}", container_id(number))),
        ready: true,
        ..ContainerStatus::default()
    };
    Arc::new(Pod {
        metadata: ObjectMeta {
            name: Some(format!("pod-{number}")),
            namespace: Some("shop".to_owned()),
            uid: Some(uid(number)),
            labels: Some(labels.collect()),
            creation_timestamp: Some(
                "2026-01-01T00:00:00Z"
                    .parse()
                    .map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time)
                    .expect("a time"),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some("node-1".to_owned()),
            containers: vec![container],
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            pod_ip: Some(ip.clone()),
            pod_ips: Some(vec![PodIP { ip }]),
            container_statuses: Some(vec![status]),
            ..PodStatus::default()
        }),
    })
}

/// The next version of a pod.
pub fn next(pod: &Arc<Pod>, version: usize) -> Arc<Pod> {
    let mut pod = Pod::clone(pod);
    pod.metadata.resource_version = Some(version.to_string());
    Arc::new(pod)
}

/// The Namespace of all pods.
pub fn namespace(team: &str) -> Change {
    let metadata = ObjectMeta {
        name: Some("shop".to_owned()),
        uid: Some("n".to_owned()),
        labels: Some([("team".to_owned(), team.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Change::Namespaces(SourceUpdate::Upsert(vec![metadata.into()]))
}

pub fn ip(number: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).expect("few pods")).into()
}

pub fn uid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

pub fn container_id(number: usize) -> String {
    // The digits of real IDs differ everywhere.
    format!("{:016x}", (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(4)
}

fn cgroup(number: usize) -> String {
    let uid = uid(number).replace('-', "_");
    let id = container_id(number);
    format!(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{id}.scope"
    )
}

/// Makes the event of the pod with a number.
pub type Make = fn(usize) -> Event;

/// What an event says of its pod.
#[derive(Clone, Debug)]
pub enum Event {
    Ip(IpAddr),
    ContainerId(String),
    Cgroup(String),
}

impl Event {
    /// The kinds, as the tables name them.
    pub const KINDS: [(&'static str, Make); 3] = [
        ("IP", |number| Self::Ip(ip(number))),
        ("container ID", |number| Self::ContainerId(container_id(number))),
        ("cgroup path", |number| Self::Cgroup(cgroup(number))),
    ];
}

/// One event of each of `n` pods, in no order that memory has.
pub fn events(n: usize, event: Make) -> Arc<[Event]> {
    // A prime that divides no size.
    (0..n).map(|number| event(number * 7919 % n)).collect()
}
