//! How to come by a client.

use std::path::Path;
use std::time::Duration;

use kube::Client;

use super::kubeconfig;
use crate::sources::{Problem, ProblemKind};

/// The longest silence on a connection. Longer than the 295 s after which a silent watch is given up by itself; shorter
/// than for ever, which is what a connection would wait whose other end has vanished.
const SILENCE: Duration = Duration::from_secs(330);

/// A client of the API server that the kubeconfig names.
///
/// Without one, it is the server of `$KUBECONFIG`, or of `~/.kube/config`, or, in a pod, the one of its service account.
///
/// # Errors
/// If there is no such file, or it names no server, no user that it has, no usable credentials, or no certificates that can be
/// read. The error quotes nothing of the file.
pub async fn connect(path: Option<&Path>) -> Result<Client, Problem> {
    let mut config = kubeconfig::config(path).await?;
    config.read_timeout = Some(SILENCE);
    let auth = config.auth_info.clone();
    let client = Client::try_from(config).map_err(|error| {
        let origin = kubeconfig::origin(path);
        Problem::new(ProblemKind::Request, origin, None, None, crate::text::api_causes(&error))
    })?;
    Ok(kubeconfig::identified(client, &auth))
}
