//! Creates clients of the API server.

use std::path::Path;

use kube::{Client, Config};

use super::kubeconfig;
use crate::api_client::{ConnectionOptions, client};
use crate::sources::{Problem, ProblemKind};

/// A client of the API server that the kubeconfig names.
///
/// Without a path, uses `$KUBECONFIG`, then `~/.kube/config`, then, in a pod, the service account. The client
/// is made by [`api_client`](crate::api_client).
///
/// # Errors
/// If the file is missing, or names no server, an unknown user, unusable credentials, or unreadable
/// certificates. Errors quote nothing of the file.
pub async fn connect(path: Option<&Path>) -> Result<Client, Problem> {
    let user_agent = concat!("pod-index/", env!("CARGO_PKG_VERSION"));
    connect_with(load_config(path).await?, path, user_agent).await
}

/// Reads a kubeconfig, or the settings of a pod's service account, as [`connect`] does.
///
/// # Errors
/// If the file is missing, or names no server or an unknown user. Errors quote nothing of the file.
pub async fn load_config(path: Option<&Path>) -> Result<Config, Problem> {
    kubeconfig::config(path).await
}

/// The scheme, host and port of the API server that [`connect`] would use, for messages. `None` if the kubeconfig is
/// unusable.
pub async fn server_url(path: Option<&Path>) -> Option<String> {
    let url = kubeconfig::config(path).await.ok()?.cluster_url;
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    // Without a user and a password, and without a path.
    Some(format!("{}://{}{port}", url.scheme_str()?, url.host()?))
}

/// Like [`connect`], with what [`load_config`] has read from `path`, and with another `User-Agent`.
///
/// # Errors
/// Like [`connect`]; also if `user_agent` is not a valid header value.
pub async fn connect_with(config: Config, path: Option<&Path>, user_agent: &str) -> Result<Client, Problem> {
    let auth = config.auth_info.clone();
    let client = client(config, user_agent, &ConnectionOptions::default()).await.map_err(|error| {
        let origin = kubeconfig::origin(path);
        Problem::new(ProblemKind::Request, origin, None, None, crate::text::api_causes(&error))
    })?;
    Ok(kubeconfig::identified(client, &auth))
}
