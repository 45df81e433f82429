//! Cgroup paths, and the contents of `/proc/PID/cgroup`.

use std::fmt;

use super::container_id::ContainerId;
use crate::id::PodUid;

/// The kernel tells no longer path than this.
const LONGEST: usize = 4096;

/// The pod and the container of a cgroup: what its path says.
///
/// At least one of the two is there. Inside a cgroup namespace a path may name the container alone. A sandbox has a
/// container ID too, which no pod status names; there the pod's UID tells.
///
/// # Consistency
/// The outermost pod counts, and the container directly below it. What is further down a container may have made and named
/// itself.
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
/// assert_eq!(cgroup.pod_uid.expect("a UID"), *"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
/// assert_eq!(cgroup.container_id.expect("a container").to_string(), id);
///
/// assert_eq!(Cgroup::from_path("/system.slice/sshd.service"), None);
/// ```
///
/// Kubelet: `GetPodContainerName` (`pkg/kubelet/cm/pod_container_manager_linux.go`) makes these paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Cgroup<'a> {
    /// The pod's UID, as the node knows it: for a static pod not the UID of its mirror.
    pub pod_uid: Option<CgroupUid<'a>>,
    /// The container, or the pod's sandbox.
    pub container_id: Option<ContainerId>,
}

impl<'a> Cgroup<'a> {
    /// What a cgroup's path says; `None` if it names no pod and no container.
    ///
    /// Understood are both cgroup drivers of the kubelet and the mixture of the two, any prefix (such as `/sys/fs/cgroup`,
    /// or `/../..` in a cgroup namespace), any sub-cgroup of the container, and `(deleted)` at the end. A path with NUL,
    /// with `..` behind a name, or of more than 4,096 bytes is none of the kernel's, and names nothing.
    ///
    /// # Complexity
    /// O(length); no allocation.
    #[must_use]
    pub fn from_path(path: &'a str) -> Option<Self> {
        if path.len() > LONGEST || path.contains('\0') {
            return None;
        }
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let mut within = Within::Elsewhere;
        let (mut container, mut is_below_name) = (None, false);
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
            if let Some((pod_uid, container_id)) = pod(name, within) {
                // Looked at without being taken: whether `..` follows, the loop sees.
                let below = names.clone().next();
                let container_id = container_id.or_else(|| below.and_then(container_of));
                found = Some(Self { pod_uid: Some(pod_uid), container_id });
            }
            within = within.enter(name);
            container = container.or_else(|| container_of(name));
        }
        found.or_else(|| container.map(|id| Self { pod_uid: None, container_id: Some(id) }))
    }

    /// What `/proc/PID/cgroup` says, under cgroups v1, v2 or both; `None` if no line of it names a pod or a container.
    ///
    /// The first line that names a pod and a container counts, else the first that names a pod, else the first that names a
    /// container. A line that is not UTF-8 or not of the form `N:CONTROLLERS:PATH` is passed over.
    ///
    /// # Complexity
    /// O(length); no allocation.
    ///
    /// # Examples
    /// ```
    /// use pod_index::identity::Cgroup;
    ///
    /// let contents = b"0::/kubepods/besteffort/podb400a6d5b1b1c5f4c3b2a1908f7e6d5c\n";
    /// let cgroup = Cgroup::from_proc(contents).expect("a pod's");
    /// assert_eq!(cgroup.pod_uid.expect("a UID"), *"b400a6d5b1b1c5f4c3b2a1908f7e6d5c");
    /// ```
    #[must_use]
    pub fn from_proc(contents: &'a [u8]) -> Option<Self> {
        let mut best: Option<Self> = None;
        for line in contents.split(|byte| *byte == b'\n') {
            let Some(found) = str::from_utf8(line).ok().and_then(path_of_line).and_then(Self::from_path)
            else {
                continue;
            };
            if best.is_none_or(|best| found.tells() > best.tells()) {
                best = Some(found);
            }
        }
        best
    }

    /// How much it says: the pod more than the container.
    fn tells(&self) -> (bool, bool) {
        (self.pod_uid.is_some(), self.container_id.is_some())
    }
}

/// The path in a line of `/proc/PID/cgroup`. It may hold colons itself.
pub(super) fn path_of_line(line: &str) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (hierarchy, _controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let is_number = !hierarchy.is_empty() && hierarchy.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && path.starts_with('/')).then_some(path)
}

/// Where the kubelet's cgroupfs driver would make a pod's cgroup.
#[derive(Clone, Copy)]
enum Within {
    Elsewhere,
    /// In `kubepods`: guaranteed pods, and the classes of the others.
    Kubepods,
    /// In one of these classes.
    Class,
}

impl Within {
    fn enter(self, name: &str) -> Self {
        match (self, name) {
            (_, "kubepods") => Self::Kubepods,
            (Self::Kubepods, "burstable" | "besteffort") => Self::Class,
            _ => Self::Elsewhere,
        }
    }
}

/// The pod that a cgroup of this name belongs to; and the container, where the name holds that as well.
fn pod(name: &str, within: Within) -> Option<(CgroupUid<'_>, Option<ContainerId>)> {
    if let Some(text) = name.strip_prefix("pod")
        && !matches!(within, Within::Elsewhere)
    {
        return Some((CgroupUid::new(text, false)?, None));
    }
    // `SLICE:RUNTIME:ID`, where the kubelet uses systemd and the runtime does not.
    let (slice, rest) = name.split_once(':').map_or((name, None), |(slice, rest)| (slice, Some(rest)));
    let (class, text) = slice.strip_suffix(".slice")?.rsplit_once("-pod")?;
    let class =
        class.strip_suffix("-burstable").or_else(|| class.strip_suffix("-besteffort")).unwrap_or(class);
    let is_kubepods =
        class.strip_suffix("kubepods").is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'));
    // The driver left no hyphen in the UID: one would begin another slice.
    if !is_kubepods || text.contains('-') {
        return None;
    }
    let container_id = match rest {
        Some(rest) => Some(ContainerId::bare(rest.split_once(':')?.1)?),
        None => None,
    };
    Some((CgroupUid::new(text, true)?, container_id))
}

/// The container that a cgroup of this name holds, by either driver.
fn container_of(name: &str) -> Option<ContainerId> {
    let by_cgroupfs = || ContainerId::bare(name.strip_prefix("crio-").unwrap_or(name));
    ContainerId::scope(name).or_else(by_cgroupfs)
}

/// A pod's UID as a cgroup path has it. In the name of a systemd slice an underscore stands for each hyphen.
///
/// A UID that has underscores of its own cannot be told there from one with hyphens, and is taken for the latter. Only a
/// manifest can set such a UID.
///
/// # Examples
/// ```
/// # let (mut writer, reader) = pod_index::new::<Pod>();
/// # struct Pod;
/// # impl pod_index::PodMeta for Pod {
/// #     fn uid(&self) -> &str { "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0" }
/// #     fn name(&self) -> &str { "web" }
/// #     fn namespace(&self) -> &str { "shop" }
/// #     fn annotation(&self, _: &str) -> Option<&str> { None }
/// # }
/// # writer.add_pod(Pod)?;
/// use pod_index::identity::Cgroup;
///
/// let path = "/kubepods.slice/kubepods-pod0f1e2d3c_4b5a_6978_8796_a5b4c3d2e1f0.slice";
/// let uid = Cgroup::from_path(path).and_then(|cgroup| cgroup.pod_uid).expect("a pod's");
/// assert!(reader.load().pod_by_uid(&uid.to_pod_uid()).is_some());
/// # Ok::<(), pod_index::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct CgroupUid<'a> {
    text: &'a str,
    /// Whether an underscore stands for a hyphen.
    is_escaped: bool,
}

impl<'a> CgroupUid<'a> {
    fn new(text: &'a str, is_escaped: bool) -> Option<Self> {
        (!text.is_empty()).then_some(Self { text, is_escaped })
    }

    /// The UID, for look-ups.
    ///
    /// # Complexity
    /// O(length); no allocation for the usual spellings (hyphenated lower-case UUID; 32 lower-case hex digits).
    #[must_use]
    pub fn to_pod_uid(self) -> PodUid {
        if !self.is_escaped || !self.text.contains('_') {
            return self.text.into();
        }
        let mut uuid = [0; 36];
        if self.text.len() == uuid.len() {
            for (to, from) in uuid.iter_mut().zip(self.text.bytes()) {
                *to = if from == b'_' { b'-' } else { from };
            }
            // An ASCII character took another's place.
            return str::from_utf8(&uuid).unwrap_or_default().into();
        }
        self.text.replace('_', "-").as_str().into()
    }

    /// The UID's characters.
    fn chars(self) -> impl Iterator<Item = char> + use<'a> {
        self.text.chars().map(move |char| if self.is_escaped && char == '_' { '-' } else { char })
    }
}

/// By the UID, however it is written.
impl PartialEq for CgroupUid<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.chars().eq(other.chars())
    }
}

impl Eq for CgroupUid<'_> {}

impl PartialEq<str> for CgroupUid<'_> {
    fn eq(&self, other: &str) -> bool {
        self.chars().eq(other.chars())
    }
}

/// The UID.
impl fmt::Display for CgroupUid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        self.chars().try_for_each(|char| f.write_char(char))
    }
}

impl fmt::Debug for CgroupUid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CgroupUid({self})")
    }
}
