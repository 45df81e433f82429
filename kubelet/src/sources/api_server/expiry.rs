//! Explains a 401 after the client certificate has expired: the server's answer does not say why.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tower::{BoxError, service_fn};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// When the client certificate expires, if there is one and it can be read.
pub(super) fn end(auth: &AuthInfo) -> Option<Timestamp> {
    let pem = match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(base64), _) if !base64.is_empty() => {
            serde_json::from_value::<ByteString>(json!(base64)).ok()?.0
        }
        (_, Some(path)) => std::fs::read(path).ok()?,
        _ => return None,
    };
    let certificate = CertificateDer::from_pem_slice(&pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&certificate).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// The problem, if the certificate has expired by this machine's clock.
pub(super) fn over(end: Timestamp) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let is_over = end.as_second() < i64::try_from(now.as_secs()).ok()?;
    is_over.then(|| format!("the client certificate of the kubeconfig expired at {end}"))
}

/// Wraps a client: once its certificate has expired, it adds the reason to answers with status 401.
pub(super) fn explained_client(client: Client, auth: &AuthInfo) -> Client {
    let namespace = client.default_namespace().to_owned();
    let auth = Arc::new(auth.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (client, auth) = (client.clone(), Arc::clone(&auth));
        async move {
            let response = client.send(request).await?;
            if response.status() != StatusCode::UNAUTHORIZED {
                return Ok(response);
            }
            // A new certificate may be in the file by now. Reading it may block.
            let why = spawn_blocking(move || end(&auth).and_then(over)).await;
            match why {
                Ok(Some(why)) => explained(response, &why).await,
                _ => Ok(response),
            }
        }
    });
    Client::new(service, namespace)
}

/// The refusal, with the reason added to its message.
async fn explained(response: Response<Body>, why: &str) -> Result<Response<Body>, BoxError> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let Ok(Value::Object(mut status)) = serde_json::from_slice(&body) else {
        return Ok(Response::from_parts(head, Body::from(body)));
    };
    let said = status.get("message").and_then(Value::as_str).unwrap_or("Unauthorized");
    status.insert("message".to_owned(), format!("{said}: {why}").into());
    Ok(Response::from_parts(head, Body::from(Value::Object(status).to_string().into_bytes())))
}
