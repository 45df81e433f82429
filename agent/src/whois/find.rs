//! Finds the pod of an identity in one snapshot.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::{SignedDuration, Timestamp, Unit};
use pod_index::identity::{Cgroup, Identity};
use pod_index::workload::controller;
use pod_index::{
    self as index, AtTime, Bounds as Ends, FoundBy, Holder, NotFound, PodMeta, Snapshot, Time, UidRef,
    is_mirror_pod,
};
use pod_index_kubelet::process::Placement;
use serde_json::value::RawValue;

pub(super) use super::answer::Key;
use super::answer::{Between, CandidatePod, Kind, Line, Workload};
use super::processes::Placements;
use super::{limits, query};
use crate::config::values::Bounds;
use crate::pod_api::owners::Owners;

/// Maximum number of pods that are suggested.
const SUGGESTIONS: usize = 3;
/// Pods that searches for a name or a short container ID visit at once.
pub(super) const VISITED: usize = 20_000;

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
    Process(Cgroup),
    Workload {
        namespace: &'a str,
        kind: &'a str,
        name: &'a str,
    },
}

/// A pod, and how it was found.
#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    /// `None` for a mirror pod without a static pod, and for a workload.
    pub(super) pod: Option<&'a Arc<Pod>>,
    /// Those of a workload.
    pods: Vec<Arc<Pod>>,
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
pub(super) struct Unknown {
    /// `None`: the query is no identity.
    pub(super) kind: Option<Kind>,
    pub(super) error: Cow<'static, str>,
    /// The index has no such pod now: it may have it later.
    pub(super) is_missing: bool,
    /// What is known of the time of the event, if no pod had the key then for certain.
    then: Option<Box<Then>>,
}

/// What is known of a key at the time of an event.
#[derive(Clone, Debug)]
struct Then {
    at: Time,
    /// The pods that may have had the key, the likeliest one first.
    candidates: Vec<CandidatePod>,
    /// The times between which the agent knows of all pods that had a key.
    known: Option<(Time, Time)>,
}

impl Unknown {
    pub(super) fn new(kind: Option<Kind>, error: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, error: error.into(), is_missing: false, then: None }
    }

    pub(super) fn no_pod(kind: Kind) -> Self {
        let error = match kind {
            Kind::Uid => "no pod has this UID",
            Kind::ContainerId => "no pod has a container with this ID",
            Kind::Cgroup => "the index does not have the pod of this cgroup",
            Kind::LogPath | Kind::LogLink => "the index does not have the pod of this log",
            Kind::Ip => "no pod has this IP address",
            Kind::Pid => "the index does not have the pod of this process",
            Kind::Name => "no pod has this name",
            Kind::Workload => "no current pod has this workload or controller",
        };
        Self { is_missing: true, ..Self::new(Some(kind), error) }
    }

    /// No pod has this text as its UID. A manifest may set any UID, so every word is looked up as one.
    /// `snapshot`: where to look for pods that are perhaps meant.
    pub(super) fn no_uid(query: &str, snapshot: Option<&Snapshot<Pod>>) -> Self {
        let query = query.trim_ascii();
        if matches!(Identity::parse(query), Ok(Identity::Uid(_))) {
            return Self::no_pod(Kind::Uid);
        }
        let meant = snapshot.and_then(|snapshot| suggestion(snapshot, query));
        let hint = if let Some(meant) = meant {
            meant
        } else if !is_short_id(query) {
            String::new()
        } else if snapshot.is_some() {
            "; no container ID, or several, begin with it".to_owned()
        } else {
            "; give all 64 digits of a container ID".to_owned()
        };
        let error = format!("not recognised; no pod has this UID{hint}");
        Self { is_missing: true, ..Self::new(Some(Kind::Uid), error) }
    }

    /// No pod had the key for certain. `more`: the number of less likely candidates, which are left out.
    fn not_then(kind: Kind, why: Option<NotFound>, then: Then, more: usize) -> Self {
        let names: Vec<_> =
            then.candidates.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
        let error = match (&names[..], why) {
            ([], Some(NotFound::TooEarly)) => {
                let since = then.known.map(|(from, _)| query::written(from)).unwrap_or_default();
                format!("the time is before what the agent knows, which is since {since} (--keep-removed)")
            }
            ([], Some(NotFound::TooLate)) => "what happened at that time is not known yet".to_owned(),
            ([], _) => "no pod is known to have had it at that time".to_owned(),
            ([one], _) => format!("perhaps {one}, but not for certain"),
            (names, _) => {
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("one of {}{more}, the likeliest first", names.join(", "))
            }
        };
        Self { then: Some(Box::new(then)), ..Self::new(Some(kind), error) }
    }

    /// Appends the answer to `query`.
    pub(super) fn write(&self, query: &str, to: &mut Vec<u8>) {
        let mut line = Line::new(false, query, to);
        line.put("kind", self.kind);
        line.put("error", Some(&self.error));
        if let Some(Then { at, candidates, known }) = self.then.as_deref() {
            line.put("at", Some(query::written(*at)));
            line.put("candidates", (!candidates.is_empty()).then_some(candidates));
            let known = known.map(|(from, until)| Ends { earliest: Some(from), latest: Some(until) });
            line.put("known", known.map(between));
        }
        line.end();
    }
}

fn between(Ends { earliest, latest }: Ends) -> Between {
    Between { earliest: earliest.map(query::written), latest: latest.map(query::written) }
}

/// Names pods that `name` perhaps means: those with this name, then those whose name only begins with it, as a static
/// pod's name does before the node's name. Visits `VISITED` pods at most.
pub(crate) fn suggestion(snapshot: &Snapshot<Pod>, name: &str) -> Option<String> {
    let (mut same, mut longer) = (Vec::new(), Vec::new());
    for pod in snapshot.pods().take(VISITED) {
        match pod.name().strip_prefix(name) {
            Some("") => same.push(pod),
            Some(rest) if rest.starts_with('-') && longer.len() < SUGGESTIONS => longer.push(pod),
            _ => {}
        }
    }
    let pods = same.into_iter().chain(longer).take(SUGGESTIONS);
    let mut names: Vec<_> = pods.map(|pod| format!("{}/{}", pod.namespace(), pod.name())).collect();
    names.sort();
    (!names.is_empty()).then(|| format!("; did you mean {}?", names.join(" or ")))
}

/// Whether the text may be the start of a container ID, as `crictl ps` shows it.
fn is_short_id(text: &str) -> bool {
    (12..64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl<'a> Sought<'a> {
    /// Parses a query. The processes were looked up before.
    ///
    /// `at`: the time of the event, if the query does not say it itself.
    pub(super) fn parse(text: &'a str, at: Option<Time>, placements: &Placements) -> Result<Self, Unknown> {
        let process = query::process(text);
        let (text, own_time) = query::split(text).map_err(|error| Unknown::new(None, error))?;
        let at = own_time.or(at);
        let sought = |what| Self { text: (!text.contains('/')).then(|| text.trim_ascii()), what, at };
        if let (Some((_, None)), Some(_)) = (process, at) {
            return Err(Unknown::new(None, "at: a process ID at a time needs its start: PID@NANOSECONDS"));
        }
        let Some(process) = process else {
            let error = match Identity::parse_lenient(text) {
                Ok(identity) => return Ok(sought(What::Identity(identity))),
                Err(error) => error.to_string(),
            };
            return match (workload(text.trim_ascii()), at) {
                (Some(workload), None) => Ok(sought(workload)),
                // No kind: the answer to this query never changes.
                (Some(_), Some(_)) => {
                    Err(Unknown::new(None, "at: only the current pods of a workload are known"))
                }
                (None, _) => Err(Unknown::new(None, error)),
            };
        };
        let error: Cow<'_, str> = match placements.get(&process) {
            Some(Ok(Placement::Pod(cgroup))) => return Ok(sought(What::Process(cgroup.clone()))),
            Some(Ok(Placement::NoPod)) => "the process belongs to no pod".into(),
            Some(Ok(Placement::Gone)) => {
                "no process has this ID, or the agent does not see it (--proc)".into()
            }
            Some(Err(error)) => error.to_string().into(),
            None => "the agent's /proc does not answer (--proc)".into(),
        };
        Err(Unknown::new(Some(Kind::Pid), error))
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
            What::Workload { .. } => Kind::Workload,
            What::Identity(_) => Kind::Uid,
        }
    }

    /// Looks the pod up.
    pub(super) fn find<'s>(
        &'s self,
        snapshot: &'s Snapshot<Pod>,
        bounds: Bounds,
        owners: &Owners,
    ) -> Result<Found<'s>, Unknown> {
        if let (Some(at), What::Identity(identity)) = (self.at, &self.what) {
            let then = snapshot.at(at).skew(bounds.skew).delay(bounds.delay);
            match self.find_at(snapshot, identity, &then, at) {
                // A manifest may set any UID, which needs no time.
                Err(unknown) if unknown.then.as_ref().is_some_and(|then| then.candidates.is_empty()) => {
                    let by_uid = self.text.and_then(|text| by_uid(snapshot, text.into()));
                    return by_uid.ok_or(unknown);
                }
                found => return found,
            }
        }
        let found = match &self.what {
            What::Workload { namespace, kind, name } => {
                let pods = owners.pods(snapshot, namespace, kind, name);
                (!pods.is_empty()).then(|| Found { pods, ..Found::by(Key::Workload) })
            }
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
        found.ok_or_else(|| self.no_pod())
    }

    fn no_pod(&self) -> Unknown {
        match (self.kind(), self.text) {
            (Kind::Uid, Some(text)) => Unknown::no_uid(text, None),
            (kind, _) => Unknown::no_pod(kind),
        }
    }

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
        let (why, candidates, more) = match identity.resolve_at(then) {
            Holder::Pod(found) => {
                let list = key.map(|key| then.candidates(key)).unwrap_or_default();
                let this = list.iter().find(|one| one.is_certain && Arc::ptr_eq(one.pod, found.pod));
                let ends = this.map(|one| (one.from, one.until));
                return Ok(Found { at: Some(at), ends, ..Found::new(snapshot, found) });
            }
            Holder::Unknown(NotFound::NoPod) if key.is_none() => return Err(self.no_pod()),
            Holder::Unknown(why) => (Some(why), Vec::new(), 0),
            Holder::Ambiguous { candidates, more } => (None, candidates, more),
            _ => return Err(self.no_pod()),
        };
        let candidates = candidates.iter().map(|one| CandidatePod {
            namespace: one.pod.namespace().to_owned(),
            name: one.pod.name().to_owned(),
            pod_uid: PodMeta::uid(&**one.pod).to_owned(),
            from: between(one.from),
            until: between(one.until),
        });
        let then = Then { at, candidates: candidates.collect(), known: then.known() };
        Err(Unknown::not_then(self.kind(), why, then, more))
    }
}

/// `NAMESPACE/KIND/NAME`.
fn workload(text: &str) -> Option<What<'_>> {
    let (namespace, rest) = text.split_once('/')?;
    let (kind, name) = rest.split_once('/')?;
    let has_all = ![namespace, kind, name].contains(&"");
    has_all.then_some(What::Workload { namespace, kind, name })
}

fn by_uid<'s>(snapshot: &'s Snapshot<Pod>, uid: UidRef<'s>) -> Option<Found<'s>> {
    let found = Identity::Uid(uid).resolve(snapshot);
    found.map(|found| Found::new(snapshot, found))
}

/// Finds the pod of the only container whose ID begins with the text, which is how `crictl ps` shows IDs. Goes through
/// all pods.
pub(super) fn by_short_id<'s>(snapshot: &'s Snapshot<Pod>, text: &str) -> Option<Found<'s>> {
    let start = text.trim_ascii();
    if !is_short_id(start) {
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
fn by_cgroup<'s>(snapshot: &'s Snapshot<Pod>, cgroup: &'s Cgroup) -> Option<Found<'s>> {
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
        let is_mirror = is_mirror_pod(&**pod);
        let mirror = match removed_at {
            _ if is_mirror => Some(pod),
            None => snapshot.mirror_pod_by_pod(pod),
            // The mirror pod of a removed pod's name may be that of another pod.
            Some(_) => snapshot
                .mirror_uid_of_pod(PodMeta::uid(&**pod))
                .and_then(|uid| snapshot.mirror_pod_by_uid(&uid)),
        };
        let pod = (!is_mirror).then_some(pod);
        Self { pod, mirror, container, removed_at, ..Self::by(by) }
    }

    fn by(by: Key) -> Self {
        Self { by, ..Self::default() }
    }

    /// Appends the answer to `query`. The details are what a table shows only on request.
    pub(super) fn write(
        &self,
        query: &str,
        sought: &Sought<'_>,
        owners: &Owners,
        is_detailed: bool,
        to: &mut Vec<u8>,
    ) {
        let mut line = Line::new(true, query, to);
        line.put("kind", Some(sought.kind()));
        let Some(pod) = self.pod.or(self.mirror) else {
            let (mut pods, mut room) = (Vec::new(), limits::PODS);
            for pod in &self.pods {
                if room == 0 {
                    break;
                }
                let mut pod_line = Vec::new();
                let found = Found { pod: Some(pod), ..Found::by(self.by) };
                found.write(query, sought, owners, is_detailed, &mut pod_line);
                room = room.saturating_sub(pod_line.len());
                pods.push(String::from_utf8(pod_line).ok().and_then(|line| RawValue::from_string(line).ok()));
            }
            line.put("pods", Some(&pods));
            line.put("more", Some(self.pods.len() - pods.len()).filter(|more| *more > 0));
            return line.end();
        };
        let metadata = &pod.metadata;
        // For a cgroup, for example, the pod's UID or the container's ID.
        line.put("foundBy", Some(self.by));
        line.put("contradiction", sought.contradiction(query, pod));
        line.put("at", self.at.map(query::written));
        line.put("from", self.ends.map(|(from, _)| between(from)));
        line.put("until", self.ends.map(|(_, until)| between(until)));
        line.put("contested", (!self.contested.is_empty()).then_some(&self.contested));
        line.put("removed", self.removed_at.map(|at| time_of(at).to_string()));
        line.put("namespace", metadata.namespace.as_ref());
        line.put("name", metadata.name.as_ref());
        // The UID under which the node knows the pod.
        line.put("podUID", self.pod.and_then(|pod| pod.metadata.uid.as_ref()));
        line.put("mirrorUID", self.mirror.and_then(|mirror| mirror.metadata.uid.as_ref()));
        line.put("container", self.container);
        line.put("node", pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()));
        let owner = controller(metadata);
        let owner = owner.map(|OwnerReference { kind, name, .. }| (Cow::from(kind), Cow::from(name)));
        line.put("owner", owner.map(|(kind, name)| Workload { kind, name, derived: None }));
        line.put("workload", Workload::of(pod, owners));
        line.put("labels", Some(metadata.labels.as_ref().unwrap_or(&BTreeMap::new())));
        if is_detailed {
            let status = pod.status.as_ref();
            let mut ips = status.into_iter().flat_map(|status| &status.pod_ips).flatten().map(|ip| &*ip.ip);
            let containers = pod.spec.iter().flat_map(|spec| {
                let init = spec.init_containers.iter().flatten();
                init.chain(&spec.containers).map(|container| (&*container.name, container.image.as_deref()))
            });
            let is_meant = |name: &str| self.container.is_none_or(|only| only == name);
            let images = containers.filter(|(name, _)| is_meant(name)).filter_map(|(_, image)| image);
            line.put("podIP", ips.next().or(status.and_then(|status| status.pod_ip.as_deref())));
            line.put("phase", status.and_then(|status| status.phase.as_deref()));
            line.put("image", Some(images.collect::<Vec<_>>().join(",")));
            line.put("annotations", metadata.annotations.as_ref());
        }
        line.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_answer_about_a_workload_is_bounded_and_counts_the_pods_that_it_leaves_out() {
        let (mut writer, _) = pod_index::new::<Pod>();
        let text = "x".repeat(limits::PODS / 8);
        for number in 10..40 {
            let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "d", "controller": true });
            let metadata = json!({ "namespace": "shop", "name": format!("db-{number}"), "uid": number.to_string(),
                "annotations": { "text": text }, "ownerReferences": [owner] });
            writer.add_pod(serde_json::from_value::<Pod>(json!({ "metadata": metadata })).unwrap()).unwrap();
        }
        let (owners, bounds) = (Owners::default(), Bounds { skew: Duration::ZERO, delay: Duration::ZERO });
        for (is_detailed, expected) in [(false, 30), (true, 8)] {
            let query = "shop/statefulset/db";
            let sought = Sought::parse(query, None, &Placements::default()).unwrap();
            let found = sought.find(writer.current(), bounds, &owners).unwrap();
            let mut line = Vec::new();
            found.write(query, &sought, &owners, is_detailed, &mut line);
            let answer: Value = serde_json::from_slice(&line).unwrap();
            let pods = answer["pods"].as_array().unwrap();
            let more = answer["more"].as_u64().unwrap_or_default();
            assert_eq!((pods.len(), more), (expected, 30 - expected as u64));
            assert_eq!((&pods[0]["name"], &pods[0]["foundBy"]), (&json!("db-10"), &json!("workload")));
        }
    }
}
