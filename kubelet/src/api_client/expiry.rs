//! Explains a 401 after the client certificate has expired: the server's answer does not say why.

use http::{Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use k8s_openapi::jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use super::pool::Answer;

/// The problem, if the certificate in this PEM text has expired by this machine's clock.
pub(super) fn expired(pem: &[u8]) -> Option<String> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&certificate).ok()?;
    let end = certificate.validity().not_after;
    let shown = Timestamp::from_second(end.timestamp()).ok()?;
    (end < ASN1Time::now()).then(|| format!("the client certificate of the kubeconfig expired at {shown}"))
}

/// The refusal, with the reason added to its message.
pub(super) async fn explained(refusal: Response<Answer>, why: &str) -> hyper::Result<Response<Full<Bytes>>> {
    let (mut head, body) = refusal.into_parts();
    let mut body = body.collect().await?.to_bytes();
    if let Ok(Value::Object(mut status)) = serde_json::from_slice(&body) {
        let said = status.get("message").and_then(Value::as_str).unwrap_or("Unauthorized");
        status.insert("message".to_owned(), format!("{said}: {why}").into());
        body = Value::Object(status).to_string().into();
        head.headers.remove(header::CONTENT_LENGTH);
    }
    Ok(Response::from_parts(head, Full::new(body)))
}
