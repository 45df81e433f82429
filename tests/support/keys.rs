//! The keys used in histories, and the pod that each must find: the plain rule, applied to all pods each time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use pod_index::identity::ContainerId;
use pod_index::{CustomKeyKind, KeyCounts, Snapshot, is_mirror_pod};

use super::observation::{Id, id};
use super::{TestKeys, TestPod};

/// The IDs of three containers, and of one that no pod has.
pub fn container_ids() -> [String; 4] {
    // The first two differ in the last digit only.
    ["3e5f0b1c".repeat(8), format!("{}d", &"3e5f0b1c".repeat(8)[..63]), "0".repeat(64), "f".repeat(64)]
}
pub const IPS: [&str; 4] = ["10.0.0.7", "fd00::7", "10.0.0.8", "192.0.2.1"];
pub const CUSTOM_KEYS: [CustomKey; 5] = [(1, b"a"), (2, b"a"), (1, b"b"), (1, b"ab"), (9, b"")];

pub type CustomKey = (u16, &'static [u8]);

/// How many different sets of keys there are.
pub const COMBINATIONS: usize = 2 * 3 * 9 * 2;

/// One of them.
pub fn keys(number: usize) -> TestKeys {
    let ids = container_ids();
    let mut keys = TestKeys {
        finished: number % 2 == 1,
        created: [None, Some(100), Some(200)][number / 2 % 3],
        terminating: number / 54 % 2 == 1,
        ..TestKeys::default()
    };
    let mut container = |name: &str, id: String| keys.containers.push((name.to_owned(), id));
    let (mut ips, mut custom): (Vec<&str>, Vec<usize>) = (Vec::new(), Vec::new());
    match number / 6 % 9 {
        0 => {}
        1 => {
            container("app", format!("containerd://{}", ids[0]));
            ips.push(IPS[0]);
        }
        2 => {
            container("app", format!("containerd://{}", ids[0]));
            container("sidecar", format!("containerd://{}", ids[1]));
            ips.extend([IPS[0], IPS[1]]);
        }
        3 => {
            ips.push("::ffff:10.0.0.7");
            custom.push(0);
        }
        4 => custom.extend([0, 2]),
        5 => {
            // Named twice; the first name counts.
            container("other", format!("cri-o://{}", ids[0]));
            container("app", ids[0].clone());
            custom.extend([1, 0, 1]);
        }
        6 => {
            container("sidecar-2", ids[1].clone());
            ips.extend([IPS[1], IPS[2], IPS[1]]);
        }
        7 => {
            // What is ignored: a prefix, no address, an empty key.
            container("app", ids[0][..12].to_owned());
            container("waiting", String::new());
            ips.push("not-an-ip");
            custom.extend([4, 3]);
        }
        _ => {
            for (name, id) in ["a", "b", "c"].into_iter().zip(&ids) {
                container(name, format!("docker://{id}"));
            }
            ips.extend(IPS[..3].iter());
            custom.extend([0, 1, 2, 3]);
        }
    }
    keys.ips = ips.into_iter().map(str::to_owned).collect();
    keys.custom = custom.into_iter().map(|at| (CUSTOM_KEYS[at].0, CUSTOM_KEYS[at].1.to_vec())).collect();
    keys
}

/// The answers to all questions about keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyAnswers {
    pub by_container_id: Vec<(String, Option<(Id, String)>)>,
    pub by_ip: Vec<(&'static str, Option<Id>)>,
    pub by_custom_key: Vec<(CustomKey, Vec<Id>)>,
    pub ignored: usize,
    pub counts: KeyCounts,
}

impl KeyAnswers {
    pub fn of(snapshot: &Snapshot<TestPod>) -> Self {
        let by_container_id = container_ids().map(|digits| {
            let id: ContainerId = digits.parse().expect("64 digits");
            let found = snapshot.pod_by_container_id(&digits);
            let again = snapshot.get(id).map(|found| (id_of(found.pod), found.container));
            assert_eq!(found.map(|found| (id_of(found.pod), found.container)), again);
            assert!(snapshot.pod_by_container_id(&digits[..12]).is_none());
            let name = |container: Option<&str>| container.expect("a name").to_owned();
            (digits.clone(), found.map(|found| (id_of(found.pod), name(found.container))))
        });
        let by_ip = IPS.map(|ip| {
            let address: IpAddr = ip.parse().expect("an IP");
            let found = snapshot.pod_by_ip(address).map(id);
            if let IpAddr::V4(address) = address {
                assert_eq!(snapshot.pod_by_ip(address.to_ipv6_mapped().into()).map(id), found);
            }
            (ip, found)
        });
        let by_custom_key = CUSTOM_KEYS.map(|(kind, key)| {
            ((kind, key), snapshot.pods_by_custom_key(CustomKeyKind(kind), key).map(id).collect::<Vec<_>>())
        });
        Self {
            by_container_id: by_container_id.into(),
            by_ip: by_ip.into(),
            by_custom_key: by_custom_key.into(),
            ignored: snapshot.ignored_key_count(),
            counts: snapshot.key_counts(),
        }
    }

    /// What they must be of these pods.
    pub fn expected<'a>(pods: impl Iterator<Item = &'a Arc<TestPod>>) -> Self {
        let all: Vec<_> = pods.collect();
        let named = |pod: &&Arc<TestPod>| (is_mirror_pod(&***pod), pod.name.clone(), pod.namespace.clone());
        let contended_names = all.len() - all.iter().map(named).collect::<BTreeSet<_>>().len();
        let mut pods: Vec<_> = all.into_iter().filter(|pod| !is_mirror_pod(&***pod)).collect();
        pods.sort_by_key(|pod| {
            let TestKeys { finished, terminating, created, .. } = pod.keys;
            (finished, terminating, Reverse(created.unwrap_or(i64::MIN)), pod.uid.clone())
        });
        let (mut containers, mut ips) = (BTreeMap::new(), BTreeMap::new());
        let mut custom: BTreeMap<(u16, &[u8]), Vec<Id>> = BTreeMap::new();
        let mut counts = KeyCounts::default();
        counts.contended_names = contended_names;
        let mut ignored = 0;
        for pod in pods {
            // What this pod has named already.
            let (mut ids, mut addresses, mut keys) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
            for (name, text) in &pod.keys.containers {
                let digits = text.split_once("://").map_or(text.as_str(), |(_, digits)| digits);
                if digits.len() == 64 {
                    let is_held = containers.contains_key(digits);
                    counts.contended_container_ids += usize::from(ids.insert(digits) && is_held);
                    containers.entry(digits).or_insert((id(pod), name.clone()));
                } else {
                    ignored += usize::from(!digits.is_empty());
                }
            }
            for text in &pod.keys.ips {
                match text.parse::<IpAddr>() {
                    Ok(ip) => {
                        let ip = ip.to_canonical();
                        let is_contended = ips.contains_key(&ip) && !pod.keys.finished;
                        counts.contended_ips += usize::from(addresses.insert(ip) && is_contended);
                        ips.entry(ip).or_insert(id(pod));
                    }
                    Err(_) => ignored += 1,
                }
            }
            for (kind, key) in &pod.keys.custom {
                if key.is_empty() {
                    ignored += 1;
                } else if keys.insert((*kind, key)) {
                    let pods = custom.entry((*kind, key)).or_default();
                    counts.contended_custom_keys += usize::from(!pods.is_empty());
                    pods.push(id(pod));
                }
            }
        }
        counts.container_ids = containers.len();
        counts.ips = ips.len();
        counts.custom_keys = custom.len();
        Self {
            by_container_id: container_ids()
                .map(|digits| (digits.clone(), containers.get(digits.as_str()).cloned()))
                .into(),
            by_ip: IPS.map(|ip| (ip, ips.get(&ip.parse().expect("an IP")).cloned())).into(),
            by_custom_key: CUSTOM_KEYS.map(|key| (key, custom.get(&key).cloned().unwrap_or_default())).into(),
            ignored,
            counts,
        }
    }
}

fn id_of(pod: &Arc<TestPod>) -> Id {
    id(pod)
}
