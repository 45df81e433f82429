//! Tests of the API server double, over HTTP, with the client that the source uses.

mod faults;
mod lists;
mod nodes;
mod watches;
mod writes;

use pod_index_test_support::api_server;

use std::time::Duration;

use api_server::{ApiServer, DEADLINE, Fault, Verb};
use futures_util::{Stream, StreamExt};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{
    Api, DeleteParams, ListParams, PartialObjectMeta, PostParams, Preconditions, WatchEvent, WatchParams,
};
use pod_index_test_support::proxy::{Forwards, Proxy};
use serde_json::{Value, json};

fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "app": name } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    })
}

fn typed(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        other => panic!("not refused: {other:?}"),
    }
}

fn names(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
}

type Events = std::pin::Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Pod>>> + Send>>;

async fn watch(api: &Api<Pod>, from: &str, params: &WatchParams) -> Events {
    api.watch(params, from).await.unwrap().boxed()
}

/// The next event, abbreviated: its kind and its object.
async fn next(events: &mut Events) -> String {
    let event = tokio::time::timeout(DEADLINE, events.next()).await.expect("an event");
    match event {
        None => "end".to_owned(),
        Some(Err(error)) => format!("error: {error}"),
        Some(Ok(WatchEvent::Error(status))) => format!("ERROR {}", status.code),
        Some(Ok(WatchEvent::Bookmark(mark))) => format!("BOOKMARK {:?}", mark.metadata.annotations),
        Some(Ok(WatchEvent::Added(pod))) => format!("ADDED {}", pod.metadata.name.unwrap()),
        Some(Ok(WatchEvent::Modified(pod))) => format!("MODIFIED {}", pod.metadata.name.unwrap()),
        Some(Ok(WatchEvent::Deleted(pod))) => format!("DELETED {}", pod.metadata.name.unwrap()),
    }
}

/// The answer as it is on the wire.
async fn get(server: &ApiServer, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, Bytes) {
    let mut request = http::Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(kube::client::Body::empty()).unwrap();
    let (parts, body) = server.client().send(request).await.unwrap().into_parts();
    (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes())
}

/// The same for JSON.
async fn get_json(server: &ApiServer, path: &str) -> (u16, Value) {
    let (code, _, body) = get(server, path, &[]).await;
    (code, serde_json::from_slice(&body).unwrap())
}
