//! The lookups that must neither allocate nor write to shared memory, and the pods that they ask for.
#![allow(dead_code, reason = "each of the tests uses a part of it")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use pod_index::identity::{ContainerId, Identity};
use pod_index::{CustomKeyKind, Key, MirrorPodUid, PodUid, Snapshot, Writer};

use super::support::{TestKeys, TestPod};

pub const UUID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
pub const STATIC: &str = "5f4dcc3b5aa765d61d8327deb882cf99";
pub const MIRROR: &str = "9a8b7c6d-1111-2222-3333-444455556666";
/// The mirror of a removed static pod, and that pod.
const LEFT: &str = "7a1c0d4e-2f57-4b0c-9a6a-3d1f5f2b7c11";
const GONE: &str = "fedcba9876543210fedcba9876543210";
/// UIDs in another spelling. A static pod and its mirror have the last two, in some tests.
pub const UNUSUAL: &str = "short-unusual";
pub const UNUSUAL_STATIC: &str = "unusual-static";
pub const UNUSUAL_MIRROR: &str = "unusual-mirror";
/// Unknown UIDs. The empty one is never stored.
const NOBODYS: [&str; 4] =
    ["", "unusual-and-nobodys", "ffffffff-1111-2222-3333-444455556666", "ffffffffffffffffffffffffffffffff"];
pub const CONTAINER: &str = "3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c";
const UNKNOWN_CONTAINER: &str =
    "containerd://ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
/// A known IP and an unknown one.
pub const IPS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// Two pods have it, or more.
pub const SHARED: CustomKeyKind = CustomKeyKind(1);

/// Keys that can be looked up. In some tests, pods contend for them.
pub fn known() -> TestKeys {
    TestKeys {
        containers: vec![("app".into(), CONTAINER.into())],
        ips: vec!["10.0.0.7".into()],
        custom: vec![(SHARED.0, b"all".to_vec())],
        ..TestKeys::default()
    }
}

fn pods(count: usize) -> impl Iterator<Item = Arc<TestPod>> {
    let of_odd = TestKeys { custom: known().custom, ..TestKeys::default() };
    let special = [
        TestPod::plain(UUID, "web_shop").with_keys(known()),
        TestPod::fixed(STATIC, "etcd_kube-system"),
        TestPod::mirror(MIRROR, "etcd_kube-system", STATIC),
        TestPod::fixed(GONE, "gone_kube-system"),
        TestPod::mirror(LEFT, "gone_kube-system", GONE),
        TestPod::plain(UNUSUAL, "odd_shop").with_keys(of_odd),
    ];
    special.into_iter().chain(
        (0..count)
            .map(|n| TestPod::plain(&format!("{n:08x}-0000-4000-8000-000000000000"), &format!("pod-{n}"))),
    )
}

/// Replaces everything by the pods of the lookups, `count` others and `more`.
pub fn fill(writer: &mut Writer<TestPod>, count: usize, more: Vec<Arc<TestPod>>) {
    assert!(writer.set_pods(pods(count).chain(more)).refused.is_empty());
    assert!(writer.remove_pod_by_uid(GONE).is_some());
}

/// Keys of each kind that are known, and some that are not.
pub fn keys() -> impl Iterator<Item = Key<'static>> {
    let id = |text: &str| text.parse::<ContainerId>().expect("64 digits");
    let uids = [UUID, STATIC, MIRROR, UNUSUAL].into_iter().chain(NOBODYS);
    uids.map(Key::from).chain([
        ("shop", "web").into(),
        ("kube-system", "etcd").into(),
        ("nowhere", "nobody").into(),
        ("", "").into(),
        id(CONTAINER).into(),
        id(UNKNOWN_CONTAINER).into(),
        IPS[0].into(),
        IPS[1].into(),
        (SHARED, &b"all"[..]).into(),
        (SHARED, &b"none"[..]).into(),
    ])
}

/// What lookups are given, apart from constants.
pub struct Given {
    pub pod: Arc<TestPod>,
    mirror: Arc<TestPod>,
    parsed: (PodUid, MirrorPodUid),
}

impl Given {
    pub fn new() -> Self {
        Self {
            pod: TestPod::fixed(STATIC, "etcd_kube-system"),
            mirror: TestPod::mirror(MIRROR, "etcd_kube-system", STATIC),
            parsed: (STATIC.into(), MIRROR.into()),
        }
    }
}

/// A name, and a lookup that returns whether it found what it should.
pub type Lookup = (&'static str, fn(&Snapshot<TestPod>, &Given) -> bool);

/// Every lookup and walk, except those whose result may be a UID in an unusual spelling.
pub const LOOKUPS: &[Lookup] = &[
    ("by UID", |pods, given| {
        [UUID, STATIC, UNUSUAL].iter().all(|uid| pods.pod_by_uid(*uid).is_some())
            && NOBODYS.iter().chain(&[MIRROR, GONE]).all(|uid| pods.pod_by_uid(*uid).is_none())
            && pods.pod_by_uid(&given.parsed.0).is_some()
    }),
    ("mirrors by UID", |pods, given| {
        [MIRROR, LEFT].iter().all(|uid| pods.mirror_pod_by_uid(*uid).is_some())
            && NOBODYS.iter().chain(&[UUID, UNUSUAL]).all(|uid| pods.mirror_pod_by_uid(*uid).is_none())
            && pods.mirror_pod_by_uid(&given.parsed.1).is_some()
    }),
    ("by full name", |pods, _| {
        ["web_shop", "etcd_kube-system"].iter().all(|name| pods.pod_by_full_name(*name).is_some())
            && pods.mirror_pod_by_full_name("etcd_kube-system").is_some()
            && ["nobody_nowhere", "not-a-full-name", ""].iter().all(|name| {
                pods.pod_by_full_name(*name).is_none() && pods.mirror_pod_by_full_name(*name).is_none()
            })
    }),
    ("by name", |pods, _| {
        pods.pod_by_name("shop", "web").is_some()
            && [("nowhere", "nobody"), ("", "")].iter().all(|name| pods.pod_by_name(name.0, name.1).is_none())
    }),
    ("by container ID", |pods, _| {
        pods.pod_by_container_id(CONTAINER).is_some_and(|found| found.container == Some("app"))
            && [UNKNOWN_CONTAINER, &CONTAINER[..12]].iter().all(|id| pods.pod_by_container_id(id).is_none())
    }),
    ("by IP", |pods, _| pods.pod_by_ip(IPS[0]).is_some() && pods.pod_by_ip(IPS[1]).is_none()),
    ("by a key that pods share", |pods, _| pods.get((SHARED, &b"all"[..])).is_some()),
    ("mirror by pod, pod by mirror, both", |pods, given| {
        pods.pod_by_mirror_pod(&given.mirror).is_some()
            && pods.mirror_pod_by_pod(&given.pod).is_some()
            && pods.pod_and_mirror_pod(&given.mirror).pod.is_some_and(|pod| pod.uid == STATIC)
            && pods.pod_and_mirror_pod(&given.pod).mirror.is_some_and(|mirror| mirror.uid == MIRROR)
    }),
    ("translate", |pods, given| {
        pods.translate_pod_uid(MIRROR) == STATIC
            && pods.translate_pod_uid(LEFT) == GONE
            && [UUID, STATIC, NOBODYS[2], NOBODYS[3]].iter().all(|uid| pods.translate_pod_uid(*uid) == *uid)
            && pods.translate_pod_uid(&given.parsed.1) == STATIC
    }),
    ("one translation", |pods, _| {
        pods.pod_uid_of_mirror(MIRROR).is_some_and(|uid| uid == STATIC)
            && pods.mirror_uid_of_pod(STATIC).is_some_and(|uid| uid == MIRROR)
            && pods.mirror_uid_of_pod(GONE).is_some_and(|uid| uid == LEFT)
            && pods.pod_uid_of_mirror(UUID).is_none()
            && pods.mirror_uid_of_pod(UUID).is_none()
    }),
    ("an identity", |pods, _| {
        let finds =
            |text: &&str| Identity::parse(text).is_ok_and(|identity| identity.resolve(pods).is_some());
        [CONTAINER, UUID, MIRROR, "10.0.0.7", "shop/web"].iter().all(finds)
            && ![UNUSUAL, "4711"].iter().any(finds)
    }),
    ("walk over pods", |pods, _| pods.pods().count() == pods.pods().len() && pods.pods().len() > 60),
    ("walk over static pods", |pods, _| pods.static_pods().count() > 0),
    ("walk over mirror pods", |pods, _| pods.mirror_pods().count() == pods.mirror_pods().len()),
    ("walk over static pods and their mirrors", |pods, _| {
        pods.static_pods_with_mirrors().filter(|one| one.mirror.is_some()).count() > 0
    }),
    ("counts", |pods, _| pods.generation() > 0 && pods.ephemeral_container_count() == 0),
];
