//! Resolving cgroup IDs to pods: on directories with cgroupfs's structure, and on cgroupfs itself if a test
//! may write to it.

use crate::process_support;
use crate::sources_support;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use pod_index_kubelet::process::{CgroupOptions, CgroupResolver, PidResolver, Placement};
use pod_index_test_support::dice::Dice;
use pod_index_test_support::skipped;
use process_support::{Clock, id, pod, slice};
use sources_support::Directory;

/// A directory with the structure of cgroupfs.
struct Cgroups {
    directory: Directory,
    clock: Clock,
}

impl Cgroups {
    fn new() -> Self {
        Self { directory: Directory::new(), clock: Clock::new() }
    }

    fn options(&self) -> CgroupOptions {
        CgroupOptions::default().clock(self.clock.read())
    }

    fn resolver(&self) -> CgroupResolver {
        self.resolver_with(|_| {})
    }

    fn resolver_with(&self, change: impl Fn(&mut CgroupOptions)) -> CgroupResolver {
        let mut options = self.options();
        change(&mut options);
        CgroupResolver::new(self.directory.path(), options).expect("a directory")
    }

    /// Creates a cgroup and returns its ID.
    fn make(&self, path: &str) -> u64 {
        fs::create_dir_all(self.directory.at(path)).expect("a directory");
        fs::metadata(self.directory.at(path)).expect("it is there").ino()
    }

    fn remove(&self, path: &str) {
        fs::remove_dir_all(self.directory.at(path)).expect("a directory");
    }
}

fn pod_path(number: u8) -> String {
    format!("kubepods.slice/kubepods-burstable.slice/{}", slice(number))
}

fn container_path(number: u8, container: u8) -> String {
    format!("{}/cri-containerd-{}.scope", pod_path(number), id(container))
}

#[test]
fn existing_cgroups_are_found_at_the_start() {
    let cgroups = Cgroups::new();
    let [of_pod, container, below, host] = [
        cgroups.make(&pod_path(1)),
        cgroups.make(&container_path(1, 2)),
        cgroups.make(&format!("{}/payload/deeper", container_path(1, 2))),
        cgroups.make("system.slice/sshd.service"),
    ];
    // Files there are not cgroups.
    cgroups.directory.write("cgroup.procs", "");
    let mut resolver = cgroups.resolver();
    assert_eq!(resolver.resolve(of_pod), pod(1, None));
    assert_eq!(resolver.resolve(container), pod(1, Some(2)));
    assert_eq!(resolver.resolve(below), pod(1, Some(2)));
    assert_eq!(resolver.resolve(host), Placement::NoPod);
    for unknown in [0, 1, u64::MAX] {
        assert_eq!(resolver.resolve(unknown), Placement::Gone, "{unknown}");
    }
    assert_eq!((resolver.followed(), resolver.problem()), (9, None));
}

#[test]
fn a_removed_cgroup_is_kept_for_a_while_and_then_gone() {
    let cgroups = Cgroups::new();
    let container = cgroups.make(&container_path(1, 2));
    let mut resolver = cgroups.resolver();
    assert_eq!(resolver.followed(), 5);
    cgroups.remove(&pod_path(1));
    resolver.catch_up();
    assert_eq!(resolver.followed(), 3);
    assert_eq!(resolver.resolve(container), pod(1, Some(2)), "its last events may come late");
    cgroups.clock.pass(1_999);
    assert_eq!(resolver.resolve(container), pod(1, Some(2)));
    cgroups.clock.pass(100);
    assert_eq!(resolver.resolve(container), Placement::Gone);
    assert_eq!(resolver.get(container), None);
}

/// Temporary file systems reuse inode numbers unpredictably; here a rename does.
#[test]
fn a_reused_id_belongs_to_its_new_cgroup() {
    for keep in [0, 2_000] {
        let cgroups = Cgroups::new();
        let container = cgroups.make(&container_path(1, 2));
        cgroups.make(&pod_path(3));
        let mut resolver =
            cgroups.resolver_with(|options| options.keep_removed = Duration::from_millis(keep));
        assert_eq!(resolver.resolve(container), pod(1, Some(2)));
        let (from, to) = (container_path(1, 2), container_path(3, 4));
        fs::rename(cgroups.directory.at(&from), cgroups.directory.at(&to)).expect("a rename");
        cgroups.clock.pass(100);
        assert_eq!(resolver.resolve(container), pod(3, Some(4)));
        // Expiring the former cgroup must not remove the new one.
        cgroups.clock.pass(5_000);
        resolver.catch_up();
        assert_eq!(resolver.resolve(container), pod(3, Some(4)));
        // It is still followed.
        let below = cgroups.make(&format!("{to}/payload"));
        assert_eq!(resolver.resolve(below), pod(3, Some(4)));
    }
}

/// The kernel drops events when its queue is full.
#[test]
fn after_lost_events_exactly_the_existing_cgroups_are_known() {
    let queue: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .expect("a limit")
        .trim()
        .parse()
        .expect("a number");
    if queue > 100_000 {
        return skipped("a full queue", "the kernel's queue is longer than this test could fill");
    }
    let cgroups = Cgroups::new();
    let removed = cgroups.make(&container_path(1, 2));
    cgroups.make("noise");
    cgroups.make("system.slice");
    let mut resolver = cgroups.resolver_with(|options| {
        (options.rescan, options.keep_removed) = (Duration::MAX, Duration::ZERO);
    });
    cgroups.directory.write("noise/a", "");
    let (a, b) = (cgroups.directory.at("noise/a"), cgroups.directory.at("noise/b"));
    // Two events each.
    for _ in 0..=queue / 4 {
        fs::rename(&a, &b).expect("a file");
        fs::rename(&b, &a).expect("a file");
    }
    let added = cgroups.make(&container_path(3, 4));
    // Another directory under a known name.
    let renewed = cgroups.make(&slice(5));
    cgroups.remove("system.slice");
    fs::rename(cgroups.directory.at(&slice(5)), cgroups.directory.at("system.slice")).expect("a directory");
    cgroups.remove(&pod_path(1));
    resolver.catch_up();
    assert_eq!(resolver.get(removed), None);
    assert_eq!(resolver.get(renewed), Some(&Placement::NoPod));
    let below = cgroups.make("system.slice/sshd.service");
    assert_eq!(resolver.resolve(below), Placement::NoPod, "it is followed");
    assert_eq!(resolver.get(added), Some(&pod(3, Some(4))));
}

#[test]
fn cgroups_beyond_the_limit_are_found_by_infrequent_scans() {
    let cgroups = Cgroups::new();
    cgroups.make("a/b");
    let mut resolver = cgroups.resolver_with(|options| options.max_cgroups = 4);
    cgroups.make("c");
    let later = cgroups.make("d");
    assert_eq!(resolver.resolve(later), Placement::Gone, "no room");
    let problem = resolver.problem().expect("there are too many").to_string();
    assert!(problem.ends_with("/d is one of more than 4 cgroups"), "{problem}");
    cgroups.remove("a");
    assert_eq!(resolver.resolve(later), Placement::Gone, "room, but no event, and too early for a scan");
    cgroups.clock.pass(1_000);
    assert_eq!(resolver.resolve(later), Placement::NoPod);
    assert_eq!(resolver.problem(), None);
}

#[test]
fn one_pod_does_not_use_up_the_limit_of_others() {
    let cgroups = Cgroups::new();
    let fresh = || cgroups.resolver_with(|options| options.max_in_pod = 3);
    let mut resolver = fresh();
    let greedy = container_path(1, 2);
    for number in 0..10 {
        cgroups.make(&format!("{greedy}/{number}"));
    }
    let other = cgroups.make(&container_path(3, 4));
    assert_eq!(resolver.resolve(other), pod(3, Some(4)));
    assert_eq!(
        resolver.followed(),
        3 + 4 + 2,
        "two slices and the root, one pod with three cgroups, the other with one"
    );
    assert!(resolver.problem().expect("too many").message.contains("one of more than"));

    // A new resolver finds the same, and a scan loses none of them.
    let mut fresh = fresh();
    assert_eq!(fresh.resolve(other), pod(3, Some(4)));
    cgroups.clock.pass(1_000);
    assert_eq!(fresh.resolve(u64::MAX), Placement::Gone);
    assert_eq!(fresh.followed(), 9);

    // One more cgroup makes no difference, and one less makes space.
    cgroups.make(&format!("{greedy}/one more"));
    fresh.catch_up();
    assert_eq!(fresh.followed(), 9);
    cgroups.remove(&greedy);
    fresh.catch_up();
    assert_eq!(fresh.followed(), 6);
    cgroups.make(&format!("{greedy}/new"));
    fresh.catch_up();
    assert_eq!(fresh.followed(), 8);

    // So does removing the pod.
    cgroups.remove(&pod_path(1));
    let again = cgroups.make(&format!("{greedy}/again"));
    // This file system may have given it the ID of a removed one.
    fresh.catch_up();
    assert_eq!(fresh.resolve(again), pod(1, Some(2)));
}

#[test]
fn depth_is_bounded() {
    let cgroups = Cgroups::new();
    let container = cgroups.make(&container_path(1, 2));
    let deep = cgroups.make(&format!("{}{}", container_path(1, 2), "/d".repeat(200)));
    let mut resolver = cgroups.resolver();
    assert_eq!(resolver.resolve(container), pod(1, Some(2)));
    assert_eq!(resolver.resolve(deep), Placement::Gone);
    assert_eq!(resolver.followed(), 17);
    let problem = resolver.problem().expect("too deep");
    assert!(problem.message.contains("deeper than"), "{problem}");
    assert!(problem.to_string().ends_with("/d/d is deeper than 16 cgroups"), "{problem}");
}

#[test]
fn symbolic_links_are_not_followed() {
    let cgroups = Cgroups::new();
    let elsewhere = Directory::new();
    fs::create_dir_all(elsewhere.at("kubepods/podu1")).expect("a directory");
    let outside = fs::metadata(elsewhere.at("kubepods/podu1")).expect("it is there").ino();
    symlink(elsewhere.path(), cgroups.directory.at("link")).expect("a link");
    symlink(cgroups.directory.path(), cgroups.directory.at("loop")).expect("a link");
    let mut resolver = cgroups.resolver();
    symlink(elsewhere.path(), cgroups.directory.at("later")).expect("a link");
    // Its event says that it is a directory.
    cgroups.make("replaced");
    cgroups.remove("replaced");
    symlink(elsewhere.path(), cgroups.directory.at("replaced")).expect("a link");
    assert_eq!(resolver.resolve(outside), Placement::Gone);
    assert_eq!((resolver.followed(), resolver.problem()), (1, None));
}

#[test]
fn names_that_are_not_text_belong_where_their_parents_belong() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let cgroups = Cgroups::new();
    let name = OsStr::from_bytes(b"\xff\xfe");
    let path = cgroups.directory.path().join(name);
    fs::create_dir(&path).expect("a directory");
    let strange = fs::metadata(&path).expect("it is there").ino();
    let mut resolver = cgroups.resolver();
    assert_eq!(resolver.resolve(strange), Placement::NoPod);
    fs::remove_dir(&path).expect("a directory");
    resolver.catch_up();
    assert_eq!(resolver.followed(), 1);

    // A container may create such names below its own cgroup.
    cgroups.make(&container_path(1, 2));
    let path = cgroups.directory.at(&container_path(1, 2)).join(name).join(name);
    fs::create_dir_all(&path).expect("a directory");
    let strange = fs::metadata(&path).expect("it is there").ino();
    // It may have the ID of the directory that was removed.
    resolver.catch_up();
    assert_eq!(resolver.resolve(strange), pod(1, Some(2)));
}

#[test]
fn a_removed_root_removes_everything_and_is_found_when_it_returns() {
    let cgroups = Cgroups::new();
    let container = cgroups.make(&format!("root/{}", container_path(1, 2)));
    let mut options = cgroups.options();
    options.keep_removed = Duration::ZERO;
    let mut resolver = CgroupResolver::new(cgroups.directory.at("root"), options).expect("a directory");
    assert_eq!(resolver.resolve(container), pod(1, Some(2)));
    cgroups.remove("root");
    // The kernel reports that a directory is gone once nobody has it open. A program that another test starts has a copy of this
    // process's descriptors until it executes, that of `remove_dir_all` included.
    while resolver.followed() > 0 {
        cgroups.clock.pass(100);
        assert_eq!(resolver.resolve(container), Placement::Gone);
        thread::sleep(Duration::from_millis(1));
    }
    let problem = resolver.problem().expect("the root is gone");
    assert!(problem.message.starts_with("cannot be read"), "{problem}");

    let container = cgroups.make(&format!("root/{}", container_path(3, 4)));
    cgroups.clock.pass(1_000);
    assert_eq!(resolver.resolve(container), pod(3, Some(4)));
    assert_eq!(resolver.problem(), None);
}

#[test]
fn a_root_that_cannot_be_read_is_an_error() {
    let cgroups = Cgroups::new();
    cgroups.directory.write("file", "");
    for name in ["none", "file"] {
        let error =
            CgroupResolver::new(cgroups.directory.at(name), cgroups.options()).expect_err("no directory");
        assert!(error.message.starts_with("cannot be read"), "{error}");
        assert_eq!(error.path.file_name(), Some(name.as_ref()));
    }
}

#[test]
fn another_file_system_below_is_not_followed() {
    if !fs::metadata("/dev/shm").is_ok_and(|shm| fs::metadata("/dev").is_ok_and(|dev| dev.dev() != shm.dev()))
    {
        return skipped("another file system", "/dev/shm is no file system of its own");
    }
    let resolver = CgroupResolver::new("/dev", CgroupOptions::default()).expect("a directory");
    let problem = resolver.problem().expect("another file system");
    assert!(problem.message.starts_with("belongs to another file system"), "{problem}");
}

#[test]
fn the_descriptor_is_readable_when_events_are_waiting() {
    let cgroups = Cgroups::new();
    let mut resolver = cgroups.resolver();
    let is_readable = |resolver: &CgroupResolver| {
        let mut polled = [nix::poll::PollFd::new(resolver.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut polled, nix::poll::PollTimeout::ZERO).expect("a poll") == 1
    };
    assert!(!is_readable(&resolver));
    cgroups.make("a");
    assert!(is_readable(&resolver));
    resolver.catch_up();
    assert!(!is_readable(&resolver));
}

/// After any history, it equals a new resolver.
#[test]
fn after_many_changes_it_equals_a_new_resolver() {
    let cgroups = Cgroups::new();
    let mut resolver = cgroups.resolver_with(|options| options.keep_removed = Duration::ZERO);
    let mut dice = Dice(1);
    let mut ids = std::collections::BTreeSet::new();
    for step in 0..2_000 {
        let (pod, container) = (*dice.pick(&[&0, &1, &2, &3]), *dice.pick(&[&0, &1, &2]));
        let path = match dice.roll(3) {
            0 => pod_path(pod),
            1 => container_path(pod, container),
            _ => format!("{}/payload", container_path(pod, container)),
        };
        if dice.roll(2) == 0 {
            let _ = fs::remove_dir_all(cgroups.directory.at(&path));
        } else {
            ids.insert(cgroups.make(&path));
        }
        if step % 50 == 0 {
            resolver.catch_up();
            let fresh = cgroups.resolver();
            assert_eq!(resolver.followed(), fresh.followed(), "after {step} steps");
            for id in &ids {
                assert_eq!(resolver.get(*id), fresh.get(*id), "{id} after {step} steps");
            }
        }
    }
}

/// Cgroups in cgroupfs, removed at the end, the deepest first.
struct Real(Vec<PathBuf>);

impl Drop for Real {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_dir(path);
        }
    }
}

/// On cgroupfs, if this process may create cgroups there: moves a child process into a pod's cgroup.
#[test]
fn real_cgroups_and_a_real_process_in_one() {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    let Some(root) = roots.into_iter().find(|root| root.join("cgroup.procs").exists()) else {
        return skipped("real cgroups", "no cgroup v2");
    };
    let own = format!("pod-index-test-{}", std::process::id());
    let mut options = CgroupOptions::default().cgroup_root(&own);
    options.keep_removed = Duration::ZERO;
    let clock = Clock::new();
    let processes = PidResolver::new("/proc").expect("it is mounted").clock(clock.read());
    let mut processes = processes.cgroup_root(&own);
    let own = root.join(own);
    let of_pod = own.join("kubepods/pod0f1e2d3c-4b5a-6978-8796-a5b4c3d2e101");
    let container = of_pod.join(id(2));
    let mut resolver = CgroupResolver::new(&root, options).expect("it");
    let before = resolver.followed();
    let real = Real(vec![container.clone(), of_pod.clone(), own.join("kubepods"), own]);
    if let Err(error) = fs::create_dir_all(&container) {
        return skipped("real cgroups", error);
    }
    let id = fs::metadata(&container).expect("it is there").ino();
    assert_eq!(resolver.resolve(id), pod(1, Some(2)), "by an event");

    let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("a process");
    assert_eq!(processes.resolve(child.id()), Ok(Placement::NoPod));
    let moved = fs::write(container.join("cgroup.procs"), child.id().to_string());
    clock.pass(1_000);
    let after = processes.resolve(child.id());
    child.kill().expect("a child");
    child.wait().expect("a child");
    moved.expect("a process may be moved");
    assert_eq!(after.expect("no error"), pod(1, Some(2)));

    drop(real);
    resolver.catch_up();
    assert_eq!(resolver.resolve(id), Placement::Gone);
    assert_eq!(resolver.followed(), before);
}
