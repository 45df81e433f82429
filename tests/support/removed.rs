//! The removed pods in the model, and the answers about them: the plain rule, applied to the list of removals.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use pod_index::identity::{ContainerId, Identity};
use pod_index::{CustomKeyKind, Found, FoundBy, Moment, Snapshot, is_mirror_pod};

use super::keys::{CUSTOM_KEYS, CustomKey, IPS, container_ids};
use super::observation::{Id, Universe, id};
use super::{TestKeys, TestPod};

/// Tomorrow, so that writes at the present moment come before all ticks.
static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| {
    let day = Duration::from_secs(24 * 60 * 60);
    (Instant::now() + day, SystemTime::now() + day)
});

/// After this many ticks, by both clocks.
pub fn moment(ticks: u64) -> Moment {
    Moment::new(time(ticks), START.1 + Duration::from_secs(ticks))
}

/// The time after this many ticks.
pub fn time(ticks: u64) -> Instant {
    START.0 + Duration::from_secs(ticks)
}

fn ticks(time: Instant) -> u64 {
    time.duration_since(START.0).as_secs()
}

/// A pod that was removed, at which tick, and what a mirror's UID translated to.
#[derive(Clone, Debug)]
pub struct Gone {
    pub pod: Arc<TestPod>,
    pub at: u64,
    pub target: Option<String>,
}

/// All removals that are kept, the first one first.
#[derive(Clone, Debug, Default)]
pub struct Removals {
    /// How long a pod is kept, and how many pods. Nothing is kept if there is none.
    pub limits: Option<(u64, usize)>,
    pub now: Option<u64>,
    pub gone: Vec<Gone>,
}

impl Removals {
    pub fn keep(&mut self, pod: &Arc<TestPod>, target: Option<String>) {
        if let (Some((_, most)), Some(at)) = (self.limits, self.now) {
            self.gone.push(Gone { pod: Arc::clone(pod), at, target });
            self.gone.drain(..self.gone.len().saturating_sub(most));
        }
    }

    /// Pods that a set removes: mirrors first, then the strongest claim last.
    pub fn keep_all(&mut self, mut gone: Vec<(Arc<TestPod>, Option<String>)>) {
        gone.sort_by_key(|(pod, _)| {
            let TestKeys { finished, terminating, created, .. } = pod.keys;
            let of_pod = (finished, terminating, Reverse(created.unwrap_or(i64::MIN)));
            Reverse((is_mirror_pod(&**pod), (!is_mirror_pod(&**pod)).then_some(of_pod), pod.uid.clone()))
        });
        for (pod, target) in gone {
            self.keep(&pod, target);
        }
    }

    pub fn returned(&mut self, uid: &str) {
        self.gone.retain(|gone| gone.pod.uid != uid);
    }

    /// Returns how many are dropped.
    pub fn expire(&mut self, now: u64) -> usize {
        let now = self.now.unwrap_or_default().max(now);
        self.now = Some(now);
        let before = self.gone.len();
        let age = self.limits.map_or(0, |(age, _)| age);
        self.gone.retain(|gone| gone.at + age > now);
        before - self.gone.len()
    }

    pub fn deadline(&self) -> Option<u64> {
        Some(self.gone.first()?.at + self.limits?.0)
    }
}

/// A removed pod, and when it went.
type Went = (Id, u64);
/// The pod, when it went if it did, and the key by which it was found.
type Told = Option<(Id, Option<u64>, FoundBy)>;

/// The answers to all questions about removed pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemovedAnswers {
    pub all: Vec<Went>,
    /// A pod, or else a mirror.
    pub by_uid: Vec<(String, Option<Went>)>,
    pub by_full_name: Vec<(String, Option<Went>)>,
    pub by_container_id: Vec<(String, Option<(Went, String)>)>,
    pub by_ip: Vec<(&'static str, Option<Went>)>,
    pub by_custom_key: Vec<(CustomKey, Vec<Went>)>,
    pub resolved: Vec<(String, Told)>,
}

fn went(removed: Found<'_, TestPod>) -> Went {
    (id(removed.pod), ticks(removed.removed_at.expect("a time")))
}

/// The index lists them in no particular order.
fn sorted(mut all: Vec<Went>) -> Vec<Went> {
    all.sort();
    all
}

impl RemovedAnswers {
    pub fn of(snapshot: &Snapshot<TestPod>, universe: &Universe) -> Self {
        let removed = snapshot.removed();
        assert_eq!(removed.iter().count(), removed.len());
        assert_eq!(removed.is_empty(), removed.iter().next().is_none());
        let by_full_name = |full_name: &str| {
            let (name, namespace) = full_name.split_once('_').unwrap_or_default();
            removed.get((namespace, name)).map(went)
        };
        Self {
            all: sorted(removed.iter().map(went).collect()),
            by_uid: universe.uids.iter().map(|uid| (uid.clone(), removed.get(uid).map(went))).collect(),
            by_full_name: universe.full_names.iter().map(|name| (name.clone(), by_full_name(name))).collect(),
            by_container_id: container_ids()
                .map(|digits| {
                    let found = removed.get(digits.parse::<ContainerId>().expect("64 digits"));
                    let named = found.map(|found| (went(found), found.container.expect("a name").to_owned()));
                    (digits, named)
                })
                .into(),
            by_ip: IPS.map(|ip| (ip, removed.get(ip.parse::<IpAddr>().expect("an IP")).map(went))).into(),
            by_custom_key: CUSTOM_KEYS
                .map(|(kind, key)| {
                    ((kind, key), removed.claimants((CustomKeyKind(kind), key)).map(went).collect::<Vec<_>>())
                })
                .into(),
            resolved: texts(universe)
                .into_iter()
                .map(|text| {
                    let identity = Identity::parse_lenient(&text).ok();
                    let found = identity.and_then(|identity| identity.resolve(snapshot));
                    let told = found.map(|found| (id(found.pod), found.removed_at.map(ticks), found.by));
                    (text, told)
                })
                .collect(),
        }
    }

    /// What they must be after these removals. The living pods are the snapshot's, which other tests check.
    pub fn expected(removals: &Removals, universe: &Universe, snapshot: &Snapshot<TestPod>) -> Self {
        let by_uid = |uid: &str| removals.last_of_both(|gone| gone.pod.uid == uid);
        let by_full_name = |name: &str| removals.last_of_both(|gone| gone.full_name() == name);
        let by_container_id = |digits: &str| {
            let found = removals.last(false, |gone| gone.container(digits).is_some())?;
            Some((found.went(), found.container(digits)?))
        };
        let by_ip = |ip: &str| Some(removals.last(false, |gone| gone.has_ip(ip))?.went());
        let by_custom_key = |(kind, key): CustomKey| {
            let names =
                |gone: &&Gone| !key.is_empty() && gone.pod.keys.custom.contains(&(kind, key.to_vec()));
            removals
                .gone
                .iter()
                .rev()
                .filter(|gone| !gone.is_mirror())
                .filter(names)
                .map(Gone::went)
                .collect()
        };
        let resolve = |text: &str| removals.resolve(text, snapshot);
        Self {
            all: sorted(removals.gone.iter().map(Gone::went).collect()),
            by_uid: universe.uids.iter().map(|uid| (uid.clone(), by_uid(uid))).collect(),
            by_full_name: universe.full_names.iter().map(|name| (name.clone(), by_full_name(name))).collect(),
            by_container_id: container_ids().map(|digits| (digits.clone(), by_container_id(&digits))).into(),
            by_ip: IPS.map(|ip| (ip, by_ip(ip))).into(),
            by_custom_key: CUSTOM_KEYS.map(|key| (key, by_custom_key(key))).into(),
            resolved: texts(universe).into_iter().map(|text| (text.clone(), resolve(&text))).collect(),
        }
    }
}

impl Gone {
    fn is_mirror(&self) -> bool {
        is_mirror_pod(&*self.pod)
    }

    fn went(&self) -> Went {
        (id(&self.pod), self.at)
    }

    fn full_name(&self) -> String {
        format!("{}_{}", self.pod.name, self.pod.namespace)
    }

    /// The name of the container with this ID; of several, the one named first.
    fn container(&self, digits: &str) -> Option<String> {
        let has_id = |(_, id): &&(String, String)| id.rsplit("://").next() == Some(digits);
        Some(self.pod.keys.containers.iter().find(has_id)?.0.clone())
    }

    fn has_ip(&self, ip: &str) -> bool {
        let canonical = |ip: &str| ip.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        self.pod.keys.ips.iter().any(|other| canonical(other).is_some() && canonical(other) == canonical(ip))
    }
}

impl Removals {
    /// The last removed pod, or mirror.
    fn last(&self, mirror: bool, is: impl Fn(&Gone) -> bool) -> Option<&Gone> {
        self.gone.iter().rev().find(|gone| gone.is_mirror() == mirror && is(gone))
    }

    fn last_of_both(&self, is: impl Fn(&Gone) -> bool) -> Option<Went> {
        Some(self.last(false, &is).or_else(|| self.last(true, &is))?.went())
    }

    fn resolve(&self, text: &str, snapshot: &Snapshot<TestPod>) -> Told {
        let living = |pod: Option<&Arc<TestPod>>, by| Some((id(pod?), None, by));
        let removed = |gone: Option<&Gone>, by| {
            let (pod, at) = gone?.went();
            Some((pod, Some(at), by))
        };
        let by_id = |digits: &str| {
            let pod = snapshot.pod_by_container_id(digits).map(|found| found.pod);
            let gone = || self.last(false, |gone| gone.container(digits).is_some());
            living(pod, FoundBy::ContainerId).or_else(|| removed(gone(), FoundBy::ContainerId))
        };
        let by_name = |name: &str, by| {
            let has_name = |gone: &Gone| gone.full_name() == name;
            let pod = snapshot.pod_by_full_name(name).or_else(|| snapshot.mirror_pod_by_full_name(name));
            let gone = || self.last(false, has_name).or_else(|| self.last(true, has_name));
            living(pod, by).or_else(|| removed(gone(), by))
        };
        if let Some(link) = text.strip_prefix("/var/log/containers/") {
            let (name, digits) = link.strip_suffix(".log")?.split_once("_app-")?;
            return by_id(digits).or_else(|| by_name(name, FoundBy::NameOnly));
        }
        if text.len() == 64 {
            return by_id(text);
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            let gone = || self.last(false, |gone| gone.has_ip(text));
            return living(snapshot.pod_by_ip(ip), FoundBy::Ip).or_else(|| removed(gone(), FoundBy::Ip));
        }
        if text.contains('_') {
            return by_name(text, FoundBy::Name);
        }
        let target = snapshot.pod_uid_of_mirror(text);
        let static_pod = target.and_then(|uid| snapshot.pod_by_uid(&uid));
        living(snapshot.pod_by_uid(text), FoundBy::Uid)
            .or_else(|| living(static_pod.or(snapshot.mirror_pod_by_uid(text)), FoundBy::MirrorUid))
            .or_else(|| removed(self.last(false, |gone| gone.pod.uid == text), FoundBy::Uid))
            .or_else(|| {
                let mirror = self.last(true, |gone| gone.pod.uid == text)?;
                let target = mirror.target.as_deref().unwrap_or("none");
                let gone = self.last(false, |gone| gone.pod.uid == target).unwrap_or(mirror);
                living(snapshot.pod_by_uid(target), FoundBy::MirrorUid)
                    .or_else(|| removed(Some(gone), FoundBy::MirrorUid))
            })
            .or_else(|| {
                let lower = text.to_ascii_lowercase();
                (lower != text).then(|| self.resolve(&lower, snapshot))?
            })
    }
}

/// Texts to resolve, in those forms that can lead to removed pods.
fn texts(universe: &Universe) -> Vec<String> {
    let mut texts: Vec<String> = universe.uids.clone();
    texts.retain(|uid| !uid.is_empty());
    texts.extend(container_ids());
    texts.extend(IPS.map(str::to_owned));
    for name in ["web_default", "db_default", "etcd_kube-system"] {
        texts.push(name.to_owned());
        texts.extend(container_ids().map(|id| format!("/var/log/containers/{name}_app-{id}.log")));
    }
    texts
}
