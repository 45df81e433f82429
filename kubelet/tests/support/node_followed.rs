//! A server with pods of two nodes, and an index that follows one of them.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::Pauses;
use pod_index_kubelet::api_client::{ApiClient, ConnectionOptions, Silences};
use pod_index_kubelet::protobuf::encode_pod;
use pod_index_kubelet::protobuf::message::put;
use pod_index_kubelet::sources::NodeName;
use pod_index_kubelet::sources::api_server::{ApiServer as Source, Times};
use serde_json::{Value, json};

use crate::followed::{Followed, STAYS};
use pod_index_test_support::api_server::{ApiServer, DEADLINE};
use pod_index_test_support::proxy::Proxy;

pub const QUICK: Duration = Duration::from_millis(20);

pub fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "a", "name": name, "labels": { "app": name } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    })
}

/// A pod in protobuf. Of one that no type can hold, the first container's `stdin`, which is no text, is a text.
pub fn encoded(pod: &Value) -> Vec<u8> {
    if let Ok(pod) = serde_json::from_value::<Pod>(pod.clone()) {
        return encode_pod(&pod);
    }
    let metadata = serde_json::from_value(json!({ "metadata": pod["metadata"] })).unwrap();
    let [mut container, mut spec] = [Vec::new(), Vec::new()];
    put(&mut container, 16, pod["spec"]["containers"][0]["stdin"].as_str().unwrap().as_bytes());
    put(&mut spec, 2, &container);
    let mut encoded = encode_pod(&metadata);
    put(&mut encoded, 2, &spec);
    encoded
}

/// A later version of a pod.
pub fn changed(name: &str, version: u64) -> Value {
    let mut pod = pod(name, "n1");
    pod["spec"]["containers"][0]["image"] = json!(format!("i:{version}"));
    pod
}

/// Short waits, and no comparison during a test: most tests count lists.
pub fn quick() -> Times {
    Times {
        backoff: Pauses::new(QUICK, 4 * QUICK),
        compare_after: 10 * DEADLINE,
        http1_watch: 10 * DEADLINE,
        ..Times::default()
    }
}

pub fn source(server: &ApiServer) -> Source {
    Source { times: quick(), ..Source::new(server.client()) }
}

/// A client through this proxy, as the agent has it: a watch that is dropped after a silence takes its connection along, and
/// with it the idle ones.
pub async fn client_through(proxy: &Proxy) -> kube::Client {
    let config = kube::Config::new(format!("http://127.0.0.1:{}", proxy.port()).parse().unwrap());
    let silences = Silences { request: QUICK, answer: QUICK, http1_answer: QUICK };
    let options = ConnectionOptions { silences, ..ConnectionOptions::default() };
    ApiClient::new(config, "test", &options).await.unwrap().client()
}

pub fn of_n1(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("n1")
}

/// A server with three lasting pods and one of another node, and an index that follows it and has them.
pub async fn followed() -> (ApiServer, Followed) {
    followed_of(ApiServer::start().await).await
}

/// The same with a server that speaks protobuf.
pub async fn followed_in_protobuf() -> (ApiServer, Followed) {
    let server = ApiServer::start().await;
    server.speak_protobuf(encoded);
    followed_of(server).await
}

async fn followed_of(server: ApiServer) -> (ApiServer, Followed) {
    for number in 0..3 {
        server.put("pods", &pod(&format!("{STAYS}-{number}"), "n1"));
    }
    server.put("pods", &pod("elsewhere", "n2"));
    let followed = follow(&server).await;
    (server, followed)
}

pub async fn follow(server: &ApiServer) -> Followed {
    follow_with(server, source(server)).await
}

pub async fn follow_with(server: &ApiServer, source: Source) -> Followed {
    let mut followed = Followed::whole(source.node(&NodeName::new("n1")).pods());
    followed.equals(server, of_n1).await;
    // The server has answered, and the source has the answer.
    server.watched_by(1).await;
    followed.until_status("a watch", |status| status.checks > 0).await;
    followed
}

/// Checks that the source works: a change made now arrives.
pub async fn follows_on(server: &ApiServer, followed: &mut Followed) {
    server.put("pods", &changed("last", 1));
    followed.equals(server, of_n1).await;
    followed.until_status("problem solved", |status| status.problems.is_empty()).await;
}
