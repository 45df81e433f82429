//! A connection to a running agent, with TLS or without.

use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::exit::Failure;
use super::tls::ClientTls;

/// Where an agent is, and how it is spoken to; without TLS: plainly.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<ClientTls>,
}

pub(super) fn read<T: DeserializeOwned>(server: SocketAddr, bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::unable(format_args!("cannot read what {server} answers"), error))
}

/// A connection to an agent.
#[derive(Debug)]
pub(super) struct Connection {
    server: SocketAddr,
    sender: SendRequest<Empty<Bytes>>,
}

/// A good answer.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) tag: Option<String>,
}

impl Connection {
    pub(super) async fn open(server: &Server) -> Result<Self, Failure> {
        let address = server.address;
        let stream = TcpStream::connect(address).await.map_err(|error| unreachable(address, &error))?;
        match &server.tls {
            None => Self::over(stream, address).await,
            Some(tls) => {
                let stream = tls.connect(stream).await;
                let unable = |error| Failure::unable(format_args!("cannot speak TLS with {address}"), error);
                Self::over(stream.map_err(unable)?, address).await
            }
        }
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        server: SocketAddr,
    ) -> Result<Self, Failure> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(server, &error))?;
        tokio::spawn(connection);
        Ok(Self { server, sender })
    }

    /// What is at `path`.
    pub(super) async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<Body, Failure> {
        let server = self.server;
        let known = || Failure::Unable(format!("{server} says that {path} is known, and it is not"));
        self.get_unless_known(path, headers).await?.ok_or_else(known)
    }

    /// What is at `path`, as JSON.
    pub(super) async fn get_json<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, Failure> {
        let body = self.get(path, &[]).await?;
        read(self.server, &body.bytes)
    }

    /// What is at `path`; nothing, if the headers say that the client has it.
    pub(super) async fn get_unless_known(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Option<Body>, Failure> {
        let server = self.server;
        let request = Request::get(path).header(header::HOST, server.to_string());
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request
            .body(Empty::new())
            .map_err(|error| Failure::Usage(format!("cannot ask for that: {error}")))?;
        let response = self.sender.send_request(request).await.map_err(|error| broken(server, &error))?;
        let code = response.status();
        let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = response.into_body().collect().await.map_err(|error| broken(server, &error))?;
        let bytes = body.to_bytes();
        match code {
            StatusCode::OK => Ok(Some(Body { bytes, tag })),
            StatusCode::NOT_MODIFIED => Ok(None),
            _ => Err(refusal(server, code, &bytes)),
        }
    }
}

/// What an answer means that is none.
fn refusal(server: SocketAddr, code: StatusCode, body: &[u8]) -> Failure {
    let message = serde_json::from_slice::<Status>(body).ok().and_then(|status| status.message);
    match (code, message) {
        (StatusCode::NOT_FOUND, Some(message)) => Failure::No(Some(message)),
        (_, message) => Failure::Unable(format!("{server} answers {code} {}", message.unwrap_or_default())),
    }
}

fn unreachable(server: SocketAddr, error: &dyn Display) -> Failure {
    Failure::unable(format_args!("no agent answers on {server} (--address, --port)"), error)
}

/// What hyper says itself is "connection error"; why, it keeps within.
fn broken(server: SocketAddr, error: &hyper::Error) -> Failure {
    match error.source() {
        Some(source) => unreachable(server, &format_args!("{error}: {source}")),
        None => unreachable(server, error),
    }
}
