//! Whether the client certificate has expired: a server's 401 does not say why.

use k8s_openapi::jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// The problem, if the certificate in this PEM text has expired by this machine's clock.
pub(super) fn expired(pem: &[u8]) -> Option<String> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&certificate).ok()?;
    let end = certificate.validity().not_after;
    let shown = Timestamp::from_second(end.timestamp()).ok()?;
    (end < ASN1Time::now()).then(|| format!("the client certificate of the kubeconfig expired at {shown}"))
}
