//! How to come by a client.

use std::path::Path;

use kube::Client;

use super::kubeconfig;
use crate::api_client::{ConnectionOptions, client};
use crate::sources::{Problem, ProblemKind};

/// A client of the API server that the kubeconfig names.
///
/// Without one, it is the server of `$KUBECONFIG`, or of `~/.kube/config`, or, in a pod, the one of its service account.
/// The client is [`api_client`](crate::api_client)'s.
///
/// # Errors
/// If there is no such file, or it names no server, no user that it has, no usable credentials, or no certificates that can be
/// read. The error quotes nothing of the file.
pub async fn connect(path: Option<&Path>) -> Result<Client, Problem> {
    connect_as(path, concat!("pod-index/", env!("CARGO_PKG_VERSION"))).await
}

/// As [`connect`], for whoever wants to be known by another name (`User-Agent`).
///
/// # Errors
/// As [`connect`]; and if `user_agent` is no header value.
pub async fn connect_as(path: Option<&Path>, user_agent: &str) -> Result<Client, Problem> {
    let config = kubeconfig::config(path).await?;
    let auth = config.auth_info.clone();
    let client = client(config, user_agent, &ConnectionOptions::default()).map_err(|error| {
        let origin = kubeconfig::origin(path);
        Problem::new(ProblemKind::Request, origin, None, None, crate::text::api_causes(&error))
    })?;
    Ok(kubeconfig::identified(client, &auth))
}
