//! Creates clients of the API server.

use std::path::Path;

use kube::{Client, Config};

use super::kubeconfig;
use crate::api_client::{ApiClient, ConnectionOptions};
use crate::sources::{Problem, ProblemKind};

/// A client of the API server that the kubeconfig names.
///
/// Without a path, uses `$KUBECONFIG`, then `~/.kube/config`, then, in a pod, the service account. The client
/// is made by [`api_client`](crate::api_client), and connects with its first request.
///
/// # Errors
/// If the file is missing, or names no server, an unknown user, unusable credentials, or unreadable
/// certificates. Errors quote nothing of the file.
pub async fn connect(path: Option<&Path>) -> Result<Client, Problem> {
    let user_agent = concat!("pod-index/", env!("CARGO_PKG_VERSION"));
    connect_with(load_config(path).await?, path, user_agent).await.map(|api| api.client())
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

/// Like [`connect`], with what [`load_config`] has read from `path`, and with another `User-Agent`. Each client of the
/// result has connections of its own.
///
/// # Errors
/// Like [`connect`]; also if `user_agent` is not a valid header value.
pub async fn connect_with(
    config: Config,
    path: Option<&Path>,
    user_agent: &str,
) -> Result<ApiClient, Problem> {
    let api = ApiClient::new(config, user_agent, &ConnectionOptions::default()).await;
    api.map_err(|error| refused(path, &error))
}

/// Runs the credential plugin, if the kubeconfig at `path` names one. The first request would do so, too.
///
/// # Errors
/// If it fails, or does not answer in time.
pub async fn authenticate(api: &ApiClient, path: Option<&Path>) -> Result<(), Problem> {
    api.authenticate().await.map_err(|error| refused(path, &error))
}

fn refused(path: Option<&Path>, error: &kube::Error) -> Problem {
    let message = crate::text::api_causes(error);
    Problem::new(ProblemKind::Request, kubeconfig::origin(path), None, None, message)
}
