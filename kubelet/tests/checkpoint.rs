//! Checkpoints on real files: restarts, files that are torn or not ours, disks that fail; and a process that is killed
//! over and over while it writes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Operation, PodMeta, PodUid, Writer};
use pod_index_kubelet::checkpoint::{
    CHECKPOINT_ANNOTATION, CheckpointError, CheckpointErrorKind, Checkpointing, Checkpoints, Restored, Which,
    is_restored,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of its own, gone when dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pod-index-checkpoint-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn directory(&self) -> PathBuf {
        self.0.join("checkpoints")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A version of a pod; how large it is hangs on the version, so that a mixture of two shows.
fn pod(uid: &str, version: u64, kept: Option<&str>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name = Some(format!("pod-{uid}"));
    pod.metadata.namespace = Some("ns".to_owned());
    pod.metadata.resource_version = Some(version.to_string());
    let filler = "x".repeat(usize::try_from(version * 997 % 9000).unwrap());
    let mut annotations = BTreeMap::from([("filler".to_owned(), filler)]);
    annotations.extend(kept.map(|kept| (CHECKPOINT_ANNOTATION.to_owned(), kept.to_owned())));
    pod.metadata.annotations = Some(annotations);
    pod
}

fn kept(uid: &str, version: u64) -> Pod {
    pod(uid, version, Some("true"))
}

/// Opens it. Another test of this process may be about to start a child, which until then holds whatever lock this process
/// has just let go of.
fn open(directory: &Path, which: Which) -> (Checkpoints, Restored) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Checkpoints::open(directory, which) {
            Err(error) if error.kind() == CheckpointErrorKind::Locked && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// An index with checkpoints, as an agent has it.
struct Run {
    writer: Writer<Pod>,
    restored: Restored,
    checkpointing: Checkpointing,
}

impl Run {
    fn start(directory: &Path, which: Which) -> Self {
        let (checkpoints, restored) = open(directory, which);
        let (mut writer, reader) = pod_index::new();
        assert_eq!(writer.apply(restored.operations()).refused, []);
        let checkpointing = checkpoints.keep(reader).unwrap();
        Self { writer, restored, checkpointing }
    }

    fn apply(&mut self, operations: impl IntoIterator<Item = Operation<Pod>>) {
        assert_eq!(self.writer.apply(operations).refused, []);
        self.checkpointing.published();
    }

    fn acknowledged(&self) {
        self.checkpointing.wait_for(self.writer.current().generation(), PATIENCE).unwrap();
    }

    /// Ends it as a kill would: nothing more is written.
    fn end(self) -> Writer<Pod> {
        self.checkpointing.finish(PATIENCE).unwrap();
        self.writer
    }
}

fn add(pod: Pod) -> Operation<Pod> {
    Operation::Update(pod.into())
}

/// The pods that a start finds, which must be whole, and nothing wrong.
fn restored(directory: &Path) -> BTreeMap<String, Pod> {
    let (_checkpoints, restored) = open(directory, Which::Annotated);
    assert_eq!(restored.errors, []);
    unmarked(&restored)
}

fn unmarked(restored: &Restored) -> BTreeMap<String, Pod> {
    let unmarked = |pod: &std::sync::Arc<Pod>| {
        assert!(is_restored(&**pod));
        let mut pod = Pod::clone(pod);
        pod.metadata.annotations.as_mut().unwrap().remove(pod_index_kubelet::checkpoint::RESTORED_ANNOTATION);
        (pod.uid().to_owned(), pod)
    };
    restored.pods.iter().map(unmarked).collect()
}

#[test]
fn pods_that_ask_for_it_survive_a_restart_whole_and_no_others_do() {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply([
        add(kept("a", 1)),
        add(pod("b", 2, None)),
        add(pod("c", 3, Some("false"))),
        add(kept("odd/uid", 4)),
    ]);
    run.acknowledged();
    assert_eq!(place.names(), ["Pod_%6f64642f756964.yaml", "Pod_a.yaml"]);
    run.end();
    let expected =
        BTreeMap::from([("a".to_owned(), kept("a", 1)), ("odd/uid".to_owned(), kept("odd/uid", 4))]);
    assert_eq!(restored(&place.directory()), expected);
}

#[test]
fn by_option_all_pods_survive_mirrors_too() {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::All);
    let mut mirror = pod("m", 1, None);
    mirror
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("kubernetes.io/config.mirror".to_owned(), "h".to_owned());
    run.apply([add(pod("a", 1, None)), add(mirror.clone())]);
    run.acknowledged();
    run.end();
    let run = Run::start(&place.directory(), Which::All);
    assert!(
        run.writer.current().pod_by_uid("a").is_some()
            && run.writer.current().mirror_pod_by_uid("m").is_some()
    );
    run.end();
    assert_eq!(restored(&place.directory())["m"], mirror);
}

#[test]
fn a_file_goes_with_its_pod_or_with_the_annotation_and_comes_with_it() {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply([add(kept("a", 1)), add(kept("b", 1)), add(pod("c", 1, None))]);
    run.acknowledged();
    assert_eq!(place.names(), ["Pod_a.yaml", "Pod_b.yaml"]);
    run.apply([Operation::Remove(PodUid::from("a")), add(pod("b", 2, None)), add(kept("c", 2))]);
    run.acknowledged();
    assert_eq!(place.names(), ["Pod_c.yaml"]);
    assert_eq!(run.checkpointing.status().files, 1);
}

#[test]
fn a_restored_pod_is_marked_until_a_source_tells_of_it_and_gone_if_none_does() {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply([add(kept("told", 1)), add(kept("gone", 1)), add(kept("removed", 1))]);
    run.acknowledged();
    run.end();

    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.acknowledged();
    assert_eq!(place.names().len(), 3, "to be restored costs no file");
    assert_eq!(run.restored.unclaimed(run.writer.current()).len(), 3);
    // One that says of itself that it was restored is not believed.
    let mut told = kept("told", 2);
    told.metadata.annotations.as_mut().unwrap().insert("pod-index/restored".to_owned(), "true".to_owned());
    run.apply([add(told), Operation::Remove(PodUid::from("removed"))]);
    assert!(run.writer.current().pod_by_uid("gone").is_some_and(|pod| is_restored(&**pod)));
    let unclaimed = run.restored.unclaimed(run.writer.current());
    assert_eq!(unclaimed, [PodUid::from("gone")]);
    run.apply(unclaimed.into_iter().map(Operation::Remove));
    run.acknowledged();
    run.end();
    assert_eq!(restored(&place.directory()), BTreeMap::from([("told".to_owned(), kept("told", 2))]));
}

#[test]
fn a_restored_pod_goes_with_its_own_source_whatever_the_others_have_to_say() {
    let place = Place::new();
    let from = |source: Option<&str>, uid: &str| {
        let mut pod = kept(uid, 1);
        let source = source.map(|source| ("kubernetes.io/config.source".to_owned(), source.to_owned()));
        pod.metadata.annotations.as_mut().unwrap().extend(source);
        pod
    };
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply([
        add(from(Some("file"), "f1")),
        add(from(Some("file"), "f2")),
        add(from(Some("api"), "a1")),
        add(from(None, "n1")),
    ]);
    run.acknowledged();
    run.end();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply([add(from(Some("file"), "f1"))]);
    let unclaimed_from = |run: &Run, source| run.restored.unclaimed_from(source, run.writer.current());
    assert_eq!(unclaimed_from(&run, "file"), [PodUid::from("f2")]);
    assert_eq!(unclaimed_from(&run, "api"), [PodUid::from("a1")]);
    assert!(unclaimed_from(&run, "http").is_empty());
    assert_eq!(run.restored.unclaimed(run.writer.current()).len(), 3);
}

#[test]
fn a_file_whose_pod_went_while_nobody_kept_it_goes_at_the_start() {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply([add(kept("a", 1)), add(kept("b", 1))]);
    run.acknowledged();
    run.end();
    // Restored, and not put into the index.
    let (checkpoints, _restored) = open(&place.directory(), Which::Annotated);
    let (mut writer, reader) = pod_index::new();
    writer.add_pod(kept("b", 1)).unwrap();
    let checkpointing = checkpoints.keep(reader).unwrap();
    checkpointing.wait_for(1, PATIENCE).unwrap();
    assert_eq!(place.names(), ["Pod_b.yaml"]);
}

#[test]
fn a_bad_file_is_set_aside_by_name_and_takes_no_other_along() {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply(["good", "bad", "other"].map(|uid| add(kept(uid, 1))));
    run.acknowledged();
    run.end();
    let path = place.directory().join("Pod_bad.yaml");
    let whole = fs::read(&path).unwrap();
    let other = fs::read(place.directory().join("Pod_other.yaml")).unwrap();
    let cut = (0..whole.len() - 1).map(|end| (CheckpointErrorKind::Torn, whole[..end].to_vec()));
    let cases = cut.chain([
        (CheckpointErrorKind::Torn, Vec::new()),
        (CheckpointErrorKind::Foreign, vec![0; 4096]),
        (CheckpointErrorKind::Foreign, b"not a checkpoint".to_vec()),
        (CheckpointErrorKind::Foreign, br#"{"Data":{},"Checksum":1}"#.to_vec()),
        (CheckpointErrorKind::Foreign, other),
        (CheckpointErrorKind::Newer, b"# pod-index checkpoint 2 0\n{}\n".to_vec()),
        (CheckpointErrorKind::Torn, [&whole[..], b"rubbish"].concat()),
    ]);
    for (number, (kind, bytes)) in cases.enumerate() {
        fs::write(&path, &bytes).unwrap();
        // A run that ended in the middle of a write leaves this.
        fs::write(place.directory().join(".writing"), &whole[..whole.len() / 2]).unwrap();
        let (_checkpoints, restored) = open(&place.directory(), Which::Annotated);
        let [error] = &restored.errors[..] else { panic!("case {number}: {:?}", restored.errors) };
        assert_eq!(error.kind(), kind, "case {number}: {error}");
        assert!(error.path().ends_with("/Pod_bad.yaml"), "{error}");
        assert!(error.to_string().contains("set aside as Pod_bad.yaml.unusable"), "{error}");
        assert_eq!(unmarked(&restored).into_keys().collect::<Vec<_>>(), ["good", "other"]);
        let aside = place.directory().join("Pod_bad.yaml.unusable");
        assert_eq!(fs::read(&aside).unwrap(), bytes, "what is set aside is kept as it was");
        fs::remove_file(aside).unwrap();
        assert_eq!(place.names(), ["Pod_good.yaml", "Pod_other.yaml"]);
    }
}

#[test]
fn a_pod_with_a_long_uid_is_kept_as_any_other_and_keeps_no_generation_waiting() {
    let place = Place::new();
    let long = "u".repeat(4000);
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply([add(kept(&long, 1)), add(kept("short", 1))]);
    run.acknowledged();
    run.end();
    assert_eq!(restored(&place.directory()).into_keys().collect::<Vec<_>>(), ["short", &long]);
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply([Operation::Remove(PodUid::from(&*long))]);
    run.acknowledged();
    assert_eq!(place.names(), ["Pod_short.yaml"]);
}

#[test]
fn what_is_set_aside_replaces_nothing_that_was_set_aside_before() {
    let place = Place::new();
    fs::create_dir_all(place.directory()).unwrap();
    for round in 0..3 {
        fs::write(place.directory().join("Pod_a.yaml"), format!("{round}")).unwrap();
        let (_, restored) = open(&place.directory(), Which::Annotated);
        assert_eq!(restored.errors.len(), 1);
    }
    assert_eq!(place.names(), ["Pod_a.yaml.unusable", "Pod_a.yaml.unusable.1", "Pod_a.yaml.unusable.2"]);
    for (round, name) in place.names().iter().enumerate() {
        assert_eq!(fs::read_to_string(place.directory().join(name)).unwrap(), round.to_string());
    }
}

#[test]
fn what_is_no_checkpoint_by_its_name_or_kind_is_left_alone() {
    let place = Place::new();
    fs::create_dir_all(place.directory().join("Pod_directory.yaml")).unwrap();
    fs::create_dir(place.directory().join("sub")).unwrap();
    fs::write(place.directory().join("README"), "mine").unwrap();
    fs::write(place.directory().join("pod.yaml"), "mine").unwrap();
    let before = place.names();
    let (checkpoints, restored) = open(&place.directory(), Which::All);
    let [error] = &restored.errors[..] else { panic!("{:?}", restored.errors) };
    assert_eq!(error.kind(), CheckpointErrorKind::Foreign);
    assert!(error.to_string().contains("Pod_directory.yaml: it is no regular file"), "{error}");
    let (_writer, reader) = pod_index::new();
    let checkpointing = checkpoints.keep(reader).unwrap();
    checkpointing.wait_for(0, PATIENCE).unwrap();
    checkpointing.finish(PATIENCE).unwrap();
    assert_eq!(place.names(), before);
}

#[test]
fn a_directory_in_a_checkpoints_place_is_set_aside_whole_and_keeps_nobody_waiting() {
    let place = Place::new();
    // There before the start, and with something in it.
    for name in ["Pod_before.yaml", ".writing"] {
        fs::create_dir_all(place.directory().join(name)).unwrap();
        fs::write(place.directory().join(name).join("somebodys"), name).unwrap();
    }
    let mut run = Run::start(&place.directory(), Which::Annotated);
    fs::create_dir(place.directory().join("Pod_later.yaml")).unwrap();
    run.apply(["before", "later", "gone"].map(|uid| add(kept(uid, 1))));
    run.acknowledged();
    // One that took a checkpoint's place is not what is to be removed.
    fs::remove_file(place.directory().join("Pod_gone.yaml")).unwrap();
    fs::create_dir(place.directory().join("Pod_gone.yaml")).unwrap();
    run.apply([Operation::Remove(PodUid::from("gone"))]);
    run.acknowledged();
    let status = run.checkpointing.status();
    assert_eq!((status.set_aside, status.wrong, status.failures), (4, 0, 0));
    run.end();
    let aside = [".writing", "Pod_before.yaml", "Pod_gone.yaml", "Pod_later.yaml"]
        .map(|name| format!("{name}.unusable"));
    let mut names = place.names();
    names.retain(|name| !aside.contains(name));
    assert_eq!(names, ["Pod_before.yaml", "Pod_later.yaml"]);
    for name in ["Pod_before.yaml", ".writing"] {
        let inside = place.directory().join(format!("{name}.unusable")).join("somebodys");
        assert_eq!(fs::read_to_string(inside).unwrap(), name);
    }
    assert_eq!(restored(&place.directory()).into_keys().collect::<Vec<_>>(), ["before", "later"]);
}

#[test]
fn a_directory_is_one_processs_at_a_time_and_free_when_that_ends() {
    let place = Place::new();
    let run = Run::start(&place.directory(), Which::Annotated);
    let error = Checkpoints::open(place.directory(), Which::Annotated).unwrap_err();
    assert_eq!(error.kind(), CheckpointErrorKind::Locked);
    assert!(error.to_string().ends_with("checkpoints: another process uses the directory"), "{error}");
    run.end();
    let _ = open(&place.directory(), Which::Annotated);
}

#[test]
fn a_place_that_cannot_be_used_is_an_error_that_names_it() {
    let place = Place::new();
    let file = place.0.join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below"), PathBuf::from("/proc/nowhere/checkpoints")] {
        let error = Checkpoints::open(&path, Which::Annotated).unwrap_err();
        assert_eq!(error.kind(), CheckpointErrorKind::Directory);
        assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn what_cannot_be_written_is_told_is_not_acknowledged_and_is_written_when_it_can_be() {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    // A directory in the file's place: no rename can replace it, not even root's, nor is there a name to set it aside as.
    let in_the_way = place.directory().join("Pod_a.yaml");
    let aside = |number: u32| match number {
        0 => place.directory().join("Pod_a.yaml.unusable"),
        number => place.directory().join(format!("Pod_a.yaml.unusable.{number}")),
    };
    fs::create_dir(&in_the_way).unwrap();
    (0..100).for_each(|number| fs::write(aside(number), "").unwrap());
    run.apply([add(kept("a", 1)), add(kept("b", 1))]);
    let generation = run.writer.current().generation();
    let error = loop {
        let late = run.checkpointing.wait_for(generation, Duration::from_millis(1)).unwrap_err();
        if let Some(error) = late.error() {
            break error.clone();
        }
    };
    assert_eq!(error.kind(), CheckpointErrorKind::Write);
    assert!(error.path().ends_with("Pod_a.yaml"), "{error}");
    assert!(error.to_string().contains("it cannot be set aside: too many are there already"), "{error}");
    (0..100).for_each(|number| fs::remove_file(aside(number)).unwrap());
    assert_eq!(place.names(), ["Pod_a.yaml", "Pod_b.yaml"], "the other is there, and nothing half done");
    fs::remove_dir(in_the_way).unwrap();
    run.acknowledged();
    assert_eq!(run.checkpointing.status().errors, []);
    run.end();
    assert_eq!(restored(&place.directory()).len(), 2);
}

#[test]
fn a_read_only_place_gives_what_it_has_and_keeps_nobody_from_working() {
    // Not even root may make a file there, and there is no checkpoint.
    let (checkpoints, restored) = Checkpoints::open("/proc/self", Which::All).unwrap();
    assert_eq!((restored.pods.len(), restored.errors.len()), (0, 0));
    let (mut writer, reader) = pod_index::new();
    let checkpointing = checkpoints.keep(reader.clone()).unwrap();
    writer.add_pod(kept("a", 1)).unwrap();
    checkpointing.published();
    while checkpointing.status().errors.is_empty() {
        assert!(checkpointing.wait_for(1, Duration::from_millis(1)).is_err());
    }
    assert_eq!(checkpointing.status().errors[0].kind(), CheckpointErrorKind::Write);
    assert!(reader.load().pod_by_uid("a").is_some());
    // It does not try for ever, nor does it say that all is well.
    let late = checkpointing.finish(PATIENCE).unwrap_err();
    assert_eq!(late.error().map(CheckpointError::kind), Some(CheckpointErrorKind::Write), "{late}");
}

// -------------------------------------------------------------------------------------------------- a killed process

/// What a child is told: where, and which history.
const CHILD: &str = "POD_INDEX_TEST_CHECKPOINT_CHILD";
/// How many pods the history has, and how many of them a step touches.
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

/// What a step does to its pods: a version, or nothing for "gone".
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

/// Runs as a child of the next test, and ends with that test's kill.
#[test]
fn the_child_that_is_killed() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let mut told = told.split('\n');
    let directory = PathBuf::from(told.next().unwrap());
    let (seed, from): (u64, u64) =
        (told.next().unwrap().parse().unwrap(), told.next().unwrap().parse().unwrap());
    let mut run = Run::start(&directory, Which::Annotated);
    let mut out = std::io::stdout();
    for number in from.. {
        run.apply(step(seed, number).into_iter().map(|(uid, version)| match version {
            Some(version) => add(kept(&uid, version)),
            None => Operation::Remove(PodUid::from(&*uid)),
        }));
        run.acknowledged();
        // The parent may have gone; then there is nobody to kill this one.
        if writeln!(out, "\nacknowledged {number}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn child(directory: &Path, seed: u64, from: u64) -> Child {
    let told = format!("{}\n{seed}\n{from}", directory.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_child_that_is_killed", "--nocapture", "--test-threads=1"]);
    command
        .env(CHILD, told)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// What came of it: steps that were acknowledged, and bad files that were set aside.
#[derive(Default)]
struct Survived {
    acknowledged: u64,
    set_aside: usize,
}

/// Kills a writing process so many times, each time at another moment, and compares what it left with the history. Between
/// two lives, leftovers of torn writes are put beside the files, and files that are torn, foreign or of a newer format
/// among them.
fn kill_again_and_again(kills: u64, seed: u64) -> Survived {
    let place = Place::new();
    let mut random = random(seed);
    // The state after the last step that is known to be on disk; what came after it may be there, too.
    let mut state: BTreeMap<String, u64> = BTreeMap::new();
    let mut next = 1;
    let mut survived = Survived::default();
    let mut planted = BTreeMap::new();
    for kill in 0..kills {
        let mut child = child(&place.directory(), seed, next);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = next - 1;
        let heard = |acknowledged: &mut u64, line: &str| {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                *acknowledged = number.parse().unwrap();
            }
        };
        // Some steps are let pass, and then some microseconds: the kill falls into another place of a write each time.
        let pass = random(6);
        while acknowledged < next - 1 + pass {
            heard(&mut acknowledged, &lines.next().expect("the child lives").unwrap());
        }
        std::thread::sleep(Duration::from_micros(random(3000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it was killed counts.
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
        survived.acknowledged += acknowledged + 1 - next;
        // At most one step was under way, which may be there in part: each of its pods as before, or as after it.
        let mut after = state.clone();
        apply(&mut after, acknowledged + 1);
        survived.set_aside += planted.len();
        let found = restored_beside(&place.directory(), std::mem::take(&mut planted));
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
        planted = plant(&place.directory(), &state, &mut random);
    }
    survived
}

/// Bad files, by name.
type Planted = BTreeMap<String, Vec<u8>>;

/// Puts bad files among the good ones: under the names of pods that are gone, and under names of no pod at all.
fn plant(directory: &Path, state: &BTreeMap<String, u64>, random: &mut impl FnMut(u64) -> u64) -> Planted {
    let name = |uid: &str| format!("Pod_{uid}.yaml");
    let gone = (0..PODS).map(|number| format!("u{number}")).filter(|uid| !state.contains_key(uid));
    let whole = state.keys().next().map(|uid| fs::read(directory.join(name(uid))).unwrap());
    let whole = whole.unwrap_or_else(|| b"# pod-index checkpoint 1 0123456789abcdef\n{}\n".to_vec());
    let cut = |random: &mut dyn FnMut(u64) -> u64| {
        whole[..usize::try_from(random(whole.len() as u64 - 1)).unwrap()].to_vec()
    };
    let mut planted = Planted::new();
    for uid in gone.chain(["torn".to_owned(), "%74".to_owned(), "%%0123".to_owned()]) {
        let bytes = match random(7) {
            0 | 1 => cut(random),
            2 => Vec::new(),
            3 => vec![0; 4096],
            // Another pod's, whole.
            4 => whole.clone(),
            5 => b"# pod-index checkpoint 2 0\n{}\n".to_vec(),
            _ => continue,
        };
        fs::write(directory.join(name(&uid)), &bytes).unwrap();
        planted.insert(name(&uid), bytes);
    }
    planted
}

/// The pods that a start finds. What was planted is set aside by this start or by the one before it, as it was, and is
/// cleared away.
fn restored_beside(directory: &Path, planted: Planted) -> BTreeMap<String, Pod> {
    let (_checkpoints, restored) = open(directory, Which::Annotated);
    for error in &restored.errors {
        let name = Path::new(error.path()).file_name().unwrap().to_str().unwrap();
        assert!(planted.contains_key(name), "{error}");
    }
    for (name, bytes) in planted {
        let aside = directory.join(format!("{name}.unusable"));
        assert_eq!(fs::read(&aside).unwrap(), bytes, "{name}");
        fs::remove_file(aside).unwrap();
    }
    unmarked(&restored)
}

/// What a write that was torn may leave.
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
    let survived = kill_again_and_again(25, 1);
    assert!(survived.acknowledged > 0 && survived.set_aside > 0);
}

/// The same for longer:
/// `cargo test --features checkpoint --test checkpoint -- --ignored --nocapture five_hundred`
#[test]
#[ignore = "takes minutes"]
fn five_hundred_kills_lose_nothing_that_was_acknowledged() {
    let mut sum = Survived::default();
    for seed in 0..10 {
        let survived = kill_again_and_again(50, 1000 + seed);
        sum.acknowledged += survived.acknowledged;
        sum.set_aside += survived.set_aside;
    }
    let Survived { acknowledged, set_aside } = sum;
    println!("500 kills, {acknowledged} steps acknowledged, 0 of them lost; {set_aside} bad files set aside");
}

// ------------------------------------------------------------------------------------------------------- a full disk

/// Runs as a child of the next test, under a limit on the size of files.
#[test]
fn the_child_whose_disk_is_full() {
    let Ok(directory) = std::env::var("POD_INDEX_TEST_FULL_DISK") else { return };
    let mut run = Run::start(Path::new(&directory), Which::Annotated);
    // `large` has more bytes than a file may have; `small` is written all the same.
    let mut large = kept("large", 1);
    large.metadata.annotations.as_mut().unwrap().insert("large".to_owned(), "x".repeat(100_000));
    run.apply([add(large), add(kept("small", 1))]);
    let late = loop {
        let late = run.checkpointing.wait_for(1, Duration::from_millis(1)).unwrap_err();
        if late.error().is_some() {
            break late;
        }
    };
    let error = late.error().unwrap();
    assert!(error.path().ends_with("Pod_large.yaml"), "{error}");
    // Room, at last: the pod that did not fit goes.
    run.apply([Operation::Remove(PodUid::from("large"))]);
    run.acknowledged();
    println!("the disk was full, and nothing was lost");
}

#[test]
fn a_full_disk_loses_no_other_pod_and_is_told_by_the_file() {
    let place = Place::new();
    // 32 blocks of 512 bytes; more is an error (EFBIG) where the signal is ignored, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 32; exec \"$0\" --exact the_child_whose_disk_is_full --nocapture";
    let output = Command::new("sh")
        .args(["-c", script, std::env::current_exe().unwrap().to_str().unwrap()])
        .env("POD_INDEX_TEST_FULL_DISK", place.directory())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the disk was full, and nothing was lost"), "{said}");
    assert_eq!(restored(&place.directory()), BTreeMap::from([("small".to_owned(), kept("small", 1))]));
    assert_eq!(place.names(), ["Pod_small.yaml"]);
}

// ------------------------------------------------------------------------------------------- disks that say no, for real

/// What a child is told: which of these disks, and where.
const DISK: &str = "POD_INDEX_TEST_DISK";
const NOBODY: u32 = 65534;

/// Says what was not tested, past the test's own capture of what it prints.
fn skip(what: &str, why: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "\nNOT TESTED HERE: {what}: {why}\n");
}

/// Runs this test binary as a child in a shell that has prepared its disk (`$D` is the directory) in mounts of its own.
/// `false`: that is not permitted here.
fn in_own_mounts(prepare: &str, disk: &str, directory: &Path) -> bool {
    let may =
        Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"]).output();
    match may {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            skip(disk, &String::from_utf8_lossy(&output.stderr));
            return false;
        }
        Err(error) => {
            skip(disk, &error);
            return false;
        }
    }
    let script = format!("{prepare} && exec \"$0\" --exact the_child_with_a_disk_that_says_no --nocapture");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script, std::env::current_exe().unwrap().to_str().unwrap()])
        .env("D", directory)
        .env(DISK, format!("{disk}\n{}", directory.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(&format!("came through: {disk}")), "{said}");
    true
}

/// The first error that is not one of those which were there before.
fn refused(run: &Run) -> CheckpointError {
    let generation = run.writer.current().generation();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let late = run.checkpointing.wait_for(generation, Duration::from_millis(1)).unwrap_err();
        match late.error() {
            Some(error) => return error.clone(),
            None => assert!(Instant::now() < deadline, "{late}"),
        }
    }
}

/// Runs as a child of the tests below.
#[test]
fn the_child_with_a_disk_that_says_no() {
    let Ok(told) = std::env::var(DISK) else { return };
    let (disk, directory) = told.split_once('\n').unwrap();
    let directory = Path::new(directory);
    match disk {
        "read-only" => on_a_read_only_disk(directory),
        "full" => on_a_full_disk(directory),
        "forbidden" => on_a_disk_of_somebody_else(directory),
        "unreadable" => beside_a_file_of_somebody_else(directory),
        _ => panic!("{disk}"),
    }
    println!("\ncame through: {disk}");
}

fn on_a_read_only_disk(directory: &Path) {
    let mut run = Run::start(directory, Which::Annotated);
    assert!(run.writer.current().pod_by_uid("old").is_some(), "what was there is restored");
    run.apply([add(kept("new", 1)), Operation::Remove(PodUid::from("old"))]);
    let error = refused(&run);
    assert!(error.to_string().contains("Read-only file system"), "{error}");
    let mut kinds: Vec<_> = run.checkpointing.status().errors.iter().map(CheckpointError::kind).collect();
    kinds.sort_unstable_by_key(|kind| kind.as_str());
    assert_eq!(kinds, [CheckpointErrorKind::Remove, CheckpointErrorKind::Write]);
    let remount = Command::new("mount").args(["-o", "remount,rw,bind"]).arg(directory).status().unwrap();
    assert!(remount.success());
    run.acknowledged();
    run.end();
    assert_eq!(restored(directory).into_keys().collect::<Vec<_>>(), ["new"]);
}

fn on_a_full_disk(directory: &Path) {
    let mut run = Run::start(directory, Which::Annotated);
    run.apply([add(kept("a", 1)), add(kept("b", 1))]);
    run.acknowledged();
    let before = fs::read(directory.join("Pod_a.yaml")).unwrap();
    let mut filler = fs::File::create(directory.join("filler")).unwrap();
    while filler.write_all(&[1; 512]).is_ok() {}
    run.apply([add(kept("a", 2))]);
    let error = refused(&run);
    assert_eq!(error.kind(), CheckpointErrorKind::Write);
    assert!(error.path().ends_with("Pod_a.yaml"), "{error}");
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert_eq!(fs::read(directory.join("Pod_a.yaml")).unwrap(), before, "the older version is there, whole");
    assert!(!directory.join(".writing").exists());
    // To remove one gives back room, so it may be that the other can be written now.
    run.apply([Operation::Remove(PodUid::from("b"))]);
    fs::remove_file(directory.join("filler")).unwrap();
    run.acknowledged();
    run.end();
    assert_eq!(restored(directory), BTreeMap::from([("a".to_owned(), kept("a", 2))]));
}

/// It may be read, but for one file, and not be written to; later it may.
fn on_a_disk_of_somebody_else(directory: &Path) {
    let mut run = Run::start(directory, Which::Annotated);
    let [error] = &run.restored.errors[..] else { panic!("{:?}", run.restored.errors) };
    assert_eq!(error.kind(), CheckpointErrorKind::Unreadable);
    assert!(error.to_string().contains("Pod_bad.yaml: cannot be read: Permission denied"), "{error}");
    assert!(error.to_string().ends_with("it is left in place"), "{error}");
    assert!(run.writer.current().pod_by_uid("good").is_some());
    run.acknowledged();
    // Its source tells of the pod, which does not ask for a checkpoint any more.
    run.apply([add(pod("bad", 2, None)), add(kept("new", 1))]);
    refused(&run);
    let status = run.checkpointing.status();
    assert_eq!((status.errors.len(), status.wrong, status.written), (2, 2, 0));
    assert!(status.failures >= 2 && status.last_failure.is_some());
    for error in status.errors {
        assert!(error.to_string().ends_with("Permission denied (os error 13)"), "{error}");
    }
    println!("\nrefused");
    run.acknowledged();
    run.end();
}

/// The directory is its own, a file in it is not.
fn beside_a_file_of_somebody_else(directory: &Path) {
    let run = Run::start(directory, Which::Annotated);
    let [error] = &run.restored.errors[..] else { panic!("{:?}", run.restored.errors) };
    assert_eq!(error.kind(), CheckpointErrorKind::Unreadable);
    assert!(error.to_string().contains("Pod_bad.yaml: cannot be read: Permission denied"), "{error}");
    assert!(error.to_string().ends_with("it is left in place"), "{error}");
    run.acknowledged();
    let status = run.checkpointing.status();
    assert_eq!((status.unread, status.set_aside, status.wrong), (1, 0, 0));
    run.end();
}

/// Checkpoints of these pods.
fn with_checkpoints(uids: &[&str]) -> Place {
    let place = Place::new();
    let mut run = Run::start(&place.directory(), Which::Annotated);
    run.apply(uids.iter().map(|uid| add(kept(uid, 1))));
    run.acknowledged();
    run.end();
    place
}

#[test]
fn a_read_only_file_system_gives_what_it_has_and_takes_what_is_new_when_it_can_be_written_to() {
    let place = with_checkpoints(&["old"]);
    let prepare = "mount --bind \"$D\" \"$D\" && mount -o remount,ro,bind \"$D\"";
    if in_own_mounts(prepare, "read-only", &place.directory()) {
        assert_eq!(place.names(), ["Pod_new.yaml"]);
    }
}

#[test]
fn a_full_file_system_keeps_what_it_has_and_takes_what_is_new_when_there_is_room() {
    let place = with_checkpoints(&[]);
    in_own_mounts("mount -t tmpfs -o size=64k none \"$D\"", "full", &place.directory());
}

/// Whether this is root, who can be two users.
#[cfg(unix)]
fn is_root(disk: &str, place: &Place) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_root = fs::metadata(&place.0).unwrap().uid() == 0;
    if !is_root {
        skip(disk, &"only root can be two users");
    }
    is_root
}

/// Starts the child as somebody who is not root; nothing if that one cannot run this binary.
#[cfg(unix)]
fn as_nobody(disk: &str, directory: &Path) -> Option<Child> {
    use std::os::unix::process::CommandExt;
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child_with_a_disk_that_says_no", "--nocapture"])
        .env(DISK, format!("{disk}\n{}", directory.display()))
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    child.map_err(|error| skip(disk, &error)).ok()
}

#[cfg(unix)]
fn set(path: &Path, owner: u32, mode: u32) {
    use std::os::unix::fs::{PermissionsExt, chown};
    chown(path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read_stays_and_its_pod_comes_back_once_it_may() {
    let place = with_checkpoints(&["bad", "good"]);
    if !is_root("unreadable", &place) {
        return;
    }
    set(&place.directory(), NOBODY, 0o700);
    set(&place.directory().join("Pod_good.yaml"), NOBODY, 0o600);
    let Some(child) = as_nobody("unreadable", &place.directory()) else { return };
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(place.names(), ["Pod_bad.yaml", "Pod_good.yaml"]);
    assert_eq!(restored(&place.directory()).into_keys().collect::<Vec<_>>(), ["bad", "good"]);
}

#[cfg(unix)]
#[test]
fn a_file_that_may_be_neither_read_nor_removed_goes_with_its_pod_once_it_can() {
    let place = with_checkpoints(&["bad", "good"]);
    if !is_root("forbidden", &place) {
        return;
    }
    set(&place.directory(), 0, 0o755);
    set(&place.directory().join("Pod_good.yaml"), 0, 0o644);
    let Some(mut child) = as_nobody("forbidden", &place.directory()) else { return };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said: Vec<_> = lines.by_ref().map(Result::unwrap).take_while(|line| line != "refused").collect();
    assert_eq!(place.names(), ["Pod_bad.yaml", "Pod_good.yaml"], "{said:?}");
    set(&place.directory(), NOBODY, 0o755);
    let said: Vec<_> = said.into_iter().chain(lines.map(Result::unwrap)).collect();
    assert!(child.wait().unwrap().success(), "{said:?}");
    assert_eq!(restored(&place.directory()).into_keys().collect::<Vec<_>>(), ["good", "new"]);
    assert_eq!(place.names(), ["Pod_good.yaml", "Pod_new.yaml"]);
}
