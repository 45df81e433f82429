//! From snapshots to what has changed between them, at the follower's own pace.

use futures_util::{Stream, StreamExt};

use pod_index::{Change, PodMeta, Reader};

/// Tells `apply` of every pod of the index, and from then on, whenever `news` has an item, of what has changed since the
/// last time. Ends when `news` does.
///
/// Spawn it as a task of its own. It never keeps the writer waiting: it compares snapshots, and while it is busy, changes
/// add up to one difference.
///
/// # Examples
/// ```no_run
/// use pod_index_kubelet::references::{ConfigMapManager, Options, SecretManager, follow};
///
/// # async fn run(client: kube::Client, reader: pod_index::Reader<k8s_openapi::api::core::v1::Pod>,
/// #     news: futures_util::stream::Pending<()>) {
/// let secrets = SecretManager::new(client.clone(), Options::default());
/// let config_maps = ConfigMapManager::new(client, Options::default());
/// follow(reader, news, |changes| {
///     secrets.apply(changes);
///     config_maps.apply(changes);
/// })
/// .await;
/// # }
/// ```
///
/// # Complexity
/// O(changes · log n) for each item; see [`Snapshot::changes_since`](pod_index::Snapshot::changes_since). It keeps the snapshot
/// it saw last.
pub async fn follow<P: PodMeta>(
    reader: Reader<P>,
    news: impl Stream<Item = ()>,
    mut apply: impl FnMut(&[Change<'_, P>]),
) {
    let mut news = std::pin::pin!(news);
    let mut seen = reader.snapshot();
    let all: Vec<_> = seen.pods().iter().chain(seen.mirror_pods().iter()).map(Change::Added).collect();
    apply(&all);
    drop(all);
    while news.next().await.is_some() {
        let now = reader.snapshot();
        let changes = now.changes_since(&seen);
        if !changes.is_empty() {
            apply(&changes);
        }
        drop(changes);
        seen = now;
    }
}
