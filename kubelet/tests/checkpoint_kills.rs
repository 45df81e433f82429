//! Checkpoints of a process that is killed repeatedly while it writes.

use crate::checkpoint_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use checkpoint_support::{Place, Run, add, kept};
use k8s_openapi::api::core::v1::Pod;
use pod_index::{Operation, PodMeta, PodUid};
use pod_index_kubelet::checkpoint::Which;

/// The child's arguments: the directory and the history.
const CHILD: &str = "POD_INDEX_TEST_CHECKPOINT_CHILD";
/// The directory of the child that edits.
const EDITOR: &str = "POD_INDEX_TEST_CHECKPOINT_EDITOR";
/// Number of pods in the history, and how many of them a step changes.
const PODS: u64 = 6;

/// The same numbers for parent and child.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

/// What a step does to its pods: a new version, or `None` for removal.
fn step(seed: u64, number: u64) -> Vec<(String, Option<u64>)> {
    let mut random = random(seed ^ number.wrapping_mul(0x1000_0000_01b3));
    (0..=random(3))
        .map(|_| {
            let uid = format!("u{}", random(PODS));
            let goes = random(4) == 0;
            (uid, (!goes).then_some(number))
        })
        .collect()
}

/// Runs as a child of the next test, which kills it.
#[test]
fn the_child_that_is_killed() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let mut arguments = arguments.split('\n');
    let directory = PathBuf::from(arguments.next().unwrap());
    let (seed, from): (u64, u64) =
        (arguments.next().unwrap().parse().unwrap(), arguments.next().unwrap().parse().unwrap());
    let mut run = Run::start(&directory, Which::Annotated);
    let mut out = std::io::stdout();
    for number in from.. {
        run.keeps(step(seed, number).into_iter().map(|(uid, version)| match version {
            Some(version) => add(kept(&uid, version)),
            None => Operation::Remove(PodUid::from(&*uid)),
        }));
        // If the parent is gone, nothing else kills this process.
        if writeln!(out, "\nacknowledged {number}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn child(directory: &Path, seed: u64, from: u64) -> Child {
    let arguments = format!("{}\n{seed}\n{from}", directory.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "checkpoint_kills::the_child_that_is_killed",
        "--nocapture",
        "--test-threads=1",
    ]);
    command
        .env(CHILD, arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Kills a writing process repeatedly, each time at another moment, and compares the files with the history.
/// Between two runs, adds remains of interrupted writes. Returns the number of acknowledged steps.
fn kill_again_and_again(kills: u64, seed: u64) -> u64 {
    let place = Place::new();
    let mut random = random(seed);
    // The last state known to be on disk; later changes may be there too.
    let mut state: BTreeMap<String, u64> = BTreeMap::new();
    let mut next = 1;
    let mut sum = 0;
    for kill in 0..kills {
        let mut child = child(&place.directory(), seed, next);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = next - 1;
        let heard = |acknowledged: &mut u64, line: &str| {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                *acknowledged = number.parse().unwrap();
            }
        };
        // Waits for some steps, then some microseconds, so that each kill hits another part of a write.
        let pass = random(6);
        while acknowledged < next - 1 + pass {
            heard(&mut acknowledged, &lines.next().expect("the child lives").unwrap());
        }
        std::thread::sleep(Duration::from_micros(random(3000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Acknowledgements before the kill count.
        for line in lines {
            heard(&mut acknowledged, &line.unwrap());
        }
        let apply = |state: &mut BTreeMap<String, u64>, number| {
            for (uid, version) in step(seed, number) {
                match version {
                    Some(version) => state.insert(uid, version),
                    None => state.remove(&uid),
                };
            }
        };
        for number in next..=acknowledged {
            apply(&mut state, number);
        }
        sum += acknowledged + 1 - next;
        // At most one step was under way and may be partly on disk: each of its pods is as before or as after
        // it.
        let mut after = state.clone();
        apply(&mut after, acknowledged + 1);
        let found = place.restored();
        for number in 0..PODS {
            let uid = format!("u{number}");
            let version = found.get(&uid).map(|pod| {
                let version = pod.metadata.resource_version.as_deref().unwrap().parse().unwrap();
                assert_eq!(*pod, kept(&uid, version), "a mixture of versions");
                version
            });
            let allowed = [state.get(&uid).copied(), after.get(&uid).copied()];
            assert!(
                allowed.contains(&version),
                "kill {kill}, seed {seed}: {uid} is {version:?}, not one of {allowed:?}"
            );
        }
        state = found
            .into_iter()
            .map(|(uid, pod)| (uid, pod.metadata.resource_version.unwrap().parse().unwrap()))
            .collect();
        next = acknowledged + 2;
        leave_over(&place.directory(), random(4));
    }
    sum
}

/// Possible remains of an interrupted write.
fn leave_over(directory: &Path, what: u64) {
    let half = b"# pod-index checkpoint 1 0123456789abcdef\n{\"apiVersion\":\"v1\",\"ki";
    let leftover = directory.join(".writing");
    match what {
        0 => fs::write(leftover, half).unwrap(),
        1 => fs::write(leftover, b"").unwrap(),
        2 => fs::write(leftover, vec![0xff; 5000]).unwrap(),
        _ => {}
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    assert!(kill_again_and_again(25, 1) > 0);
}

/// As a child of the next test: edits every static pod in each step, which gives each another UID.
#[test]
fn the_child_that_edits_and_is_killed() {
    let Ok(directory) = std::env::var(EDITOR) else { return };
    let mut run = Run::start(&PathBuf::from(directory), Which::Annotated);
    let mut before: Vec<PodUid> = run.restored.pods.iter().map(|pod| PodUid::from(pod.uid())).collect();
    let mut out = std::io::stdout();
    for number in std::process::id().into().. {
        let edited: Vec<_> = (0..PODS).map(|pod| edited(pod, number)).collect();
        let removed = std::mem::take(&mut before).into_iter().map(Operation::Remove);
        before = edited.iter().map(|pod| PodUid::from(pod.uid())).collect();
        run.keeps(removed.chain(edited.into_iter().map(add)).collect::<Vec<_>>());
        if writeln!(out, "\nacknowledged {number}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// A version of a static pod. The new file's name comes before or after the old one's.
fn edited(pod: u64, number: u64) -> Pod {
    let mut edited = kept(&format!("{:x}-{pod}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40), number);
    edited.metadata.name = Some(format!("static-{pod}"));
    edited
}

#[test]
fn a_kill_at_any_moment_leaves_a_checkpoint_of_each_edited_static_pod() {
    let place = Place::new();
    let mut random = random(7);
    for kill in 0..40 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "checkpoint_kills::the_child_that_edits_and_is_killed",
            "--nocapture",
            "--test-threads=1",
        ]);
        command.env(EDITOR, place.directory()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let steps = 1 + usize::try_from(random(4)).unwrap();
        let acknowledged = lines.filter(|line| line.starts_with("acknowledged ")).take(steps).count();
        assert_eq!(acknowledged, steps, "the child has ended");
        std::thread::sleep(Duration::from_micros(random(3000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let found: BTreeSet<_> =
            place.restored().into_values().map(|pod| pod.metadata.name.unwrap_or_default()).collect();
        let all: BTreeSet<_> = (0..PODS).map(|pod| format!("static-{pod}")).collect();
        assert_eq!(found, all, "kill {kill}");
    }
}

/// A longer run:
/// `cargo test -p pod-index-kubelet --all-features --test kubelet -- --ignored --nocapture five_hundred`
#[test]
#[ignore = "takes minutes: .ci/run figures"]
fn five_hundred_kills_lose_nothing_that_was_acknowledged() {
    let acknowledged: u64 = (0..10).map(|seed| kill_again_and_again(50, 1000 + seed)).sum();
    println!("500 kills, {acknowledged} steps acknowledged, 0 of them lost");
}
