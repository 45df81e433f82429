//! By what an event's pod is found: the processor's `pod_association`.

use std::net::IpAddr;
use std::sync::Arc;

use pod_index::identity::ContainerId;
use pod_index::{Found, Key, PodMeta, Snapshot, UidRef};
use serde::Deserialize;

use super::RulesError;
use super::record::{Attributes, Container, Record, Run};
use crate::text::shorten;

/// Maximum number of sources of one association, as in the processor.
const SOURCES: usize = 4;

/// One of `pod_association`, as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AssociationBlock {
    #[serde(default)]
    sources: Vec<SourceBlock>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceBlock {
    from: String,
    #[serde(default)]
    name: String,
}

/// What an event says of its resource.
///
/// # Examples
/// ```
/// use std::collections::HashMap;
/// use std::net::IpAddr;
/// use pod_index_kubelet::records::Resource;
///
/// struct Batch { attributes: HashMap<String, String>, peer: Option<IpAddr> }
///
/// impl Resource for Batch {
///     fn attribute(&self, name: &str) -> Option<&str> { self.attributes.get(name).map(String::as_str) }
///     fn connection(&self) -> Option<IpAddr> { self.peer }
/// }
/// ```
pub trait Resource {
    /// The value of an attribute, if it is a text.
    fn attribute(&self, name: &str) -> Option<&str>;
    /// The address from which the event came. `None` if that is unknown.
    fn connection(&self) -> Option<IpAddr> {
        None
    }
}

/// The pod of an event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Associated<'a> {
    /// The pod, and its container and the run of it, as far as they are known.
    #[non_exhaustive]
    Pod {
        /// The pod.
        record: &'a Arc<Record>,
        /// Its container.
        container: Option<&'a Container>,
        /// The run of the container.
        run: Option<&'a Run>,
    },
    /// No association finds a pod.
    Missing,
    /// No association finds a pod for certain, and one finds several.
    Ambiguous,
}

impl<'a> Associated<'a> {
    /// The attributes to attach, if there is a pod.
    #[must_use]
    pub fn attributes(&self) -> Option<Attributes<'a>> {
        match *self {
            Self::Pod { record, container, run } => Some(record.attributes_of(container, run)),
            Self::Missing | Self::Ambiguous => None,
        }
    }
}

/// Counts what associations found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Tally {
    /// Events whose pod was found.
    pub found: u64,
    /// Events of no pod, or of an unknown one.
    pub missing: u64,
    /// Events that may be of several pods.
    pub ambiguous: u64,
}

impl Tally {
    /// Counts a result.
    pub fn add(&mut self, associated: &Associated<'_>) {
        match associated {
            Associated::Pod { .. } => self.found += 1,
            Associated::Missing => self.missing += 1,
            Associated::Ambiguous => self.ambiguous += 1,
        }
    }
}

/// The ways to find an event's pod, in their order. The default is the processor's: by the address of the connection, after
/// the attribute `k8s.pod.ip`, which agents on the way may have set.
///
/// # Rules
/// * The first association that finds a pod *for certain* wins. The processor takes the first whose attributes are there,
///   whether it finds a pod or not.
/// * An association has one to four sources, and all must hold. At least one has to say which pod it is: `connection`,
///   `k8s.pod.ip`, `k8s.pod.uid`, `container.id`, `k8s.pod.name` with `k8s.namespace.name`, or `host.name` if that is an
///   address. Others, which may be any attribute of the record, are compared.
/// * Pods in their node's network are never found by an IP.
/// * An IP that several pods claim is ambiguous, unless all but one have finished.
#[derive(Clone, Debug)]
pub struct Associations(Vec<Association>);

#[derive(Clone, Debug)]
struct Association {
    finder: Finder,
    /// Attributes of the event that the record has to have, too.
    compared: Vec<String>,
}

/// What finds the pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Finder {
    Connection,
    PodIp,
    HostName,
    PodUid,
    ContainerId,
    PodName,
}

impl Default for Associations {
    fn default() -> Self {
        let by = |finder| Association { finder, compared: Vec::new() };
        Self(vec![by(Finder::PodIp), by(Finder::Connection)])
    }
}

/// What an association found.
enum Candidate<'a> {
    Certain(Found<'a, Record>),
    None,
    Several,
}

impl Associations {
    pub(super) fn new(blocks: Vec<AssociationBlock>) -> Result<Self, RulesError> {
        let of = |(number, block): (usize, AssociationBlock)| {
            Association::new(block, &format!("pod_association[{number}]"))
        };
        Ok(Self(blocks.into_iter().enumerate().map(of).collect::<Result<_, _>>()?))
    }

    /// The pod of an event.
    ///
    /// # Complexity
    /// A lookup for each association at most, each O(1) expected. No allocation, unless several pods claim an IP.
    ///
    /// # Examples
    /// See the example `enrich_otlp`.
    #[must_use]
    pub fn find<'s>(
        &self,
        snapshot: &'s Snapshot<Record>,
        event: &(impl Resource + ?Sized),
    ) -> Associated<'s> {
        let mut is_ambiguous = false;
        for association in &self.0 {
            match association.find(snapshot, event) {
                Candidate::Certain(found) => return associated(found.pod, event),
                Candidate::Several => is_ambiguous = true,
                Candidate::None => {}
            }
        }
        if is_ambiguous { Associated::Ambiguous } else { Associated::Missing }
    }
}

impl Association {
    fn new(block: AssociationBlock, place: &str) -> Result<Self, RulesError> {
        let sources = block.sources;
        if !(1..=SOURCES).contains(&sources.len()) {
            return Err(RulesError::new(
                format!("{place}.sources"),
                format!("give one to {SOURCES} sources"),
            ));
        }
        let mut finders = Vec::new();
        let mut names = Vec::new();
        for (number, SourceBlock { from, name }) in sources.into_iter().enumerate() {
            match &*from {
                "connection" => finders.push(Finder::Connection),
                "resource_attribute" if name.is_empty() => {
                    return Err(RulesError::new(format!("{place}.sources[{number}].name"), "is missing"));
                }
                "resource_attribute" => names.push(name),
                _ => {
                    let message = format!(
                        "{:?} is not supported; give connection or resource_attribute",
                        shorten(&from)
                    );
                    return Err(RulesError::new(format!("{place}.sources[{number}].from"), message));
                }
            }
        }
        let has = |name: &str| names.iter().any(|other| other == name);
        for (name, finder) in [
            ("k8s.pod.uid", Finder::PodUid),
            ("container.id", Finder::ContainerId),
            ("k8s.pod.ip", Finder::PodIp),
            ("host.name", Finder::HostName),
        ] {
            finders.extend(has(name).then_some(finder));
        }
        finders.extend((has("k8s.pod.name") && has("k8s.namespace.name")).then_some(Finder::PodName));
        let Some(finder) = finders.into_iter().min_by_key(|finder| finder.rank()) else {
            let message = format!(
                "{} cannot find a pod; add connection, k8s.pod.ip, k8s.pod.uid, container.id, host.name, or k8s.pod.name \
                 with k8s.namespace.name",
                shorten(&names.join(" and "))
            );
            return Err(RulesError::new(format!("{place}.sources"), message));
        };
        names.retain(|name| !finder.names().contains(&&**name));
        Ok(Self { finder, compared: names })
    }

    fn find<'s>(&self, snapshot: &'s Snapshot<Record>, event: &(impl Resource + ?Sized)) -> Candidate<'s> {
        let attribute = |name: &str| event.attribute(name).filter(|value| !value.is_empty());
        let ip = |name: &str| attribute(name).and_then(|ip| ip.parse().ok());
        let certain = |key: Key<'_>| snapshot.get(key).map_or(Candidate::None, Candidate::Certain);
        let by_ip = |ip: Option<IpAddr>| ip.map_or(Candidate::None, |ip| by_ip(snapshot, ip));
        let candidate = match self.finder {
            Finder::Connection => by_ip(event.connection()),
            Finder::PodIp => by_ip(ip("k8s.pod.ip")),
            Finder::HostName => by_ip(ip("host.name")),
            Finder::PodUid => {
                // Text alone could be an IP or another identity.
                attribute("k8s.pod.uid").map_or(Candidate::None, |uid| certain(UidRef::from(uid).into()))
            }
            Finder::ContainerId => {
                let id = attribute("container.id").and_then(|id| id.parse::<ContainerId>().ok());
                id.map_or(Candidate::None, |id| certain(id.into()))
            }
            Finder::PodName => match (attribute("k8s.namespace.name"), attribute("k8s.pod.name")) {
                (Some(namespace), Some(name)) => certain((namespace, name).into()),
                _ => Candidate::None,
            },
        };
        match candidate {
            Candidate::Certain(found) if !self.holds(found.pod, event) => Candidate::None,
            candidate => candidate,
        }
    }

    /// Whether the event's other attributes are those of the pod.
    fn holds(&self, record: &Record, event: &(impl Resource + ?Sized)) -> bool {
        self.compared.iter().all(|name| {
            let Some(value) = event.attribute(name).filter(|value| !value.is_empty()) else { return false };
            match &**name {
                "k8s.pod.name" => record.name() == value,
                "k8s.namespace.name" => record.namespace() == value,
                "k8s.pod.uid" => record.uid() == value,
                "k8s.pod.ip" | "host.name" => has_ip(record, value),
                "container.id" => record.container_by_id(value).is_some(),
                name => {
                    let mut attributes = record.attributes();
                    attributes.any(|other| *other.name == *name && other.value.as_text() == Some(value))
                }
            }
        })
    }
}

impl Finder {
    /// The best finder of several has the smallest.
    fn rank(self) -> u8 {
        match self {
            Self::PodUid => 0,
            Self::ContainerId => 1,
            Self::PodName => 2,
            Self::PodIp => 3,
            Self::HostName => 4,
            Self::Connection => 5,
        }
    }

    /// The attributes that it uses.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::PodUid => &["k8s.pod.uid"],
            Self::ContainerId => &["container.id"],
            Self::PodName => &["k8s.pod.name", "k8s.namespace.name"],
            Self::PodIp => &["k8s.pod.ip"],
            Self::HostName => &["host.name"],
            Self::Connection => &[],
        }
    }
}

/// The only pod that has the IP. A finished pod keeps it in its status, and another may have it by now.
fn by_ip(snapshot: &Snapshot<Record>, ip: IpAddr) -> Candidate<'_> {
    if !snapshot.is_contested(ip) {
        return snapshot.get(ip).map_or(Candidate::None, Candidate::Certain);
    }
    // Those that have not finished come first.
    let mut claimants = snapshot.claimants(ip);
    match (claimants.next(), claimants.next()) {
        (Some(first), Some(second)) if has_finished(first.pod) || !has_finished(second.pod) => {
            Candidate::Several
        }
        (Some(first), _) => Candidate::Certain(first),
        (None, _) => Candidate::None,
    }
}

fn has_finished(record: &Record) -> bool {
    let phase = record.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn has_ip(record: &Record, ip: &str) -> bool {
    let Some(status) = &record.status else { return false };
    status.pod_ip.as_deref() == Some(ip) || status.pod_ips.iter().flatten().any(|other| other.ip == ip)
}

/// The container that the event names, or the only one of the pod; and its run.
fn associated<'a>(record: &'a Arc<Record>, event: &(impl Resource + ?Sized)) -> Associated<'a> {
    let attribute = |name: &str| event.attribute(name).filter(|value| !value.is_empty());
    let by_id = || attribute("container.id").map(|id| record.container_by_id(id));
    let (container, run) = if let Some(name) = attribute("k8s.container.name") {
        let container = record.container(name);
        let run = match event.attribute("k8s.container.restart_count") {
            Some(count) => count.parse().ok().and_then(|count| container?.run(count)),
            None => container.and_then(Container::latest),
        };
        (container, run)
    } else if let Some(found) = by_id() {
        (found.map(|(container, _)| container), found.map(|(_, run)| run))
    } else if let [only] = record.containers() {
        (Some(only), only.latest())
    } else {
        (None, None)
    };
    Associated::Pod { record, container, run }
}
