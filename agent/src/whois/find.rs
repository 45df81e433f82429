//! From an identity to the pod, in one snapshot.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use pod_index::identity::{Cgroup, ContainerId, Identity, ParseIdentityError};
use pod_index::{PodUid, Snapshot};

pub(super) use super::answer::Key;
use super::answer::{Answer, Kind, Owner, PodAnswer};
use super::lookups::Outcome;
use super::processes::{Process, Processes};

/// A parsed query.
#[derive(Debug)]
pub(super) struct Sought<'a> {
    /// The query's text, if a UID could be spelled like this.
    text: Option<&'a str>,
    what: What<'a>,
}

#[derive(Debug)]
enum What<'a> {
    Identity(Identity<'a>),
    /// The cgroup of a process. At least one of the two is there.
    Process(Option<PodUid>, Option<ContainerId>),
}

/// A pod, and how it was found.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// `None` for a mirror pod without a static pod.
    pub(super) pod: Option<&'a Arc<Pod>>,
    mirror: Option<&'a Arc<Pod>>,
    container: Option<&'a str>,
    pub(super) by: Key,
}

/// Why no pod was found.
#[derive(Clone, Debug)]
pub(super) enum Unknown {
    Unparsed(ParseIdentityError),
    NotUtf8,
    /// The answers to the other queries fill the response.
    NoRoom,
    NoProcess,
    NotOfPod,
    Unreadable(String),
    NoPod(Kind),
}

impl Unknown {
    pub(super) fn kind(&self) -> Option<Kind> {
        match self {
            Self::Unparsed(_) | Self::NotUtf8 | Self::NoRoom => None,
            Self::NoProcess | Self::NotOfPod | Self::Unreadable(_) => Some(Kind::Pid),
            Self::NoPod(kind) => Some(*kind),
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        if self.kind().is_some() { Outcome::Unknown } else { Outcome::Invalid }
    }

    /// For people.
    pub(super) fn words(&self) -> Cow<'static, str> {
        let words = match self {
            Self::Unparsed(error) => return error.to_string().into(),
            Self::Unreadable(error) => return format!("the process cannot be read: {error}").into(),
            Self::NotUtf8 => "an identity must be UTF-8",
            Self::NoRoom => "the answers before this one fill the response; ask for fewer at once",
            Self::NoProcess => "no process has this ID, or the agent does not see it (--proc)",
            Self::NotOfPod => "the process belongs to no pod",
            Self::NoPod(Kind::Uid) => "no pod has this UID",
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

impl<'a> Sought<'a> {
    /// Parses a query. Asks `processes` for a process ID.
    pub(super) fn parse(text: &'a str, processes: &Processes) -> Result<Self, Unknown> {
        let identity = Identity::parse(text).map_err(Unknown::Unparsed)?;
        let text = text.trim_ascii();
        let sought = |what| Self { text: (!text.contains('/')).then_some(text), what };
        let Identity::Pid(pid) = identity else { return Ok(sought(What::Identity(identity))) };
        match processes.get(pid) {
            Process::Pod(cgroup) => Ok(sought(What::Process(cgroup.pod_uid, cgroup.container_id))),
            Process::NoPod => Err(Unknown::NotOfPod),
            Process::Gone => Err(Unknown::NoProcess),
            Process::Unreadable(error) => Err(Unknown::Unreadable(error)),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.what {
            What::Identity(Identity::ContainerId(_)) => Kind::ContainerId,
            What::Identity(Identity::Cgroup(_)) => Kind::Cgroup,
            What::Identity(Identity::PodLog(_)) => Kind::LogPath,
            What::Identity(Identity::ContainerLog(_)) => Kind::LogLink,
            What::Identity(Identity::Ip(_)) => Kind::Ip,
            What::Identity(Identity::Name { .. }) => Kind::Name,
            What::Identity(Identity::Pid(_)) | What::Process(..) => Kind::Pid,
            What::Identity(_) => Kind::Uid,
        }
    }

    /// Looks the pod up.
    pub(super) fn find<'s>(&self, snapshot: &'s Snapshot<Pod>) -> Result<Found<'s>, Unknown>
    where
        'a: 's,
    {
        let found = match &self.what {
            What::Process(uid, container) => by_cgroup(snapshot, uid.as_ref(), *container),
            What::Identity(identity) => by_identity(snapshot, *identity),
        };
        // A manifest may set any UID, even one that looks like something else.
        let found = found.or_else(|| by_uid(snapshot, self.text?));
        found.ok_or_else(|| Unknown::NoPod(self.kind()))
    }
}

fn by_identity<'s>(snapshot: &'s Snapshot<Pod>, identity: Identity<'s>) -> Option<Found<'s>> {
    match identity {
        Identity::Uid(uid) => by_uid(snapshot, uid),
        Identity::ContainerId(id) => by_container(snapshot, id),
        Identity::Cgroup(Cgroup { pod_uid, container_id, .. }) => {
            by_cgroup(snapshot, pod_uid.map(|uid| uid.to_pod_uid()).as_ref(), container_id)
        }
        Identity::PodLog(log) => {
            let found = by_uid(snapshot, log.pod_uid)?;
            Some(Found { container: Some(log.container), ..found })
        }
        Identity::ContainerLog(log) => {
            let found = log.container_id.and_then(|id| by_container(snapshot, id));
            found.or_else(|| {
                let found = by_name(snapshot, log.namespace?, log.name)?;
                Some(Found { container: log.container, ..found })
            })
        }
        Identity::Name { namespace, name } => by_name(snapshot, namespace, name),
        _ => None,
    }
}

fn by_uid<'s, 'u>(snapshot: &'s Snapshot<Pod>, uid: impl Into<pod_index::UidRef<'u>>) -> Option<Found<'s>> {
    let uid = uid.into();
    if let Some(pod) = snapshot.pod_by_uid(uid) {
        return Some(Found {
            pod: Some(pod),
            mirror: snapshot.mirror_pod_by_pod(pod),
            container: None,
            by: Key::Uid,
        });
    }
    let mirror = snapshot.mirror_pod_by_uid(uid)?;
    let pod = snapshot.pod_by_mirror_pod(mirror);
    Some(Found { pod, mirror: Some(mirror), container: None, by: Key::MirrorUid })
}

fn by_name<'s>(snapshot: &'s Snapshot<Pod>, namespace: &str, name: &str) -> Option<Found<'s>> {
    let pod = snapshot.pod_by_name(namespace, name);
    Some(Found { by: Key::Name, ..by_pod(snapshot, pod?) })
}

/// By the pod's UID, which the node has before any status names the container; else by the container's ID.
fn by_cgroup<'s>(
    snapshot: &'s Snapshot<Pod>,
    uid: Option<&PodUid>,
    container: Option<ContainerId>,
) -> Option<Found<'s>> {
    if let Some(found) = uid.and_then(|uid| by_uid(snapshot, uid)) {
        let id = container.map(|id| id.to_string());
        let container = id.and_then(|id| container_name(found.pod?, &id));
        return Some(Found { container, ..found });
    }
    by_container(snapshot, container?)
}

fn by_container(_snapshot: &Snapshot<Pod>, _id: ContainerId) -> Option<Found<'_>> {
    None
}

fn by_pod<'s>(snapshot: &'s Snapshot<Pod>, pod: &'s Arc<Pod>) -> Found<'s> {
    Found { pod: Some(pod), mirror: snapshot.mirror_pod_by_pod(pod), container: None, by: Key::Uid }
}

/// The container of this pod that has this ID, or had it before its last restart.
fn container_name<'a>(pod: &'a Pod, id: &str) -> Option<&'a str> {
    let status = pod.status.as_ref()?;
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let has = |container: &&ContainerStatus| {
        let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let ids = [container.container_id.as_ref(), last.and_then(|last| last.container_id.as_ref())];
        ids.into_iter().flatten().any(|full| full.rsplit_once("://").is_some_and(|(_, digits)| digits == id))
    };
    lists.into_iter().flatten().flatten().find(has).map(|container| &*container.name)
}

impl<'a> Found<'a> {
    /// The answer.
    pub(super) fn answer(self, query: &'a str, kind: Kind) -> Answer<'a> {
        let pod = self.pod.or(self.mirror).map(|pod| describe(pod, &self));
        Answer { found: true, query: query.into(), kind: Some(kind), error: None, pod }
    }
}

/// What the answer tells of this pod.
fn describe<'a>(pod: &'a Pod, found: &Found<'a>) -> PodAnswer<'a> {
    static NO_LABELS: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    let text = |text: &'a Option<String>| Cow::from(text.as_deref().unwrap_or_default());
    let uid = |pod: &'a Arc<Pod>| pod.metadata.uid.as_deref().map(Cow::from);
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    PodAnswer {
        found_by: found.by,
        namespace: text(&pod.metadata.namespace),
        name: text(&pod.metadata.name),
        pod_uid: found.pod.and_then(uid),
        mirror_uid: found.mirror.and_then(uid),
        container: found.container.map(Cow::from),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).map(Cow::from),
        owner: controller.map(|owner| Owner { kind: Cow::from(&owner.kind), name: Cow::from(&owner.name) }),
        labels: Cow::Borrowed(pod.metadata.labels.as_ref().unwrap_or(&NO_LABELS)),
    }
}
