//! A server's certificate that a test replaces, as an operator does.

use std::sync::{Arc, Mutex};

use tokio_rustls::rustls;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// What new connections are shown. Open ones keep what they were shown.
#[derive(Debug)]
pub struct Certificate(Mutex<Arc<CertifiedKey>>);

impl Certificate {
    /// A certificate and its key, in PEM.
    pub fn new(certificate: &str, key: &str) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Arc::new(decoded(certificate, key)))))
    }

    pub fn replace(&self, certificate: &str, key: &str) {
        *self.0.lock().unwrap() = Arc::new(decoded(certificate, key));
    }

    /// No session is resumed, as after the start of a new process. A resumed one would not show the certificate.
    pub fn forget_sessions(config: &mut rustls::ServerConfig) {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap()))
    }
}

fn decoded(certificate: &str, key: &str) -> CertifiedKey {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    CertifiedKey::new(vec![certificate], key)
}
