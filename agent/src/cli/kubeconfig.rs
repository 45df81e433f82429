//! `pod-index kubeconfig`: a kubeconfig that points at the agent.

use std::net::SocketAddr;
use std::path::{Path, absolute};

use serde_json::{Map, Value, json};

use super::ClientArgs;
use super::format::print;
use crate::config::args::ServerArgs;
use crate::config::failure::Failure;
use crate::config::rule;

/// Prints it. Files are named, not copied.
pub(crate) fn show(server: &ServerArgs, client: &ClientArgs, token: Option<&Path>) -> Result<(), Failure> {
    if server.socket.is_some() {
        return Err(Failure::Usage("a kubeconfig cannot name a Unix socket (--socket)".to_owned()));
    }
    rule(server.port != 0, "a kubeconfig needs the port that the agent has picked (--port)")?;
    let address = SocketAddr::new(server.address, server.port);
    let has_tls = client.certificate_authority.is_some();
    if !has_tls && (token.is_some() || client.client_certificate.is_some()) {
        let message = "a token or a client certificate needs TLS: give --certificate-authority";
        return Err(Failure::Usage(message.to_owned()));
    }
    let file = |path: &Path| {
        let path = absolute(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        Ok::<_, Failure>(Value::from(path.display().to_string()))
    };
    let scheme = if has_tls { "https" } else { "http" };
    let mut cluster = Map::from_iter([("server".to_owned(), json!(format!("{scheme}://{address}")))]);
    let mut user = Map::new();
    if let Some(path) = &client.certificate_authority {
        cluster.insert("certificate-authority".to_owned(), file(path)?);
    }
    if let Some(name) = &client.tls_server_name {
        cluster.insert("tls-server-name".to_owned(), json!(name));
    }
    for (name, path) in [
        ("client-certificate", client.client_certificate.as_deref()),
        ("client-key", client.client_key.as_deref()),
        ("tokenFile", token),
    ] {
        if let Some(path) = path {
            user.insert(name.to_owned(), file(path)?);
        }
    }
    let name = "pod-index";
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": name, "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    });
    let text = serde_saphyr::to_string(&config).map_err(|error| Failure::Unable(error.to_string()))?;
    print(&text)
}
