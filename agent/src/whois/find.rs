//! Finds the pod of an identity in one snapshot.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp, Unit};
use pod_index::identity::{Identity, ParseIdentityError};
use pod_index::{
    self as index, AtTime, Bounds as Ends, FoundBy, Holder, NotFound, PodMeta, Snapshot, Time, UidRef,
    is_mirror_pod,
};
use pod_index_kubelet::process::{Placement, PodCgroup, ResolveError};
use pod_index_kubelet::workload::controller;

pub(super) use super::answer::Key;
use super::answer::{Answer, Between, CandidatePod, Kind, Owner, Workload};
use super::processes::Placements;
use super::query;
use crate::config::values::Bounds;
use crate::pod_api::owners::Owners;

/// A parsed query.
#[derive(Debug)]
pub(super) struct Sought<'a> {
    /// The query's text, if it may also be a UID.
    text: Option<&'a str>,
    what: What<'a>,
    /// The time of the event.
    at: Option<Time>,
}

#[derive(Debug)]
enum What<'a> {
    Identity(Identity<'a>),
    /// The cgroup of a process.
    Process(PodCgroup),
}

/// A pod, and how it was found.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// `None` for a mirror pod without a static pod.
    pub(super) pod: Option<&'a Arc<Pod>>,
    mirror: Option<&'a Arc<Pod>>,
    container: Option<&'a str>,
    pub(super) by: Key,
    /// When the pod was removed. `None` if it still exists.
    pub(super) removed_at: Option<Instant>,
    at: Option<Time>,
    /// When it had the key that found it, if the query has a time.
    ends: Option<(Ends, Ends)>,
    contested: Vec<String>,
}

/// Why no pod was found.
#[derive(Clone, Debug)]
pub(super) enum Unknown {
    Unparsed(ParseIdentityError),
    /// The time of the event.
    BadTime(String),
    NotUtf8,
    /// The answers to the other queries fill the response.
    NoRoom,
    NoProcess,
    NotOfPod,
    Unreadable(ResolveError),
    /// `/proc` does not answer.
    Blocked,
    NoPod(Kind),
    /// No pod had the key for certain at the time of the event.
    NotThen(Box<NotThen>),
    /// No pod has this UID. A pod with this name, if there is one.
    Suggested(Option<String>),
}

/// What is known of a key at the time of an event, if that is no pod for certain.
#[derive(Clone, Debug)]
pub(super) struct NotThen {
    kind: Kind,
    at: Time,
    /// `None`: there are candidates.
    why: Option<NotFound>,
    candidates: Vec<CandidatePod>,
    known: Option<(Time, Time)>,
}

impl Unknown {
    /// The answer with what is known nevertheless.
    pub(super) fn told<'a>(&self, answer: Answer<'a>) -> Answer<'a> {
        let Self::NotThen(then) = self else { return answer };
        let known = then.known.map(|(from, until)| Ends { earliest: Some(from), latest: Some(until) });
        Answer {
            at: Some(query::written(then.at)),
            candidates: then.candidates.clone(),
            known: known.map(between),
            ..answer
        }
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        match self {
            Self::Unparsed(_) | Self::BadTime(_) | Self::NotUtf8 | Self::NoRoom => None,
            Self::NotThen(then) => Some(then.kind),
            Self::NoProcess | Self::NotOfPod | Self::Unreadable(_) | Self::Blocked => Some(Kind::Pid),
            Self::NoPod(kind) => Some(*kind),
            Self::Suggested(_) => Some(Kind::Uid),
        }
    }

    /// The message for users about this query.
    pub(super) fn words(&self, query: &str) -> Cow<'static, str> {
        let words = match self {
            Self::Unparsed(error) => return error.to_string().into(),
            Self::BadTime(error) => return error.clone().into(),
            Self::NotThen(then) => return then.words().into(),
            Self::Unreadable(error) => return error.to_string().into(),
            Self::NotUtf8 => "an identity must be UTF-8",
            Self::NoRoom => "the response is full; send fewer queries per request",
            Self::NoProcess => "no process has this ID, or the agent does not see it (--proc)",
            Self::NotOfPod => "the process belongs to no pod",
            Self::Blocked => "the agent's /proc does not answer (--proc)",
            Self::NoPod(Kind::Uid) => return unknown_uid(query, None, false).into(),
            Self::Suggested(name) => return unknown_uid(query, name.as_deref(), true).into(),
            Self::NoPod(Kind::ContainerId) => "no pod has a container with this ID",
            Self::NoPod(Kind::Cgroup) => "the index does not have the pod of this cgroup",
            Self::NoPod(Kind::LogPath | Kind::LogLink) => "the index does not have the pod of this log",
            Self::NoPod(Kind::Ip) => "no pod has this IP address",
            Self::NoPod(Kind::Pid) => "the index does not have the pod of this process",
            Self::NoPod(Kind::Name) => "no pod has this name",
        };
        words.into()
    }
}

impl NotThen {
    fn words(&self) -> String {
        let names: Vec<_> =
            self.candidates.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
        match (&names[..], self.why) {
            ([], Some(NotFound::TooEarly)) => {
                let since = self.known.map(|(from, _)| query::written(from)).unwrap_or_default();
                format!("the time is before what the agent knows, which is since {since} (--keep-removed)")
            }
            ([], Some(NotFound::TooLate)) => "what happened at that time is not known yet".to_owned(),
            ([], _) => "no pod is known to have had it at that time".to_owned(),
            ([one], _) => format!("perhaps {one}, but not for certain"),
            (names, _) => format!("one of {}, the likeliest first", names.join(", ")),
        }
    }
}

fn between(Ends { earliest, latest }: Ends) -> Between {
    Between { earliest: earliest.map(query::written), latest: latest.map(query::written) }
}

/// A manifest may set any UID, so every word is looked up as one.
/// `is_searched`: whether a container ID that begins with it was looked for.
fn unknown_uid(query: &str, name: Option<&str>, is_searched: bool) -> String {
    let query = query.trim_ascii();
    let is_hex = query.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uid = matches!(Identity::parse(query), Ok(Identity::Uid(_)));
    let mut words =
        if is_uid { "no pod has this UID" } else { "not recognised; no pod has this UID" }.to_owned();
    if let Some(name) = name {
        words.extend(["; did you mean ", name, "?"]);
    } else if !is_uid && is_hex && (12..64).contains(&query.len()) {
        words += if is_searched {
            "; no container ID, or several, begin with it"
        } else {
            "; give all 64 digits of a container ID"
        };
    }
    words
}

impl<'a> Sought<'a> {
    /// Parses a query. The processes were looked up before.
    ///
    /// `at`: the time of the event, if the query does not say it itself.
    pub(super) fn parse(text: &'a str, at: Option<Time>, placements: &Placements) -> Result<Self, Unknown> {
        let process = query::process(text);
        let (text, own_time) = query::split(text).map_err(Unknown::BadTime)?;
        let at = own_time.or(at);
        let sought = |what| Self { text: (!text.contains('/')).then(|| text.trim_ascii()), what, at };
        if let (Some((_, None)), Some(_)) = (process, at) {
            let error = "at: a process ID at a time needs its start: PID@NANOSECONDS";
            return Err(Unknown::BadTime(error.to_owned()));
        }
        let Some(process) = process else {
            let identity = Identity::parse_lenient(text).map_err(Unknown::Unparsed)?;
            return Ok(sought(What::Identity(identity)));
        };
        match placements.get(&process) {
            Some(Ok(Placement::Pod(cgroup))) => Ok(sought(What::Process(cgroup.clone()))),
            Some(Ok(Placement::NoPod)) => Err(Unknown::NotOfPod),
            Some(Ok(Placement::Gone)) => Err(Unknown::NoProcess),
            Some(Err(error)) => Err(Unknown::Unreadable(error.clone())),
            None => Err(Unknown::Blocked),
        }
    }

    /// How a log path contradicts the pod that was found.
    fn contradiction(&self, path: &str, pod: &Pod) -> Option<String> {
        let What::Identity(Identity::PodLog(log)) = &self.what else { return None };
        if (log.namespace, log.name) != (pod.namespace(), pod.name()) {
            return Some(format!(
                "the path names {}/{}, and the UID is of another pod",
                log.namespace, log.name
            ));
        }
        let is_rooted = path.trim_ascii().starts_with("/var/log/pods/") || !path.contains("/var/log/pods/");
        (!is_rooted).then(|| "the path does not begin with /var/log/pods".to_owned())
    }

    pub(super) fn kind(&self) -> Kind {
        match self.what {
            What::Identity(Identity::ContainerId(_)) => Kind::ContainerId,
            What::Identity(Identity::Cgroup(_)) => Kind::Cgroup,
            What::Identity(Identity::PodLog(_) | Identity::PodDirectory { .. }) => Kind::LogPath,
            What::Identity(Identity::ContainerLog(_)) => Kind::LogLink,
            What::Identity(Identity::Ip(_)) => Kind::Ip,
            What::Identity(Identity::Name { .. }) => Kind::Name,
            What::Identity(Identity::Pid(_)) | What::Process(_) => Kind::Pid,
            What::Identity(_) => Kind::Uid,
        }
    }

    /// Looks the pod up.
    pub(super) fn find<'s>(
        &'s self,
        snapshot: &'s Snapshot<Pod>,
        bounds: Bounds,
    ) -> Result<Found<'s>, Unknown> {
        if let (Some(at), What::Identity(identity)) = (self.at, &self.what) {
            let then = snapshot.at(at).skew(bounds.skew).delay(bounds.delay);
            match self.find_at(snapshot, identity, &then, at) {
                // A manifest may set any UID, which needs no time.
                Err(Unknown::NotThen(then)) if then.candidates.is_empty() => {
                    let by_uid = self.text.and_then(|text| by_uid(snapshot, text.into()));
                    return by_uid.ok_or(Unknown::NotThen(then));
                }
                found => return found,
            }
        }
        let found = match &self.what {
            What::Process(cgroup) => by_cgroup(snapshot, cgroup),
            What::Identity(identity) => identity.resolve(snapshot).map(|found| Found {
                contested: contested(snapshot, identity),
                ..Found::new(snapshot, found)
            }),
        };
        // A manifest may set any UID, even one that looks like another kind of identity. A process ID was resolved to
        // its cgroup, so it is certainly not a UID.
        let found = match self.what {
            What::Identity(_) if !is_living(found.as_ref()) => {
                let by_uid = self.text.and_then(|text| by_uid(snapshot, text.into()));
                if is_living(by_uid.as_ref()) { by_uid } else { found.or(by_uid) }
            }
            _ => found,
        };
        found.ok_or_else(|| Unknown::NoPod(self.kind()))
    }
}

impl Sought<'_> {
    fn find_at<'s>(
        &self,
        snapshot: &'s Snapshot<Pod>,
        identity: &'s Identity<'s>,
        then: &AtTime<'s, Pod>,
        at: Time,
    ) -> Result<Found<'s>, Unknown> {
        let key: Option<index::Key<'_>> = match *identity {
            Identity::Ip(ip) => Some(ip.into()),
            Identity::Name { namespace, name } => Some((namespace, name).into()),
            _ => None,
        };
        let (why, candidates) = match identity.resolve_at(then) {
            Holder::Pod(found) => {
                let list = key.map(|key| then.candidates(key)).unwrap_or_default();
                let this = list.iter().find(|one| one.is_certain && Arc::ptr_eq(one.pod, found.pod));
                let ends = this.map(|one| (one.from, one.until));
                return Ok(Found { at: Some(at), ends, ..Found::new(snapshot, found) });
            }
            Holder::Unknown(NotFound::NoPod) if key.is_none() => return Err(Unknown::NoPod(self.kind())),
            Holder::Unknown(why) => (Some(why), Vec::new()),
            Holder::Ambiguous { candidates, .. } => (None, candidates),
            _ => return Err(Unknown::NoPod(self.kind())),
        };
        let candidates = candidates.iter().map(|one| CandidatePod {
            namespace: one.pod.namespace().to_owned(),
            name: one.pod.name().to_owned(),
            pod_uid: PodMeta::uid(&**one.pod).to_owned(),
            from: between(one.from),
            until: between(one.until),
        });
        let (candidates, known) = (candidates.collect(), then.known());
        Err(Unknown::NotThen(Box::new(NotThen { kind: self.kind(), at, why, candidates, known })))
    }
}

fn by_uid<'s>(snapshot: &'s Snapshot<Pod>, uid: UidRef<'s>) -> Option<Found<'s>> {
    let found = Identity::Uid(uid).resolve(snapshot);
    found.map(|found| Found::new(snapshot, found))
}

/// Finds the pod of the only container whose ID begins with the text, which is how `crictl ps` shows IDs. Goes through
/// all pods.
pub(super) fn by_short_id<'s>(snapshot: &'s Snapshot<Pod>, text: &str) -> Option<Found<'s>> {
    let start = text.trim_ascii();
    if !(12..64).contains(&start.len()) || !start.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let containers = snapshot.pods().filter_map(|pod| pod.status.as_ref()).flat_map(|status| {
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses]
    });
    let ids = containers.flatten().flatten().filter_map(|container| container.container_id.as_deref());
    let mut ids = ids.filter(|id| id.split_once("://").is_some_and(|(_, id)| id.starts_with(start)));
    let id = ids.next()?;
    if ids.any(|other| other != id) {
        return None;
    }
    Identity::parse(id).ok()?.resolve(snapshot).map(|found| Found::new(snapshot, found))
}

fn is_living(found: Option<&Found<'_>>) -> bool {
    found.is_some_and(|found| found.removed_at.is_none())
}

/// Finds the pod by its UID, which is known before any status names the container; otherwise by the container's ID. A
/// living pod comes before a removed one.
fn by_cgroup<'s>(snapshot: &'s Snapshot<Pod>, cgroup: &'s PodCgroup) -> Option<Found<'s>> {
    let by_id = cgroup.container_id.and_then(|id| Identity::ContainerId(id).resolve(snapshot));
    let by_id = by_id.map(|found| Found::new(snapshot, found));
    let found = cgroup.pod_uid.as_ref().and_then(|uid| by_uid(snapshot, uid.into()));
    let Some(found) = found.filter(|found| is_living(Some(found)) || !is_living(by_id.as_ref())) else {
        return by_id;
    };
    let is_same = |by_id: &Found<'_>| {
        by_id.pod.zip(found.pod).is_some_and(|(by_id, by_uid)| Arc::ptr_eq(by_id, by_uid))
    };
    Some(Found { container: by_id.filter(is_same).and_then(|by_id| by_id.container), ..found })
}

/// The other current pods that claim an IP.
fn contested(snapshot: &Snapshot<Pod>, identity: &Identity<'_>) -> Vec<String> {
    let Identity::Ip(ip) = *identity else { return Vec::new() };
    let others = snapshot.claimants(ip).skip(1);
    others.map(|found| format!("{}/{}", found.pod.namespace(), found.pod.name())).collect()
}

/// The time of a removal, in whole seconds.
pub(super) fn time_of(removed_at: Instant) -> Timestamp {
    let age = SignedDuration::try_from(removed_at.elapsed()).unwrap_or_default();
    let time = Timestamp::now().saturating_sub(age).unwrap_or(Timestamp::UNIX_EPOCH);
    time.round(Unit::Second).unwrap_or(time)
}

impl<'a> Found<'a> {
    fn new(snapshot: &'a Snapshot<Pod>, found: index::Found<'a, Pod>) -> Self {
        let index::Found { pod, container, by, removed_at, .. } = found;
        let by = match by {
            FoundBy::MirrorUid => Key::MirrorUid,
            FoundBy::ContainerId => Key::ContainerId,
            FoundBy::Ip => Key::Ip,
            FoundBy::Name => Key::Name,
            FoundBy::NameOnly => Key::NameOnly,
            _ => Key::Uid,
        };
        if is_mirror_pod(&**pod) {
            let (at, ends, contested) = (None, None, Vec::new());
            return Self { pod: None, mirror: Some(pod), container, by, removed_at, at, ends, contested };
        }
        // The mirror pod of a removed pod's name may be that of another pod.
        let mirror = match removed_at {
            None => snapshot.mirror_pod_by_pod(pod),
            Some(_) => snapshot
                .mirror_uid_of_pod(PodMeta::uid(&**pod))
                .and_then(|uid| snapshot.mirror_pod_by_uid(&uid)),
        };
        let (at, ends, contested) = (None, None, Vec::new());
        Self { pod: Some(pod), mirror, container, by, removed_at, at, ends, contested }
    }

    /// Whether no pod that comes later can be a better answer. A name or an IP of a removed pod may already belong to
    /// another pod.
    pub(super) fn is_final(&self) -> bool {
        self.at.is_some()
            || self.removed_at.is_none()
            || !matches!(self.by, Key::Ip | Key::Name | Key::NameOnly)
    }

    /// With what a table shows only on request.
    fn detailed(&self, pod: &'a Pod, answer: Answer<'a>) -> Answer<'a> {
        let status = pod.status.as_ref();
        let mut ips = status.into_iter().flat_map(|status| &status.pod_ips).flatten().map(|ip| &*ip.ip);
        let containers = pod.spec.iter().flat_map(|spec| {
            let init = spec.init_containers.iter().flatten();
            init.chain(&spec.containers).map(|container| (&*container.name, container.image.as_deref()))
        });
        let is_meant = |name: &str| self.container.is_none_or(|only| only == name);
        let images = containers.filter(|(name, _)| is_meant(name)).filter_map(|(_, image)| image);
        Answer {
            pod_ip: ips.next().or(status.and_then(|status| status.pod_ip.as_deref())).map(Cow::from),
            phase: status.and_then(|status| status.phase.as_deref()).map(Cow::from),
            image: Some(images.collect::<Vec<_>>().join(",")),
            annotations: pod.metadata.annotations.as_ref().map(Cow::Borrowed),
            ..answer
        }
    }

    /// The answer to `query`.
    pub(super) fn answer(
        &self,
        query: &'a str,
        sought: &Sought<'_>,
        owners: &Owners,
        is_detailed: bool,
    ) -> Answer<'a> {
        static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
        let text = |text: &'a Option<String>| text.as_deref().map(Cow::from);
        let uid = |pod: &'a Arc<Pod>| text(&pod.metadata.uid);
        let answer =
            Answer { found: true, query: query.into(), kind: Some(sought.kind()), ..Answer::default() };
        let Some(pod) = self.pod.or(self.mirror) else { return answer };
        let answer = if is_detailed { self.detailed(pod, answer) } else { answer };
        Answer {
            found_by: Some(self.by),
            contradiction: sought.contradiction(query, pod),
            at: self.at.map(query::written),
            from: self.ends.map(|(from, _)| between(from)),
            until: self.ends.map(|(_, until)| between(until)),
            contested: self.contested.clone(),
            removed: self.removed_at.map(|at| time_of(at).to_string()),
            namespace: text(&pod.metadata.namespace),
            name: text(&pod.metadata.name),
            pod_uid: self.pod.and_then(uid),
            mirror_uid: self.mirror.and_then(uid),
            container: self.container.map(Cow::from),
            node: pod.spec.as_ref().and_then(|spec| text(&spec.node_name)),
            owner: controller(&pod.metadata)
                .map(|owner| Owner { kind: Cow::from(&owner.kind), name: Cow::from(&owner.name) }),
            workload: Workload::of(pod, owners),
            labels: Some(Cow::Borrowed(pod.metadata.labels.as_ref().unwrap_or(&NO_LABELS))),
            ..answer
        }
    }
}
