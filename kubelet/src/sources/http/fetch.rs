//! One request to a URL, limited in time and size.

use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpInfo;
use hyper_util::rt::TokioExecutor;

use super::HttpConfig;
use crate::https::{self, Connector};
use crate::sources::Problem;
use crate::text::causes;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("pod-index/", env!("CARGO_PKG_VERSION")));

/// Requests a URL and keeps its connections.
pub(super) type HttpClient = Client<Connector, Empty<Bytes>>;

pub(super) fn client(config: &HttpConfig) -> Result<HttpClient, Problem> {
    Ok(Client::builder(TokioExecutor::new()).build(https::connector(config.tls()?, None)))
}

/// The body of a `200 OK`.
pub(super) struct Fetched {
    pub(super) body: Bytes,
    /// The connection that carried it: this end's address. `None` if the server closes it after the answer.
    pub(super) connection: Option<SocketAddr>,
}

/// The answer, if it is `200 OK`, or an error message. `token` replaces an authorization in the configuration.
pub(super) async fn fetch(
    client: &HttpClient,
    config: &HttpConfig,
    token: Option<HeaderValue>,
) -> Result<Fetched, String> {
    let answer = async {
        let mut request = Request::new(Empty::new());
        request.uri_mut().clone_from(&config.uri);
        let headers = request.headers_mut();
        headers.clone_from(&config.headers);
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token);
        }
        headers.entry(USER_AGENT).or_insert(AGENT);
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        let response = client.request(request).await.map_err(|error| causes(&error))?;
        let status = response.status();
        if status == StatusCode::OK {
            let connection = connection(&response);
            let body = read(response.into_body(), config.limit).await?;
            return Ok(Fetched { body, connection });
        }
        let Some(location) = response.headers().get(LOCATION) else {
            return Err(format!("answered {status}"));
        };
        let location = String::from_utf8_lossy(location.as_bytes());
        // A query may hold a token.
        let target = crate::text::shorten(location.split('?').next().unwrap_or_default());
        Err(format!("answered {status}, a redirect to {target:?}, which is not followed"))
    };
    let late = || Err(format!("no complete answer within {:?}", config.timeout));
    tokio::time::timeout(config.timeout, answer).await.unwrap_or_else(|_elapsed| late())
}

/// The connection of an answer, unless the server closes it afterwards.
fn connection(response: &Response<Incoming>) -> Option<SocketAddr> {
    let is_kept = response.version() == Version::HTTP_11
        && !response
            .headers()
            .get_all(CONNECTION)
            .iter()
            .any(|value| value.as_bytes().eq_ignore_ascii_case(b"close"));
    response.extensions().get().filter(|_| is_kept).map(HttpInfo::local_addr)
}

async fn read(body: Incoming, limit: usize) -> Result<Bytes, String> {
    let too_large = || format!("answered with more than the limit of {limit} bytes");
    // If the announced length is too large, do not read the body.
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(format!("the answer was cut off: {}", causes(&*error))),
    }
}
