//! The certificate authorities of the API server, from a file that is replaced when they rotate.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Config;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::{MissedTickBehavior, interval};

use super::credentials::Credentials;
use crate::blocking;
use crate::text::api_causes;

/// How often the file is read.
const PERIOD: Duration = Duration::from_secs(30);

/// The trusted authorities.
pub(super) struct Authorities {
    pub(super) file: Option<PathBuf>,
    /// What the file held last.
    pub(super) pem: Vec<u8>,
    /// Each in DER. `None`: the system's.
    pub(super) trusted: Option<Vec<Vec<u8>>>,
}

impl Authorities {
    /// Those that `config` names. From now on, it holds them itself: kube would read the file during a TLS handshake.
    pub(super) fn of(config: &mut Config) -> kube::Result<Self> {
        let file = config.root_cert_file.take();
        let mut pem = Vec::new();
        if let Some(path) = &file {
            pem = std::fs::read(path).map_err(|error| unread(path, &error.to_string()))?;
            config.root_cert = Some(decoded(&pem)?);
        }
        Ok(Self { file, pem, trusted: config.root_cert.clone() })
    }
}

/// The certificates in this text, each in DER.
pub(super) fn decoded(pem: &[u8]) -> kube::Result<Vec<Vec<u8>>> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem).map(|it| it.map(|certificate| certificate.to_vec())).collect();
    let unusable = |why: &str| kube::Error::Service(format!("the certificate authorities: {why}").into());
    let certificates = certificates.map_err(|_| unusable("not valid PEM"))?;
    if certificates.is_empty() { Err(unusable("no certificate in PEM")) } else { Ok(certificates) }
}

/// Reads the file now and again, as long as there are clients. A task of its own: an open watch causes no request for
/// minutes, and after a rotation it is a request that fails.
pub(super) fn follow(credentials: &Arc<Credentials>) {
    let Some(path) = credentials.authorities_file() else { return };
    let credentials = Arc::downgrade(credentials);
    tokio::spawn(async move {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // They were read just now.
        ticks.tick().await;
        let mut last = None;
        loop {
            ticks.tick().await;
            let Some(result) = read(&credentials, &path).await else { return };
            match result {
                Ok(true) => {
                    tracing::info!(path = %path.display(), "the certificate authorities have changed");
                }
                Ok(false) => {}
                // Each failure once.
                Err(error) if last.as_ref() == Some(&error) => continue,
                Err(error) => {
                    tracing::warn!("the last certificate authorities stay in use: {error}");
                    last = Some(error);
                    continue;
                }
            }
            last = None;
        }
    });
}

/// Whether the file holds other authorities than before. `None` if there is no client any more.
async fn read(credentials: &Weak<Credentials>, path: &Path) -> Option<Result<bool, String>> {
    let file = path.to_owned();
    // If this hangs, only this task waits.
    let read = blocking::run("authorities", move || std::fs::read(file)).await;
    let credentials = credentials.upgrade()?;
    let pem = match read {
        Ok(Ok(pem)) => pem,
        Ok(Err(error)) => return Some(Err(api_causes(&unread(path, &error.to_string())))),
        Err(unfinished) => return Some(Err(api_causes(&unread(path, &unfinished.to_string())))),
    };
    Some(credentials.trust(pem).await.map_err(|error| api_causes(&error)))
}

fn unread(path: &std::path::Path, why: &str) -> kube::Error {
    kube::Error::Service(format!("cannot read the certificate authorities {}: {why}", path.display()).into())
}
