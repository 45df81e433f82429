//! What the Pods API sends: gRPC's codes and frames, and pods in protobuf.

use hyper::body::{Bytes, Frame};
use hyper::http::{HeaderMap, HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::protobuf::encode_pod;

/// Bytes before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// gRPC's codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    Ok = 0,
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Unavailable = 14,
}

/// How a call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Status {
    pub(super) code: Code,
    pub(super) message: &'static str,
}

impl Status {
    pub(super) const OK: Self = Self { code: Code::Ok, message: "" };

    pub(super) const fn new(code: Code, message: &'static str) -> Self {
        Self { code, message }
    }

    /// The end of an answer.
    pub(super) fn frame(self) -> Frame<Bytes> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(self.code as u16));
        trailers.insert("grpc-message", HeaderValue::from_static(self.message));
        Frame::trailers(trailers)
    }
}

/// A message of an answer.
pub(super) fn frame(message: &[u8]) -> Frame<Bytes> {
    let mut framed = Vec::with_capacity(PREFIX + message.len());
    framed.push(0);
    // Longer ones are not made: the index would have to hold 4 GiB.
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.extend_from_slice(message);
    Frame::data(framed.into())
}

/// The pod in protobuf, without the agent's own annotations.
pub(super) fn encoded(pod: &Pod) -> Vec<u8> {
    let is_own = |key: &str| key.starts_with("pod-index/");
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_none_or(|annotations| !annotations.keys().any(|key| is_own(key))) {
        return encode_pod(pod);
    }
    let mut pod = pod.clone();
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| !is_own(key));
    }
    encode_pod(&pod)
}
