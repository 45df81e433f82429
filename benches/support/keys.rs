//! Lookups by additional keys, and updates of pods that name some.
//!
//! Pods have an address, and containers of which most agents see one or two. The IDs and the names are text, as in
//! statuses, in memory of their own.

use std::cell::RefCell;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pod_index::identity::ContainerId;
use pod_index::{CachedReader, Life, Options, PodKeys, PodMeta, Time, Writer};

use crate::designs::{Cached, Design};
use crate::figures::Figure;
use crate::memory::allocated;
use crate::rounds::Rounds;
use crate::workload::{Pod, Rng, Workload};

/// The lookup that the others are compared with.
pub const BY_UID: &str = "UID, hit";
/// The update that the others are compared with.
pub const NO_KEYS: &str = "update, no keys";
/// Lookups per run.
const RUN: usize = 100_000;
/// Updates per run.
const WRITES: usize = 10_000;
const NAMES: [&str; 2] = ["app", "sidecar"];

/// A pod that names keys.
#[derive(Debug)]
pub struct Keyed {
    pod: Arc<Pod>,
    ip: Option<IpAddr>,
    /// `containerd://` and 64 digits.
    containers: Box<[Box<str>]>,
}

impl PodMeta for Keyed {
    fn uid(&self) -> &str {
        self.pod.uid()
    }
    fn name(&self) -> &str {
        self.pod.name()
    }
    fn namespace(&self) -> &str {
        self.pod.namespace()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.pod.annotation(key)
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        self.ip.into_iter().for_each(|ip| keys.ip(ip));
        for (name, id) in NAMES.into_iter().zip(&self.containers) {
            keys.container_id(name, id);
        }
    }
    /// It has run for long.
    fn life(&self) -> Life {
        Life { ip_by: self.ip.map(|_| Time::from_seconds(0)), ..Life::default() }
    }
}

impl Keyed {
    /// A copy of the pod as another object, with the same keys.
    #[must_use]
    pub fn renewed(&self) -> Arc<Self> {
        Arc::new(Self { pod: self.pod.renewed(), ip: self.ip, containers: self.containers.clone() })
    }

    /// Another pod, which names the same keys.
    #[must_use]
    pub fn rival(&self, pod: Arc<Pod>) -> Arc<Self> {
        Arc::new(Self { pod, ip: self.ip, containers: self.containers.clone() })
    }

    /// Its address, if it has one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The ID of its first container, if it has one.
    #[must_use]
    pub fn container(&self) -> Option<&str> {
        Some(self.containers.first()?)
    }
}

/// The pods of a node, each with one address if `ip`, and this many containers.
#[must_use]
pub fn keyed(workload: &Workload, ip: bool, containers: usize) -> Vec<Arc<Keyed>> {
    let mut rng = Rng::new();
    let pods = (0x0a00_0000..).zip(&workload.pods).map(|(address, pod)| {
        let ip = ip.then(|| Ipv4Addr::from_bits(address).into());
        let containers = (0..containers).map(|_| format!("containerd://{}{}", rng.hex(), rng.hex()).into());
        Arc::new(Keyed { pod: Arc::clone(pod), ip, containers: containers.collect() })
    });
    pods.collect()
}

/// An index of these pods.
#[must_use]
pub fn filled(pods: &[Arc<Keyed>], kept: Options) -> (Writer<Keyed>, CachedReader<Keyed>) {
    let (mut writer, reader) = pod_index::with_options(kept);
    let applied = writer.set_pods(pods.iter().cloned());
    assert!(applied.refused.is_empty(), "good pods");
    (writer, reader.cached())
}

/// Lookups of pods with an address and one container: by each key, and by UID in the same index.
#[must_use]
pub fn reads(workload: &mut Workload, time: Duration) -> Vec<Figure> {
    let pods = keyed(workload, true, 1);
    let (writer, reader) = filled(&pods, Options::new());
    let order = workload.shuffled(&pods);
    let some = &order[..RUN.min(order.len())];
    let repeats = RUN.div_ceil(some.len());
    let uids: Vec<Box<str>> = some.iter().map(|pod| pod.uid().into()).collect();
    let ips: Vec<_> = some.iter().filter_map(|pod| pod.ip()).collect();
    let texts: Vec<Box<str>> = some.iter().filter_map(|pod| Some(pod.container()?.into())).collect();
    let ids: Vec<ContainerId> = texts.iter().map(|text| text.parse().expect("64 digits")).collect();
    let mut rounds = Rounds::default();
    macro_rules! case {
        ($what:expr, $keys:ident, |$index:ident, $key:ident| $look_up:expr) => {{
            let mut $index = reader.clone();
            rounds.case($what, Cached::NAME, repeats * $keys.len(), move || {
                for _ in 0..repeats {
                    for $key in &$keys {
                        let $key = black_box($key);
                        assert!(black_box($look_up), "every key has a pod");
                    }
                }
            });
        }};
    }
    case!(BY_UID, uids, |index, uid| index.load().pod_by_uid(&**uid).is_some());
    case!("IP, hit", ips, |index, ip| index.load().pod_by_ip(*ip).is_some());
    case!("container ID, parsed, hit", ids, |index, id| index.load().get(*id).is_some());
    case!("container ID, text, hit", texts, |index, id| index.load().pod_by_container_id(&**id).is_some());
    let figures = rounds.measure(workload.pods.len(), time);
    drop(writer);
    figures
}

/// Updates that leave the keys as they were.
#[must_use]
pub fn updates(workload: &mut Workload, time: Duration) -> Vec<Figure> {
    let mut rounds = Rounds::default();
    for (what, ip, containers) in [
        (NO_KEYS, false, 0),
        ("update, a container ID", false, 1),
        ("update, an IP", true, 0),
        ("update, an IP and two containers", true, 2),
    ] {
        let pods = keyed(workload, ip, containers);
        let (writer, reader) = filled(&pods, Options::new());
        let writer = Rc::new(RefCell::new(writer));
        // Two objects for each pod, so that every update stores a new one.
        let versions =
            [(); 2].map(|()| workload.shuffled(&pods).iter().map(|pod| pod.renewed()).collect::<Vec<_>>());
        let (count, mut at) = (WRITES.min(pods.len()), 0);
        rounds.case(what, Cached::NAME, count, move || {
            let (_, mut writer) = (&reader, writer.borrow_mut());
            let version = &versions[at / versions[0].len() % 2];
            for pod in version.iter().cycle().skip(at % version.len()).take(count) {
                writer.upsert_pod(Arc::clone(pod)).expect("a good pod");
            }
            at += count;
        });
    }
    rounds.measure(workload.pods.len(), time)
}

/// Bytes that the index allocates for a key, without the pods.
#[must_use]
pub fn bytes(workload: &Workload) -> Vec<Figure> {
    let n = workload.pods.len();
    let used = |ip, containers| {
        let pods = keyed(workload, ip, containers);
        let before = allocated();
        let _index = filled(&pods, Options::new());
        allocated() - before
    };
    let without = used(false, 0);
    let kinds = [("bytes an IP", used(true, 0)), ("bytes a container ID", used(false, 1))];
    let figure = |(what, used): (&str, isize)| {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let value = (used - without) as f64 / n as f64;
        Figure { n, what: what.into(), who: Cached::NAME.into(), value }
    };
    kinds.into_iter().map(figure).collect()
}
