//! Which cgroups are a kubelet's. Anyone with a delegated cgroup may name the cgroups below it like those of a pod.

use std::borrow::Cow;

use pod_index::identity::Cgroup;

use super::Placement;

/// Where kubelets put `kubepods`: at the root, as kind does, and what the mixture of both drivers makes of it.
const USUAL: [&str; 5] =
    ["", "/kubelet", "/kubelet.slice", "/system.slice/containerd.service", "/system.slice/crio.service"];

/// Where the root of cgroupfs may be mounted.
const MOUNTS: [&str; 4] =
    ["/sys/fs/cgroup/", "/host/sys/fs/cgroup/", "/rootfs/sys/fs/cgroup/", "/hostfs/sys/fs/cgroup/"];

/// The names of the hierarchies of cgroup v1, and that of cgroup v2 beside them.
const HIERARCHIES: [&str; 18] = [
    "blkio",
    "cpu",
    "cpu,cpuacct",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_cls,net_prio",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
    "systemd",
    "unified",
];

/// The cgroups that may hold a kubelet's `kubepods`.
///
/// # Examples
/// ```
/// use pod_index_kubelet::process::{Placement, Roots};
///
/// let uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
/// let roots = Roots::default();
/// assert!(roots.place(&format!("/sys/fs/cgroup/kubepods/burstable/pod{uid}")).pod().is_some());
/// // Its user may have made this one.
/// assert_eq!(roots.place(&format!("/user.slice/user-1000.slice/kubepods/pod{uid}")), Placement::NoPod);
/// ```
#[derive(Clone, Debug)]
pub struct Roots(Vec<String>);

impl Default for Roots {
    fn default() -> Self {
        Self(USUAL.map(str::to_owned).into())
    }
}

impl Roots {
    /// Adds a cgroup, as the kubelet's `cgroupRoot` names it.
    pub(super) fn add(&mut self, root: &str) {
        self.0.push(format!("/{}", root.trim_matches('/')));
    }

    /// Adds the place of the reader's own pod. `contents`: its `/proc/self/cgroup`.
    pub(super) fn add_own(&mut self, contents: &[u8]) {
        for path in
            paths(contents).filter(|path| Cgroup::from_path(path).is_some_and(|own| own.pod_uid.is_some()))
        {
            self.0.extend(root_of(&path));
        }
    }

    /// What a text names that an event carries: a cgroup's path, also with the place where cgroupfs is mounted, or the lines
    /// of `/proc/PID/cgroup`. [`Placement::NoPod`] if the cgroup is not below one where a kubelet puts its pods: anyone with a
    /// delegated cgroup can name the cgroups below it like those of a pod. A name without a path, such as that of a slice,
    /// says nothing of its place, and counts.
    ///
    /// # Complexity
    /// O(length of the text · number of roots).
    #[must_use]
    pub fn place(&self, text: &str) -> Placement {
        let text = text.trim_ascii();
        if text.starts_with('/') {
            self.placement(&without_mount(text))
        } else if text.contains('/') {
            self.placement_in(text.as_bytes())
        } else {
            Cgroup::from_path(text).into()
        }
    }

    /// What a cgroup's path names, unless it is made up.
    pub(super) fn placement(&self, path: &str) -> Placement {
        Placement::from(Cgroup::from_path(path).filter(|_| self.hold(path)))
    }

    /// Like [`placement`](Self::placement), for the content of `/proc/PID/cgroup`.
    pub(super) fn placement_in(&self, contents: &[u8]) -> Placement {
        let lines = contents.split(|byte| *byte == b'\n');
        let of_kubelet = lines.filter(|line| paths(line).all(|path| self.hold(&path)));
        Cgroup::from_proc(&of_kubelet.collect::<Vec<_>>().join(&b'\n')).into()
    }

    fn hold(&self, path: &str) -> bool {
        // In a cgroup namespace of its own, a reader sees other cgroups relative to its own.
        let below = path.trim_start_matches("/..");
        match root_of(below) {
            Some(root) => self.0.contains(&root),
            // A container in the reader's pod, or a pod in the reader's class.
            None => below.len() < path.len() && below.matches('/').count() <= 3,
        }
    }
}

/// The path of a cgroup in its hierarchy, from the path of its directory.
fn without_mount(path: &str) -> Cow<'_, str> {
    let Some(below) = MOUNTS.iter().find_map(|mount| path.strip_prefix(mount)) else { return path.into() };
    let below = match below.split_once('/') {
        Some((first, rest)) if HIERARCHIES.contains(&first) => rest,
        _ => below,
    };
    format!("/{below}").into()
}

/// The path before the first cgroup that a kubelet has named.
fn root_of(path: &str) -> Option<String> {
    let mut root = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if is_kubepods(name) {
            return Some(root);
        }
        root.push('/');
        root.push_str(name);
    }
    None
}

/// `kubepods`, `kubepods.slice`, `kubepods-burstable-podUID.slice:cri-containerd:ID`, `kubelet-kubepods.slice`.
fn is_kubepods(name: &str) -> bool {
    let slice = name.split_once(".slice").map_or(name, |(slice, _)| slice);
    slice.split('-').any(|part| part == "kubepods")
}

/// The paths in the lines of `/proc/PID/cgroup`.
fn paths(contents: &[u8]) -> impl Iterator<Item = String> {
    let lines = contents.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(|line| line.splitn(3, |byte| *byte == b':').nth(2));
    paths.map(|path| String::from_utf8_lossy(path).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cgroups_where_a_kubelet_puts_its_pods_count() {
        let pod = "kubepods.slice/kubepods-pod0f1e2d3c_4b5a_6978_8796_a5b4c3d2e101.slice";
        let id = "ab".repeat(32);
        let mut roots = Roots::default();
        for (path, counts) in [
            (format!("/{pod}"), true),
            (format!("/{pod}/cri-containerd-{id}.scope"), true),
            (format!("/kubepods/burstable/podx/{id}"), true),
            (format!("/kubelet/kubepods/podx/{id}"), true),
            ("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podx.slice".to_owned(), true),
            (
                format!("/system.slice/containerd.service/kubepods-burstable-podx.slice:cri-containerd:{id}"),
                true,
            ),
            (format!("/../../../{pod}"), true),
            (format!("/../../kubepods-podx.slice/cri-containerd-{id}.scope"), true),
            (format!("/../cri-containerd-{id}.scope"), true),
            (format!("/user.slice/user-1000.slice/user@1000.service/{pod}"), false),
            (format!("/docker/{id}/kubepods/podx"), false),
            (format!("/../../../../user.slice/user-1000.slice/user@1000.service/app.slice/{pod}"), false),
            (format!("/system.slice/mine.service/{pod}"), false),
            (format!("/user.slice/user-1000.slice/docker-{id}.scope"), false),
            (format!("/custom/{pod}"), false),
        ] {
            assert_eq!(roots.placement(&path) != Placement::NoPod, counts, "{path}");
            for mount in ["", "/sys/fs/cgroup", "/host/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"] {
                // A path that leaves the reader's namespace has no mount.
                if mount.is_empty() || !path.starts_with("/..") {
                    let text = format!("{mount}{path}");
                    assert_eq!(roots.place(&text) != Placement::NoPod, counts, "{text}");
                }
            }
            assert_eq!(roots.place(&format!("0::{path}")) != Placement::NoPod, counts, "{path}");
            assert_eq!(
                roots.placement_in(format!("0::{path}\n").as_bytes()) != Placement::NoPod,
                counts,
                "{path}"
            );
        }
        assert!(roots.place("kubepods-burstable-podx.slice").pod().is_some(), "a name without a path");
        let below_a_users = format!("/user.slice/user-1000.slice/sys/fs/cgroup/{pod}");
        assert_eq!(roots.place(&below_a_users), Placement::NoPod);
        roots.add("custom/");
        assert!(roots.placement(&format!("/custom/{pod}")).pod().is_some());
        roots.add_own(format!("1:name=systemd:/docker/{id}/kubelet/kubepods/podx/{id}\n").as_bytes());
        assert!(roots.placement(&format!("/docker/{id}/kubelet/kubepods/pody")).pod().is_some());
        assert_eq!(roots.placement(&format!("/docker/{id}/kubepods/pody")), Placement::NoPod);
    }
}
