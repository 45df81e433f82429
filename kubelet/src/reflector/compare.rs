//! Compares the versions held here with the server's, after a watch was cut off.

use std::collections::HashSet;
use std::time::Instant;

use pod_index::PodUid;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time;

use super::Times;
use super::encoded::Identity;
use super::failure::Failure;
use super::request::{ANY_VERSION, Requests};
use super::version::Versions;
use crate::backoff::jitter;

/// What the server lists.
pub(super) struct Listed {
    /// When it was requested.
    pub(super) asked: Instant,
    /// The server's version.
    pub(super) version: u64,
    pub(super) objects: Versions,
}

/// A running comparison and the events received meanwhile.
pub(super) struct Comparison {
    listed: oneshot::Receiver<Listed>,
    /// Runs the comparison: nobody polls a `Comparison` while a watch is opened. Dropping this ends it.
    _task: JoinSet<()>,
    /// The version from which the watch continued.
    pub(super) resumed_from: u64,
    /// Objects with events since the watch continued. They need no comparison.
    pub(super) changed: HashSet<PodUid>,
}

/// Waits for the comparison's end; forever if there is none.
pub(super) async fn finished(comparison: &mut Option<Comparison>) -> Listed {
    if let Some(Comparison { listed, .. }) = comparison {
        match listed.await {
            Ok(listed) => return listed,
            // The task has panicked, or its runtime ends: there is nothing to compare with.
            Err(_) => *comparison = None,
        }
    }
    std::future::pending().await
}

impl Comparison {
    /// Compares with the server's cache after a while, random because all agents of a cluster notice a server's restart at
    /// the same time.
    pub(super) fn begin(requests: &Requests, times: &Times, resumed_from: u64) -> Self {
        let requests = Requests { is_metadata: true, accepts_protobuf: false, ..requests.clone() };
        let times = *times;
        let (finished, listed) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                time::sleep(times.compare_after.mul_f64(jitter())).await;
                match list(&requests, &times).await {
                    Ok(listed) => {
                        // The list may show changes that the watch has not sent yet.
                        time::sleep(times.compare_after / 4).await;
                        // Without a receiver, the comparison is not wanted any more.
                        let _ = finished.send(listed);
                        return;
                    }
                    Err(failure) => tracing::debug!("cannot be compared yet: {}", failure.message),
                }
            }
        });
        Self { listed, _task: task, resumed_from, changed: HashSet::new() }
    }
}

async fn list(requests: &Requests, times: &Times) -> Result<Listed, Failure> {
    let asked = Instant::now();
    let mut objects = Versions::new();
    let version = requests.list(Some(ANY_VERSION), times.patience, |object| {
        let Identity { uid, version, .. } = object.identity()?;
        objects.insert(uid, version);
        Ok(())
    });
    let version = version.await?;
    Ok(Listed { asked, version, objects })
}

/// The number of objects that differ: held here and not listed, listed and not held here, or of another version.
pub(super) fn differing(held: &Versions, listed: &Versions, changed: &HashSet<PodUid>) -> usize {
    let uids: HashSet<_> = held.keys().chain(listed.keys()).collect();
    uids.into_iter().filter(|uid| !changed.contains(*uid) && held.get(uid) != listed.get(uid)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects<const N: usize>(objects: [(&str, u64); N]) -> Versions {
        objects.into_iter().map(|(uid, version)| (PodUid::from(uid), Some(version))).collect()
    }

    #[test]
    fn all_objects_without_later_events_are_compared() {
        let held = objects([("same", 1), ("ghost", 2), ("newer", 5), ("told", 9)]);
        let listed = objects([("same", 1), ("newer", 4), ("missed", 3), ("told", 8), ("told-and-gone", 8)]);
        let changed = ["told", "told-and-gone"].map(PodUid::from).into();
        assert_eq!(differing(&held, &listed, &changed), 3);
        assert_eq!(differing(&held, &held, &HashSet::new()), 0);
    }
}
