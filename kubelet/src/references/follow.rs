//! Brings an index's changes to whoever registers pods.

use pod_index::{Change, Changes, PodMeta};

/// Passes every pod of the index to `apply`, and from then on what has changed. Ends when the index's writer is gone.
///
/// Spawn it as a task of its own. It never keeps the writer waiting: while it is busy, changes add up to one difference.
///
/// # Examples
/// ```no_run
/// use pod_index_kubelet::references::{ConfigMapManager, Options, SecretManager, follow};
///
/// # async fn run(client: kube::Client, reader: pod_index::Reader<k8s_openapi::api::core::v1::Pod>) {
/// let secrets = SecretManager::new(client.clone(), Options::default());
/// let config_maps = ConfigMapManager::new(client, Options::default());
/// follow(reader.changes(), |changes| {
///     secrets.apply(changes);
///     config_maps.apply(changes);
/// })
/// .await;
/// # }
/// ```
///
/// # Complexity
/// As [`Step::changes`](pod_index::Step::changes), for each step.
pub async fn follow<P: PodMeta>(mut changes: Changes<P>, mut apply: impl FnMut(&[Change<'_, P>])) {
    while let Some(step) = changes.next().await {
        let changes = step.changes();
        if !changes.is_empty() {
            apply(&changes);
        }
    }
}
