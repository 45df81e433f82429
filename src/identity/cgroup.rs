//! Cgroup paths, and the contents of `/proc/PID/cgroup`.

use super::container_id::ContainerId;
use crate::id::PodUid;

/// The kernel reports no longer path than this.
const LONGEST: usize = 4096;

/// The pod and the container that a cgroup's path names.
///
/// At least one of the two is present. Inside a cgroup namespace, a path may name only the container. A
/// sandbox has a container ID too, but no pod status lists it; use the pod's UID then.
///
/// # Consistency
/// The outermost pod counts, and the container directly below it. A container may have created and named the
/// cgroups further down.
///
/// # Trust
/// Only the names of the path are read, and a pod's may stand behind any prefix. A user who may create cgroups of his own,
/// such as one to whom systemd delegates a part of the tree, can call them like those of a pod that is not his:
/// `/user.slice/user-1000.slice/kubepods/pod<UID>`. So this parser is for paths that a runtime or a kubelet wrote. If the
/// process is a stranger's, use a resolver or `Roots::place` of `pod_index_kubelet::process`, which accept only cgroups where
/// a kubelet puts pods.
///
/// # Examples
/// ```
/// use pod_index::identity::Cgroup;
///
/// let id = "3e5f0b1c".repeat(8);
/// let path = format!(
///     "/kubepods.slice/kubepods-burstable.slice\
///      /kubepods-burstable-pod0f1e2d3c_4b5a_6978_8796_a5b4c3d2e1f0.slice/cri-containerd-{id}.scope"
/// );
/// let cgroup = Cgroup::from_path(&path).expect("a pod's");
/// assert_eq!(cgroup.pod_uid.expect("a UID"), "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
/// assert_eq!(cgroup.container_id.expect("a container").to_string(), id);
///
/// assert_eq!(Cgroup::from_path("/system.slice/sshd.service"), None);
/// ```
///
/// Kubelet: `GetPodContainerName` (`pkg/kubelet/cm/pod_container_manager_linux.go`) makes these paths.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Cgroup {
    /// The pod's UID as the node knows it: for a static pod, not the UID of its mirror. In the name of a systemd slice, a UID
    /// with underscores of its own is indistinguishable from one with hyphens, and is read as the latter. Only a manifest
    /// can set such a UID.
    pub pod_uid: Option<PodUid>,
    /// The container, or the pod's sandbox.
    pub container_id: Option<ContainerId>,
}

impl Cgroup {
    /// Parses a cgroup's path. `None` if it names neither a pod nor a container.
    ///
    /// Accepts paths of both cgroup drivers of the kubelet and a mixture of the two, any prefix (such as
    /// `/sys/fs/cgroup`, or `/../..` in a cgroup namespace), any sub-cgroup of the container, and `(deleted)`
    /// at the end. A path with NUL, with `..` after a name, or of more than 4,096 bytes does not come from
    /// the kernel and gives `None`.
    ///
    /// # Complexity
    /// O(length); no allocation, unless the UID has an unusual spelling.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        if path.len() > LONGEST || path.contains('\0') {
            return None;
        }
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        // Of the names before.
        let mut grandparent = "";
        let mut parent = "";
        let mut container = None;
        let mut is_below_name = false;
        let mut found = None;
        let mut names = path.split('/').filter(|name| !name.is_empty());
        while let Some(name) = names.next() {
            if name == ".." && is_below_name {
                return None;
            }
            is_below_name |= name != "..";
            if found.is_some() {
                continue;
            }
            if let Some((pod_uid, container_id)) = pod(name, is_of_kubelet(grandparent, parent)) {
                // Peeked, not consumed: the loop checks whether `..` follows.
                let below = names.clone().next();
                let container_id = container_id.or_else(|| below.and_then(container_of));
                found = Some(Self { pod_uid: Some(pod_uid), container_id });
            }
            (grandparent, parent) = (parent, name);
            container = container.or_else(|| container_of(name));
        }
        found.or_else(|| container.map(|id| Self { pod_uid: None, container_id: Some(id) }))
    }

    /// Parses `/proc/PID/cgroup` of cgroups v1, v2 or both. `None` if no line names a pod or a container.
    ///
    /// Uses the first line that names a pod and a container, else the first that names a pod, else the first
    /// that names a container. Lines that are not UTF-8 or not of the form `N:CONTROLLERS:PATH` are ignored.
    ///
    /// # Complexity
    /// O(length); no allocation, unless a UID has an unusual spelling.
    ///
    /// # Examples
    /// ```
    /// use pod_index::identity::Cgroup;
    ///
    /// let contents = b"0::/kubepods/besteffort/podb400a6d5b1b1c5f4c3b2a1908f7e6d5c\n";
    /// let cgroup = Cgroup::from_proc(contents).expect("a pod's");
    /// assert_eq!(cgroup.pod_uid.expect("a UID"), "b400a6d5b1b1c5f4c3b2a1908f7e6d5c");
    /// ```
    #[must_use]
    pub fn from_proc(contents: &[u8]) -> Option<Self> {
        let mut best: Option<Self> = None;
        for line in contents.split(|byte| *byte == b'\n') {
            let Some(found) = path_of_line(text_of(line)).and_then(Self::from_path) else { continue };
            if best.as_ref().is_none_or(|best| found.tells() > best.tells()) {
                best = Some(found);
            }
        }
        best
    }

    /// Ranks a result: a pod counts more than a container.
    fn tells(&self) -> (bool, bool) {
        (self.pod_uid.is_some(), self.container_id.is_some())
    }
}

/// The line up to its first name that is not text. A container may name the cgroups below its own as it likes.
fn text_of(line: &[u8]) -> &str {
    let valid = line.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if valid.len() == line.len() { valid } else { valid.rsplit_once('/').map_or("", |(whole, _)| whole) }
}

/// The path in a line of `/proc/PID/cgroup`. It may contain colons.
pub(super) fn path_of_line(line: &str) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let hierarchy = fields.next()?;
    let _controllers = fields.next()?;
    let path = fields.next()?;
    let is_number = !hierarchy.is_empty() && hierarchy.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && path.starts_with('/')).then_some(path)
}

/// Whether the kubelet's cgroupfs driver creates the cgroups of pods here: directly in `kubepods` those of guaranteed pods,
/// in the classes there all others.
fn is_of_kubelet(grandparent: &str, parent: &str) -> bool {
    parent == "kubepods" || (grandparent == "kubepods" && matches!(parent, "burstable" | "besteffort"))
}

/// The pod of a cgroup of this name, and the container if the name contains one.
fn pod(name: &str, is_of_kubelet: bool) -> Option<(PodUid, Option<ContainerId>)> {
    if let Some(text) = name.strip_prefix("pod")
        && is_of_kubelet
    {
        return Some((uid(text, false)?, None));
    }
    // `SLICE:RUNTIME:ID`, if the kubelet uses systemd and the runtime does not.
    let (slice, rest) = name.split_once(':').map_or((name, None), |(slice, rest)| (slice, Some(rest)));
    let (class, text) = slice.strip_suffix(".slice")?.rsplit_once("-pod")?;
    let class =
        class.strip_suffix("-burstable").or_else(|| class.strip_suffix("-besteffort")).unwrap_or(class);
    let is_kubepods =
        class.strip_suffix("kubepods").is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'));
    // The driver replaces all hyphens in the UID, since a hyphen would start another slice.
    if !is_kubepods || text.contains('-') {
        return None;
    }
    let container_id = match rest {
        Some(rest) => Some(ContainerId::bare(rest.split_once(':')?.1)?),
        None => None,
    };
    Some((uid(text, true)?, container_id))
}

/// The container of a cgroup of this name, for either driver.
fn container_of(name: &str) -> Option<ContainerId> {
    let by_cgroupfs = || ContainerId::bare(name.strip_prefix("crio-").unwrap_or(name));
    ContainerId::scope(name).or_else(by_cgroupfs)
}

/// The UID as written in a cgroup path. In the name of a systemd slice, each hyphen becomes an underscore.
fn uid(text: &str, is_escaped: bool) -> Option<PodUid> {
    if text.is_empty() {
        return None;
    }
    if !is_escaped {
        return Some(text.into());
    }
    let unescaped = PodUid::usual(text, |byte| if byte == b'_' { b'-' } else { byte });
    Some(unescaped.unwrap_or_else(|| text.replace('_', "-").as_str().into()))
}
