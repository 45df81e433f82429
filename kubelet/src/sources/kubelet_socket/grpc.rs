//! gRPC over a Unix socket, as far as the Pods API needs it: a call with one answer, and a call with a stream of them.
//!
//! gRPC is HTTP/2 with five bytes before each message and a status after the last. hyper does HTTP/2, and messages are decoded
//! by a table, so a gRPC framework would add eight crates for what this file does.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::text::{causes, shorten};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("pod-index/", env!("CARGO_PKG_VERSION")));
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Why a call gave no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CallError {
    pub(super) kind: CallErrorKind,
    pub(super) message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallErrorKind {
    /// Nobody serves at this path.
    Absent,
    /// gRPC's `FAILED_PRECONDITION`: the kubelet does not know all its pods yet.
    NotReady,
    /// gRPC's `RESOURCE_EXHAUSTED`: too many requests, or events that were not read in time.
    Exhausted,
    Other,
}

impl CallError {
    pub(super) fn new(kind: CallErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    fn other(message: impl Into<String>) -> Self {
        Self::new(CallErrorKind::Other, message)
    }

    fn of_connecting(path: &Path, error: &io::Error) -> Self {
        let path = path.display();
        match error.kind() {
            ErrorKind::NotFound => Self::new(
                CallErrorKind::Absent,
                format!(
                    "there is no socket {path}: no kubelet has started, or it does not serve the Pods API (before Kubernetes \
                     1.37, its feature gate PodsAPI must be on)"
                ),
            ),
            ErrorKind::ConnectionRefused => Self::new(
                CallErrorKind::Absent,
                format!("nobody serves at the socket {path}: the kubelet is not running"),
            ),
            ErrorKind::PermissionDenied => Self::other(format!(
                "the socket {path} may not be used: that takes root, or the group of its directory"
            )),
            _ => Self::other(format!("the socket {path}: {error}")),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CallError {}

/// A connection. Dropping it ends its calls.
#[derive(Debug)]
pub(super) struct Connection {
    path: PathBuf,
    requests: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    pub(super) async fn open(path: &Path) -> Result<Self, CallError> {
        let stream = UnixStream::connect(path).await;
        let stream = stream.map_err(|error| CallError::of_connecting(path, &error))?;
        let handshake = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
        let (requests, connection) = handshake.map_err(|error| CallError::other(causes(&error)))?;
        // Its end is seen by the calls.
        let task = tokio::spawn(async { drop(connection.await) });
        Ok(Self { path: path.to_owned(), requests, task })
    }

    /// Calls a method with an empty request. Each message of the answer may have at most `limit` bytes.
    pub(super) async fn call(&mut self, method: &str, limit: usize) -> Result<Messages, CallError> {
        let mut request = Request::post(format!("http://localhost{method}"));
        if let Some(headers) = request.headers_mut() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(USER_AGENT, AGENT);
        }
        let request = request.body(Full::new(Bytes::from_static(&[0; PREFIX])));
        let request = request.map_err(|error| CallError::other(error.to_string()))?;
        let cut = |error: &hyper::Error| {
            CallError::new(
                CallErrorKind::Absent,
                format!("the socket {}: {}", self.path.display(), causes(error)),
            )
        };
        self.requests.ready().await.map_err(|error| cut(&error))?;
        let response = self.requests.send_request(request).await.map_err(|error| cut(&error))?;
        if response.status() != StatusCode::OK {
            return Err(CallError::other(format!("answered {}, not with gRPC", response.status())));
        }
        if response.headers().contains_key(GRPC_STATUS) {
            status_of(response.headers())?;
        }
        Ok(Messages { body: response.into_body(), buffer: Vec::new(), limit })
    }
}

/// The messages of an answer.
#[derive(Debug)]
pub(super) struct Messages {
    body: Incoming,
    /// What was received of the next messages.
    buffer: Vec<u8>,
    limit: usize,
}

impl Messages {
    /// The next message; `None` at the end of a call that succeeded. Can be cancelled: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(Some(message));
            }
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    let message = format!("the connection broke: {}", causes(&error));
                    return Err(CallError::new(CallErrorKind::Absent, message));
                }
                None => return Err(CallError::other("the answer ended without a status")),
            };
            match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return status_of(&trailers).map(|()| None);
                    }
                }
            }
        }
    }

    /// The only message of an answer.
    pub(super) async fn only(mut self) -> Result<Vec<u8>, CallError> {
        match self.next().await? {
            Some(message) => Ok(message),
            None => Err(CallError::other("the answer has no message")),
        }
    }

    /// The next message, if it is complete.
    fn buffered(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        let Some((&[is_compressed, a, b, c, d], rest)) = self.buffer.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if is_compressed != 0 {
            return Err(CallError::other("answered with a compressed message, which was not asked for"));
        }
        if length > self.limit {
            return Err(CallError::other(format!(
                "answered with a message of {length} bytes, more than the limit of {}",
                self.limit
            )));
        }
        if rest.len() < length {
            self.buffer.reserve(length - rest.len());
            return Ok(None);
        }
        let later = self.buffer.split_off(PREFIX + length);
        let mut message = std::mem::replace(&mut self.buffer, later);
        message.drain(..PREFIX);
        Ok(Some(message))
    }
}

/// The status in the trailers of a call.
fn status_of(trailers: &HeaderMap) -> Result<(), CallError> {
    let code = trailers.get(GRPC_STATUS).and_then(|code| code.to_str().ok()?.parse::<u32>().ok());
    let (kind, name) = match code {
        Some(0) => return Ok(()),
        Some(8) => (CallErrorKind::Exhausted, "RESOURCE_EXHAUSTED".to_owned()),
        Some(9) => (CallErrorKind::NotReady, "FAILED_PRECONDITION".to_owned()),
        Some(12) => (CallErrorKind::Other, "UNIMPLEMENTED".to_owned()),
        Some(14) => (CallErrorKind::Absent, "UNAVAILABLE".to_owned()),
        Some(code) => (CallErrorKind::Other, format!("the gRPC status {code}")),
        None => return Err(CallError::other("the answer has no gRPC status")),
    };
    let message = trailers.get(GRPC_MESSAGE).map(|message| String::from_utf8_lossy(message.as_bytes()));
    let message = shorten(&message.unwrap_or_default());
    Err(CallError::new(kind, format!("answered {name}: {message}")))
}
