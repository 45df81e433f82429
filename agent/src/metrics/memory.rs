//! Compares the memory of the agent's cgroup with its limit. At the limit, the kernel kills the agent.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where cgroup v2 is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The used memory and the limit of one cgroup: the process's own or one above it, whichever is nearest to its limit.
/// `None` without a limit, and without cgroup v2.
pub(super) fn read() -> Option<(u64, u64)> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    nearest(Path::new(CGROUPS), &cgroups)
}

/// `cgroups`: as in `/proc/PID/cgroup`.
fn nearest(root: &Path, cgroups: &str) -> Option<(u64, u64)> {
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A path above the root of the cgroup namespace begins with "/..".
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let own: PathBuf = root.join(Path::new(own).components().filter(is_name).collect::<PathBuf>());
    let groups = own.ancestors().take_while(|path| path.starts_with(root));
    // A share in thousandths is exact enough.
    groups.filter_map(of).max_by_key(|(used, limit)| used.saturating_mul(1000) / limit)
}

/// The memory of the cgroup in this directory, without the page cache that the kernel drops first, like the kubelet's
/// working set; and its limit. `None` without a limit.
fn of(directory: &Path) -> Option<(u64, u64)> {
    let number =
        |name: &str| -> Option<u64> { fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok() };
    let limit = number("memory.max").filter(|limit| *limit > 0)?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let inactive = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    Some((number("memory.current")?.saturating_sub(inactive.unwrap_or(0)), limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of cgroups: each with its limit, its use and the inactive part of it.
    fn tree(name: &str, groups: &[(&str, &str, u64, u64)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("pod-index-memory-{name}-{}", std::process::id()));
        for (path, limit, used, inactive) in groups {
            let group = root.join(path);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("memory.max"), format!("{limit}\n")).unwrap();
            fs::write(group.join("memory.current"), format!("{used}\n")).unwrap();
            fs::write(group.join("memory.stat"), format!("anon 5\ninactive_file {inactive}\nslab 7\n"))
                .unwrap();
        }
        root
    }

    #[test]
    fn the_cgroup_nearest_to_its_limit_counts_without_inactive_files() {
        let root = tree(
            "nearest",
            &[
                ("", "max", 9_000, 0),
                ("a", "1000", 950, 50),
                ("a/b", "max", 900, 0),
                ("a/b/c", "2000", 800, 0),
                ("d", "300", 299, 200),
            ],
        );
        let read = |cgroups: &str| nearest(&root, cgroups);
        assert_eq!(read("0::/a/b/c\n"), Some((900, 1000)), "the parent's limit is nearer");
        assert_eq!(read("12:cpu:/x\n0::/d\n"), Some((99, 300)));
        assert_eq!(read("0::/../../d\n"), Some((99, 300)), "above the namespace's root");
        assert_eq!(read("0::/\n"), None, "no limit");
        assert_eq!(read("4:memory:/a\n"), None, "no cgroup v2");
        assert_eq!(read("0::/gone/a\n"), None);
        fs::remove_dir_all(root).unwrap();
    }
}
