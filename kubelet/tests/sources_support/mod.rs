//! Shared by the tests of the sources.
#![allow(dead_code, unreachable_pub, reason = "no test uses everything")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_kubelet::sources::{Problem, SourceStatus, SourceUpdate, Updates};
pub use pod_index_test_support::files::Directory;

/// Only a hang takes this long.
pub const DEADLINE: Duration = Duration::from_secs(300);

pub fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - {{name: c, image: i}}\n"
    )
}

/// The source's next update.
pub async fn update(source: &mut Updates<Pod>) -> SourceUpdate<Pod> {
    let update = tokio::time::timeout(DEADLINE, source.next()).await.expect("an update in time");
    update.expect("an endless stream")
}

/// The source's next set of pods.
pub async fn next(source: &mut Updates<Pod>) -> Vec<Arc<Pod>> {
    let update = update(source).await;
    let SourceUpdate::Set(pods) = update else { panic!("{update:?} is not a set") };
    pods
}

/// The next set of a kubelet, whose lists may be incomplete before it.
pub async fn next_complete(source: &mut Updates<Pod>) -> Vec<Arc<Pod>> {
    loop {
        match update(source).await {
            SourceUpdate::Incomplete(_) => {}
            SourceUpdate::Set(pods) => return pods,
            other => panic!("{other:?} is not a set"),
        }
    }
}

/// Polls until the source's status is as wanted; no update may come.
pub async fn until_status(
    source: &mut Updates<Pod>,
    wanted: impl FnMut(&SourceStatus) -> bool,
) -> SourceStatus {
    let mut status = source.status();
    let status = tokio::select! {
        update = source.next() => panic!("an update where none was due: {update:?}"),
        status = tokio::time::timeout(DEADLINE, status.wait_for(wanted)) => {
            status.expect("that status in time").expect("a living source").clone()
        }
    };
    status
}

/// The source's problem while it emits nothing.
pub async fn problem(source: &mut Updates<Pod>) -> Problem {
    until_status(source, |status| !status.problems.is_empty()).await.problems.remove(0)
}

pub fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name()).collect()
}
