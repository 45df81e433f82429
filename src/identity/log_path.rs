//! Paths of container logs, and of a pod's directories.

use super::container_id::ContainerId;
use crate::id::UidRef;

/// The kubelet cuts the name of a link in `/var/log/containers` to this many bytes, before `.log`.
const CUT: usize = 251;

/// A container's log file: `/var/log/pods/<namespace>_<name>_<UID>/<container>/<attempt>.log`.
///
/// The root directory is a setting of the kubelet (`podLogsDir`) and is not checked.
///
/// # Examples
/// ```
/// use pod_index::identity::PodLog;
///
/// let log = PodLog::from_path("/var/log/pods/shop_web-0_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/nginx/2.log");
/// let log = log.expect("a log file");
/// assert_eq!((log.namespace, log.name, log.container, log.attempt), ("shop", "web-0", "nginx", 2));
/// assert_eq!(log.pod_uid, "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
/// ```
///
/// Kubelet: `BuildPodLogsDirectory` and `BuildContainerLogsDirectory` (`pkg/kubelet/kuberuntime/helpers.go`).
#[doc(alias = "BuildContainerLogsDirectory")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct PodLog<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod's name.
    pub name: &'a str,
    /// The pod's UID as the node knows it: for a static pod, not the UID of its mirror.
    pub pod_uid: &'a str,
    /// The container's name.
    pub container: &'a str,
    /// Number of earlier starts of the container.
    pub attempt: u32,
}

impl<'a> PodLog<'a> {
    /// Parses a log path. `None` if it does not have this form.
    ///
    /// Accepts rotated files: `<attempt>.log.YYYYMMDD-HHMMSS`, also followed by `.gz` or, during compression,
    /// `.tmp`. A path with NUL or `..` gives `None`.
    ///
    /// # Complexity
    /// O(length); no allocation.
    #[must_use]
    pub fn from_path(path: &'a str) -> Option<Self> {
        let (rest, file) = path.rsplit_once('/')?;
        let (rest, container) = rest.rsplit_once('/')?;
        let pod = rest.rsplit_once('/').map_or(rest, |(_, pod)| pod);
        let mut parts = pod.splitn(3, '_');
        let namespace = parts.next()?;
        let name = parts.next()?;
        let pod_uid = parts.next()?;
        let is_whole = ![namespace, name, pod_uid, container].contains(&"");
        let log = Self { namespace, name, pod_uid, container, attempt: attempt(file)? };
        (is_whole && is_clean(path)).then_some(log)
    }
}

/// The number in the name of a log file, rotated or not.
fn attempt(file: &str) -> Option<u32> {
    let (number, rest) = file.split_once(".log")?;
    let is_file = rest.is_empty() || rest.strip_prefix('.').is_some_and(is_rotated);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_file && is_number { number.parse().ok() } else { None }
}

/// Whether this is the suffix of a rotated file, after `.log.`.
fn is_rotated(rest: &str) -> bool {
    let time = rest.strip_suffix(".gz").or_else(|| rest.strip_suffix(".tmp")).unwrap_or(rest);
    let is_in_place = |(at, byte): (usize, u8)| if at == 8 { byte == b'-' } else { byte.is_ascii_digit() };
    time.len() == "YYYYMMDD-HHMMSS".len() && time.bytes().enumerate().all(is_in_place)
}

/// A link to a log file: `/var/log/containers/<name>_<namespace>_<container>-<container ID>.log`.
///
/// The kubelet cuts the name to 251 bytes before `.log`, so the end of a long one is missing. Parts that may
/// be cut are left out here. The link's target is the path of a [`PodLog`], which is complete: prefer it.
///
/// # Examples
/// ```
/// use pod_index::identity::ContainerLog;
///
/// let id = "3e5f0b1c".repeat(8);
/// let path = format!("/var/log/containers/web-0_shop_nginx-{id}.log");
/// let log = ContainerLog::from_path(&path).expect("a link");
/// assert_eq!((log.name, log.namespace, log.container), ("web-0", Some("shop"), Some("nginx")));
/// assert_eq!(log.container_id.expect("it is whole").to_string(), id);
/// ```
///
/// Kubelet: `logSymlink` (`pkg/kubelet/kuberuntime/legacy.go`).
#[doc(alias = "logSymlink")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct ContainerLog<'a> {
    /// The pod's name.
    pub name: &'a str,
    /// The pod's namespace; `None` if it was cut.
    pub namespace: Option<&'a str>,
    /// The container's name; `None` if it or the ID after it was cut, because its end is then unknown.
    pub container: Option<&'a str>,
    /// The container's ID; `None` if it was cut.
    pub container_id: Option<ContainerId>,
}

impl<'a> ContainerLog<'a> {
    /// Parses a link's path. `None` if it does not have this form, if even the pod's name was cut, or if the
    /// path contains NUL or `..`.
    ///
    /// # Complexity
    /// O(length); no allocation.
    #[must_use]
    pub fn from_path(path: &'a str) -> Option<Self> {
        let stem = path.strip_suffix(".log").filter(|_| is_clean(path))?;
        let stem = stem.rsplit_once('/').map_or(stem, |(_, stem)| stem);
        let is_cut = stem.len() == CUT;
        let (name, rest) = stem.split_once('_')?;
        let mut log = Self { name, namespace: None, container: None, container_id: None };
        if let Some((namespace, rest)) = rest.split_once('_') {
            if namespace.is_empty() || rest.contains('_') {
                return None;
            }
            log.namespace = Some(namespace);
            let whole =
                rest.rsplit_once('-').and_then(|(container, id)| Some((container, ContainerId::bare(id)?)));
            if let Some((container, id)) = whole.filter(|(container, _)| !container.is_empty()) {
                (log.container, log.container_id) = (Some(container), Some(id));
            }
        }
        (!name.is_empty() && (is_cut || log.container_id.is_some())).then_some(log)
    }
}

/// The pod's UID and the container in the path of a pod's directory, or of something in it:
/// `…/<namespace>_<name>_<UID>[/<container>]` for logs, `…/pods/<UID>[/containers/<container>]` for the kubelet.
///
/// The outermost counts: a container may create and name what is in its volumes.
pub(super) fn directory(path: &str) -> Option<(&str, Option<&str>)> {
    let names = path.strip_prefix('/').filter(|_| is_clean(path))?;
    let mut names = names.split('/').filter(|name| !name.is_empty());
    let mut parent = "";
    while let Some(name) = names.next() {
        let is_of_kubelet = parent == "pods";
        if is_of_kubelet && UidRef::from(name).is_usual_in_any_case() {
            let container = if names.next() == Some("containers") { names.next() } else { None };
            return Some((name, container));
        }
        let mut parts = name.splitn(3, '_');
        if let (Some(namespace), Some(pod), Some(uid)) = (parts.next(), parts.next(), parts.next())
            && ![namespace, pod, uid].contains(&"")
            && (is_of_kubelet || UidRef::from(uid).is_usual_in_any_case())
        {
            return Some((uid, names.next()));
        }
        parent = name;
    }
    None
}

/// Whether the path contains nothing that no log path does.
fn is_clean(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|name| name != "..")
}
