//! A client of a running agent, with or without TLS.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use pod_index_kubelet::https::Connector;
use serde::de::DeserializeOwned;

use super::cli::{ClientArgs, ServerArgs};
use super::exit::Failure;
use super::tls;

/// A running agent. Requests share connections.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    scheme: &'static str,
    client: Client<Connector, Full<Bytes>>,
}

/// A successful response.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) tag: Option<String>,
}

impl Server {
    /// The agent that the flags name.
    pub(super) fn new(
        server: &ServerArgs,
        client: &ClientArgs,
        default: (IpAddr, u16),
    ) -> Result<Self, Failure> {
        let address = SocketAddr::new(server.address.unwrap_or(default.0), server.port.unwrap_or(default.1));
        let (scheme, connector) = match tls::client::connector(client, address.ip()) {
            Ok(Some(connector)) => ("https", Ok(connector)),
            Ok(None) => ("http", tls::client::plain()),
            Err(error) => ("https", Err(error)),
        };
        let client = Client::builder(TokioExecutor::new()).build(connector.map_err(Failure::Usage)?);
        Ok(Self { address, scheme, client })
    }

    /// The body at `path`.
    pub(super) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Body, Failure> {
        let unchanged = || Failure::Unable(format!("{} says that {path} has not changed", self.address));
        self.get_unless_known(path, headers).await?.ok_or_else(unchanged)
    }

    /// The body at `path`, parsed as JSON.
    pub(super) async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let body = self.get(path, &[]).await?;
        serde_json::from_slice(&body.bytes).map_err(|error| {
            Failure::unable(format_args!("cannot read what {} answers", self.address), error)
        })
    }

    /// The response at `path`. `None` if it is not modified (304).
    pub(super) async fn get_unless_known(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Option<Body>, Failure> {
        self.send(Method::GET, path, headers, Bytes::new()).await
    }

    /// The body of the response to a POST.
    pub(super) async fn post(&self, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        let answer = self.send(Method::POST, path, &[], body).await?;
        Ok(answer.map(|answer| answer.bytes).unwrap_or_default())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Option<Body>, Failure> {
        let request = Request::builder().method(method);
        let request = request.uri(format!("{}://{}{path}", self.scheme, self.address));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request
            .body(Full::new(body))
            .map_err(|error| Failure::Usage(format!("invalid request: {error}")))?;
        let response = self.client.request(request).await.map_err(|error| self.unreachable(&error))?;
        let code = response.status();
        let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = response.into_body().collect().await.map_err(|error| self.unreachable(&error))?;
        let bytes = body.to_bytes();
        match code {
            StatusCode::OK => Ok(Some(Body { bytes, tag })),
            StatusCode::NOT_MODIFIED => Ok(None),
            _ => Err(self.refusal(code, &bytes)),
        }
    }

    /// The agent's reason for a response other than 200.
    fn refusal(&self, code: StatusCode, body: &[u8]) -> Failure {
        let message = serde_json::from_slice::<Status>(body).ok().and_then(|status| status.message);
        match (code, message) {
            (StatusCode::NOT_FOUND, Some(message)) => Failure::No(Some(message)),
            (_, message) => {
                Failure::Unable(format!("{} answers {code} {}", self.address, message.unwrap_or_default()))
            }
        }
    }

    /// The innermost error has the reason. The outer ones only say "client error (Connect)".
    fn unreachable(&self, error: &(dyn Error + 'static)) -> Failure {
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Failure::unable(format_args!("no agent answers on {} (--address, --port)", self.address), innermost)
    }
}
