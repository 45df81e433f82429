//! Opens connections: TCP, TLS, and HTTP/2 where the server offers it.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt, RustlsTlsError};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tower::util::MapErr;

use super::options::{ConnectionOptions, Pings};
use crate::https;

/// How many idle HTTP/1.1 connections are kept.
const MOST_IDLE: usize = 4;
/// Time limit for opening a connection, including TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// Interval of TCP keepalive probes on a silent connection.
const TCP_PROBES: Duration = Duration::from_secs(10);
/// A peer that acknowledges nothing for this long is dead. Four probes.
pub(super) const TCP_SILENCE: Duration = Duration::from_secs(40);

type BoxError = Box<dyn Error + Send + Sync>;
type Connector = MapErr<TimeoutConnector<https::Connector>, fn(BoxError) -> BoxError>;

/// One HTTP/2 connection to the server, or one HTTP/1.1 connection per request under way.
pub(super) type Connection = Client<Connector, Body>;

/// Opens connections to one server.
pub(super) struct Connections {
    connector: Connector,
    pings: Pings,
    /// Whether the certificate authorities have changed since.
    is_distrusted: watch::Sender<bool>,
}

impl Connections {
    pub(super) fn new(config: &Config, options: &ConnectionOptions) -> kube::Result<Self> {
        let mut tcp = https::tcp();
        tcp.set_keepalive(Some(TCP_PROBES));
        tcp.set_keepalive_interval(Some(TCP_PROBES));
        tcp.set_keepalive_retries(Some(3));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        tcp.set_tcp_user_timeout(Some(TCP_SILENCE));
        let name = config.tls_server_name.clone().map(TryInto::try_into).transpose();
        let name = name.map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error)))?;
        let mut tls = config.rustls_client_config()?;
        // kube's own connector offers only HTTP/1.1.
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut connector = TimeoutConnector::new(https::encrypted(tcp, tls, name));
        connector.set_connect_timeout(Some(CONNECT));
        let connector = MapErr::new(connector, in_words as fn(BoxError) -> BoxError);
        Ok(Self { connector, pings: options.pings, is_distrusted: watch::Sender::new(false) })
    }

    /// Ends the answers of all connections: their server was trusted because of other certificate authorities.
    pub(super) fn distrust(&self) {
        self.is_distrusted.send_replace(true);
    }

    /// Waits for [`distrust`](Self::distrust).
    pub(super) fn distrusted(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_distrusted = self.is_distrusted.subscribe();
        async move {
            // Without the sender, nobody distrusts them any more.
            if is_distrusted.wait_for(|is_so| *is_so).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// A separate connection, opened by its first request.
    pub(super) fn another(&self) -> Connection {
        Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(self.pings.after)
            .http2_keep_alive_timeout(self.pings.timeout)
            .http2_keep_alive_while_idle(true)
            // A connection without new requests may still carry watches. Pings tell whether it is dead.
            .pool_idle_timeout(None)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(self.connector.clone())
    }
}

/// Says what did not happen in time. [`TimeoutConnector`] says only that a deadline has elapsed.
fn in_words(error: BoxError) -> BoxError {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    if inner.is_some_and(<dyn Error + Send + Sync>::is::<Elapsed>) {
        let message = format!("no connection after {} s", CONNECT.as_secs());
        return io::Error::new(io::ErrorKind::TimedOut, message).into();
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::causes;

    /// The clock of the test goes on as soon as nothing else happens, so no machine is too slow for it.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_a_connection_is_reported_in_words() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url: http::Uri = format!("https://{}", silent.local_addr().unwrap()).parse().unwrap();
        let mut config = Config::new(url.clone());
        config.accept_invalid_certs = true;
        let connections = Connections::new(&config, &ConnectionOptions::default()).unwrap();
        let request = http::Request::get(url).body(Body::empty()).unwrap();
        let error = connections.another().request(request).await.unwrap_err();
        assert_eq!(causes(&error), "client error (Connect): no connection after 5 s");
    }
}
