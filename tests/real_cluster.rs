//! The API-server source against a real cluster. Off unless asked for:
//!
//! ```text
//! KUBECONFIG=~/.kube/config cargo test --features kube --test real_cluster -- --ignored
//! ```
//!
//! It needs to list and watch the pods of all namespaces, and writes nothing.
#![cfg(feature = "kube")]

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use pod_index::sources::SourceUpdate;
use pod_index::sources::api_server::{ApiServer, connect};
use pod_index::{Operation, PodMeta, Reader, Writer};

fn apply(writer: &mut Writer<Pod>, update: SourceUpdate<Pod>) {
    let applied = match update {
        SourceUpdate::Set(pods) => writer.set_pods(pods),
        SourceUpdate::Upsert(pods) => writer.apply(pods.into_iter().map(Operation::Update)),
        SourceUpdate::Remove(uids) => writer.apply(uids.into_iter().map(Operation::Remove)),
    };
    assert_eq!(applied.refused, []);
}

/// UID and version of each pod.
fn indexed(reader: &Reader<Pod>) -> BTreeMap<String, Option<String>> {
    let snapshot = reader.snapshot();
    let pods = snapshot.pods().into_iter().chain(&snapshot.mirror_pods());
    pods.map(|pod| (pod.uid().to_owned(), pod.metadata.resource_version.clone())).collect()
}

#[tokio::test]
#[ignore = "needs a cluster and a kubeconfig"]
async fn the_index_holds_what_a_real_cluster_holds() {
    let client = connect(None).await.expect("a kubeconfig, or a service account");
    let api: Api<Pod> = Api::all(client.clone());
    let (mut writer, reader) = pod_index::new();
    let mut pods = ApiServer::new(client).pods();
    let follow = async {
        while let Some(update) = pods.next().await {
            apply(&mut writer, update);
        }
    };
    // A busy cluster changes between the two looks: one moment of agreement is what is asked for.
    let compare = async {
        loop {
            let list = api.list(&ListParams::default()).await.expect("a list");
            let truth = list.items.iter();
            let truth = truth.map(|pod| (pod.uid().to_owned(), pod.metadata.resource_version.clone()));
            let truth: BTreeMap<_, _> = truth.collect();
            for _ in 0..20 {
                if indexed(&reader) == truth {
                    return truth.len();
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    let agreed = async {
        tokio::select! {
            () = follow => unreachable!("the source has no end"),
            pods = compare => pods,
        }
    };
    let pods = tokio::time::timeout(Duration::from_secs(120), agreed).await.expect("a moment of agreement");
    println!("the index and the cluster agree on {pods} pods");
}
