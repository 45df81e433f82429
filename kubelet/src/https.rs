//! What HTTP clients need for TLS: a configuration to begin with, and connections.
//!
//! It must not know what is asked.

use std::sync::Arc;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ConfigBuilder, WantsVerifier};

/// Opens connections to `http` and to `https` URLs.
pub type Connector = HttpsConnector<HttpConnector>;

/// ring, by name: an embedder may have several crypto providers in the tree and none installed.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The beginning of a client's configuration. Who is trusted, and who the client is, comes next.
pub fn client_config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()
}

/// Connections for HTTP/1.1. With `name`, every server must have a certificate for that name instead of the URL's host.
pub fn connector(config: ClientConfig, name: Option<ServerName<'static>>) -> Connector {
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    match name {
        Some(name) => {
            builder.with_server_name_resolver(FixedServerNameResolver::new(name)).enable_http1().build()
        }
        None => builder.enable_http1().build(),
    }
}
