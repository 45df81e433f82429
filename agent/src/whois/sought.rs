//! What a query asks for: the identity in it, and the time of its event.

use pod_index::identity::{Cgroup, ContainerId, Identity, PodLog};
use pod_index::{FoundBy, Key, Time, UidRef};
use pod_index_kubelet::process::{Placement, Roots};

use super::answer::Retry;
use super::processes::Placements;
use super::query_text::{self, Process};
use super::unknown::Unknown;

const NOT_OF_KUBELET: &str =
    "anyone could have made this cgroup: it is not where a kubelet puts its pods (--cgroup-root)";
const NO_POD_OF_PROCESS: &str = "the process belongs to no pod";
pub(super) const NO_CONTAINER_OR_SEVERAL: &str = "no container ID, or several, begin with it";
const NO_POD_OF_LOG: &str = "the index does not have the pod of this log";

/// A parsed query.
pub(super) struct Sought<'a> {
    /// The query's text, if it may also be a UID.
    pub(super) text: Option<&'a str>,
    /// Of a process: its cgroup.
    pub(super) identity: Identity<'a>,
    is_process: bool,
    /// The pod that the path of a log, or of its directory, names.
    pub(super) named: Option<NamedPod<'a>>,
    /// The start of a container ID, if it certainly is one.
    pub(super) short_id: Option<&'a str>,
    /// The time of the event.
    pub(super) at: Option<Time>,
}

/// The names of a pod in a path.
#[derive(Clone, Copy)]
pub(super) struct NamedPod<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// What a query was taken for.
pub(super) struct TakenFor {
    pub(super) name: &'static str,
    /// What to say if no pod has it.
    pub(super) missing: &'static str,
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

    fn of_identity(identity: &Identity<'a>, path: &'a str) -> Option<Self> {
        match *identity {
            Identity::PodLog(PodLog { namespace, name, .. }) => Some(Self { namespace, name }),
            Identity::PodDirectory { pod_uid, .. } => Self::of_directory(path, pod_uid),
            _ => None,
        }
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
        let query = str::from_utf8(query).map_err(|_| Unknown::invalid("an identity must be UTF-8"))?;
        let (text, own_time) = query_text::split(query).map_err(Unknown::invalid)?;
        let at = own_time.or(at);
        match query_text::process(query) {
            Some(process) => Self::of_process(process, at, placements),
            None => Self::of_text(text.trim_ascii(), at, roots),
        }
    }

    /// The query that is this text, without its time.
    fn of_text(text: &'a str, at: Option<Time>, roots: &Roots) -> Result<Self, Unknown> {
        let short_id = query_text::short_id_of_runtime(text);
        let identity = match (query_text::address(text), short_id) {
            (Some(address), _) => Identity::Ip(address.map_err(Unknown::invalid)?),
            (None, Some(id)) => Identity::Uid(id.into()),
            (None, None) => {
                Identity::parse_lenient(text).map_err(|error| Unknown::invalid(error.to_string()))?
            }
        };
        if matches!(identity, Identity::Cgroup(_)) && roots.place(text).pod().is_none() {
            return Err(Unknown::invalid(NOT_OF_KUBELET));
        }
        let may_be_uid = (!text.contains('/')).then_some(text);
        Ok(Self { text: may_be_uid, short_id, at, ..Self::of_identity(identity, text) })
    }

    /// The query that is this identity alone. `text`: of the query.
    pub(super) fn of_identity(identity: Identity<'a>, text: &'a str) -> Self {
        let named = NamedPod::of_identity(&identity, text);
        Self { text: None, identity, is_process: false, named, short_id: None, at: None }
    }

    /// The query for the pod of a process.
    fn of_process(process: Process, at: Option<Time>, placements: &Placements) -> Result<Self, Unknown> {
        if process.started.is_none() && at.is_some() {
            return Err(Unknown::invalid("at: a process ID at a time needs its start: PID@NANOSECONDS"));
        }
        let unknown = |error: &str| Unknown::new(Some("pid"), error);
        let not_yet = |error: &str| Unknown { retry: Retry::Later, ..unknown(error) };
        let placed = match placements.get(&process) {
            Some(Ok(placed)) => placed,
            Some(Err(error)) => return Err(unknown(&error.to_string())),
            None => return Err(not_yet("the agent's /proc does not answer (--proc)")),
        };
        match &placed.placement {
            Placement::Pod(cgroup) => Ok(Self::of_cgroup_of_process(cgroup.clone())),
            Placement::NoPod if placed.may_move => Err(not_yet(NO_POD_OF_PROCESS)),
            Placement::NoPod => Err(unknown(NO_POD_OF_PROCESS)),
            Placement::Gone => Err(unknown("no process has this ID, or the agent does not see it (--proc)")),
        }
    }

    fn of_cgroup_of_process(cgroup: Cgroup) -> Self {
        Self {
            // It is certainly no UID.
            text: None,
            identity: Identity::Cgroup(cgroup),
            is_process: true,
            named: None,
            short_id: None,
            // A process is in one pod only, whenever.
            at: None,
        }
    }

    pub(super) fn taken_for(&self) -> TakenFor {
        let (name, missing) = match self.identity {
            _ if self.is_process => ("pid", "the index does not have the pod of this process"),
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
    pub(super) fn contestable_key(&self, by: FoundBy) -> Option<Key<'_>> {
        match by {
            FoundBy::ContainerId => self.container_id().map(Key::from),
            FoundBy::Uid | FoundBy::MirrorUid | FoundBy::Name | FoundBy::NameOnly => None,
            // An IP, and whatever other kinds there will be.
            _ => self.identity.reusable_key().filter(|_| self.at.is_none()),
        }
    }

    pub(super) fn container_id(&self) -> Option<ContainerId> {
        match &self.identity {
            Identity::ContainerId(id) => Some(*id),
            Identity::Cgroup(cgroup) => cgroup.container_id,
            Identity::ContainerLog(link) => link.container_id,
            _ => None,
        }
    }
}
