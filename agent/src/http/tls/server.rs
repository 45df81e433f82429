//! The server's side: the certificate, reloads of its files, and the handshake.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::pem::Pem;
use crate::config::values::TlsFiles;
use crate::metrics::Scrape;
use pod_index_kubelet::https::provider;

/// Interval between checks of the files.
const PERIOD: Duration = Duration::from_secs(10);

/// A loaded set of files.
struct Loaded {
    /// The files' contents, to detect changes.
    contents: Vec<Vec<u8>>,
    config: Arc<ServerConfig>,
    /// The certificate's expiry in seconds since 1970, if it can be read.
    not_after: Option<i64>,
}

impl TlsFiles {
    /// Loads the files as they are now.
    fn load(&self) -> Result<Loaded, String> {
        let cert = Pem::read(&self.names.cert, &self.cert)?;
        let key = Pem::read(&self.names.private_key, &self.private_key)?;
        let client_ca = self.client_ca.as_ref();
        let client_ca = client_ca.map(|path| Pem::read(&self.names.client_ca, path)).transpose()?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| cert.wrong(error))?;
        let builder = match &client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let authorities = Arc::new(pem.authorities()?);
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider());
                let verifier = if self.takes_tokens { verifier.allow_unauthenticated() } else { verifier };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| pem.wrong(error))?)
            }
        };
        let chain = cert.chain()?;
        let not_after = chain.first().and_then(end_of);
        // Fails if the key does not match the certificate.
        let mut config = builder
            .with_single_cert(chain, key.key()?)
            .map_err(|error| cert.wrong(format_args!("with {}: {error}", self.private_key.display())))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if client_ca.is_some() {
            // A resumed session does not present the client's certificate again, and the certificate may have expired.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        let contents = [Some(cert), Some(key), client_ca].into_iter().flatten().map(Pem::into_bytes);
        Ok(Loaded { contents: contents.collect(), config: Arc::new(config), not_after })
    }
}

/// A certificate's expiry in seconds since 1970.
fn end_of(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// TLS on the agent's port, with the last valid set of files.
pub(crate) struct Tls {
    files: TlsFiles,
    /// Not locked while files are read: connections must not wait for a file system.
    state: Mutex<State>,
}

/// What is in use.
struct State {
    loaded: Loaded,
    /// The error in the current files, because of which earlier ones are in use.
    trouble: Option<String>,
}

impl Tls {
    /// Loads these files, which must be valid.
    pub(crate) fn load(files: TlsFiles) -> Result<Self, String> {
        let state = Mutex::new(State { loaded: files.load()?, trouble: None });
        Ok(Self { files, state })
    }

    /// Whether the served certificate matches the configured files, and when it expires.
    pub(crate) fn show(&self, to: &mut Scrape<'_>) {
        let help = "Whether the certificate in use is the one in the files; 0 if the files are invalid.";
        let state = self.lock();
        to.gauge("tls_certificate_current", help, i64::from(state.trouble.is_none()));
        if let Some(end) = state.loaded.not_after {
            to.gauge("tls_certificate_not_after_timestamp_seconds", "Expiry of the certificate in use.", end);
        }
    }

    /// Reloads the files whenever they have changed. Waits if the file system hangs.
    pub(crate) async fn keep_current(self: Arc<Self>) -> Infallible {
        loop {
            tokio::time::sleep(PERIOD).await;
            let tls = Arc::clone(&self);
            // A panic is logged elsewhere and changes nothing.
            let _ = tokio::task::spawn_blocking(move || tls.read()).await;
        }
    }

    /// Logs a change once.
    fn read(&self) {
        let loaded = self.files.load();
        let State { loaded: current, trouble } = &mut *self.lock();
        match loaded {
            Ok(loaded) => {
                *trouble = None;
                if loaded.contents != current.contents {
                    *current = loaded;
                    tracing::info!(path = %self.files.cert.display(), "new connections use the new TLS certificate");
                }
            }
            Err(error) if trouble.as_ref() != Some(&error) => {
                tracing::error!("the TLS certificate is unchanged: {error}");
                *trouble = Some(error);
            }
            Err(_) => {}
        }
    }

    /// Performs the handshake.
    pub(crate) async fn accept<S>(&self, client: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(&self.lock().loaded.config);
        TlsAcceptor::from(config).accept(client).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate valid in these years, and its key.
    fn certificate(from: i32, to: i32) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        (params.self_signed(&key).unwrap(), key)
    }

    #[test]
    fn the_expiry_of_any_certificate_is_reported() {
        // Certificates encode years from 2050 on differently.
        for (from, to, end) in [
            (1980, 2000, 946_684_800),
            (2020, 2030, 1_893_456_000),
            (2020, 2049, 2_493_072_000),
            (2020, 2051, 2_556_144_000),
            (2090, 2100, 4_102_444_800),
            (1975, 9999, 253_370_764_800),
        ] {
            assert_eq!(end_of(certificate(from, to).0.der()), Some(end), "{to}");
        }
        assert_eq!(end_of(&CertificateDer::from(b"no certificate".as_slice())), None);
    }
}
