//! The client's side: the authorities it trusts and its certificate.

use std::net::IpAddr;

use pod_index_kubelet::https::{self, Connector};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;

use crate::config::subjects::ClientTls;
use crate::config::written::Written;
use crate::http::tls::pem::Pem;

/// The scheme and the connector for an agent at `address`. Without an authority: plain HTTP, which trusts no
/// certificate. An error names the setting as the user wrote it.
pub(crate) fn connector(
    files: &ClientTls,
    written: &Written,
    address: IpAddr,
) -> Result<(&'static str, Connector), String> {
    let builder = https::client_config().map_err(|error| error.to_string())?;
    let Some(authority) = &files.certificate_authority else {
        let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        return Ok(("http", https::connector(config, None)));
    };
    let setting = written.name("certificate-authority");
    let authority = Pem::read(&setting, authority)?;
    let builder = builder.with_root_certificates(authority.authorities()?);
    let config = match (&files.client_certificate, &files.client_key) {
        (Some(certificate), Some(key)) => {
            let setting = written.name("client-certificate");
            let certificate = Pem::read(&setting, certificate)?;
            let setting = written.name("client-key");
            let key = Pem::read(&setting, key)?;
            let config = builder.with_client_auth_cert(certificate.chain()?, key.key()?);
            config.map_err(|error| certificate.wrong(error))?
        }
        // Both are given, or none: `config::rules` checks it.
        _ => builder.with_no_client_auth(),
    };
    let name = match &files.server_name {
        Some(name) => ServerName::try_from(name.clone())
            .map_err(|error| format!("{} {name:?}: {error}", written.name("tls-server-name")))?,
        None => address.into(),
    };
    Ok(("https", https::connector(config, Some(name))))
}
