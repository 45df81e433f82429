//! Finds the pod of an identity: which of its keys to look up, and in which order.

use std::sync::Arc;

use crate::id::UidRef;
use crate::identity::{Cgroup, ContainerId, ContainerLog, Identity, PodLog};
use crate::pod::PodMeta;
use crate::pods::{Found, FoundBy, Key};
use crate::snapshot::Snapshot;

impl<'a> Identity<'a> {
    /// The pod that this identity belongs to, in a snapshot.
    ///
    /// | identity | lookups, in this order |
    /// |---|---|
    /// | a UID | the pod with it; the static pod of the mirror with it; that mirror; the same in lower case |
    /// | a cgroup | the pod with its UID; the pod with its container ID |
    /// | a log file's path, a pod's directory | the pod with its UID |
    /// | a link to a log file | the pod with its container ID; the pod with its name, as [`FoundBy::NameOnly`] |
    /// | a container ID, an IP | the pod with it |
    /// | a name | the pod with it; the mirror pod with it |
    /// | a process ID | none: the index does not know processes |
    ///
    /// Cgroups and log paths contain the pod's UID on the node, which is known before any status names the container.
    /// The name in a log path is not looked up: another pod may have it by now.
    ///
    /// # Removed pods
    /// Each row is applied to the current pods first, and then to the [removed ones](Snapshot::removed). Exception: the
    /// name in a link to a log file is looked up only if neither a current nor a removed pod has the container ID. So
    /// the link of a removed pod does not find a newer pod with its name. The UID of a removed mirror pod finds its
    /// static pod, current or removed. [`Found::removed_at`] is `None` for a current pod.
    ///
    /// # Complexity
    /// A few lookups, each O(1) expected. If they find nothing, as many among the removed pods. No allocation for the usual
    /// UIDs.
    ///
    /// # Examples
    /// ```
    /// # let (mut writer, reader) = pod_index::new();
    /// # writer.upsert_pod(SimplePod::new("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "shop", "web"))?;
    /// use pod_index::{FoundBy, SimplePod};
    /// use pod_index::identity::Identity;
    ///
    /// let path = "/var/log/pods/shop_web_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/nginx/0.log";
    /// let identity = Identity::parse(path).expect("a log file's path");
    /// let snapshot = reader.load();
    /// let found = identity.resolve(&snapshot).expect("the pod is there");
    /// assert_eq!((found.by, found.container), (FoundBy::Uid, Some("nginx")));
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[must_use]
    pub fn resolve<'s, P: PodMeta>(&self, snapshot: &'s Snapshot<P>) -> Option<Found<'s, P>>
    where
        'a: 's,
    {
        match self {
            // Two spellings are two UIDs, so the exact one comes first.
            Self::Uid(uid) => {
                by_any_uid(snapshot, *uid).or_else(|| by_any_uid(snapshot, uid.in_lower_case()?.as_uid_ref()))
            }
            Self::Cgroup(cgroup) => by_cgroup(cgroup, |uid| by_uid(snapshot, uid), |id| snapshot.get(id))
                .or_else(|| {
                    let by_id = |id| snapshot.removed().get(id);
                    by_cgroup(cgroup, |uid| removed_by_uid(snapshot, uid), by_id)
                }),
            Self::PodLog(PodLog { pod_uid, container, .. }) => {
                Some(Found { container: Some(*container), ..by_any_uid(snapshot, (*pod_uid).into())? })
            }
            Self::PodDirectory { pod_uid, container } => {
                Some(Found { container: *container, ..by_any_uid(snapshot, *pod_uid)? })
            }
            Self::ContainerLog(log) => by_link(snapshot, log),
            Self::ContainerId(id) => snapshot.find((*id).into()),
            Self::Ip(ip) => snapshot.find((*ip).into()),
            Self::Name { namespace, name } => snapshot.find((*namespace, *name).into()),
            Self::Pid(_) => None,
        }
    }
}

fn by_uid<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, uid: UidRef<'_>) -> Option<Found<'s, P>> {
    snapshot.get(uid).or_else(|| {
        let mirror = snapshot.find_mirror(uid.into())?;
        let pod = snapshot.pod_uid_of_mirror(uid).and_then(|uid| snapshot.get(&uid));
        Some(Found { by: FoundBy::MirrorUid, ..pod.unwrap_or(mirror) })
    })
}

/// The pod, or else the removed pod.
fn by_any_uid<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, uid: UidRef<'_>) -> Option<Found<'s, P>> {
    by_uid(snapshot, uid).or_else(|| removed_by_uid(snapshot, uid))
}

#[cold]
fn removed_by_uid<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, uid: UidRef<'_>) -> Option<Found<'s, P>> {
    let gone = snapshot.removed();
    let found = gone.get(uid)?;
    let Some(mirror) = gone.mirror(uid) else { return Some(found) };
    let target = mirror.target.uid().map(Key::from);
    let pod = target.and_then(|target| snapshot.get(target).or_else(|| gone.pod(target)));
    Some(Found { by: FoundBy::MirrorUid, ..pod.unwrap_or(found) })
}

/// Looks among the current or among the removed pods, depending on the given lookups.
fn by_cgroup<'s, P>(
    cgroup: &Cgroup,
    find_uid: impl Fn(UidRef<'_>) -> Option<Found<'s, P>>,
    find_container_id: impl Fn(ContainerId) -> Option<Found<'s, P>>,
) -> Option<Found<'s, P>> {
    let by_id = cgroup.container_id.and_then(find_container_id);
    let Some(found) = cgroup.pod_uid.as_ref().and_then(|uid| find_uid(uid.into())) else { return by_id };
    // Use the container's name only if it is this pod's: another pod may claim the ID.
    let container = by_id.filter(|by_id| Arc::ptr_eq(by_id.pod, found.pod)).and_then(|by_id| by_id.container);
    Some(Found { container, ..found })
}

fn by_link<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, log: &ContainerLog<'s>) -> Option<Found<'s, P>> {
    log.container_id.and_then(|id| snapshot.find(id.into())).or_else(|| {
        let found = snapshot.find((log.namespace?, log.name).into())?;
        let by = if log.container_id.is_some() { FoundBy::NameOnly } else { FoundBy::Name };
        Some(Found { container: log.container, by, ..found })
    })
}
