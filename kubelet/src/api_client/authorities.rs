//! The certificate authorities of the API server, from a file that is replaced when they rotate.

use std::path::{Path, PathBuf};

use kube::Config;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

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

pub(super) fn unread(path: &Path, why: &str) -> kube::Error {
    kube::Error::Service(format!("cannot read the certificate authorities {}: {why}", path.display()).into())
}
