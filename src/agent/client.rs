//! Asks a running agent, and prints what it says.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use super::answers::Translation;
use super::cli::{Output, Query, ServerArgs};
use super::exit::Failure;
use super::{format, settings, table};

/// How long the whole conversation may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What needs no escaping in a path, by RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Asks one question.
pub(super) fn ask(query: &Query, server: &ServerArgs, output: Output) -> Result<(), Failure> {
    let server = SocketAddr::new(
        server.address.unwrap_or(settings::DEFAULT_ADDRESS),
        server.port.unwrap_or(settings::DEFAULT_PORT),
    );
    match query {
        Query::Get { pod } => {
            let path = match pod.split_once('/') {
                Some((namespace, name)) => format!("/pods/{}/{}", escaped(namespace), escaped(name)),
                None => format!("/pods/{}", escaped(pod)),
            };
            format::answer(output, &fetch::<Pod>(server, &path)?, |pod| table::pods([pod]))
        }
        Query::Translate { uid } => {
            let answer = fetch::<Translation>(server, &format!("/translate/{}", escaped(uid)))?;
            format::answer(output, &answer, translation_table)
        }
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

/// GETs `path` and reads the answer.
fn fetch<T: DeserializeOwned>(server: SocketAddr, path: &str) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unable("cannot start the runtime", error))?;
    let (code, body) =
        runtime.block_on(async { tokio::time::timeout(TIMEOUT, get(server, path)).await }).map_err(
            |_| Failure::Unable(format!("the agent on {server} did not answer within {TIMEOUT:?}")),
        )??;
    if code == StatusCode::OK {
        return serde_json::from_slice(&body)
            .map_err(|error| Failure::unable(format_args!("cannot read what {server} answers"), error));
    }
    let message = serde_json::from_slice::<Status>(&body).ok().and_then(|status| status.message);
    Err(match (code, message) {
        (StatusCode::NOT_FOUND, Some(message)) => Failure::No(Some(message)),
        (_, message) => Failure::Unable(format!("{server} answers {code} {}", message.unwrap_or_default())),
    })
}

async fn get(server: SocketAddr, path: &str) -> Result<(StatusCode, Bytes), Failure> {
    let unreachable = |error: &dyn std::fmt::Display| {
        Failure::unable(format_args!("no agent answers on {server} (--address, --port)"), error)
    };
    let stream = TcpStream::connect(server).await.map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    tokio::spawn(connection);
    let request = Request::get(path)
        .header(header::HOST, server.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::Usage(format!("cannot ask for that: {error}")))?;
    let response = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
    let code = response.status();
    let body = response.into_body().collect().await.map_err(|error| unreachable(&error))?.to_bytes();
    Ok((code, body))
}
