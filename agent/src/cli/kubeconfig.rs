//! `pod-index kubeconfig`: a kubeconfig that points at the agent.
//!
//! In a container of the `DaemonSet`, the environment has what the agent serves on, which clients do not use as it is: all
//! addresses instead of one, or a socket beside the port.

use std::env;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, absolute};

use serde_json::{Map, Value, json};

use super::format::print;
use crate::config::failure::Failure;
use crate::config::rule;
use crate::config::subjects::{ClientTls, ServerAddress};
use crate::config::written::Written;

/// By this variable, the component `tls` of the `DaemonSet` turns TLS on.
const TLS_CERT_FILE: &str = "POD_INDEX_TLS_CERT_FILE";

/// Prints it. Files are named, not copied.
pub(crate) fn show(
    server: &ServerAddress,
    client: &ClientTls,
    written: &Written,
    token: Option<&Path>,
) -> Result<(), Failure> {
    check(server, client, written, token)?;
    let config = config(&url(server, client), client, token)?;
    let text = serde_saphyr::to_string(&config).map_err(|error| Failure::Unable(error.to_string()))?;
    print(&text)
}

/// Whether a kubeconfig can say what these settings ask for.
fn check(
    server: &ServerAddress,
    client: &ClientTls,
    written: &Written,
    token: Option<&Path>,
) -> Result<(), Failure> {
    let has_tls = client.certificate_authority.is_some();
    rule(has_tls || token.is_none(), "--token-file needs --certificate-authority")?;
    let serves_over_tls = env::var_os(TLS_CERT_FILE).is_some();
    rule(
        has_tls || !serves_over_tls,
        format!(
            "the agent of this environment serves over TLS ({TLS_CERT_FILE}): give --certificate-authority FILE and \
             --tls-server-name NAME, with the path that the client has"
        ),
    )?;
    // One in the environment is another way to the agent, which has a port as well.
    let asks_for_socket = written.is_on_the_command_line("socket");
    let socket = written.name("socket");
    rule(!asks_for_socket, format!("a kubeconfig cannot name a Unix socket ({socket})"))?;
    let port = written.name("port");
    rule(server.port != 0, format!("a kubeconfig needs the port that the agent has picked ({port})"))
}

/// Where clients reach the agent. One that serves on all addresses also serves on loopback.
fn url(server: &ServerAddress, client: &ClientTls) -> String {
    let host = match server.address {
        IpAddr::V4(all) if all.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(all) if all.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        one => one,
    };
    let scheme = if client.certificate_authority.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(host, server.port))
}

/// The kubeconfig, with whole paths.
fn config(url: &str, client: &ClientTls, token: Option<&Path>) -> Result<Value, Failure> {
    let cluster = filled([
        ("server", Some(url.to_owned())),
        ("certificate-authority", whole(client.certificate_authority.as_deref())?),
        ("tls-server-name", client.server_name.clone()),
    ]);
    let user = filled([
        ("client-certificate", whole(client.client_certificate.as_deref())?),
        ("client-key", whole(client.client_key.as_deref())?),
        ("tokenFile", whole(token)?),
    ]);
    let name = "pod-index";
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": name, "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    }))
}

/// A path that holds in every directory.
fn whole(path: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let whole = absolute(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    Ok(Some(whole.display().to_string()))
}

/// Those of the fields that have a value.
fn filled(fields: [(&str, Option<String>); 3]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))).collect()
}
