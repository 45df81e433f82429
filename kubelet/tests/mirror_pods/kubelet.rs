//! Detection of a kubelet on the node.

use pod_index_kubelet::mirror::{Kubelet, KubeletWatch};
use serde_json::{Value, json};

use crate::api_server::{DEADLINE, Fault, Verb};
use crate::support::{NODE, server};

fn lease(renewed: &str, seconds: u64) -> Value {
    json!({
        "metadata": { "namespace": "kube-node-lease", "name": NODE },
        "spec": { "holderIdentity": NODE, "leaseDurationSeconds": seconds, "renewTime": renewed },
    })
}

/// Looks until the result is clear.
async fn kubelet(watch: &mut KubeletWatch) -> Kubelet {
    let look = async {
        loop {
            match watch.look().await.unwrap() {
                Kubelet::Unclear(pause) => tokio::time::sleep(pause).await,
                clear => return clear,
            }
        }
    };
    tokio::time::timeout(DEADLINE, look).await.expect("it becomes clear")
}

#[tokio::test]
async fn a_kubelet_that_renews_its_lease_is_seen() {
    let server = server().await;
    let mut watch = KubeletWatch::new(server.client(), NODE);
    assert_eq!(watch.look().await.unwrap(), Kubelet::Absent, "no lease");
    server.put("leases", &lease("2026-01-01T00:00:00.000000Z", 40));
    assert!(matches!(watch.look().await.unwrap(), Kubelet::Live(_)), "one came");
    server.fail(Verb::Get, Fault::Status(403));
    assert!(watch.look().await.is_err());
    server.put("leases", &lease("2026-01-01T00:00:10.000000Z", 40));
    assert!(matches!(watch.look().await.unwrap(), Kubelet::Live(_)), "it is renewed");
}

/// The node's clock may be wrong in either direction. Only renewals that the agent observes matter.
#[tokio::test]
async fn a_clock_that_is_wrong_neither_hides_a_kubelet_nor_invents_one_for_good() {
    let server = server().await;
    for renewed in ["2020-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        server.put("leases", &lease(renewed, 1));
        let mut watch = KubeletWatch::new(server.client(), NODE);
        assert!(matches!(watch.look().await.unwrap(), Kubelet::Unclear(_)), "will it be renewed?");
        assert_eq!(kubelet(&mut watch).await, Kubelet::Absent, "it was not");
        server.put("leases", &lease("2026-01-01T00:00:10.000000Z", 1));
        assert!(matches!(watch.look().await.unwrap(), Kubelet::Live(_)), "and now it is");
    }
}
