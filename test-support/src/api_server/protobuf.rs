//! Answers in Kubernetes' protobuf: what is otherwise sent as JSON, translated, for lists and watches of pods.

use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, header};
use serde_json::Value;

use super::ApiServer;
use super::answer::{Body, Cut};

/// Encodes a pod as Go's `v1.Pod.Marshal()` does.
pub type EncodePod = fn(&Value) -> Vec<u8>;

/// How a server speaks protobuf.
#[derive(Clone, Copy)]
pub(super) enum Protobuf {
    Good(EncodePod),
    /// Its answers cannot be read.
    Broken,
}

const MEDIA: &str = "application/vnd.kubernetes.protobuf";

impl ApiServer {
    /// From now on, clients that accept protobuf get lists, watches and errors of pods in it.
    pub fn speak_protobuf(&self, encode_pod: EncodePod) {
        self.shared.lock().protobuf = Some(Protobuf::Good(encode_pod));
    }

    /// From now on, clients that accept protobuf get answers that cannot be read.
    pub fn break_protobuf(&self) {
        self.shared.lock().protobuf = Some(Protobuf::Broken);
    }

    /// Number of answers that were in protobuf.
    pub fn answers_in_protobuf(&self) -> u64 {
        self.shared.lock().answers_in_protobuf
    }
}

/// Whether this client, which may list pods, prefers protobuf to JSON.
pub(super) fn is_wanted(path: &str, headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    path.ends_with("/pods") && accepted.is_some_and(|accepted| accepted.starts_with(MEDIA))
}

/// An answer that says that it is protobuf.
pub(super) fn broken() -> Response<Body> {
    let body = Full::new(Bytes::from_static(b"k8s\0\xff")).map_err(|never| match never {}).boxed_unsync();
    Response::builder().header(CONTENT_TYPE, MEDIA).body(body).unwrap()
}

/// The same answer in protobuf, unless it is no JSON.
pub(super) async fn translated(
    answer: Response<Body>,
    is_watch: bool,
    encode_pod: EncodePod,
) -> Result<Response<Body>, Cut> {
    let (mut head, body) = answer.into_parts();
    if head.headers.get(CONTENT_TYPE).is_none_or(|media| media != "application/json") {
        return Ok(Response::from_parts(head, body));
    }
    let is_stream = is_watch && head.status.is_success();
    let media = if is_stream { "application/vnd.kubernetes.protobuf;stream=watch" } else { MEDIA };
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    if is_stream {
        return Ok(Response::from_parts(head, events(body, encode_pod)));
    }
    let json: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap();
    let bytes = match json["kind"].as_str() {
        Some("PodList") => envelope("PodList", &list(&json, encode_pod)),
        _ => envelope("Status", &status(&json)),
    };
    let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync();
    Ok(Response::from_parts(head, body))
}

/// The events of a watch. What is cut within an event of JSON is cut within the event.
fn events(body: Body, encode_pod: EncodePod) -> Body {
    let frames = body.into_data_stream().map(move |line| {
        let line = line?;
        // The beginning of an event that is cut.
        let Ok(whole) = serde_json::from_slice::<Value>(&line) else {
            return Ok(Frame::data(Bytes::from_static(b"\0\0\0\x09\x0a\x05ADD")));
        };
        let kind = whole["type"].as_str().unwrap();
        let object = match kind {
            "ERROR" => envelope("Status", &status(&whole["object"])),
            _ => envelope("Pod", &encode_pod(&whole["object"])),
        };
        let mut raw = Vec::new();
        put(&mut raw, 1, &object);
        let mut event = Vec::new();
        put(&mut event, 1, kind.as_bytes());
        put(&mut event, 2, &raw);
        let length = u32::try_from(event.len()).unwrap().to_be_bytes();
        Ok(Frame::data(Bytes::from([&length[..], &event].concat())))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn envelope(kind: &str, object: &[u8]) -> Vec<u8> {
    let (mut meta, mut envelope) = (Vec::new(), b"k8s\0".to_vec());
    put(&mut meta, 1, b"v1");
    put(&mut meta, 2, kind.as_bytes());
    put(&mut envelope, 1, &meta);
    put(&mut envelope, 2, object);
    put(&mut envelope, 3, b"");
    put(&mut envelope, 4, b"");
    envelope
}

fn list(json: &Value, encode_pod: EncodePod) -> Vec<u8> {
    let (mut metadata, mut list) = (Vec::new(), Vec::new());
    put(&mut metadata, 1, b"");
    put(&mut metadata, 2, text(&json["metadata"]["resourceVersion"]));
    put(&mut metadata, 3, text(&json["metadata"]["continue"]));
    put(&mut list, 1, &metadata);
    for pod in json["items"].as_array().unwrap() {
        put(&mut list, 2, &encode_pod(pod));
    }
    list
}

/// `metav1.Status`.
fn status(json: &Value) -> Vec<u8> {
    let (mut details, mut status) = (Vec::new(), Vec::new());
    for cause in json["details"]["causes"].as_array().into_iter().flatten() {
        let mut encoded = Vec::new();
        put(&mut encoded, 1, text(&cause["reason"]));
        put(&mut encoded, 2, text(&cause["message"]));
        put(&mut details, 4, &encoded);
    }
    put_number(&mut details, 5, json["details"]["retryAfterSeconds"].as_u64().unwrap_or_default());
    put(&mut status, 1, b"");
    put(&mut status, 2, text(&json["status"]));
    put(&mut status, 3, text(&json["message"]));
    put(&mut status, 4, text(&json["reason"]));
    put(&mut status, 5, &details);
    put_number(&mut status, 6, json["code"].as_u64().unwrap_or_default());
    status
}

fn text(json: &Value) -> &[u8] {
    json.as_str().unwrap_or_default().as_bytes()
}

fn put(message: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(message, u64::from(number) << 3 | 2);
    put_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn put_number(message: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(message, u64::from(number) << 3);
    put_varint(message, value);
}

fn put_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    message.push(value.to_le_bytes()[0]);
}
