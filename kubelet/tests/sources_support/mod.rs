//! Shared by the tests of the sources.
#![allow(dead_code, unreachable_pub, reason = "no test uses everything")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_kubelet::sources::{SourceStatus, SourceUpdate};
pub use pod_index_test_support::files::Directory;
use tokio::sync::watch;

/// Only a hang takes this long.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - {{name: c, image: i}}\n"
    )
}

/// The source's next set of pods.
pub async fn next(source: &mut (impl Stream<Item = SourceUpdate<Pod>> + Unpin)) -> Vec<Arc<Pod>> {
    let update = tokio::time::timeout(DEADLINE, source.next()).await.expect("an update in time");
    let Some(SourceUpdate::Set(pods)) = update else { panic!("{update:?} is not a set") };
    pods
}

/// Polls until the source's status is as wanted; no update may come.
pub async fn until(
    source: &mut (impl Stream<Item = SourceUpdate<Pod>> + Unpin),
    mut status: watch::Receiver<SourceStatus>,
    wanted: impl FnMut(&SourceStatus) -> bool,
) -> SourceStatus {
    let status = tokio::select! {
        update = source.next() => panic!("an update where none was due: {update:?}"),
        status = tokio::time::timeout(DEADLINE, status.wait_for(wanted)) => {
            status.expect("that status in time").expect("a living source").clone()
        }
    };
    status
}

pub fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name()).collect()
}
