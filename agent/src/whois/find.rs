//! Finds the pod of an identity in one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp, Unit};
use pod_index::identity::{ContainerId, ContainerLog, Identity, PodLog};
use pod_index::workload::controller;
use pod_index::{
    Bounds, Candidate, Coverage, Found, FoundBy, Holder, Key, NotFound, PodMeta, Snapshot, Time, UidRef,
    is_mirror_pod,
};
use pod_index_kubelet::memory::LEFT_OUT;
use pod_index_kubelet::owners::Owners;
use pod_index_kubelet::process::{Placement, Roots};
use pod_index_kubelet::records::{Attributes, Record};
use pod_index_kubelet::sources::static_pods::CLAIMED_ANNOTATION;
use serde_json::{Map, Value, json};

use super::answer::{Controller, Line, NO_POD_OF_PROCESS, Shown, is_passed_on};
use super::attributes;
use super::processes::Placements;
use super::query::{self, Process};
use super::search_budget::{SearchBudget, VISITED};
use crate::config::values::Tolerance;

/// Maximum number of pods that are suggested.
const SUGGESTIONS: usize = 3;

const NOT_OF_KUBELET: &str =
    "anyone could have made this cgroup: it is not where a kubelet puts its pods (--cgroup-root)";
const NO_CONTAINER_OR_SEVERAL: &str = "no container ID, or several, begin with it";
const NOT_SEARCHED: &str = "not searched for: one request may search for few short container IDs and names without a namespace; \
                            ask for the whole ID or name, or in another request";
/// The attributes of what has none.
pub(super) const NO_ATTRIBUTES: &[u8] = b"{}";
const NO_POD_OF_LOG: &str = "the index does not have the pod of this log";

/// A parsed query.
pub(super) struct Sought<'a> {
    /// The query's text, if it may also be a UID.
    text: Option<&'a str>,
    /// Of a process: its cgroup.
    identity: Identity<'a>,
    is_process: bool,
    /// The pod that the path of a log, or of its directory, names.
    named: Option<NamedPod<'a>>,
    /// The start of a container ID, if it certainly is one.
    short_id: Option<&'a str>,
    /// The time of the event.
    at: Option<Time>,
}

/// The names of a pod in a path.
#[derive(Clone, Copy)]
struct NamedPod<'a> {
    namespace: &'a str,
    name: &'a str,
}

/// A pod, and how it was found.
pub(super) struct Match<'a> {
    sought: &'a Sought<'a>,
    /// What the query was taken for.
    kind: &'static str,
    found: Found<'a, Record>,
    /// What found it, if other pods can claim that, too.
    contestable_key: Option<Key<'a>>,
    /// When it had the key that found it, if the query has a time.
    had_key: Option<KeyTimes>,
}

/// The pod of a container, of whose ID the query has the start.
struct FoundByStart<'a> {
    found: Found<'a, Record>,
    id: ContainerId,
}

/// From when until when a pod had a key, as the answer shows it.
#[derive(Clone, Copy)]
struct KeyTimes {
    from: Bounds,
    until: Bounds,
}

/// What a query was taken for.
struct TakenFor {
    name: &'static str,
    /// What to say if no pod has it.
    missing: &'static str,
}

/// Why no pod was found.
#[derive(Clone)]
pub(super) struct Unknown {
    /// `None`: the query is no identity.
    pub(super) kind: Option<&'static str>,
    pub(super) error: String,
    /// The index has no such pod now: it may have it later.
    pub(super) is_missing: bool,
    /// Several pods may have had the key at the time of the event.
    is_ambiguous: bool,
    /// The event happened before this time, and the agent knows only what is later.
    pub(super) known_since: Option<Time>,
    /// What is known of the time of the event, if no pod had the key then for certain.
    then: Map<String, Value>,
}

impl Unknown {
    pub(super) fn new(kind: Option<&'static str>, error: impl Into<String>) -> Self {
        Self {
            kind,
            error: error.into(),
            is_missing: false,
            is_ambiguous: false,
            known_since: None,
            then: Map::new(),
        }
    }

    /// Appends the answer to `query`.
    pub(super) fn write(&self, query: &str, to: &mut Vec<u8>) {
        let mut line = Line::new(false, query, to);
        line.put("kind", self.kind);
        line.put("error", Some(&self.error));
        for (name, value) in &self.then {
            line.put(name, Some(value));
        }
        line.end();
    }
}

fn between(Bounds { earliest, latest }: Bounds) -> Value {
    let ends = [("earliest", earliest), ("latest", latest)];
    ends.into_iter().filter_map(|(name, time)| Some((name, query::written(time?)))).collect()
}

/// Names pods that `name` perhaps means: those with this name, then those whose name only begins with it, as a static
/// pod's name does before the node's name. Visits `VISITED` pods at most.
pub(crate) fn suggestion(snapshot: &Snapshot<Record>, name: &str) -> Option<String> {
    let mut same = Vec::new();
    let mut longer = Vec::new();
    for pod in snapshot.pods().take(VISITED) {
        match pod.name().strip_prefix(name) {
            Some("") => same.push(pod),
            Some(rest) if rest.starts_with('-') && longer.len() < SUGGESTIONS => longer.push(pod),
            _ => {}
        }
    }
    let pods = same.into_iter().chain(longer).take(SUGGESTIONS);
    let mut names: Vec<_> = pods.map(|pod| full_name(pod)).collect();
    names.sort();
    (!names.is_empty()).then(|| format!("; did you mean {}?", names.join(" or ")))
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

impl<'a> NamedPod<'a> {
    /// In the path of a log directory, `…/<namespace>_<name>_<UID>/…`. What is below a directory with the UID alone, a container names.
    fn of_directory(path: &'a str, pod_uid: UidRef<'_>) -> Option<Self> {
        let is_outside = |directory: &&str| UidRef::from(*directory) != pod_uid;
        path.split('/').take_while(is_outside).find_map(|directory| {
            let mut parts = directory.splitn(3, '_');
            let named = Self { namespace: parts.next()?, name: parts.next()? };
            (UidRef::from(parts.next()?) == pod_uid).then_some(named)
        })
    }
}

impl<'a> Sought<'a> {
    /// Parses a query. The processes were looked up before.
    ///
    /// `at`: the time of the event, if the query does not say it itself. `roots`: the cgroups that may hold pods.
    pub(super) fn parse(
        query: &'a [u8],
        at: Option<Time>,
        placements: &Placements,
        roots: &Roots,
    ) -> Result<Self, Unknown> {
        let invalid = |error: String| Unknown::new(None, error);
        let query = str::from_utf8(query).map_err(|_| invalid("an identity must be UTF-8".to_owned()))?;
        let (text, own_time) = query::split(query).map_err(invalid)?;
        let at = own_time.or(at);
        match query::process(query) {
            Some(process) => Self::of_process(process, at, placements),
            None => Self::of_text(text.trim_ascii(), at, roots),
        }
    }

    /// The query that is this text, without its time.
    fn of_text(text: &'a str, at: Option<Time>, roots: &Roots) -> Result<Self, Unknown> {
        let invalid = |error: String| Unknown::new(None, error);
        let short_id = query::short_id_of_runtime(text);
        let identity = match (query::address(text), short_id) {
            (Some(address), _) => Identity::Ip(address.map_err(invalid)?),
            (None, Some(id)) => Identity::Uid(id.into()),
            (None, None) => Identity::parse_lenient(text).map_err(|error| invalid(error.to_string()))?,
        };
        if matches!(identity, Identity::Cgroup(_)) && roots.place(text).pod().is_none() {
            return Err(invalid(NOT_OF_KUBELET.to_owned()));
        }
        let named = match identity {
            Identity::PodLog(PodLog { namespace, name, .. }) => Some(NamedPod { namespace, name }),
            Identity::PodDirectory { pod_uid, .. } => NamedPod::of_directory(text, pod_uid),
            _ => None,
        };
        let text = (!text.contains('/')).then_some(text);
        Ok(Self { text, identity, is_process: false, named, short_id, at })
    }

    /// The query for the pod of a process.
    fn of_process(process: Process, at: Option<Time>, placements: &Placements) -> Result<Self, Unknown> {
        if process.started.is_none() && at.is_some() {
            let error = "at: a process ID at a time needs its start: PID@NANOSECONDS";
            return Err(Unknown::new(None, error));
        }
        let error = match placements.get(&process) {
            Some(Ok(Placement::Pod(cgroup))) => {
                // It is certainly no UID, and a process is in one pod only.
                let identity = Identity::Cgroup(cgroup.clone());
                return Ok(Self {
                    text: None,
                    identity,
                    is_process: true,
                    named: None,
                    short_id: None,
                    at: None,
                });
            }
            Some(Ok(Placement::NoPod)) => "the process belongs to no pod".to_owned(),
            Some(Ok(Placement::Gone)) => {
                "no process has this ID, or the agent does not see it (--proc)".to_owned()
            }
            Some(Err(error)) => error.to_string(),
            None => "the agent's /proc does not answer (--proc)".to_owned(),
        };
        Err(Unknown::new(Some("pid"), error))
    }

    /// How a path contradicts the pod that was found, and its containers.
    fn contradiction(&self, path: &str, found: &Found<'_, Record>) -> Option<String> {
        self.contradiction_of_names(found).or_else(|| contradiction_of_container(found)).or_else(|| {
            let is_log = matches!(self.identity, Identity::PodLog(_) | Identity::PodDirectory { .. });
            let is_rooted =
                path.trim_ascii().starts_with("/var/log/pods/") || !path.contains("/var/log/pods/");
            (is_log && !is_rooted).then(|| "the path does not begin with /var/log/pods".to_owned())
        })
    }

    /// How the names in the path of a log or of its directory, or in a link to a log, contradict the pod that its ID has found.
    fn contradiction_of_names(&self, found: &Found<'_, Record>) -> Option<String> {
        if let Identity::ContainerLog(link) = self.identity
            && found.by == FoundBy::ContainerId
        {
            return contradiction_of_link(&link, found);
        }
        let NamedPod { namespace, name } = self.named?;
        let pod = &**found.pod;
        ((namespace, name) != (pod.namespace(), pod.name()))
            .then(|| format!("the path names {namespace}/{name}, and the UID is of another pod"))
    }

    fn taken_for(&self) -> TakenFor {
        let (name, missing) = match self.identity {
            _ if self.is_process => ("pid", NO_POD_OF_PROCESS),
            _ if self.short_id.is_some() => ("containerId", NO_CONTAINER_OR_SEVERAL),
            Identity::ContainerId(_) => ("containerId", "no pod has a container with this ID"),
            Identity::Cgroup(_) => ("cgroup", "the index does not have the pod of this cgroup"),
            Identity::PodLog(_) | Identity::PodDirectory { .. } => ("logPath", NO_POD_OF_LOG),
            Identity::ContainerLog(_) => ("logLink", NO_POD_OF_LOG),
            Identity::Ip(_) => ("ip", "no pod has this IP address"),
            Identity::Name { .. } => ("name", "no pod has this name"),
            // A number alone may be a UID, too: process IDs have a form of their own.
            Identity::Uid(_) | Identity::Pid(_) => ("uid", "no pod has this UID"),
            // `Identity` may grow. It is not called a UID then.
            _ => ("other", "no pod is known by this"),
        };
        TakenFor { name, missing }
    }

    /// What has found a pod, if other pods can claim it, too: an IP now, or a container ID, which needs no time. Of two pods with one
    /// name, the one stored last has it.
    fn contestable_key(&self, by: FoundBy) -> Option<Key<'_>> {
        match by {
            FoundBy::ContainerId => self.container_id().map(Key::from),
            FoundBy::Uid | FoundBy::MirrorUid | FoundBy::Name | FoundBy::NameOnly => None,
            // An IP, and whatever other kinds there will be.
            _ => self.identity.reusable_key().filter(|_| self.at.is_none()),
        }
    }

    fn container_id(&self) -> Option<ContainerId> {
        match &self.identity {
            Identity::ContainerId(id) => Some(*id),
            Identity::Cgroup(cgroup) => cgroup.container_id,
            Identity::ContainerLog(link) => link.container_id,
            _ => None,
        }
    }

    /// A pod that was found for this query.
    fn match_of<'s>(&'s self, mut found: Found<'s, Record>) -> Match<'s> {
        if let Identity::Cgroup(_) = self.identity {
            found.container = found.container.or_else(|| self.container_of(found.pod));
        }
        let contestable_key = self.contestable_key(found.by);
        Match { sought: self, kind: self.taken_for().name, found, contestable_key, had_key: None }
    }

    /// The container that the query names by its ID, by the word of this pod: another one may claim the ID, too, with the stronger claim.
    fn container_of<'s>(&self, pod: &'s Record) -> Option<&'s str> {
        let (container, _) = pod.container_run(self.container_id()?)?;
        Some(&container.name)
    }

    /// A pod that was found for the start of a container ID.
    fn match_of_start<'s>(&'s self, FoundByStart { found, id }: FoundByStart<'s>) -> Match<'s> {
        Match { contestable_key: Some(id.into()), ..self.match_of(found) }
    }

    /// No pod has what was asked for: it may have it later.
    fn missing(&self) -> Unknown {
        let TakenFor { name, missing } = self.taken_for();
        Unknown { is_missing: true, ..Unknown::new(Some(name), missing) }
    }

    /// The request has made all the searches that it may make. The pod may be there.
    fn not_searched(&self) -> Unknown {
        let TakenFor { name, .. } = self.taken_for();
        Unknown { is_missing: true, ..Unknown::new(Some(name), NOT_SEARCHED) }
    }

    /// Looks the pod up, with at most one search through all pods.
    pub(super) fn find<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
        tolerance: Tolerance,
        searches: &mut SearchBudget,
    ) -> Result<Match<'s>, Unknown> {
        if let Some(start) = self.short_id {
            if !searches.take_search() {
                return Err(self.not_searched());
            }
            let found = by_short_id(snapshot, start);
            return found.map(|found| self.match_of_start(found)).ok_or_else(|| self.missing());
        }
        let matched = match self.at {
            Some(at) => self.find_then(snapshot, tolerance, at)?,
            None => self.find_now(snapshot),
        };
        match matched {
            Some(matched) => Ok(matched),
            None => self.search(snapshot, searches),
        }
    }

    /// The pod whose UID the query is. A manifest may set any UID, even one that looks like another kind of identity.
    fn find_by_uid<'s>(&'s self, snapshot: &'s Snapshot<Record>) -> Option<Match<'s>> {
        let found = Identity::Uid(self.text?.into()).resolve(snapshot);
        found.filter(|found| !self.is_only_claimed(found)).map(|found| self.match_of(found))
    }

    /// Whether a mirror pod alone says that a pod has this word as its UID. Whoever may create a pod can forge one, and would answer for
    /// the name of any pod. A UID as the kubelet computes it is none that others ask for.
    fn is_only_claimed(&self, found: &Found<'_, Record>) -> bool {
        // Few pods have the annotation, and to parse the text once more takes longer than the look-up.
        let is_claimed = found.pod.pod().annotation(CLAIMED_ANNOTATION).is_some();
        is_claimed && self.text.is_some_and(|text| Identity::parse(text).is_err())
    }

    /// The pod of the identity, or else the one whose UID the query is. A current pod goes before a removed one.
    fn find_now<'s>(&'s self, snapshot: &'s Snapshot<Record>) -> Option<Match<'s>> {
        let is_current = |matched: &Match<'_>| matched.found.removed_at.is_none();
        let of_identity = self.identity.resolve(snapshot).filter(|found| !self.is_only_claimed(found));
        let of_identity = of_identity.map(|found| self.match_of(found));
        if of_identity.as_ref().is_some_and(is_current) {
            return of_identity;
        }
        let of_uid = self.find_by_uid(snapshot);
        if of_uid.as_ref().is_some_and(is_current) {
            return of_uid;
        }
        of_identity.or(of_uid)
    }

    /// The pod that had the key at this time, or else the one whose UID the query is, which needs no time.
    fn find_then<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
        tolerance: Tolerance,
        at: Time,
    ) -> Result<Option<Match<'s>>, Unknown> {
        match self.find_at(snapshot, tolerance, at) {
            Ok(matched) => {
                let matched = matched.filter(|matched| !self.is_only_claimed(&matched.found));
                Ok(matched.or_else(|| self.find_by_uid(snapshot)))
            }
            // The pod is one of the candidates.
            Err(unknown) if unknown.is_ambiguous => Err(unknown),
            Err(unknown) => self.find_by_uid(snapshot).map(Some).ok_or(unknown),
        }
    }

    /// Every word that is nothing else counts as a UID. If no pod has it, perhaps it is meant as the start of a container ID,
    /// as may be 32 digits without a dash, or as a name without its namespace.
    fn search<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
        searches: &mut SearchBudget,
    ) -> Result<Match<'s>, Unknown> {
        let mut unknown = self.missing();
        let taken_for = self.taken_for();
        let Some(word) = self.text.filter(|_| taken_for.name == "uid") else { return Err(unknown) };
        let is_usual = Identity::parse(word).is_ok();
        if !is_usual {
            unknown.error = format!("not recognised; {}", taken_for.missing);
        }
        let is_short_id = query::is_short_id(word);
        let is_another_kind = is_usual && !is_short_id;
        if is_another_kind {
            return Err(unknown);
        }
        if !searches.take_search() {
            return Err(self.not_searched());
        }
        if let Some(found) = by_short_id(snapshot, word) {
            return Ok(self.match_of_start(found));
        }
        // Of the past, only a whole name is certain.
        if self.at.is_none()
            && let Some(found) = by_name_alone(snapshot, word)
        {
            return Ok(Match { kind: "name", ..self.match_of(found) });
        }
        let of_short_id = || format!("; {NO_CONTAINER_OR_SEVERAL}");
        let hint = suggestion(snapshot, word).or_else(|| is_short_id.then(of_short_id));
        unknown.error.extend(hint);
        Err(unknown)
    }

    /// The pod that had the key at the time. `None`: it needs none, or no pod has it.
    fn find_at<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
        tolerance: Tolerance,
        at: Time,
    ) -> Result<Option<Match<'s>>, Unknown> {
        // What is shown as known is what the answer rests on.
        let then = snapshot.at(at).skew(tolerance.skew).delay(tolerance.delay).fixed();
        let key = self.identity.reusable_key();
        match self.identity.resolve_at(&then) {
            Holder::Pod(found) => {
                let all = key.map(|key| then.candidates(key)).unwrap_or_default();
                let this = all.iter().find(|one| one.is_certain && Arc::ptr_eq(one.pod, found.pod));
                let interval = this.map(|one| KeyTimes { from: one.from, until: one.until });
                Ok(Some(Match { had_key: interval, ..self.match_of(found) }))
            }
            Holder::Unknown(NotFound::NoPod) if key.is_none() => Ok(None),
            Holder::Unknown(why) => {
                let known = then.known();
                let mut unknown = self.unknown_at(at, why_not(why, known), known);
                unknown.known_since = known.map(|known| known.since).filter(|_| why == NotFound::TooEarly);
                Err(unknown)
            }
            Holder::Ambiguous { candidates, more } => {
                let mut unknown = self.unknown_at(at, one_of(&candidates, more), then.known());
                unknown.is_ambiguous = true;
                let shown = candidates.iter().map(|one| {
                    json!({
                        "namespace": one.pod.namespace(), "name": one.pod.name(), "podUID": one.pod.uid(),
                        "from": between(one.from), "until": between(one.until),
                    })
                });
                unknown.then.insert("candidates".to_owned(), shown.collect());
                Err(unknown)
            }
            _ => Ok(None),
        }
    }

    /// No pod had the key at this time for certain. `known`: the time of which everything is known.
    fn unknown_at(&self, at: Time, error: String, known: Option<Coverage>) -> Unknown {
        let mut unknown = Unknown::new(Some(self.taken_for().name), error);
        unknown.then.insert("at".to_owned(), query::written(at).into());
        // It ends before it begins until what is known is older than the delay of the sources: nothing is known yet.
        if let Some(Coverage { since, until }) = known.filter(|known| known.since <= known.until) {
            let known = between(Bounds { earliest: Some(since), latest: Some(until) });
            unknown.then.insert("known".to_owned(), known);
        }
        unknown
    }
}

/// Why no pod is known to have had a key at a time. `known`: the time of which everything is known. Why nothing is known of an
/// earlier time, the caller appends.
fn why_not(why: NotFound, known: Option<Coverage>) -> String {
    match why {
        NotFound::TooEarly => {
            let since = known.map(|known| query::written(known.since)).unwrap_or_default();
            format!("the time is before what the agent knows, which is since {since}")
        }
        NotFound::NoTimes => {
            "the agent knows only the present, because it keeps no removed pods (--keep-removed)".to_owned()
        }
        NotFound::TooLate => "what happened at that time is not known yet".to_owned(),
        _ => "no pod is known to have had it at that time".to_owned(),
    }
}

/// Names the pods of which one had a key at a time. `more`: so many others are left out.
fn one_of(candidates: &[Candidate<'_, Record>], more: usize) -> String {
    let names: Vec<_> = candidates.iter().map(|one| full_name(one.pod)).collect();
    match &names[..] {
        [one] => format!("perhaps {one}, but not for certain"),
        names => {
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("one of {}{more}, the likeliest first", names.join(", "))
        }
    }
}

/// How a link to a log contradicts the pod and the container that its container ID has found. The end of a long name is
/// missing in a link.
fn contradiction_of_link(link: &ContainerLog<'_>, found: &Found<'_, Record>) -> Option<String> {
    let pod = &**found.pod;
    let names_pod =
        link.name == pod.name() && link.namespace.is_none_or(|namespace| namespace == pod.namespace());
    if !names_pod {
        let namespace = link.namespace.unwrap_or("…");
        return Some(format!(
            "the link names {namespace}/{}, and the container ID is of another pod",
            link.name
        ));
    }
    let named = link.container?;
    (found.container? != named)
        .then(|| format!("the link names the container {named}, and the container ID is of another one"))
}

/// How the container that a path names contradicts the pod: the pod has no such container. Of a pod that lacks fields, nobody knows that,
/// nor of one without any container, as a manifest may be.
fn contradiction_of_container(found: &Found<'_, Record>) -> Option<String> {
    let pod = found.pod;
    let named = found.container?;
    let is_known = pod.annotation(LEFT_OUT).is_none() && !pod.containers().is_empty();
    (is_known && pod.container(named).is_none()).then(|| {
        format!("the path names the container {named}, and the agent knows no such container of this pod")
    })
}

/// The only current pod with this name, in whichever namespace. Visits `VISITED` pods at most.
fn by_name_alone<'s>(snapshot: &'s Snapshot<Record>, name: &str) -> Option<Found<'s, Record>> {
    if snapshot.pods().len() > VISITED {
        return None;
    }
    let mut pods = snapshot.pods().filter(|pod| pod.name() == name);
    let pod = pods.next()?;
    let is_alone = pods.next().is_none();
    if !is_alone {
        return None;
    }
    Identity::Name { namespace: pod.namespace(), name: pod.name() }.resolve(snapshot)
}

/// Finds the pod of the only container whose ID begins with the text, which is how `crictl ps` shows IDs. Goes through
/// all pods.
fn by_short_id<'s>(snapshot: &'s Snapshot<Record>, start: &str) -> Option<FoundByStart<'s>> {
    if !query::is_short_id(start) {
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
    let id: ContainerId = id.parse().ok()?;
    let found = Identity::ContainerId(id).resolve(snapshot)?;
    Some(FoundByStart { found, id })
}

/// The time of a removal, in whole seconds.
pub(super) fn time_of(removed_at: Instant) -> Timestamp {
    let age = SignedDuration::try_from(removed_at.elapsed()).unwrap_or_default();
    let time = Timestamp::now().saturating_sub(age).unwrap_or(Timestamp::UNIX_EPOCH);
    time.round(Unit::Second).unwrap_or(time)
}

impl Match<'_> {
    /// Whether another pod may soon be found by the same query: a removed pod's IP or name goes to the next one. A query with a time
    /// is about the past.
    pub(super) fn may_be_succeeded(&self) -> bool {
        let Found { by, removed_at, .. } = self.found;
        is_passed_on(by.as_str()) && removed_at.is_some() && self.sought.at.is_none()
    }

    /// Appends the answer to `query`.
    pub(super) fn write(
        &self,
        query: &str,
        snapshot: &Snapshot<Record>,
        owners: &Owners,
        shown: Shown,
        to: &mut Vec<u8>,
    ) {
        let mut line = Line::new(true, query, to);
        self.write_how(query, snapshot, &mut line);
        self.write_pod(snapshot, &mut line);
        if let Some(workload) = self.found.pod.workload() {
            if workload.derived {
                // So that a later answer has its name from the API server.
                drop(owners.asked_of(self.found.pod));
            }
            line.put("workload", Some(Controller::of_workload(workload)));
        }
        line.put("labels", Some(self.found.pod.metadata.labels.as_ref().unwrap_or(&BTreeMap::new())));
        if shown.details {
            self.write_details(&mut line);
        }
        line.put("attributes", shown.attributes.then(|| attributes::Object(self.attributes())));
        line.end();
    }

    /// How the pod was found, and how certain that is.
    fn write_how(&self, query: &str, snapshot: &Snapshot<Record>, line: &mut Line<'_>) {
        let Self { sought, found, had_key, .. } = self;
        line.put("kind", Some(self.kind));
        // For a cgroup, for example, the pod's UID or the container's ID.
        line.put("foundBy", Some(found.by.as_str()));
        line.put("contradiction", sought.contradiction(query, found));
        line.put("at", sought.at.map(query::written));
        line.put("from", had_key.map(|times| between(times.from)));
        line.put("until", had_key.map(|times| between(times.until)));
        let others: Vec<_> = self.other_claimants(snapshot).map(|other| full_name(other.pod)).collect();
        line.put("contested", (!others.is_empty()).then_some(others));
        line.put("removed", found.removed_at.map(|at| time_of(at).to_string()));
    }

    /// The other pods that claim what has found this one. A container ID is one pod's for ever, so a removed pod that had it counts, too.
    fn other_claimants<'s>(
        &'s self,
        snapshot: &'s Snapshot<Record>,
    ) -> impl Iterator<Item = Found<'s, Record>> {
        let lasting = self.contestable_key.filter(|key| matches!(key, Key::ContainerId(_)));
        let current = self.contestable_key.into_iter().flat_map(|key| snapshot.claimants(key));
        let removed = lasting.map(|key| snapshot.removed().claimants(key).collect::<Vec<_>>());
        current.chain(removed.into_iter().flatten()).filter(|other| !Arc::ptr_eq(other.pod, self.found.pod))
    }

    /// Which pod it is.
    fn write_pod(&self, snapshot: &Snapshot<Record>, line: &mut Line<'_>) {
        let pod = self.found.pod;
        let metadata = &pod.metadata;
        line.put("namespace", metadata.namespace.as_ref());
        line.put("name", metadata.name.as_ref());
        // The UID under which the node knows the pod.
        line.put("podUID", metadata.uid.as_ref().filter(|_| !is_mirror_pod(&**pod)));
        line.put("mirrorUID", self.mirror(snapshot).and_then(|mirror| mirror.metadata.uid.as_ref()));
        line.put("container", self.found.container);
        line.put("node", pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()));
        let owner = controller(metadata);
        let owner = owner.map(|owner| Controller { kind: &owner.kind, name: &owner.name, derived: None });
        line.put("owner", owner);
    }

    /// The pod itself, if it is a mirror pod, or else the pod's mirror pod.
    fn mirror<'s>(&'s self, snapshot: &'s Snapshot<Record>) -> Option<&'s Arc<Record>> {
        let pod = self.found.pod;
        if is_mirror_pod(&**pod) {
            return Some(pod);
        }
        match self.found.removed_at {
            None => snapshot.mirror_pod_by_pod(pod),
            // The mirror pod of a removed pod's name may be that of another pod.
            Some(_) => snapshot.mirror_uid_of_pod(pod.uid()).and_then(|uid| snapshot.mirror_pod_by_uid(&uid)),
        }
    }

    /// What a table shows only on request.
    fn write_details(&self, line: &mut Line<'_>) {
        let pod = self.found.pod;
        let status = pod.status.as_ref();
        let containers =
            pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let shown = containers.filter(|one| self.found.container.is_none_or(|only| *only == *one.name));
        let images: Vec<_> = shown.filter_map(|one| one.image.as_deref()).collect();
        let first_of_list =
            || status.and_then(|status| status.pod_ips.iter().flatten().next()).map(|first| &first.ip);
        let ip = status.and_then(|status| status.pod_ip.as_ref()).or_else(first_of_list);
        line.put("podIP", ip);
        line.put("phase", status.and_then(|status| status.phase.as_ref()));
        line.put("image", Some(images.join(",")));
        line.put("annotations", pod.metadata.annotations.as_ref());
    }

    /// Appends the attributes alone: an object that can be merged into an event. An IP that several running pods claim has none, nor has a
    /// container ID that several pods claim, nor a path that names another pod than its ID: wrong ones are worse.
    pub(super) fn write_attributes(&self, snapshot: &Snapshot<Record>, to: &mut Vec<u8>) {
        let names_another = self.sought.contradiction_of_names(&self.found).is_some();
        if !names_another && self.is_uncontested(snapshot) {
            // Writing text to memory does not fail.
            drop(serde_json::to_writer(&mut *to, &attributes::Object(self.attributes())));
        } else {
            to.extend_from_slice(NO_ATTRIBUTES);
        }
        to.push(b'\n');
    }

    fn attributes(&self) -> Attributes<'_> {
        let id = match self.contestable_key {
            Some(Key::ContainerId(id)) => Some(id),
            _ => self.sought.container_id(),
        };
        attributes::of(self.found.pod, self.found.container, id)
    }

    /// Whether no other pod claims what has found this one. A pod that has finished keeps an IP in its status that it no longer has.
    fn is_uncontested(&self, snapshot: &Snapshot<Record>) -> bool {
        let Some(key) = self.contestable_key else { return true };
        let phase =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let runs = |pod: &Pod| !matches!(&*phase(pod), "Succeeded" | "Failed");
        let is_lasting = matches!(key, Key::ContainerId(_));
        !self.other_claimants(snapshot).any(|other| is_lasting || (runs(other.pod) && runs(self.found.pod)))
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::time::Duration;

    use super::*;
    use crate::pipeline::records::alone;

    #[test]
    fn each_search_through_all_pods_is_counted_and_only_so_many_are_made() {
        let (mut writer, reader) = pod_index::new();
        let id = "a".repeat(64);
        let pod = json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
            "status": { "containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": format!("containerd://{id}"),
            }] },
        });
        writer.upsert_pod(alone(serde_json::from_value::<Pod>(pod).unwrap())).unwrap();
        let snapshot = reader.load();
        let tolerance = Tolerance { skew: Duration::ZERO, delay: Duration::ZERO };
        let (placements, roots) = (Placements::new(), Roots::default());
        let sought = Sought::parse(&id.as_bytes()[..13], None, &placements, &roots).ok().expect("a query");
        let schemed = format!("containerd://{}", &id[..13]);
        let with_scheme = Sought::parse(schemed.as_bytes(), None, &placements, &roots).ok().expect("a query");
        for sought in [sought, with_scheme] {
            for (allowed, is_found, left) in [(2, true, 1), (1, true, 0), (0, false, 0)] {
                let mut searches = SearchBudget::of(allowed);
                let found = sought.find(&snapshot, tolerance, &mut searches);
                let error = found.as_ref().err().map(|unknown| &*unknown.error);
                assert_eq!(error, (!is_found).then_some(NOT_SEARCHED), "the pod may be there");
                let left_over = iter::from_fn(|| searches.take_search().then_some(())).count();
                assert_eq!((found.is_ok(), left_over), (is_found, left), "{allowed}");
            }
        }
    }
}
