//! The API server source and the mirror client against a real cluster. Ignored by default.
//!
//! To list and watch the pods of all namespaces, without writing:
//!
//! ```text
//! KUBECONFIG=~/.kube/config cargo test -p pod-index-kubelet --test kubelet real_cluster::the_index -- --ignored
//! ```
//!
//! To manage the mirror pods of a node that is registered for the test and deleted afterwards, in the namespace
//! `default`. Nothing else is changed, but use a test cluster:
//!
//! ```text
//! KUBECONFIG=~/.kube/config cargo test -p pod-index-kubelet --test kubelet real_cluster::mirrors -- --ignored
//! ```

use crate::followed;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use followed::Followed;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use pod_index::{Operation, PodMeta, Reader};
use pod_index_kubelet::mirror::{
    KubeMirrorClient, Kubelet, KubeletWatch, MirrorState, Mirrors, MirrorsStatus,
};
use pod_index_kubelet::sources::api_server::{ApiServer, connect};
use pod_index_kubelet::sources::manifest::{self, Origin};
use pod_index_kubelet::sources::{NodeName, SourceUpdate};
use tokio::sync::{mpsc, watch};

/// Long enough for any cluster.
const PATIENCE: Duration = Duration::from_secs(120);

/// UID and version of each pod.
fn indexed(reader: &Reader<Pod>) -> BTreeMap<String, Option<String>> {
    let snapshot = reader.snapshot();
    let pods = snapshot.pods().chain(snapshot.mirror_pods());
    pods.map(|pod| (pod.uid().to_owned(), pod.metadata.resource_version.clone())).collect()
}

#[tokio::test]
#[ignore = "needs a cluster and a kubeconfig"]
async fn the_index_holds_what_a_real_cluster_holds() {
    let client = connect(None).await.expect("a kubeconfig, or a service account");
    let api: Api<Pod> = Api::all(client.clone());
    let followed = Followed::whole(ApiServer::new(client).pods());
    // A busy cluster changes all the time, so it is enough that both agree once.
    let compare = async {
        loop {
            let list = api.list(&ListParams::default()).await.expect("a list");
            let truth = list.items.iter();
            let truth = truth.map(|pod| (pod.uid().to_owned(), pod.metadata.resource_version.clone()));
            let truth: BTreeMap<_, _> = truth.collect();
            for _ in 0..20 {
                if indexed(&followed.reader) == truth {
                    return truth.len();
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    let pods = tokio::time::timeout(PATIENCE, compare).await.expect("a moment of agreement");
    println!("the index and the cluster agree on {pods} pods");
    assert!(pods > 0, "a cluster without pods shows nothing");
}

fn static_pod(name: &str, image: &str, node: &NodeName) -> Pod {
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: {image}}}]}}}}"
    );
    let decoded = manifest::decode(text.as_bytes(), Origin::File(Path::new("/manifests/pod.yaml")), node);
    decoded.pods.into_iter().next().expect("a static pod")
}

async fn until(
    status: &mut watch::Receiver<MirrorsStatus>,
    what: &str,
    holds: impl FnMut(&MirrorsStatus) -> bool,
) {
    let came = tokio::time::timeout(PATIENCE, status.wait_for(holds)).await;
    let came = came.is_ok_and(|status| status.is_ok());
    assert!(came, "never came: {what}; {:?}", *status.borrow());
}

#[tokio::test]
#[ignore = "needs a cluster, and creates a node and pods in it"]
async fn mirrors_are_created_replaced_and_deleted_on_a_real_cluster() {
    let client = connect(None).await.expect("a kubeconfig, or a service account");
    let node = NodeName::new(&format!("pod-index-test-{}", std::process::id()));
    let nodes: Api<Node> = Api::all(client.clone());
    let mut object = Node::default();
    object.metadata.name = Some(node.as_str().to_owned());
    nodes.create(&PostParams::default(), &object).await.expect("a node");
    let done = tokio::spawn(mirrors(client, node.clone())).await;
    // Delete the node even if the test failed. This also deletes the mirror pods, which it owns.
    nodes.delete(node.as_str(), &DeleteParams::default()).await.expect("the node deleted");
    done.expect("see above");
}

async fn mirrors(client: kube::Client, node: NodeName) {
    let mut kubelet = KubeletWatch::new(client.clone(), node.as_str());
    assert_eq!(kubelet.look().await.expect("the lease"), Kubelet::Absent);

    let (mut writer, reader) = pod_index::new();
    let (sender, mut changes) = mpsc::unbounded_channel::<Vec<Operation<Pod>>>();
    let mirrors = Mirrors::new(KubeMirrorClient::new(client.clone(), node.as_str()));
    let mut status = mirrors.status();
    let (_seen, seen) = watch::channel(true);
    let keep = tokio::spawn(mirrors.run(reader.clone(), seen));
    let mut pods = ApiServer::new(client.clone()).node(&node).pods();
    let feed = tokio::spawn(async move {
        loop {
            let operations: Vec<_> = tokio::select! {
                Some(update) = pods.next() => match update {
                    SourceUpdate::Set(pods) | SourceUpdate::Incomplete(pods) | SourceUpdate::Upsert(pods) => pods.into_iter().map(Operation::Upsert).collect(),
                    SourceUpdate::Remove(uids) => uids.into_iter().map(Operation::Remove).collect(),
                },
                Some(operations) = changes.recv() => operations,
            };
            assert_eq!(writer.apply(operations).refused, []);
        }
    });
    let has = |pods: Vec<Operation<Pod>>| sender.send(pods).expect("the index");
    let in_sync = |count: usize| {
        move |status: &MirrorsStatus| {
            status.pods.len() == count && status.pods.iter().all(|pod| pod.state == MirrorState::InSync)
        }
    };

    let first = static_pod("web", "nginx:1", &node);
    has(vec![
        Operation::Upsert(first.clone().into()),
        Operation::Upsert(static_pod("etcd", "etcd:1", &node).into()),
    ]);
    until(&mut status, "two mirrors", in_sync(2)).await;
    let second = static_pod("web", "nginx:2", &node);
    has(vec![Operation::Remove(first.uid().into()), Operation::Upsert(second.clone().into())]);
    until(&mut status, "a replaced mirror", |status| status.deleted == 1 && in_sync(2)(status)).await;
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let mirror = api.get(second.name()).await.expect("the mirror");
    assert!(pod_index::is_mirror_pod_of(&mirror, &second));
    has(vec![Operation::Remove(second.uid().into())]);
    until(&mut status, "one mirror", |status| status.deleted == 2 && in_sync(1)(status)).await;
    has(vec![Operation::Remove(static_pod("etcd", "etcd:1", &node).uid().into())]);
    until(&mut status, "no mirror", |status| status.pods.is_empty()).await;
    assert_eq!(status.borrow().failed, 0);
    keep.abort();
    feed.abort();
}
