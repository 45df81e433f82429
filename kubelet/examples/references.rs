//! Holds the Secrets and `ConfigMaps` that a node's pods name, and prints their numbers when they change. Finds the API
//! server as kubectl does: `cargo run -p pod-index-kubelet --example references NODE`

use std::time::Duration;

use futures_util::StreamExt;
use kube::Client;
use pod_index::Operation;
use pod_index_kubelet::references::{ConfigMapManager, ManagerStatus, Options, SecretManager, follow};
use pod_index_kubelet::sources::api_server::{ApiServer, connect};
use pod_index_kubelet::sources::{NodeName, SourceUpdate};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = std::env::args().nth(1).ok_or("the name of a node is missing")?;
    run(connect(None).await?, &node, |secrets, config_maps| {
        println!(
            "{} of {} Secrets, {} of {} ConfigMaps",
            secrets.synced, secrets.objects, config_maps.synced, config_maps.objects
        );
    })
    .await;
    Ok(())
}

/// Follows the pods of `node` and what they name. Passes the state to `show` when it changes.
async fn run(client: Client, node: &str, mut show: impl FnMut(ManagerStatus, ManagerStatus)) {
    // Nothing asks for an object here, so no watch may end for lack of requests.
    let options = Options { idle: Duration::MAX, ..Options::default() };
    let secrets = SecretManager::new(client.clone(), options.clone());
    let config_maps = ConfigMapManager::new(client.clone(), options);
    let (mut writer, reader) = pod_index::new();
    let references = follow(reader.changes(), |changes| {
        secrets.apply(changes);
        config_maps.apply(changes);
    });
    let pods = async {
        let mut pods = ApiServer::new(client).node(&NodeName::new(node)).pods();
        while let Some(update) = pods.next().await {
            let _ = match update {
                SourceUpdate::Set(pods) => writer.set_pods(pods),
                SourceUpdate::Upsert(pods) | SourceUpdate::Incomplete(pods) => {
                    writer.apply(pods.into_iter().map(Operation::Upsert))
                }
                SourceUpdate::Remove(uids) => writer.apply(uids.into_iter().map(Operation::Remove)),
            };
        }
    };
    let shown = async {
        let mut last = None;
        loop {
            let state = (secrets.status(), config_maps.status());
            if last != Some(state) {
                show(state.0, state.1);
                last = Some(state);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        () = pods => {}
        () = references => {}
        () = shown => {}
    }
}

#[cfg(test)]
mod tests {
    use pod_index_test_support::api_server::ApiServer;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn what_the_nodes_pods_name_is_held() {
        let server = ApiServer::start().await;
        for (resource, name) in [("secrets", "a"), ("secrets", "b"), ("configmaps", "c")] {
            server.put(resource, &json!({ "metadata": { "namespace": "ns", "name": name } }));
        }
        let volumes = ["a", "b"].map(|name| json!({ "name": name, "secret": { "secretName": name } }));
        server.put("pods", &json!({
            "metadata": { "namespace": "ns", "name": "web" },
            "spec": {
                "nodeName": "node-1", "volumes": volumes,
                "containers": [{ "name": "c", "image": "i", "envFrom": [{ "configMapRef": { "name": "c" } }] }],
            },
        }));
        let (shown, mut states) = tokio::sync::mpsc::unbounded_channel();
        let client = server.client();
        let run = run(client, "node-1", move |secrets, config_maps| {
            let _ = shown.send([secrets, config_maps].map(|status| (status.objects, status.synced)));
        });
        let all_are_held = async { while states.recv().await != Some([(2, 2), (1, 1)]) {} };
        tokio::select! {
            () = run => panic!("it ended"),
            held = tokio::time::timeout(Duration::from_secs(60), all_are_held) => held.expect("held within a minute"),
        }
    }
}
