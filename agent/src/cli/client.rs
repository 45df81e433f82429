//! A client of a running agent: on its port, with or without TLS, or on its socket.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use pod_index_kubelet::https::Connector;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tower::Service;

use super::tls;
use super::{ClientArgs, ServerArgs};
use crate::config::failure::Failure;

/// Characters that a path need not escape (RFC 3986).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Names and values of headers.
pub(crate) type Headers = &'static [(&'static str, &'static str)];
/// Asks for pods as rows of a `Table`.
pub(crate) const TABLE: Headers = &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
/// Timeout of an exchange.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running agent. Requests share connections.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// An address and a port, or the path of a socket.
    pub(crate) place: String,
    /// The URL up to the path.
    base: String,
    client: Transport,
}

#[derive(Clone, Debug)]
enum Transport {
    Port(Client<Connector, Full<Bytes>>),
    Socket(Client<SocketConnector, Full<Bytes>>),
}

/// Why there is no body.
#[derive(Debug)]
pub(crate) enum Denied {
    Unreachable(Failure),
    /// A response other than 200.
    Refused(StatusCode, Failure),
}

impl Server {
    /// The agent that the flags name: its socket, or else its address and port.
    pub(crate) fn new(
        server: &ServerArgs,
        client: &ClientArgs,
        default: (IpAddr, u16),
    ) -> Result<Self, Failure> {
        if let Some(path) = server.socket.as_deref().filter(|path| !path.as_os_str().is_empty()) {
            return Ok(Self::on_socket(path));
        }
        let address = SocketAddr::new(server.address.unwrap_or(default.0), server.port.unwrap_or(default.1));
        match tls::connector(client, address.ip()).map_err(Failure::Usage)? {
            Some(connector) => Ok(Self::on_port("https", address, connector)),
            None => Self::plain(address),
        }
    }

    /// A server that speaks plain HTTP.
    pub(crate) fn plain(address: SocketAddr) -> Result<Self, Failure> {
        Ok(Self::on_port("http", address, tls::plain().map_err(Failure::Usage)?))
    }

    fn on_port(scheme: &str, address: SocketAddr, connector: Connector) -> Self {
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self {
            place: address.to_string(),
            base: format!("{scheme}://{address}"),
            client: Transport::Port(client),
        }
    }

    fn on_socket(path: &Path) -> Self {
        let client = Client::builder(TokioExecutor::new()).build(SocketConnector(Arc::new(path.to_owned())));
        Self {
            place: path.display().to_string(),
            base: "http://localhost".to_owned(),
            client: Transport::Socket(client),
        }
    }

    /// The body at `path`.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Bytes, Failure> {
        self.send(Method::GET, path, headers, Bytes::new()).await
    }

    /// The body at `path`, parsed as JSON.
    pub(crate) async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let body = self.get(path, &[]).await?;
        // As a string, as pods are decoded everywhere: each other type of input adds 400 KB of machine code.
        serde_json::from_str(&String::from_utf8_lossy(&body))
            .map_err(|error| Failure::unable(format_args!("cannot read what {} answers", self.place), error))
    }

    /// The answer, unless it takes too long. The agent itself waits for `wait`.
    pub(crate) async fn within<T>(
        &self,
        wait: Option<Duration>,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = TIMEOUT + wait.unwrap_or_default();
        let late = || Failure::Unable(format!("the agent on {} did not answer within {limit:?}", self.place));
        timeout(limit, answer).await.map_err(|_| late())?
    }

    /// The body of the response to a POST.
    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        self.send(Method::POST, path, &[], body).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Bytes, Failure> {
        let response = self.request(method, path, headers, body).await?;
        let code = response.status();
        let bytes = self.whole(response.into_body()).await?;
        if code == StatusCode::OK { Ok(bytes) } else { Err(self.refusal(code, &bytes)) }
    }

    /// The body at `path`, to be read as it comes.
    pub(crate) async fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Result<Incoming, Denied> {
        let response = self.request(Method::GET, path, headers, Bytes::new()).await;
        let response = response.map_err(Denied::Unreachable)?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            code => {
                let body = self.whole(response.into_body()).await.map_err(Denied::Unreachable)?;
                Err(Denied::Refused(code, self.refusal(code, &body)))
            }
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request
            .body(Full::new(body))
            .map_err(|error| Failure::Usage(format!("invalid request: {error}")))?;
        self.client.request(request).await.map_err(|error| self.unreachable(&error))
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, Failure> {
        Ok(body.collect().await.map_err(|error| self.unreachable(&error))?.to_bytes())
    }

    /// The agent's reason for a response other than 200.
    fn refusal(&self, code: StatusCode, body: &[u8]) -> Failure {
        let message = serde_json::from_slice::<Status>(body).ok().and_then(|status| status.message);
        match (code, message) {
            (StatusCode::NOT_FOUND, Some(message)) => Failure::No(Some(message)),
            // What the user wrote, such as a selector.
            (StatusCode::BAD_REQUEST, Some(message)) => Failure::Usage(message),
            (_, message) => {
                Failure::Unable(format!("{} answers {code} {}", self.place, message.unwrap_or_default()))
            }
        }
    }

    /// The innermost error has the reason. The outer ones only say "client error (Connect)".
    pub(crate) fn unreachable(&self, error: &(dyn Error + 'static)) -> Failure {
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let flags = match self.client {
            Transport::Port(_) => "--address, --port",
            Transport::Socket(_) => "--socket",
        };
        let is_other = innermost.downcast_ref().is_some_and(hyper::Error::is_parse);
        let hint = if is_other { "; does it speak TLS? See --certificate-authority" } else { "" };
        Failure::unable(
            format_args!("no agent answers on {} ({flags})", self.place),
            format!("{innermost}{hint}"),
        )
    }
}

impl Transport {
    async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, legacy::Error> {
        match self {
            Self::Port(client) => client.request(request).await,
            Self::Socket(client) => client.request(request).await,
        }
    }
}

/// Connects to a Unix socket, whatever the URL.
#[derive(Clone, Debug)]
struct SocketConnector(Arc<PathBuf>);

impl Service<Uri> for SocketConnector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<UnixStream>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = Arc::clone(&self.0);
        async move { UnixStream::connect(&*path).await.map(TokioIo::new) }.boxed()
    }
}

/// A segment of a path, with its special characters escaped.
pub(crate) fn escaped(segment: &str) -> String {
    utf8_percent_encode(segment, SEGMENT).to_string()
}
