//! A client of a running agent: on its port, with or without TLS, or on its socket.

use std::error::Error;
use std::mem;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt, service_fn};

use super::patience::Patience;
use super::{format, tls};
use crate::api::view::View;
use crate::config::failure::Failure;
use crate::config::subjects::{ClientTls, ServerAddress};
use crate::config::written::Written;

/// Characters that a path need not escape (RFC 3986).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Shortest time after which a request that was refused for now is repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A running agent. Requests share connections.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// An address and a port, or the path of a socket.
    pub(crate) place: String,
    /// The settings that give the place, as the user wrote them.
    settings: String,
    /// The URL up to the path.
    base: String,
    client: BoxCloneSyncService<Request<Body>, Response<Incoming>, legacy::Error>,
}

/// A response that was read to its end.
struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Why a request brought no answer.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) failure: Failure,
    /// When to ask again, if the agent refuses only for now.
    pub(crate) after: Option<Duration>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, after: None }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        refused.failure
    }
}

impl Answer {
    /// What the agent says of a refusal.
    fn message(&self) -> Option<String> {
        serde_json::from_slice::<Status>(&self.body).ok().and_then(|status| status.message)
    }

    /// When to ask again, if the agent refuses for now. An agent of another version may not say when.
    fn retry_after(&self) -> Option<Duration> {
        if !matches!(self.code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return None;
        }
        let said =
            self.headers.get(header::RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        Some(said.map_or(RETRY_AFTER, Duration::from_secs).clamp(RETRY_AFTER, TIMEOUT))
    }
}

impl Server {
    /// The agent that the settings name: its socket, or else its address and port.
    pub(crate) fn new(
        server: &ServerAddress,
        client: &ClientTls,
        written: &Written,
    ) -> Result<Self, Failure> {
        let builder = Client::builder(TokioExecutor::new());
        let Some(socket) = &server.socket else {
            let address = SocketAddr::new(server.address, server.port);
            let (scheme, connector) =
                tls::connector(client, written, address.ip()).map_err(Failure::Usage)?;
            let place = address.to_string();
            let base = format!("{scheme}://{address}");
            let client = BoxCloneSyncService::new(builder.build(connector));
            let settings = format!("{}, {}", written.name("address"), written.name("port"));
            return Ok(Self { place, settings, base, client });
        };
        let path: Arc<Path> = socket.as_path().into();
        // Whatever the URL.
        let connector = BoxCloneSyncService::new(service_fn(move |_: Uri| {
            let path = Arc::clone(&path);
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }));
        let place = socket.display().to_string();
        let base = "http://localhost".to_owned();
        let client = BoxCloneSyncService::new(builder.build(connector));
        Ok(Self { place, settings: written.name("socket"), base, client })
    }

    /// The response body at `path`.
    pub(crate) async fn get(&self, path: &str, patience: &Patience) -> Result<Bytes, Failure> {
        Ok(self.ask(Method::GET, || path.to_owned(), Bytes::new(), patience).await?)
    }

    /// The response body at `path`, parsed as JSON.
    pub(crate) async fn get_json<T: DeserializeOwned>(
        &self,
        path: &str,
        patience: &Patience,
    ) -> Result<T, Failure> {
        let body = self.get(path, patience).await?;
        self.parsed(&body)
    }

    /// As [`get_json`](Self::get_json), once. For who asks again anyway.
    pub(crate) async fn try_get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refused> {
        let body = self.attempt(Method::GET, path, Bytes::new()).await?;
        Ok(self.parsed(&body)?)
    }

    /// The response body of a request. If the agent refuses for now, asks again after the time that it names.
    ///
    /// `path`: of each attempt. It may say how long the agent may wait, of which less is left at a later one.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: impl Fn() -> String,
        body: Bytes,
        patience: &Patience,
    ) -> Result<Bytes, Refused> {
        let began = Instant::now();
        let mut is_first = true;
        loop {
            let refused = match self.attempt(method.clone(), &path(), body.clone()).await {
                Ok(body) => return Ok(body),
                Err(refused) => refused,
            };
            let Some(pause) = refused.after.and_then(|after| patience.pause(began, after)) else {
                return Err(refused);
            };
            if patience.is_to_report(mem::take(&mut is_first)) {
                let why = refused.failure.message().unwrap_or_default();
                let longest = patience.longest;
                // Whoever listens there wrote a part of it.
                format::note(&format!("pod-index: {why}; asks again for up to {longest:?}"));
            }
            sleep(pause).await;
        }
    }

    /// Makes a request once.
    async fn attempt(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Refused> {
        let answer = self.answer(method, path, body).await?;
        if answer.code == StatusCode::OK {
            return Ok(answer.body);
        }
        Err(Refused { failure: self.refusal(&answer), after: answer.retry_after() })
    }

    fn parsed<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Failure> {
        // As a string, as pods are decoded everywhere: each other type of input adds 400 KB of machine code.
        serde_json::from_str(&String::from_utf8_lossy(body))
            .map_err(|error| Failure::unable(format_args!("cannot read what {} answers", self.place), error))
    }

    /// Makes a request, and reads its whole response.
    async fn answer(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, Failure> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let request = request
            .body(Body::from(body))
            .map_err(|error| Failure::Usage(format!("invalid request: {error}")))?;
        let answer = async {
            let response =
                self.client.clone().oneshot(request).await.map_err(|error| self.unreachable(&error))?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| self.unreachable(&error))?.to_bytes();
            Ok(Answer { code: head.status, headers: head.headers, body })
        };
        let late = format!("the agent on {} did not answer within {TIMEOUT:?}", self.place);
        timeout(TIMEOUT, answer).await.map_err(|_| Failure::Unable(late))?
    }

    /// A client of its API, inside a runtime, that sees the pods in this view.
    pub(crate) fn api(&self, view: View) -> kube::Client {
        let base = self.base.clone();
        let client = self.client.clone().map_request(move |mut request: Request<Body>| {
            let path = match view {
                View::Kubelet => "/pods",
                View::ApiServer => request.uri().path(),
            };
            let uri = format!("{base}{path}?{}", request.uri().query().unwrap_or_default());
            *request.uri_mut() = uri.parse().unwrap_or_default();
            request
        });
        kube::Client::new(client, "default")
    }

    /// Why the agent refuses, as a failure of the command.
    fn refusal(&self, answer: &Answer) -> Failure {
        match (answer.code, answer.message()) {
            (StatusCode::NOT_FOUND, Some(message)) => Failure::No(Some(message)),
            // What the user wrote, such as a selector.
            (StatusCode::BAD_REQUEST, Some(message)) => Failure::Usage(message),
            (code, message) => {
                let message = message.unwrap_or_default();
                Failure::Unable(format!("{} answers {code} {message}", self.place))
            }
        }
    }

    /// The innermost error has the reason. The outer ones only say "client error (Connect)".
    pub(crate) fn unreachable(&self, error: &(dyn Error + 'static)) -> Failure {
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let is_other = innermost.downcast_ref().is_some_and(hyper::Error::is_parse);
        let hint = if is_other { "; does it speak TLS? See --certificate-authority" } else { "" };
        Failure::unable(
            format_args!("no agent answers on {} ({})", self.place, self.settings),
            format!("{innermost}{hint}"),
        )
    }
}

/// A segment of a path, with its special characters escaped.
pub(crate) fn escaped(segment: &str) -> String {
    utf8_percent_encode(segment, SEGMENT).to_string()
}
