//! The requests, and the bytes of their answers.
//!
//! kube's client only sends the requests. Its decoder would log the whole body of an unreadable answer, which may be a
//! Secret.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderValue, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::core::request::Error;
use kube::core::{Request, Status};
use tokio::time::{self, Instant};

use super::encoded::{Encoded, Encoding, LIST_IN_PROTOBUF, WATCH_IN_PROTOBUF, unreadable};
use super::failure::{Failure, FailureKind};
use super::items::Items;
use super::lifetime::Lifetime;
use super::protobuf_items::ProtobufItems;
use super::split::{LARGEST, Split};
use crate::protobuf::without_envelope;
use crate::text::api_causes;

/// The bytes of the length of an event in protobuf.
const LENGTH: usize = 4;

/// Size limit of an error response in bytes.
const LARGEST_REFUSAL: usize = 64 << 10;

/// What to follow, and how to reach it.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) client: Client,
    /// The path of the list.
    pub(crate) path: String,
    pub(crate) fields: Option<String>,
    pub(crate) labels: Option<String>,
    /// Lists have nothing but metadata.
    pub(crate) is_metadata: bool,
    /// The server may answer in protobuf.
    pub(crate) accepts_protobuf: bool,
    /// Whether the last answer came over HTTP/1.1, which has no pings. Clones share it.
    pub(crate) is_http1: Arc<AtomicBool>,
}

/// A list may be of any version. It comes from the server's watch cache.
pub(super) const ANY_VERSION: u64 = 0;

impl Requests {
    /// Passes each object of a list on. Returns the version of the list, which is not older than `least`. Without one, it
    /// is the latest, for which the server may have to read etcd.
    pub(super) async fn list(
        &self,
        least: Option<u64>,
        patience: Duration,
        mut each: impl FnMut(Encoded<'_>) -> Result<(), Failure> + Send,
    ) -> Result<u64, Failure> {
        // Without a limit: with one, a server may read etcd.
        let params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            resource_version: least.map(|least| least.to_string()),
            ..ListParams::default()
        };
        let request = Request::new(&self.path);
        let request = if self.is_metadata { request.list_metadata(&params) } else { request.list(&params) };
        let Answer { encoding, mut body } = self.sent(request, LIST_IN_PROTOBUF, patience).await?;
        let mut items: Box<dyn Split> = match encoding {
            Encoding::Json => Box::new(Items::default()),
            Encoding::Protobuf => Box::new(ProtobufItems::default()),
        };
        let mut each = |bytes: &[u8]| each(Encoded { encoding, bytes });
        let no_part = || Failure::new(FailureKind::Broken, silence("the list", patience));
        while let Some(part) = time::timeout(patience, chunk(&mut body)).await.map_err(|_| no_part())?? {
            items.take(&part, &mut each)?;
        }
        items.end(&mut each)
    }

    /// Watches from `version` on.
    pub(super) async fn watch(&self, version: u64, lifetime: Lifetime) -> Result<Lines, Failure> {
        let Lifetime { asked, patience, silence } = lifetime;
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: u32::try_from(asked.as_secs()).ok(),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(&self.path).watch(&params, &version.to_string());
        let Answer { encoding, body } = self.sent(request, WATCH_IN_PROTOBUF, patience).await?;
        let until = Instant::now() + silence;
        Ok(Lines { encoding, body, buffer: Vec::new(), searched: 0, silence, until })
    }

    /// Lists and starts to watch once. On failure, also what was tried.
    pub(crate) async fn check(&self, patience: Duration) -> Result<(), (&'static str, Failure)> {
        let version =
            self.list(Some(ANY_VERSION), patience, |_| Ok(())).await.map_err(|failure| ("list", failure))?;
        let lifetime = Lifetime { asked: Duration::from_secs(1), patience, silence: patience };
        let watch = self.watch(version, lifetime).await;
        watch.map(drop).map_err(|failure| ("watch", failure))
    }

    /// A successful answer. `protobuf`: what is accepted, if the server may answer in protobuf.
    async fn sent(
        &self,
        request: Result<http::Request<Vec<u8>>, Error>,
        protobuf: &'static str,
        patience: Duration,
    ) -> Result<Answer, Failure> {
        let mut request = request.map_err(|error| Failure::new(FailureKind::Broken, api_causes(&error)))?;
        if self.accepts_protobuf {
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(protobuf));
        }
        let answer = async {
            let response = self.client.send(request.map(Body::from)).await;
            let response = response.map_err(|error| Failure::new(FailureKind::Broken, api_causes(&error)))?;
            let (head, body) = response.into_parts();
            self.is_http1.store(head.version < http::Version::HTTP_2, Ordering::Relaxed);
            let encoding = Encoding::of(&head.headers);
            if head.status.is_success() {
                return Ok(Answer { encoding, body });
            }
            let body = Limited::new(body, LARGEST_REFUSAL).collect().await;
            let status = body.ok().and_then(|body| refusal(encoding, &body.to_bytes()));
            Err(Failure::refused(head.status.as_u16(), &status.unwrap_or_default(), &head.headers))
        };
        let no_answer = || Failure::new(FailureKind::Broken, silence("the API server", patience));
        time::timeout(patience, answer).await.map_err(|_| no_answer())?
    }
}

/// A successful answer.
struct Answer {
    encoding: Encoding,
    body: Body,
}

/// What a refusal says, if it is Kubernetes' own.
fn refusal(encoding: Encoding, body: &[u8]) -> Option<Status> {
    let bytes = match encoding {
        Encoding::Json => body,
        Encoding::Protobuf => without_envelope(body)?,
    };
    Encoded { encoding, bytes }.status().ok()
}

fn silence(what: &str, patience: Duration) -> String {
    format!("no answer from {what} within {} s", patience.as_secs_f32())
}

async fn chunk(body: &mut Body) -> Result<Option<Bytes>, Failure> {
    loop {
        let Some(frame) = body.frame().await else { return Ok(None) };
        let frame = frame.map_err(|error| Failure::new(FailureKind::Broken, api_causes(&error)))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// The events of a watch: lines of JSON, or protobuf, each with its length before it.
pub(super) struct Lines {
    pub(super) encoding: Encoding,
    body: Body,
    buffer: Vec<u8>,
    /// This many bytes of the buffer are known to contain no end of a line.
    searched: usize,
    silence: Duration,
    /// The watch is given up if nothing arrives until then.
    until: Instant,
}

impl Lines {
    /// The answer to a watch whose server says this at once.
    #[cfg(test)]
    pub(super) fn of(encoding: Encoding, said: Vec<u8>) -> Self {
        let body = Body::from(said);
        let silence = Duration::from_secs(60);
        Self { encoding, body, buffer: Vec::new(), searched: 0, silence, until: Instant::now() + silence }
    }

    /// The next event; `None` at the end of the watch. An incomplete event at the end is dropped. If the future is dropped,
    /// nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            let complete = match self.encoding {
                Encoding::Json => self.line(),
                Encoding::Protobuf => self.frame()?,
            };
            if complete.is_some() {
                return Ok(complete);
            }
            let Ok(part) = time::timeout_at(self.until, chunk(&mut self.body)).await else {
                let message = format!("the watch was silent for {} s", self.silence.as_secs_f32());
                return Err(Failure::new(FailureKind::Silent, message));
            };
            let Some(part) = part? else { return Ok(None) };
            self.until = Instant::now() + self.silence;
            self.buffer.extend_from_slice(&part);
            if self.buffer.len() > LARGEST {
                return Err(Failure::new(FailureKind::Doubt, "an event of the watch is too large"));
            }
        }
    }

    /// An event that has arrived, or an end that has.
    pub(super) async fn ready(&mut self) -> Option<Result<Option<Vec<u8>>, Failure>> {
        if let Some(next) = self.next().now_or_never() {
            return Some(next);
        }
        // The connection delivers one part at a time; yield to let it deliver another.
        tokio::task::yield_now().await;
        self.next().now_or_never()
    }

    /// An event in protobuf that has arrived: its length in four bytes, and a `WatchEvent`.
    fn frame(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let Some((length, _)) = self.buffer.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > LARGEST {
            return Err(unreadable("an event"));
        }
        if self.buffer.len() < LENGTH + length {
            return Ok(None);
        }
        let rest = self.buffer.split_off(LENGTH + length);
        let frame = std::mem::replace(&mut self.buffer, rest);
        Ok(Some(frame[LENGTH..].to_vec()))
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let rest = self.buffer.split_off(self.searched + end + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.buffer, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_found_that_arrives_with_the_end_of_a_longer_one() {
        let (body, buffer) = (Body::from(b"1}\n{}\n".to_vec()), br#"{"a":1"#.to_vec());
        let (searched, silence) = (buffer.len(), Duration::from_secs(60));
        let (encoding, until) = (Encoding::Json, Instant::now() + silence);
        let mut lines = Lines { encoding, body, buffer, searched, silence, until };
        for expected in [&b"{\"a\":11}\n"[..], b"{}\n"] {
            assert_eq!(lines.next().await.unwrap().as_deref(), Some(expected));
        }
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_ends_the_watch() {
        let silence = Duration::from_secs(60);
        for (length, is_whole) in [(LARGEST, true), (LARGEST + 1, false)] {
            let mut text = vec![b'x'; length];
            text[length - 1] = b'\n';
            let (body, until) = (Body::from(text), Instant::now() + silence);
            let encoding = Encoding::Json;
            let mut lines = Lines { encoding, body, buffer: Vec::new(), searched: 0, silence, until };
            assert_eq!(lines.next().await.is_ok(), is_whole, "{length}");
        }
    }

    #[tokio::test]
    async fn an_event_in_protobuf_is_found_wherever_its_bytes_are_split() {
        let silence = Duration::from_secs(60);
        let bytes = b"\0\0\0\x05first\0\0\0\0\0\0\0\x06second\0\0\0\x04cut";
        for size in [1, 3, bytes.len()] {
            let (encoding, body, until) = (Encoding::Protobuf, Body::empty(), Instant::now() + silence);
            let mut lines = Lines { encoding, body, buffer: Vec::new(), searched: 0, silence, until };
            let mut found = Vec::new();
            for part in bytes.chunks(size) {
                lines.buffer.extend_from_slice(part);
                while let Some(event) = lines.frame().unwrap() {
                    found.push(event);
                }
            }
            assert_eq!(found, [&b"first"[..], b"", b"second"], "{size}");
            assert_eq!(lines.next().await.unwrap(), None, "{size}");
        }
    }

    #[tokio::test]
    async fn an_event_in_protobuf_beyond_the_limit_ends_the_watch() {
        let said = |length: usize| u32::try_from(length).unwrap().to_be_bytes().to_vec();
        let mut lines = Lines::of(Encoding::Protobuf, said(LARGEST + 1));
        assert_eq!(lines.next().await.unwrap_err().kind, FailureKind::NoProtobuf);
        let mut lines = Lines::of(Encoding::Protobuf, said(LARGEST));
        assert_eq!(lines.next().await.unwrap(), None, "it did not arrive");
    }

    /// Over HTTP/1.1 watches are short, because it has no pings.
    #[tokio::test]
    async fn which_http_the_server_speaks_is_noted() {
        use http::Version;

        for (version, expected) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
            let server = tower::service_fn(move |_: http::Request<Body>| async move {
                let list = br#"{"metadata":{"resourceVersion":"7"},"items":[]}"#;
                let answer = http::Response::builder().version(version).body(Body::from(list.to_vec()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            });
            let is_http1 = Arc::new(AtomicBool::new(!expected));
            let requests = Requests {
                client: Client::new(server, "default"),
                path: "/api/v1/pods".to_owned(),
                fields: None,
                labels: None,
                is_metadata: false,
                accepts_protobuf: false,
                is_http1: Arc::clone(&is_http1),
            };
            let listed = requests.list(None, Duration::from_secs(60), |_| Ok(())).await.unwrap();
            assert_eq!((listed, is_http1.load(Ordering::Relaxed)), (7, expected), "{version:?}");
        }
    }

    /// A server may accept connections and say nothing.
    #[tokio::test]
    async fn a_server_without_an_answer_is_named_with_the_time_that_it_had() {
        let silent = tower::service_fn(async |_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>().await
        });
        let requests = Requests {
            client: Client::new(silent, "default"),
            path: "/api/v1/pods".to_owned(),
            fields: None,
            labels: None,
            is_metadata: false,
            accepts_protobuf: false,
            is_http1: Arc::default(),
        };
        let (step, failure) = requests.check(Duration::from_millis(1)).await.unwrap_err();
        assert_eq!((step, &*failure.message), ("list", "no answer from the API server within 0.001 s"));
    }
}
