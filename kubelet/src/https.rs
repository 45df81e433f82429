//! TLS for HTTP clients: the base configuration and the connector. Independent of the requests sent.

use std::sync::Arc;

use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, SignatureScheme, WantsVerifier};

use crate::dns::Resolver;

/// Opens connections to `http` and to `https` URLs.
pub type Connector = HttpsConnector<HttpConnector<Resolver>>;

/// Uses ring explicitly: an embedder may have several crypto providers in the tree and none installed.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The base client configuration. The caller adds trusted roots and the client certificate.
pub fn client_config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()
}

/// A connector for HTTP/1.1. With `name`, server certificates are checked for that name instead of the URL's
/// host.
#[must_use]
pub fn connector(config: ClientConfig, name: Option<ServerName<'static>>) -> Connector {
    encrypted(tcp(), config, name)
}

/// Opens TCP connections, also for `https://`: TLS comes on top.
pub(crate) fn tcp() -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(Resolver::new());
    tcp.enforce_http(false);
    // Otherwise the end of a request may wait for the acknowledgement of its beginning, which many servers delay
    // by 40 ms.
    tcp.set_nodelay(true);
    tcp
}

/// A connector with other options of TCP.
pub(crate) fn encrypted(
    tcp: HttpConnector<Resolver>,
    config: ClientConfig,
    name: Option<ServerName<'static>>,
) -> Connector {
    let names: Arc<dyn ResolveServerName + Send + Sync> = match name {
        Some(name) => Arc::new(FixedServerNameResolver::new(name)),
        None => Arc::new(DefaultServerNameResolver::default()),
    };
    HttpsConnector::new(tcp, config, false, names)
}

/// A client configuration that accepts any certificate. Connections are encrypted but not authenticated.
#[must_use]
pub fn unverified(builder: ConfigBuilder<ClientConfig, WantsVerifier>) -> ClientConfig {
    let verifier = Arc::new(Unverified(provider()));
    builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
}

/// Checks that the server holds the key of its certificate, but not who issued the certificate.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use hyper_rustls::MaybeHttpsStream;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_request_is_sent_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        for name in [None, Some("localhost".try_into().unwrap())] {
            let connector = connector(unverified(client_config().unwrap()), name);
            let stream: MaybeHttpsStream<_> = connector.oneshot(http::Uri::clone(&url)).await.unwrap();
            let MaybeHttpsStream::Http(stream) = stream else { panic!("it is not an https URL") };
            assert!(stream.inner().nodelay().unwrap());
        }
    }
}
