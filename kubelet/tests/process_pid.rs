//! Resolving process IDs to pods: on directories with the structure of `/proc`, and on `/proc` itself.

use crate::process_support;
use crate::sources_support;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use pod_index_kubelet::process::{PidResolver, Placement};
use process_support::{Clock, id, pod, slice};
use sources_support::Directory;

/// The start time of processes that are too old to be moved, in clock ticks.
const OLD: u64 = 1_000;
/// The same as time since the start of the machine.
const OLD_TIME: Duration = Duration::from_secs(10);

/// A directory with the structure of `/proc`, and a resolver that reads it.
struct Proc {
    directory: Directory,
    clock: Clock,
    resolver: PidResolver,
}

impl Proc {
    fn new() -> Self {
        let (directory, clock) = (Directory::new(), Clock::new());
        let resolver = PidResolver::new(directory.path()).expect("a directory").clock(clock.read());
        Self { directory, clock, resolver }
    }

    fn process(&self, pid: u32, started: u64, cgroup: &str) {
        let _ = fs::remove_dir_all(self.directory.at(&pid.to_string()));
        fs::create_dir(self.directory.at(&pid.to_string())).expect("a directory");
        let stat = format!("{pid} (a (b) c) S 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 {started} 1 1\n");
        self.directory.write(&format!("{pid}/stat"), stat);
        self.directory.write(&format!("{pid}/cgroup"), cgroup);
    }

    fn ends(&self, pid: u32) {
        fs::remove_dir_all(self.directory.at(&pid.to_string())).expect("a process");
    }

    fn resolve(&mut self, pid: u32) -> Placement {
        self.resolver.resolve(pid).expect("nothing is wrong")
    }

    fn started(&mut self, pid: u32, started: Duration) -> Placement {
        self.resolver.resolve_started(pid, started).expect("nothing is wrong")
    }
}

/// The cgroup of a container, as a process in it sees it in `/proc`.
fn cgroup(number: u8, container: u8) -> String {
    format!(
        "0::/kubepods.slice/kubepods-burstable.slice/{}/cri-containerd-{}.scope\n",
        slice(number),
        id(container)
    )
}

const HOST: &str = "0::/system.slice/sshd.service\n";

#[test]
fn a_process_belongs_to_the_pod_of_its_cgroup() {
    let mut proc = Proc::new();
    proc.process(7, OLD, &cgroup(1, 2));
    proc.process(8, OLD, HOST);
    proc.process(9, OLD, "");
    proc.process(10, OLD, "\u{0}\n\n::::\n0::\n");
    assert_eq!(proc.resolve(7), pod(1, Some(2)));
    for host in [8, 9, 10] {
        assert_eq!(proc.resolve(host), Placement::NoPod, "{host}");
    }
    for nobody in [0, 11, u32::MAX] {
        assert_eq!(proc.resolve(nobody), Placement::Gone, "{nobody}");
    }
}

#[test]
fn an_answer_is_valid_for_its_maximum_age_or_until_the_end_is_reported() {
    // A process that was moved, one with a reused ID, and one that ended.
    for started in [Some(OLD), Some(OLD + 1), None] {
        for is_reported in [false, true] {
            let mut proc = Proc::new();
            proc.process(7, OLD, &cgroup(1, 2));
            proc.resolve(7);
            match started {
                Some(started) => proc.process(7, started, &cgroup(3, 4)),
                None => proc.ends(7),
            }
            proc.clock.pass(999);
            assert_eq!(proc.resolve(7), pod(1, Some(2)), "its last events may come late");
            if is_reported {
                proc.resolver.forget(7);
            } else {
                proc.clock.pass(1);
            }
            let expected = if started.is_some() { pod(3, Some(4)) } else { Placement::Gone };
            assert_eq!(proc.resolve(7), expected);
        }
    }
}

#[test]
fn a_checked_lookup_notices_a_reused_id_and_an_ended_process_at_once() {
    let mut proc = Proc::new();
    proc.process(7, OLD, &cgroup(1, 2));
    proc.resolve(7);
    let checked = |proc: &mut Proc| proc.resolver.resolve_checked(7).expect("nothing is wrong");
    assert_eq!(checked(&mut proc), pod(1, Some(2)));
    proc.process(7, OLD + 1, &cgroup(3, 4));
    assert_eq!(proc.resolve(7), pod(1, Some(2)), "the cached lookup");
    assert_eq!(checked(&mut proc), pod(3, Some(4)));
    proc.ends(7);
    assert_eq!(checked(&mut proc), Placement::Gone);
    proc.process(7, OLD + 2, &cgroup(5, 6));
    assert_eq!(checked(&mut proc), pod(5, Some(6)), "an ended process is not remembered either");
}

#[test]
fn made_up_cgroups_belong_to_no_pod() {
    let mut proc = Proc::new();
    let made_up = cgroup(1, 2).replace("0::", "0::/user.slice/user-1000.slice/user@1000.service");
    proc.process(7, OLD, &made_up);
    assert_eq!(proc.resolve(7), Placement::NoPod);
    // Seen from within another cgroup namespace.
    let deep = "/../../user.slice/user-1000.slice/user@1000.service/app.slice";
    proc.process(8, OLD, &format!("0::{deep}/cri-containerd-{}.scope\n", id(2)));
    assert_eq!(proc.resolve(8), Placement::NoPod);
    // Where the node's kubelet really puts its pods.
    proc.resolver = PidResolver::new(proc.directory.path())
        .expect("a directory")
        .cgroup_root("/user.slice/user-1000.slice/user@1000.service");
    assert_eq!(proc.resolve(7), pod(1, Some(2)));
}

#[test]
fn a_start_time_distinguishes_processes() {
    let mut proc = Proc::new();
    let tick = Duration::from_millis(10);
    proc.process(7, OLD, &cgroup(1, 2));
    assert_eq!(proc.started(7, OLD_TIME), pod(1, Some(2)));
    // The kernel rounds down.
    assert_eq!(proc.started(7, OLD_TIME + Duration::from_nanos(9_999_999)), pod(1, Some(2)));

    proc.process(7, OLD + 1, &cgroup(3, 4));
    assert_eq!(proc.started(7, OLD_TIME + tick), pod(3, Some(4)), "although an answer was remembered");
    assert_eq!(proc.started(7, OLD_TIME), Placement::Gone, "the process before it");
    assert_eq!(proc.started(7, OLD_TIME + 2 * tick), Placement::Gone, "one that is not there");
    assert_eq!(proc.resolve(7), pod(3, Some(4)));
    assert_eq!(proc.started(8, OLD_TIME), Placement::Gone);
    assert_eq!(proc.started(7, Duration::MAX), Placement::Gone);
}

/// A runtime starts a process in the runtime's own cgroup, and then moves it.
#[test]
fn a_young_process_is_soon_found_in_its_new_cgroup() {
    let mut proc = Proc::new();
    let young = u64::try_from(proc.clock.now().as_millis() / 10).expect("a number") - 100;
    proc.process(7, young, HOST);
    assert_eq!(proc.resolve(7), Placement::NoPod);
    proc.process(7, young, &cgroup(1, 2));
    assert_eq!(proc.resolve(7), Placement::NoPod);
    proc.clock.pass(10);
    assert_eq!(proc.resolve(7), pod(1, Some(2)));
    // The process is in its final cgroup, so its age no longer matters.
    proc.process(7, young, HOST);
    proc.clock.pass(999);
    assert_eq!(proc.resolve(7), pod(1, Some(2)));
}

#[test]
fn a_process_may_move_while_it_is_young_and_in_no_container() {
    let now = u64::try_from(Clock::new().now().as_millis() / 10).expect("a number");
    let of_pod = format!("0::/{}\n", slice(1));
    let of_container = cgroup(1, 2);
    for (started, of, expected) in [
        (now, HOST, true),
        (now - 999, HOST, true),
        (now - 1_000, HOST, false),
        (now, &of_pod, true),
        (now, &of_container, false),
    ] {
        let mut proc = Proc::new();
        proc.process(7, started, of);
        assert!(!proc.resolver.may_move(7), "it is not known yet");
        proc.resolve(7);
        assert_eq!(proc.resolver.may_move(7), expected, "{started} {of}");
        proc.resolve(7);
        assert_eq!(proc.resolver.may_move(7), expected, "remembered: {started} {of}");
        proc.resolver.forget(7);
        assert!(!proc.resolver.may_move(7));
    }
    let mut proc = Proc::new();
    proc.resolve(7);
    assert!(!proc.resolver.may_move(7), "there is none");
}

#[test]
fn what_is_not_final_is_soon_read_again() {
    let new = Clock::new().now().as_millis() / 10;
    let new = u64::try_from(new).expect("a number");
    let of_pod = format!("0::/{}\n", slice(1));
    // A young process in a pod's cgroup without a container, and a process that did not exist.
    for (before, expected, started) in [(Some(&of_pod), pod(1, None), new), (None, Placement::Gone, OLD)] {
        let mut proc = Proc::new();
        if let Some(before) = before {
            proc.process(7, started, before);
        }
        assert_eq!(proc.resolve(7), expected);
        proc.process(7, started, &cgroup(1, 2));
        assert_eq!(proc.resolve(7), expected);
        proc.clock.pass(10);
        assert_eq!(proc.resolve(7), pod(1, Some(2)));
    }
}

#[test]
fn remembered_answers_are_bounded_and_expire() {
    let mut proc = Proc::new();
    proc.resolver.capacity = 16;
    for pid in 1..=100 {
        proc.process(pid, OLD, &cgroup(1, 2));
        assert_eq!(proc.resolve(pid), pod(1, Some(2)));
        assert!((1..=16).contains(&proc.resolver.remembered()), "{}", proc.resolver.remembered());
    }
    proc.clock.pass(1_000);
    proc.resolve(1);
    assert_eq!(proc.resolver.remembered(), 1, "all others had become too old");

    for capacity in [0, 1] {
        let resolver = PidResolver::new(proc.directory.path()).expect("it");
        let mut resolver = resolver.clock(proc.clock.read());
        resolver.capacity = capacity;
        for pid in 1..=3 {
            assert_eq!(resolver.resolve(pid).expect("it"), pod(1, Some(2)));
            assert_eq!(resolver.remembered(), 1);
        }
    }
}

#[test]
fn with_a_zero_age_every_lookup_reads() {
    let mut proc = Proc::new();
    proc.resolver.max_age = Duration::ZERO;
    proc.process(7, OLD, &cgroup(1, 2));
    assert_eq!(proc.resolve(7), pod(1, Some(2)));
    proc.process(7, OLD, &cgroup(3, 4));
    assert_eq!(proc.resolve(7), pod(3, Some(4)));
}

#[test]
fn errors_name_the_file_and_the_field_and_are_not_remembered() {
    let mut proc = Proc::new();
    for (number, (stat, cgroup, message)) in [
        (Some("7 (x) S 1"), Some(HOST), "/stat has no valid start time (field 22)"),
        (Some(""), Some(HOST), "/stat has no valid start time (field 22)"),
        (Some(&*"x".repeat(1 << 20)), Some(HOST), "/stat is longer than 65536 bytes"),
        (None, Some(&*"0".repeat(1 << 20)), "/cgroup is longer than 65536 bytes"),
    ]
    .into_iter()
    .enumerate()
    {
        let pid = u32::try_from(number).expect("few") + 1;
        proc.process(pid, OLD, cgroup.unwrap_or_default());
        if let Some(stat) = stat {
            proc.directory.write(&format!("{pid}/stat"), stat);
        }
        let error = proc.resolver.resolve(pid).expect_err("it is wrong");
        assert_eq!(error.to_string(), format!("{}/{pid}{message}", proc.directory.path().display()));
        proc.process(pid, OLD, &self::cgroup(1, 2));
        assert_eq!(proc.resolve(pid), pod(1, Some(2)));
    }
    let error = PidResolver::new(proc.directory.at("none")).expect_err("there is no such directory");
    assert!(error.message.starts_with("cannot be read"), "{error}");
    assert_eq!(error.path, proc.directory.at("none"));
}

#[test]
fn files_that_vanish_while_they_are_read_belong_to_a_process_that_ended() {
    let mut proc = Proc::new();
    for (pid, file) in [(7, "stat"), (8, "cgroup")] {
        proc.process(pid, OLD, &cgroup(1, 2));
        fs::remove_file(proc.directory.at(&format!("{pid}/{file}"))).expect("a file");
        assert_eq!(proc.resolve(pid), Placement::Gone, "{file}");
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    let mut proc = Proc::new();
    proc.process(7, OLD, &cgroup(1, 2));
    symlink("7", proc.directory.at("8")).expect("a link");
    proc.process(9, OLD, HOST);
    fs::remove_file(proc.directory.at("9/cgroup")).expect("a file");
    symlink("../7/cgroup", proc.directory.at("9/cgroup")).expect("a link");
    for pid in [8, 9] {
        let error = proc.resolver.resolve(pid).expect_err("a link");
        assert!(error.message.starts_with("cannot be read"), "{pid}: {error}");
    }
}

#[test]
fn real_processes_exist_until_they_end_and_have_one_start_time() {
    let clock = Clock::new();
    let mut resolver = PidResolver::new("/proc").expect("it is mounted").clock(clock.read());
    let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
    let pid = child.id();
    assert_ne!(resolver.resolve(pid), Ok(Placement::Gone));

    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let ticks: u64 = stat.split(' ').nth(21).expect("field 22").parse().expect("a number");
    // 100 ticks a second on every architecture that Kubernetes runs on.
    let started = Duration::from_millis(ticks * 10);
    assert_ne!(resolver.resolve_started(pid, started), Ok(Placement::Gone));
    assert_eq!(resolver.resolve_started(pid, started + Duration::from_millis(10)), Ok(Placement::Gone));
    assert_eq!(
        resolver.resolve_started(pid, started.saturating_sub(Duration::from_millis(10))),
        Ok(Placement::Gone)
    );

    child.kill().expect("a child");
    child.wait().expect("a child");
    clock.pass(1_000);
    assert_eq!(resolver.resolve(pid), Ok(Placement::Gone));
}

#[test]
fn real_processes_that_end_while_they_are_read_cause_no_error() {
    let mut resolver = PidResolver::new("/proc").expect("it is mounted");
    resolver.max_age = Duration::ZERO;
    for _ in 0..50 {
        let mut child = Command::new("true").spawn().expect("a process");
        let mut reads = 0;
        while child.try_wait().expect("a child").is_none() {
            resolver.resolve(child.id()).expect("no error");
            reads += 1;
        }
        assert_eq!(resolver.resolve(child.id()), Ok(Placement::Gone), "after {reads} reads");
    }
}
