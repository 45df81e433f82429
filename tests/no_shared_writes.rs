//! Between two publications a look-up executes no atomic read-modify-write: readers on many cores leave each other's
//! caches alone.
//!
//! Nothing is inferred here from the source. The look-ups run in a process that is stepped through one instruction after
//! the other, and each instruction is looked at before it is executed.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(any(loom, shuttle))))]

mod support;

use std::env;
use std::hint::black_box;
use std::process::{Child, Command, Stdio};

use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pod_index::{PodManager, PodUid};
use support::TestPod;

/// Tells a process that it is the one to be stepped through, and what it is to do.
const WORK: &str = "POD_INDEX_STEPPED_THROUGH";
const THIS_TEST: &str = "a_look_up_between_two_publications_writes_to_nothing_that_others_read";

#[test]
fn a_look_up_between_two_publications_writes_to_nothing_that_others_read() {
    if let Ok(work) = env::var(WORK) {
        return be_stepped_through(&work);
    }
    // That there is nothing to see where there is nothing, and something where there is something.
    assert_eq!(locked_instructions("nothing").locked, 0);
    assert_ne!(locked_instructions("a shared count").locked, 0);

    for work in ["cached", "snapshot"] {
        let seen = locked_instructions(work);
        println!("{work}: {} instructions, {} of them locked", seen.all, seen.locked);
        assert!(seen.all > 1_000, "{work}: no look-up was seen");
        assert_eq!(seen.locked, 0, "{work}");
    }
}

/// The work, between two stops.
fn be_stepped_through(work: &str) {
    let manager = PodManager::new();
    let pod = TestPod::fixed("0123456789abcdef0123456789abcdef", "web_default");
    let mirror = TestPod::mirror("6f1c0d4e-2f57-4b0c-9a6a-3d1f5f2b7c11", "web_default", &pod.uid);
    for i in 0..60 {
        let pod =
            TestPod::plain(&format!("{i:08x}-2f57-4b0c-9a6a-3d1f5f2b7c11"), &format!("web-{i}_default"));
        manager.add_pod(pod).expect("a good pod");
    }
    manager.add_pod(pod.clone()).expect("a good pod");
    manager.add_pod(mirror.clone()).expect("a good mirror");

    let reader = manager.reader();
    let (mut cached, snapshot) = (reader.cached(), reader.snapshot());
    let parsed = PodUid::from(pod.uid.as_str());
    let translate_to_other = mirror.uid.as_str();
    ptrace::traceme().expect("a process may ask to be traced");
    raise(Signal::SIGSTOP).expect("a process may stop itself");
    match work {
        "nothing" => {}
        "a shared count" => drop(black_box(reader.snapshot())),
        "cached" => {
            black_box(cached.pod_by_uid(pod.uid.as_str()));
            black_box(cached.pod_by_uid("no-such-uid"));
            black_box(cached.pod_by_uid(&parsed));
            black_box(cached.pod_by_full_name("web_default"));
            black_box(cached.pod_by_name("default", "web"));
            black_box(cached.translate_pod_uid(translate_to_other));
            black_box(cached.load().static_pods().len());
        }
        "snapshot" => {
            black_box(snapshot.pod_by_uid(pod.uid.as_str()));
            black_box(snapshot.mirror_pod_by_uid(mirror.uid.as_str()));
            black_box(snapshot.pod_by_full_name("web_default"));
            black_box(snapshot.pod_by_name("default", "web"));
            black_box(snapshot.mirror_pod_by_full_name("web_default"));
            black_box(snapshot.pod_by_mirror_pod(&mirror));
            black_box(snapshot.mirror_pod_by_pod(&pod));
            black_box(snapshot.translate_pod_uid(translate_to_other));
            black_box(snapshot.pods().iter().count());
            black_box(snapshot.uid_translations().mirror_to_pod().count());
        }
        other => panic!("no work is called {other:?}"),
    }
    raise(Signal::SIGSTOP).expect("a process may stop itself");
}

struct Seen {
    all: usize,
    locked: usize,
}

/// Steps through `work` in a process of its own.
fn locked_instructions(work: &str) -> Seen {
    let mut child = Command::new(env::current_exe().expect("a test has a path"))
        .args(["--exact", THIS_TEST, "--test-threads=1"])
        .env(WORK, work)
        .stdout(Stdio::null())
        .spawn()
        .expect("a test can be started");
    // It stops on the thread that runs the test.
    let thread = match waitpid(None, Some(WaitPidFlag::__WALL)) {
        Ok(WaitStatus::Stopped(thread, Signal::SIGSTOP)) => thread,
        other => panic!("the process did not stop for us, but {other:?}; may processes be traced here?"),
    };
    let seen = step_to_the_next_stop(thread);
    end(&mut child, thread);
    seen
}

fn step_to_the_next_stop(thread: Pid) -> Seen {
    let mut seen = Seen { all: 0, locked: 0 };
    loop {
        let registers = ptrace::getregs(thread).expect("it stands still");
        seen.all += 1;
        seen.locked += usize::from(is_locked(instruction(thread, registers.rip)));
        ptrace::step(thread, None).expect("it stands still");
        match waitpid(thread, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => {}
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => return seen,
            other => panic!("after {} instructions: {other:?}", seen.all),
        }
    }
}

/// The sixteen bytes at `address`; no instruction is longer.
fn instruction(thread: Pid, address: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (word, at) in bytes.chunks_exact_mut(8).zip([address, address + 8]) {
        // The second word may be beyond the last page of the program.
        let read = ptrace::read(thread, at as ptrace::AddressType).unwrap_or_default();
        word.copy_from_slice(&read.to_ne_bytes());
    }
    bytes
}

/// Whether an instruction locks the memory it writes to: by a prefix, or because it exchanges, which always does.
fn is_locked(instruction: [u8; 16]) -> bool {
    const LOCK: u8 = 0xf0;
    let is_prefix =
        |byte: &&u8| matches!(**byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | LOCK | 0xf2 | 0xf3);
    let prefixes = instruction.iter().take_while(|byte| is_prefix(byte)).count();
    if instruction[..prefixes].contains(&LOCK) {
        return true;
    }
    let mut rest = instruction[prefixes..].iter().skip_while(|byte| (0x40..0x50).contains(*byte));
    let exchanges = matches!(rest.next(), Some(0x86 | 0x87));
    exchanges && rest.next().is_some_and(|operands| *operands < 0xc0)
}

fn end(child: &mut Child, thread: Pid) {
    child.kill().expect("it is there");
    let leader = Pid::from_raw(i32::try_from(child.id()).expect("a process has an identifier"));
    if thread != leader {
        let _ = waitpid(thread, Some(WaitPidFlag::__WALL));
    }
    let _ = waitpid(leader, Some(WaitPidFlag::__WALL));
}
