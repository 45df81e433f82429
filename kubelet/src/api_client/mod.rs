//! The API server client: HTTP/2, few connections, and a timeout for every silence.
//!
//! Handles connections, credentials and outages. It does not depend on what is listed or watched.
//!
//! # Connections
//! * The pod watch, all writes and all requests about pods share connections of their own. All other
//!   requests, such as the watches of Secrets and `ConfigMaps`, use other connections. A connection carries
//!   at most 80 requests at a time: API servers allow 100, and a request beyond that would wait without an
//!   error.
//! * If the server offers HTTP/2 (by ALPN), the client uses it. Otherwise it uses HTTP/1.1, with one
//!   connection for each watch. `http://` URLs always use HTTP/1.1.
//!
//! # Silence
//! * HTTP/2: a ping after 25 s of silence, and 15 s for its answer. A dead peer is noticed after 40 s.
//! * HTTP/1.1: TCP keepalive and `TCP_USER_TIMEOUT` close the connection to a dead peer after 40 s.
//! * A proxy may answer pings and probes for a dead server. The caller's deadline ends such a silence: if a
//!   request is dropped without an answer, or a watch is dropped after a long silence, its connection is
//!   retired. The next request opens another one.
//!
//! # Outages
//! * While the server is unreachable, one request at a time tries to reach it: at least every 4 s in the
//!   first minute, at most once in five seconds after it. All others wait for its outcome.
//! * A failed connection, a 401, 429, 502 or 503 begins an outage. A 500 does so only for a list or watch of
//!   pods: elsewhere it may be about one object. During an outage, such a 500 delays all requests but lists and
//!   watches of pods, which have attempts of their own.
//! * `Retry-After` is obeyed.
//! * After a 401, the client reads the files of its token and its certificate or runs its credential plugin again. With
//!   new credentials it repeats the request at once. Without, it reads or runs again before every later request until
//!   one succeeds.
//! * The files are read again every minute as well, by the next request. With a new certificate, the client opens new
//!   connections. Open watches keep theirs until they end.
//! * One renewal runs at a time. Requests wait for it, without a thread, for at most 8 s and then fail if the
//!   credential plugin has not answered. A plugin that runs for 30 s is killed. The next request runs it again.
//! * In the last minute before a plugin's credentials expire, a request waits for at most 1 s and is then sent
//!   with the old ones.

#[cfg(target_os = "linux")]
mod command;
mod connect;
mod credentials;
mod outage;
mod plugin;
mod pool;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use kube::client::{AuthError, Body};
use kube::{Client, Config};
use tokio::time;
use tower::{BoxError, ServiceExt, service_fn};

use credentials::Credentials;
use plugin::Plugin;
use pool::Answer;

/// How often a request is repeated because of `Retry-After`, as in client-go.
const REPEATS: usize = 10;
/// The longest `Retry-After` that is obeyed.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// When a connection counts as dead. The defaults suit a cluster.
#[derive(Clone, Debug)]
#[must_use = "options do nothing by themselves"]
pub struct ConnectionOptions {
    ping_interval: Duration,
    ping_timeout: Duration,
    connect_timeout: Duration,
    streams: usize,
    no_answer: Duration,
    no_event: Duration,
    plugin_wait: Duration,
    plugin_limit: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_secs(25),
            ping_timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            streams: 80,
            no_answer: Duration::from_secs(10),
            no_event: Duration::from_secs(100),
            plugin_wait: Duration::from_secs(8),
            plugin_limit: Duration::from_secs(30),
        }
    }
}

impl ConnectionOptions {
    /// HTTP/2 only: ping after this much silence, and give up if the answer takes longer than `timeout`. 25 s
    /// and 15 s by default. client-go has 30 s and 15 s.
    pub fn pings(mut self, interval: Duration, timeout: Duration) -> Self {
        (self.ping_interval, self.ping_timeout) = (interval, timeout);
        self
    }

    /// Time limit for opening a connection, including TLS. 5 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// A request or watch that is dropped after this much silence retires its connection. 10 s and 100 s by
    /// default.
    pub fn silences(mut self, request: Duration, watch: Duration) -> Self {
        (self.no_answer, self.no_event) = (request, watch);
        self
    }

    /// How long a request waits for the credential plugin before it fails, and how long the plugin may run
    /// before it is killed. 8 s and 30 s by default.
    pub fn plugin(mut self, wait: Duration, limit: Duration) -> Self {
        (self.plugin_wait, self.plugin_limit) = (wait, limit);
        self
    }
}

/// A client of the API server that `config` names. Every request carries `user_agent`.
///
/// Runs the credential plugin, if `config` names one, but does not connect. Must be called within a tokio
/// runtime with time and I/O enabled.
///
/// # Errors
/// If `config` holds credentials or certificates that cannot be read, or names a proxy or an authentication
/// provider that Kubernetes has removed, if the credential plugin fails or does not answer, or if `user_agent`
/// is not a valid header value.
pub async fn client(
    mut config: Config,
    user_agent: &str,
    options: &ConnectionOptions,
) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        // The URL is left out: it may contain a password.
        let message = "the kubeconfig or the environment names a proxy; proxies are not supported";
        return Err(kube::Error::Service(message.into()));
    }
    let user_agent = header::HeaderValue::from_str(user_agent).map_err(http::Error::from);
    config.headers.push((header::USER_AGENT, user_agent.map_err(kube::Error::HttpError)?));
    if let Some(provider) = config.auth_info.auth_provider.as_ref().filter(|provider| provider.name != "oidc")
    {
        // Some of them run a command, which kube could not stop.
        let name = crate::text::shorten(&provider.name);
        let message = format!("the auth-provider {name:?} is not supported; use a credential plugin (exec)");
        return Err(kube::Error::Auth(AuthError::AuthExec(message)));
    }
    let plugin = match Plugin::take(&mut config, options.plugin_limit) {
        Some(plugin) => {
            let issued = plugin.run().await?;
            Some((plugin, issued))
        }
        None => None,
    };
    let namespace = config.default_namespace.clone();
    let credentials = Arc::new(Credentials::new(config, plugin, options)?);
    let service = service_fn(move |request| send(Arc::clone(&credentials), request));
    Ok(Client::new(service, namespace))
}

/// Sends a request. Renews the credentials after a 401, and repeats the request after a `Retry-After`.
async fn send(credentials: Arc<Credentials>, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
    let mut request = request;
    let mut renewed = false;
    for repeat in 0.. {
        let copy = copy(&request);
        let (service, version) = credentials.current().await?;
        let response = service.oneshot(request).await?;
        if response.status().is_success() {
            credentials.accepted(version);
        }
        let Some(copy) = copy else { return Ok(response) };
        request = copy;
        if response.status() == StatusCode::UNAUTHORIZED && credentials.refused(version, renewed).await? {
            renewed = true;
            continue;
        }
        match retry_after(&response) {
            Some(wait) if repeat < REPEATS => time::sleep(wait).await,
            _ => return Ok(response),
        }
    }
    unreachable!("the loop ends by its answers")
}

/// A copy of the request. `None` if its body can be read only once.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// How long the server asks the client to wait before the next request.
fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    if !matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds)).filter(|wait| *wait <= LONGEST_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_peer_is_noticed_within_forty_seconds() {
        let options = ConnectionOptions::default();
        assert!(options.ping_interval + options.ping_timeout <= Duration::from_secs(40));
        assert!(connect::TCP_SILENCE <= Duration::from_secs(40));
    }
}
