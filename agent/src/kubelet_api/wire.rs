//! What the Pods API sends: gRPC's codes and messages, and pods in protobuf.

use std::borrow::Cow;

use hyper::body::Bytes;
use hyper::http::{HeaderMap, HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index_kubelet::protobuf::{encode_pod, message};

/// Bytes before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// Why a call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// The request cannot be read.
    Request,
    /// It asks for what the Pods API does not have.
    Unimplemented,
    /// Not all sources were read yet.
    NotReady,
    /// The client, or all of them, have too many watches.
    Watches,
    /// The client, or all of them, have too many answers to read.
    UnreadAnswers,
    /// All clients together have too many bytes to read.
    UnreadBytes,
    /// No such pod: an answer, and no refusal.
    NotFound,
    /// The agent ends.
    Ending,
}

impl Reason {
    /// As a label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Unimplemented => "unimplemented",
            Self::NotReady => "not_ready",
            Self::Watches => "watches",
            Self::UnreadAnswers => "unread_answers",
            Self::UnreadBytes => "unread_bytes",
            Self::NotFound => "not_found",
            Self::Ending => "ending",
        }
    }

    fn code(self) -> Code {
        match self {
            Self::Request => Code::InvalidArgument,
            Self::Unimplemented => Code::Unimplemented,
            Self::NotReady => Code::FailedPrecondition,
            Self::Watches | Self::UnreadAnswers | Self::UnreadBytes => Code::ResourceExhausted,
            Self::NotFound => Code::NotFound,
            Self::Ending => Code::Unavailable,
        }
    }
}

/// gRPC's codes.
#[derive(Clone, Copy)]
enum Code {
    Ok = 0,
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Unavailable = 14,
}

/// How a call ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Status {
    /// `None`: it is answered.
    pub(super) reason: Option<Reason>,
    /// ASCII without a percent sign, as gRPC's trailers need it.
    message: Cow<'static, str>,
}

impl Status {
    pub(super) const OK: Self = Self { reason: None, message: Cow::Borrowed("") };

    pub(super) fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: Some(reason), message: message.into() }
    }

    /// The end of an answer.
    pub(super) fn trailers(&self) -> HeaderMap {
        let code = self.reason.map_or(Code::Ok, Reason::code);
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(code as u16));
        if let Ok(message) = HeaderValue::from_str(&self.message) {
            trailers.insert("grpc-message", message);
        }
        trailers
    }
}

/// The form in which a pod is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Form {
    /// The message of a single pod.
    Single,
    /// A part of a list, which is one message.
    Listed,
    /// The message of an event.
    Added,
    Modified,
    /// Its pod has only what the kubelet guarantees.
    Deleted,
}

/// Kinds of events.
#[derive(Clone, Copy)]
enum Kind {
    Added = 1,
    Modified = 2,
    Deleted = 3,
    InitialSyncComplete = 4,
}

/// What stands before the bytes of a message of this length.
pub(super) fn prefix(length: usize) -> [u8; PREFIX] {
    // Longer ones are not made: the index would have to hold 4 GiB.
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

/// The pod in this form, without the agent's own annotations.
pub(super) fn encoded(pod: &Pod, form: Form) -> Vec<u8> {
    let field = || {
        let mut field = Vec::new();
        message::put(&mut field, 1, &without_own_annotations(pod));
        field
    };
    match form {
        Form::Single => framed(&field()),
        Form::Listed => field(),
        Form::Added => framed(&event(Kind::Added, &without_own_annotations(pod))),
        Form::Modified => framed(&event(Kind::Modified, &without_own_annotations(pod))),
        Form::Deleted => framed(&event(Kind::Deleted, &identity(pod))),
    }
}

/// The event after those of the first pods.
pub(super) fn initial_sync_complete() -> Bytes {
    framed(&event(Kind::InitialSyncComplete, &[])).into()
}

/// A message with its prefix.
fn framed(message: &[u8]) -> Vec<u8> {
    [&prefix(message.len())[..], message].concat()
}

fn event(kind: Kind, pod: &[u8]) -> Vec<u8> {
    let mut event = Vec::with_capacity(pod.len() + 8);
    message::put_number(&mut event, 1, kind as u64);
    if !pod.is_empty() {
        message::put(&mut event, 2, pod);
    }
    event
}

/// Name, namespace and UID of the pod.
fn identity(pod: &Pod) -> Vec<u8> {
    let ObjectMeta { name, namespace, uid, .. } = &pod.metadata;
    let metadata = ObjectMeta {
        name: name.clone(),
        namespace: namespace.clone(),
        uid: uid.clone(),
        ..ObjectMeta::default()
    };
    encode_pod(&Pod { metadata, ..Pod::default() })
}

fn without_own_annotations(pod: &Pod) -> Vec<u8> {
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
