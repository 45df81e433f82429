//! The side of those who ask: whom they trust, and who they are.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::pem::Pem;
use super::provider;
use crate::cli::ClientArgs;

/// How to speak to an agent that serves over TLS.
#[derive(Clone)]
pub(crate) struct ClientTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl ClientTls {
    /// What these come to for an agent at `address`; `None` if no authority is given, which means plain HTTP.
    pub(crate) fn load(files: &ClientArgs, address: IpAddr) -> Result<Option<Self>, String> {
        let Some(authority) = &files.certificate_authority else {
            let given = files.client_certificate.is_some()
                || files.client_key.is_some()
                || files.tls_server_name.is_some();
            let message =
                "--client-certificate, --client-key and --tls-server-name need --certificate-authority";
            return if given { Err(message.to_owned()) } else { Ok(None) };
        };
        let authority = Pem::read("--certificate-authority", authority)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| authority.wrong(error))?
            .with_root_certificates(authority.authorities()?);
        let mut config = match (&files.client_certificate, &files.client_key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let certificate = Pem::read("--client-certificate", certificate)?;
                let key = Pem::read("--client-key", key)?;
                let config = builder.with_client_auth_cert(certificate.chain()?, key.key()?);
                config.map_err(|error| certificate.wrong(error))?
            }
            _ => return Err("--client-certificate and --client-key need each other".to_owned()),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = match &files.tls_server_name {
            Some(name) => ServerName::try_from(name.clone())
                .map_err(|error| format!("--tls-server-name {name:?}: {error}"))?,
            None => address.into(),
        };
        Ok(Some(Self { connector: TlsConnector::from(Arc::new(config)), name }))
    }

    /// Shakes hands.
    pub(crate) async fn connect<S>(&self, stream: S) -> std::io::Result<TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        self.connector.connect(self.name.clone(), stream).await
    }
}
