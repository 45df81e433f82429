//! A client of a running agent: on its port, with or without TLS, or on its socket.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt, service_fn};

use super::tls;
use crate::api::view::View;
use crate::config::failure::Failure;
use crate::config::subjects::{ClientTls, ServerAddress};
use crate::config::written::Written;

/// Characters that a path need not escape (RFC 3986).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

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

    /// The body at `path`.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// The body at `path`, parsed as JSON.
    pub(crate) async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let body = self.get(path).await?;
        // As a string, as pods are decoded everywhere: each other type of input adds 400 KB of machine code.
        serde_json::from_str(&String::from_utf8_lossy(&body))
            .map_err(|error| Failure::unable(format_args!("cannot read what {} answers", self.place), error))
    }

    /// The body of the response to a request.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let request = request
            .body(Body::from(body))
            .map_err(|error| Failure::Usage(format!("invalid request: {error}")))?;
        let answer = async {
            let response =
                self.client.clone().oneshot(request).await.map_err(|error| self.unreachable(&error))?;
            let code = response.status();
            let body = response.into_body();
            let body = body.collect().await.map_err(|error| self.unreachable(&error))?.to_bytes();
            if code == StatusCode::OK { Ok(body) } else { Err(self.refusal(code, &body)) }
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
