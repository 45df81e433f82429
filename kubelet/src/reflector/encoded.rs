//! Objects and events as a server has encoded them: in JSON, or, if it can and it was asked, in protobuf.
//!
//! Protobuf takes a server less than half the time. What is read here without a table of fields is what each object has:
//! its identity; and the answers that are no objects: events and errors.

use http::{HeaderMap, header};
use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails};
use pod_index::PodUid;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::failure::{Failure, FailureKind};
use super::version::Version;
use crate::memory::{self, Bounded};
use crate::protobuf;
use crate::protobuf::wire::{Fields, Value, WireError};

/// The media type of Kubernetes' protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What is accepted of a list and of a watch. A server that knows no protobuf, or not of this kind, answers in JSON.
pub(super) const LIST_IN_PROTOBUF: &str = "application/vnd.kubernetes.protobuf, application/json;q=0.9";
pub(super) const WATCH_IN_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;stream=watch, application/json;q=0.9";

/// Decodes an object from one encoding. Protobuf has no envelope here. On failure: the field, and what is wrong with it.
pub(crate) type Decode<K> = fn(&[u8]) -> Result<Bounded<K>, (String, String)>;

/// How objects of a kind are decoded.
///
/// Functions, and not calls of generic ones: what is generic is compiled once more in each crate that follows objects, and the
/// decoders of a pod are a hundred thousand instructions.
#[derive(Debug)]
pub(crate) struct Decoders<K> {
    pub(crate) json: Decode<K>,
    /// `None`: the server is asked for JSON.
    pub(crate) protobuf: Option<Decode<K>>,
}

impl<K: DeserializeOwned + Clone> Decoders<K> {
    /// For JSON alone.
    pub(crate) fn of_json() -> Self {
        Self { json: |json| memory::decode_within(memory::LIMIT, json), protobuf: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    /// Of an answer with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        if media.is_some_and(|media| media.starts_with(PROTOBUF)) { Self::Protobuf } else { Self::Json }
    }
}

/// Something that a server has encoded, without the envelope of protobuf.
#[derive(Clone, Copy)]
pub(super) struct Encoded<'a> {
    pub(super) encoding: Encoding,
    pub(super) bytes: &'a [u8],
}

/// The identity of any object. What it lacks is empty.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: PodUid,
    pub(super) version: Version,
}

#[derive(Deserialize)]
struct Partial {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

#[cfg(test)]
impl<'a> Encoded<'a> {
    pub(super) fn json(bytes: &'a [u8]) -> Self {
        Self { encoding: Encoding::Json, bytes }
    }
}

impl Encoded<'_> {
    pub(super) fn identity(self) -> Result<Identity, Failure> {
        let Metadata { namespace, name, uid, resource_version } = match self.encoding {
            Encoding::Json => from_json::<Partial>(self.bytes)?.metadata,
            Encoding::Protobuf => {
                let protobuf::Identity { namespace, name, uid, resource_version } =
                    protobuf::identity(self.bytes);
                Metadata { namespace, name, uid, resource_version }
            }
        };
        Ok(Identity { namespace, name, uid: PodUid::from(&*uid), version: resource_version.parse().ok() })
    }

    /// Kubernetes' description of an error.
    pub(super) fn status(self) -> Result<Status, Failure> {
        match self.encoding {
            Encoding::Json => from_json(self.bytes),
            Encoding::Protobuf => status(self.bytes).map_err(|_| unreadable("an error")),
        }
    }
}

/// What an event of a watch says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EventKind {
    Changed,
    Deleted,
    Bookmark,
    Error,
    Unknown,
}

/// An event of a watch.
pub(super) struct Event<'a> {
    pub(super) kind: EventKind,
    pub(super) object: Encoded<'a>,
}

impl<'a> Event<'a> {
    pub(super) fn read(event: Encoded<'a>) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(borrow, rename = "type")]
            kind: std::borrow::Cow<'a, str>,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let encoding = event.encoding;
        match encoding {
            Encoding::Json => {
                let Line { kind, object } = from_json(event.bytes)?;
                let bytes = object.get().as_bytes();
                Ok(Self { kind: kind_of(kind.as_bytes()), object: Encoded { encoding, bytes } })
            }
            Encoding::Protobuf => {
                let (kind, object) = frame(event.bytes).map_err(|_| unreadable("an event"))?;
                let bytes = protobuf::without_envelope(object).ok_or_else(|| unreadable("an event"))?;
                Ok(Self { kind: kind_of(kind), object: Encoded { encoding, bytes } })
            }
        }
    }
}

fn kind_of(kind: &[u8]) -> EventKind {
    match kind {
        b"ADDED" | b"MODIFIED" => EventKind::Changed,
        b"DELETED" => EventKind::Deleted,
        b"BOOKMARK" => EventKind::Bookmark,
        b"ERROR" => EventKind::Error,
        _ => EventKind::Unknown,
    }
}

/// The type of a `WatchEvent`, and the object in it, which has an envelope of its own.
fn frame(event: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let mut kind = &[][..];
    let mut object = &[][..];
    for field in Fields(event) {
        match field? {
            (1, value) => kind = value.bytes()?,
            (2, value) => {
                for field in Fields(value.bytes()?) {
                    if let (1, raw) = field? {
                        object = raw.bytes()?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok((kind, object))
}

/// `metav1.Status`.
fn status(bytes: &[u8]) -> Result<Status, WireError> {
    let mut status = Status::default();
    for field in Fields(bytes) {
        match field? {
            (3, value) => status.message = text(value)?,
            (4, value) => status.reason = text(value)?,
            (5, value) => status.details = Some(details(value.bytes()?)?),
            (6, value) => status.code = u16::try_from(value.varint()?).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(status)
}

fn details(bytes: &[u8]) -> Result<StatusDetails, WireError> {
    let (name, group, kind, uid) = Default::default();
    let mut details = StatusDetails { name, group, kind, uid, causes: Vec::new(), retry_after_seconds: 0 };
    for field in Fields(bytes) {
        match field? {
            (4, value) => {
                let (reason, message, field) = Default::default();
                let mut cause = StatusCause { reason, message, field };
                for field in Fields(value.bytes()?) {
                    if let (1, value) = field? {
                        cause.reason = text(value)?;
                    }
                }
                details.causes.push(cause);
            }
            (5, value) => {
                details.retry_after_seconds = u32::try_from(value.varint()?).unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(details)
}

fn text(value: Value<'_>) -> Result<String, WireError> {
    Ok(String::from_utf8_lossy(value.bytes()?).into_owned())
}

/// The failure of an answer in protobuf that is none.
pub(super) fn unreadable(what: &str) -> Failure {
    let message = format!("the API server's answer cannot be decoded: {what} is no protobuf");
    Failure::new(FailureKind::NoProtobuf, message)
}

/// Decodes something that holds no object. The decoder's message is left out: it may quote a value.
fn from_json<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(json).map_err(|error| {
        let line = error.line();
        let column = error.column();
        let message = format!("the API server's answer cannot be decoded (line {line}, column {column})");
        Failure::new(FailureKind::Doubt, message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protobuf::message::{put, put_number};

    /// A message with these fields of bytes.
    fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let mut message = Vec::new();
        for (number, bytes) in fields {
            put(&mut message, *number, bytes);
        }
        message
    }

    fn event(kind: &str, object: &[u8]) -> Vec<u8> {
        let object = [b"k8s\0", &message(&[(1, b"\x0a\x02v1"), (2, object)])[..]].concat();
        message(&[(1, kind.as_bytes()), (2, &message(&[(1, &object)]))])
    }

    #[test]
    fn an_error_in_protobuf_is_the_one_in_json() {
        let json = json!({
            "message": "old", "reason": "Expired", "code": 410,
            "details": { "retryAfterSeconds": 7, "causes": [{ "reason": "ResourceVersionTooLarge" }] },
        });
        let json = Encoded::json(json.to_string().as_bytes()).status().unwrap();
        let mut details = message(&[(4, &message(&[(1, b"ResourceVersionTooLarge")]))]);
        put_number(&mut details, 5, 7);
        let mut status = message(&[(3, b"old"), (4, b"Expired"), (5, &details)]);
        put_number(&mut status, 6, 410);
        let event = event("ERROR", &status);
        let event = Event::read(Encoded { encoding: Encoding::Protobuf, bytes: &event }).unwrap();
        assert_eq!(event.kind, EventKind::Error);
        assert_eq!(event.object.status().unwrap(), json);
    }

    #[test]
    fn what_is_no_event_is_a_failure_and_quotes_nothing() {
        let cut = event("ADDED", b"\x0a\x00");
        for bytes in [&b"hunter2"[..], b"", b"\x0a\x05ADDED\x12\x00", &cut[..cut.len() - 1]] {
            let failure = Event::read(Encoded { encoding: Encoding::Protobuf, bytes }).err().unwrap();
            assert_eq!(failure.kind, FailureKind::NoProtobuf, "{bytes:?}");
            assert!(!failure.message.contains("hunter"));
        }
    }

    #[test]
    fn the_server_says_how_it_has_encoded_an_answer() {
        for (media, encoding) in [
            ("application/json", Encoding::Json),
            ("application/vnd.kubernetes.protobuf", Encoding::Protobuf),
            ("application/vnd.kubernetes.protobuf;stream=watch", Encoding::Protobuf),
            ("text/html", Encoding::Json),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, media.parse().unwrap())]);
            assert_eq!(Encoding::of(&headers), encoding, "{media}");
        }
        assert_eq!(Encoding::of(&HeaderMap::new()), Encoding::Json);
    }
}
