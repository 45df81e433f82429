//! Clients of the API server: HTTP/2, few connections, and a timeout for every silence.
//!
//! Handles connections and credentials. It repeats no request, except after a 401 with new credentials: who asks knows
//! whether and when to ask again.
//!
//! # Connections
//! * Each [`client`](ApiClient::client) has connections of its own, so that one cannot delay another. All share the
//!   credentials. A connection carries at most 80 requests at a time: API servers allow 100, and a request beyond that
//!   would wait without an error.
//! * If the server offers HTTP/2 (by ALPN), the client uses it. Otherwise it uses HTTP/1.1, with one
//!   connection for each watch. `http://` URLs always use HTTP/1.1.
//! * While there is no connection, one request at a time tries to open it, and the others wait. Pauses between attempts
//!   are up to who asks.
//!
//! # Silence
//! * HTTP/2: a ping after 25 s of silence, and 15 s for its answer. A dead peer is noticed after 40 s.
//! * HTTP/1.1: TCP keepalive and `TCP_USER_TIMEOUT` close the connection to a dead peer after 40 s.
//! * A proxy may answer pings and probes for a dead server. The caller's deadline ends such a silence: if a
//!   request is dropped without an answer, or a watch is dropped after a long silence, its connection is
//!   retired. The next request opens another one.
//!
//! # Credentials
//! * The credential plugin runs first when a request needs it.
//! * After a 401, the client reads the files of its token and its certificate or runs its credential plugin again. With
//!   new credentials it repeats the request at once. Without, it reads or runs again before every later request until
//!   one succeeds.
//! * The files are read again every minute as well, by the next request. With a new certificate, the client opens new
//!   connections. Open watches keep theirs until they end.
//! * A file that hangs delays one request, by a second; the others are sent with the last credentials.
//! * The file of the certificate authorities is read every 30 s, on a thread of its own. With other authorities, the client
//!   opens new connections, and the answers on the old ones end, watches too.
//! * One renewal runs at a time. Requests wait for it, without a thread, for at most 8 s and then fail if the
//!   credential plugin has not answered. A plugin that runs for 30 s is killed. The next request runs it again.
//! * In the last minute before a plugin's credentials expire, a request waits for at most 1 s and is then sent
//!   with the old ones.

mod authorities;
mod command;
mod connect;
mod credentials;
mod expiry;
mod options;
mod plugin;
mod pool;
mod rotation;

use std::sync::Arc;

use http::{Request, Response, StatusCode, header};
use kube::client::{AuthError, Body};
use kube::core::Status;
use kube::{Client, Config};
use tokio::task::spawn_blocking;
use tower::{BoxError, ServiceExt, service_fn};

use credentials::Credentials;
pub use options::{ConnectionOptions, Pings, PluginTimes, Silences};
use plugin::Plugin;
use pool::{Answer, Pool};

/// Kills the credential plugins that run, with their process groups, and lets no other start.
///
/// Call it at the end of the process, at which no client is dropped: a plugin has a process group of its own, and may ignore
/// signals.
pub fn end_plugins() {
    command::end_all();
}

/// One identity at one API server.
#[derive(Clone)]
pub struct ApiClient {
    credentials: Arc<Credentials>,
    namespace: String,
}

impl ApiClient {
    /// The identity in `config`. Every request carries `user_agent`.
    ///
    /// Reads files. Neither connects nor runs the credential plugin: the first request does, and fails if that
    /// fails. Must be called within a tokio runtime with time and I/O enabled.
    ///
    /// # Errors
    /// If `config` holds credentials or certificates that cannot be read, or names a proxy or an authentication
    /// provider that Kubernetes has removed, or if `user_agent` is not a valid header value.
    pub async fn new(
        mut config: Config,
        user_agent: &str,
        options: &ConnectionOptions,
    ) -> kube::Result<Self> {
        if config.proxy_url.is_some() {
            // The URL is left out: it may contain a password.
            let message = "the kubeconfig or the environment names a proxy; proxies are not supported";
            return Err(kube::Error::Service(message.into()));
        }
        let user_agent = header::HeaderValue::from_str(user_agent).map_err(http::Error::from);
        config.headers.push((header::USER_AGENT, user_agent.map_err(kube::Error::HttpError)?));
        let provider = config.auth_info.auth_provider.as_ref();
        if let Some(provider) = provider.filter(|provider| provider.name != "oidc") {
            // Some of them run a command, which kube could not stop.
            let name = crate::text::shorten(&provider.name);
            let message =
                format!("the auth-provider {name:?} is not supported; use a credential plugin (exec)");
            return Err(kube::Error::Auth(AuthError::AuthExec(message)));
        }
        let options = options.clone().bounded();
        let plugin = Plugin::take(&mut config, options.plugin.run);
        let namespace = config.default_namespace.clone();
        // Reading a file may block.
        let credentials = spawn_blocking(move || Credentials::new(config, plugin, &options)).await;
        let credentials = credentials.map_err(|error| kube::Error::Service(error.into()))??;
        let credentials = Arc::new(credentials);
        rotation::follow(&credentials);
        Ok(Self { credentials, namespace })
    }

    /// Runs the credential plugin, if there is one and it has not answered yet.
    ///
    /// # Errors
    /// If it fails, or does not answer in time.
    pub async fn authenticate(&self) -> kube::Result<()> {
        self.credentials.current().await.map(drop).map_err(kube::Error::Service)
    }

    /// A client with connections of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client_with_limit(usize::MAX)
    }

    /// A client with connections of its own that sends at most this many requests at a time. More wait.
    #[must_use]
    pub fn client_with_limit(&self, requests: usize) -> Client {
        let credentials = Arc::clone(&self.credentials);
        let pool = Arc::new(credentials.pool(requests));
        let service = service_fn(move |request| send(Arc::clone(&credentials), Arc::clone(&pool), request));
        Client::new(service, self.namespace.clone())
    }
}

impl_debug!(ApiClient, namespace);

/// Why the client certificate of `config` is of no use, if it has expired. Reads its file, which may block.
pub(crate) fn expired(config: &Config) -> Option<String> {
    expiry::expired(&credentials::certificate(config).ok()??)
}

/// Sends a request. After a 401, renews the credentials and repeats the request once.
async fn send(
    credentials: Arc<Credentials>,
    pool: Arc<Pool>,
    request: Request<Body>,
) -> Result<Response<Answer>, BoxError> {
    let (mut parts, mut body) = request.into_parts();
    parts.extensions.insert(pool);
    let mut was_renewed = false;
    loop {
        // `None` if the body can be read only once.
        let copy = body.try_clone();
        let (service, version) = credentials.current().await?;
        let response = service.oneshot(Request::from_parts(parts.clone(), body)).await?;
        if response.status().is_success() {
            credentials.accepted(version);
        }
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let is_renewed = credentials.refused(version, was_renewed).await?;
        match copy {
            Some(copy) if is_renewed => (body, was_renewed) = (copy, true),
            _ => {
                let Some(why) = credentials.expired() else { return Ok(response) };
                // The server's answer does not say why.
                let status = Status::failure(&format!("Unauthorized: {why}"), "Unauthorized").with_code(401);
                return Err(kube::Error::Api(status.boxed()).into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_dead_peer_is_noticed_within_forty_seconds() {
        let options = ConnectionOptions::default();
        assert!(options.pings.after + options.pings.timeout <= Duration::from_secs(40));
        assert!(connect::TCP_SILENCE <= Duration::from_secs(40));
    }

    #[tokio::test]
    async fn an_answer_read_to_its_end_does_not_retire_its_connection() {
        let server = pod_index_test_support::api_server::ApiServer::start().await;
        let silences = Silences {
            request: Duration::from_secs(60),
            answer: Duration::ZERO,
            http1_answer: Duration::ZERO,
        };
        let options = ConnectionOptions { silences, ..ConnectionOptions::default() };
        let config = Config::new(format!("http://127.0.0.1:{}", server.port()).parse().unwrap());
        let client = ApiClient::new(config, "pod-index/0", &options).await.unwrap().client();
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::all(client);
        for _ in 0..3 {
            pods.list(&kube::api::ListParams::default()).await.unwrap();
        }
        assert_eq!(server.connections(), 1);
    }
}
