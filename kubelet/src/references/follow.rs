//! Forwards an index's changes to code that registers pods.

use pod_index::{Change, Changes, PodMeta};

/// Passes every pod of the index to `apply`, then all changes. Ends when the index's writer is dropped.
///
/// Spawn it as a separate task. It never delays the writer: changes during a call of `apply` are merged into
/// one difference.
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
/// That of [`Step::changes`](pod_index::Step::changes), for each step.
pub async fn follow<P: PodMeta>(mut changes: Changes<P>, mut apply: impl FnMut(&[Change<'_, P>])) {
    while let Some(step) = changes.next().await {
        let changes = step.changes();
        if !changes.is_empty() {
            apply(&changes);
        }
    }
}
