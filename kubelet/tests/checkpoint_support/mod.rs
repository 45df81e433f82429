//! Shared by the checkpoint tests: a directory, pods, and an index with checkpoints.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Operation, PodMeta, Writer};
use pod_index_kubelet::checkpoint::{
    CHECKPOINT_ANNOTATION, CheckpointError, CheckpointErrorKind, Checkpointing, Checkpoints, Restored, Which,
    is_restored,
};
use pod_index_test_support::files::{self, Directory};

pub const PATIENCE: Duration = Duration::from_secs(300);

/// A temporary directory.
pub struct Place(pub Directory);

impl Place {
    pub fn new() -> Self {
        Self(Directory::new())
    }

    pub fn directory(&self) -> PathBuf {
        self.0.at("checkpoints")
    }

    pub fn names(&self) -> Vec<String> {
        files::names(&self.directory())
    }

    pub fn open(&self) -> (Checkpoints, Restored) {
        open(&self.directory(), Which::Annotated)
    }

    pub fn run(&self) -> Run {
        Run::start(&self.directory(), Which::Annotated)
    }

    /// A run that keeps these pods and ends.
    pub fn holds(&self, pods: impl IntoIterator<Item = Pod>) {
        let mut run = self.run();
        run.keeps(pods.into_iter().map(add));
        run.end();
    }

    /// The pods that a start finds. They must be complete, without errors.
    pub fn restored(&self) -> BTreeMap<String, Pod> {
        let (_checkpoints, restored) = self.open();
        assert_eq!(restored.errors, []);
        unmarked(&restored)
    }
}

/// A version of a pod. Its size depends on the version, so that a mixture of two is visible.
pub fn pod(uid: &str, version: u64, kept: Option<&str>) -> Pod {
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

pub fn annotate(pod: &mut Pod, key: &str, value: &str) {
    pod.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

pub fn kept(uid: &str, version: u64) -> Pod {
    pod(uid, version, Some("true"))
}

/// Opens the directory. If another test of this process is starting a child, that child may hold a lock that
/// was just released.
pub fn open(directory: &Path, which: Which) -> (Checkpoints, Restored) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Checkpoints::open(directory, which) {
            Err(error) if error.kind == CheckpointErrorKind::Locked && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// An index with checkpoints, as in an agent.
pub struct Run {
    pub writer: Writer<Pod>,
    pub restored: Restored,
    pub checkpointing: Checkpointing,
}

impl Run {
    pub fn start(directory: &Path, which: Which) -> Self {
        let (checkpoints, restored) = open(directory, which);
        let (mut writer, reader) = pod_index::new();
        assert_eq!(writer.apply(restored.operations()).refused, []);
        let checkpointing = checkpoints.keep(reader).unwrap();
        Self { writer, restored, checkpointing }
    }

    pub fn apply(&mut self, operations: impl IntoIterator<Item = Operation<Pod>>) {
        assert_eq!(self.writer.apply(operations).refused, []);
    }

    /// Applies, and waits until the files are on disk.
    pub fn keeps(&mut self, operations: impl IntoIterator<Item = Operation<Pod>>) {
        self.apply(operations);
        self.acknowledged();
    }

    pub fn acknowledged(&self) {
        block_on(self.checkpointing.wait_for(self.writer.current().generation(), PATIENCE)).unwrap();
    }

    /// Ends like a killed process: nothing more is written.
    pub fn end(self) -> Writer<Pod> {
        block_on(self.checkpointing.finish(PATIENCE)).unwrap();
        self.writer
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

pub fn add(pod: Pod) -> Operation<Pod> {
    Operation::Upsert(pod.into())
}

pub fn unmarked(restored: &Restored) -> BTreeMap<String, Pod> {
    let unmarked = |pod: &std::sync::Arc<Pod>| {
        assert!(is_restored(&**pod));
        let mut pod = Pod::clone(pod);
        pod.metadata.annotations.as_mut().unwrap().remove(pod_index_kubelet::checkpoint::RESTORED_ANNOTATION);
        (pod.uid().to_owned(), pod)
    };
    restored.pods.iter().map(unmarked).collect()
}

/// The first error that was not there before.
pub fn refused(run: &Run) -> CheckpointError {
    let generation = run.writer.current().generation();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let late = block_on(run.checkpointing.wait_for(generation, Duration::from_millis(1))).unwrap_err();
        if late.kind != CheckpointErrorKind::Late {
            return late;
        }
        assert!(Instant::now() < deadline, "{late}");
    }
}
