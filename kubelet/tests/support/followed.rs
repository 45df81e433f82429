//! An index that follows an API server, with checks at each step.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{Operation, PodMeta, Reader};
use pod_index_kubelet::sources::{SourceStatus, SourceUpdate, Updates};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use pod_index_test_support::api_server::{ApiServer, DEADLINE};

/// The source's updates, abbreviated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    Set(usize),
    Upsert(usize),
    Remove(usize),
}

/// A source whose updates go to a writer, one publication each.
pub struct Followed<P = Pod> {
    pub reader: Reader<P>,
    pub status: watch::Receiver<SourceStatus>,
    said: Arc<Mutex<Vec<Said>>>,
    steps: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

/// The version of this pod.
pub type Version = (String, Option<String>);

/// Pods whose names start with this exist on the server throughout and must never be missing.
pub const STAYS: &str = "stays";

impl<P: PodMeta + Send + Sync + 'static> Followed<P> {
    /// `version` identifies versions of a pod; `None` if it cannot.
    pub fn new(mut source: Updates<P>, version: fn(&P) -> Option<Version>) -> Self {
        let (mut writer, reader) = pod_index::new();
        let status = source.status();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (stepped, steps) = watch::channel(0);
        let log = Arc::clone(&said);
        let task = tokio::spawn(async move {
            let mut versions: HashSet<Version> = HashSet::new();
            let mut staying: HashSet<String> = HashSet::new();
            while let Some(update) = source.next().await {
                let (short, applied) = match update {
                    SourceUpdate::Set(pods) => {
                        versions = pods.iter().filter_map(|pod| version(pod)).collect();
                        (Said::Set(pods.len()), writer.set_pods(pods))
                    }
                    SourceUpdate::Incomplete(_) => panic!("an API server's list is complete"),
                    SourceUpdate::Upsert(pods) => {
                        for version in pods.iter().filter_map(|pod| version(pod)) {
                            assert!(versions.insert(version.clone()), "reported twice: {version:?}");
                        }
                        let operations = pods.iter().map(|pod| Operation::Upsert(Arc::clone(pod)));
                        (Said::Upsert(pods.len()), writer.apply(operations))
                    }
                    SourceUpdate::Remove(uids) => {
                        (Said::Remove(uids.len()), writer.apply(uids.into_iter().map(Operation::Remove)))
                    }
                };
                assert_eq!(applied.refused, []);
                let snapshot = writer.current();
                for uid in &staying {
                    assert!(snapshot.pod_by_uid(uid).is_some(), "a pod was missing for a moment: {short:?}");
                }
                let stays = snapshot.pods().filter(|pod| pod.name().starts_with(STAYS));
                staying.extend(stays.map(|pod| pod.uid().to_owned()));
                log.lock().unwrap().push(short);
                stepped.send_modify(|steps| *steps += 1);
            }
        });
        Self { reader, status, said, steps, task }
    }

    pub fn said(&self) -> Vec<Said> {
        self.said.lock().unwrap().clone()
    }

    /// Waits until the index satisfies this.
    pub async fn until(&mut self, what: &str, mut holds: impl FnMut(&pod_index::Snapshot<P>) -> bool) {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            self.steps.borrow_and_update();
            if holds(&self.reader.load()) {
                return;
            }
            let step = tokio::time::timeout_at(deadline, self.steps.changed()).await;
            let came = step.is_ok_and(|step| step.is_ok());
            assert!(came, "never came: {what}; said {:?}; {:?}", self.said(), *self.status.borrow());
        }
    }

    /// Waits until the status satisfies this.
    pub async fn until_status(&mut self, what: &str, holds: impl FnMut(&SourceStatus) -> bool) {
        let found = tokio::time::timeout(DEADLINE, self.status.wait_for(holds)).await;
        let found = found.is_ok_and(|status| status.is_ok());
        assert!(found, "never came: {what}; {:?}", *self.status.borrow());
    }
}

impl Followed<Pod> {
    pub fn whole(source: Updates<Pod>) -> Self {
        Self::new(source, |pod| Some((pod.uid().to_owned(), pod.metadata.resource_version.clone())))
    }

    /// Waits until the index equals the server's pods, in every field.
    pub async fn equals(&mut self, server: &ApiServer, is_followed: impl Fn(&Pod) -> bool) {
        let truth = truth(server, is_followed);
        self.until("the server's pods", |snapshot| {
            let (pods, mirror_pods) = (snapshot.pods(), snapshot.mirror_pods());
            pods.len() + mirror_pods.len() == truth.len()
                && pods.chain(mirror_pods).all(|pod| truth.get(pod.uid()) == Some(&**pod))
        })
        .await;
    }
}

impl<P> Drop for Followed<P> {
    /// Problems that the task finds after the last wait fail the test too. The source never ends by itself.
    fn drop(&mut self) {
        let found_wrong = self.task.is_finished();
        self.task.abort();
        assert!(!found_wrong || std::thread::panicking(), "an update was wrong: see the panic above");
    }
}

/// The server's pods, by UID.
pub fn truth(server: &ApiServer, is_followed: impl Fn(&Pod) -> bool) -> BTreeMap<String, Pod> {
    let pods = server.objects("pods").into_iter().map(|pod| serde_json::from_value::<Pod>(pod).unwrap());
    pods.filter(|pod| is_followed(pod)).map(|pod| (pod.uid().to_owned(), pod)).collect()
}
