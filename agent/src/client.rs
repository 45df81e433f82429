//! Asks a running agent, and prints what it says.

use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::api_types::Translation;
use super::cli::{ClientArgs, Output, Query, ServerArgs};
use super::exit::Failure;
use super::tls::ClientTls;
use super::{format, settings, table, top};

/// How long the whole conversation may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What needs no escaping in a path, by RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Asks one question.
pub(super) fn ask(
    query: &Query,
    server: &ServerArgs,
    client: &ClientArgs,
    output: Output,
) -> Result<(), Failure> {
    let address = SocketAddr::new(
        server.address.unwrap_or(settings::DEFAULT_ADDRESS),
        server.port.unwrap_or(settings::DEFAULT_PORT),
    );
    let tls = ClientTls::load(client, address.ip()).map_err(Failure::Usage)?;
    let server = Server { address, tls };
    match query {
        Query::Get { pod } => {
            let path = match pod.split_once('/') {
                Some((namespace, name)) => format!("/pods/{}/{}", escaped(namespace), escaped(name)),
                None => format!("/pods/{}", escaped(pod)),
            };
            format::answer(output, &fetch::<Pod>(&server, &path)?, |pod| table::pods([pod]))
        }
        Query::Translate { uid } => {
            let answer = fetch::<Translation>(&server, &format!("/translate/{}", escaped(uid)))?;
            format::answer(output, &answer, translation_table)
        }
        Query::Top { interval } => top::run(server, interval.0),
    }
}

fn translation_table(answer: &Translation) -> String {
    let pod = answer.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)).unwrap_or_default();
    let kind = if answer.is_mirror_pod { "mirror" } else { "" };
    table::table(["UID", "KIND", "POD UID", "POD"], [[&*answer.uid, kind, &*answer.pod_uid, &*pod]])
}

fn escaped(segment: &str) -> String {
    utf8_percent_encode(segment, SEGMENT).to_string()
}

/// Where an agent is, and how it is spoken to; without TLS: plainly.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    tls: Option<ClientTls>,
}

/// GETs `path` and reads the answer.
fn fetch<T: DeserializeOwned>(server: &Server, path: &str) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unable("cannot start the runtime", error))?;
    let address = server.address;
    let body = runtime.block_on(async {
        let get = async { Connection::open(server).await?.get(path, &[]).await };
        let late = || Failure::Unable(format!("the agent on {address} did not answer within {TIMEOUT:?}"));
        tokio::time::timeout(TIMEOUT, get).await.map_err(|_| late())?
    })?;
    read(address, &body.bytes)
}

fn read<T: DeserializeOwned>(server: SocketAddr, bytes: &[u8]) -> Result<T, Failure> {
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
