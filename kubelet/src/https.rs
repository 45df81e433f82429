//! What HTTP clients need for TLS: a configuration to begin with, and connections.
//!
//! It must not know what is asked.

use std::sync::Arc;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, SignatureScheme, WantsVerifier};

/// Opens connections to `http` and to `https` URLs.
pub type Connector = HttpsConnector<HttpConnector>;

/// ring, by name: an embedder may have several crypto providers in the tree and none installed.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The beginning of a client's configuration. Who is trusted, and who the client is, comes next.
pub fn client_config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()
}

/// Connections for HTTP/1.1. With `name`, every server must have a certificate for that name instead of the URL's host.
#[must_use]
pub fn connector(config: ClientConfig, name: Option<ServerName<'static>>) -> Connector {
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    match name {
        Some(name) => {
            builder.with_server_name_resolver(FixedServerNameResolver::new(name)).enable_http1().build()
        }
        None => builder.enable_http1().build(),
    }
}

/// A client that accepts any certificate. The connection is encrypted, but anybody may be at its other end.
#[must_use]
pub fn unverified(builder: ConfigBuilder<ClientConfig, WantsVerifier>) -> ClientConfig {
    let verifier = Arc::new(Unverified(provider()));
    builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
}

/// Checks that the server has the key of its certificate, and not whose certificate it is.
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
