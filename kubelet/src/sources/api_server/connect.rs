//! How to come by a client.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::sources::{Problem, ProblemKind};

/// The longest silence on a connection. Longer than the 295 s after which a silent watch is given up by itself; shorter
/// than for ever, which is what a connection would wait whose other end has vanished.
const SILENCE: Duration = Duration::from_secs(330);

/// A client of the API server that the kubeconfig names.
///
/// Without one, it is the server of `$KUBECONFIG`, or of `~/.kube/config`, or, in a pod, the one of its service account.
///
/// # Errors
/// If there is no such file, or it names no server, no usable credentials, or no certificates that can be read.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, Problem> {
    let origin = kubeconfig.map_or_else(|| "kubeconfig".to_owned(), |path| path.display().to_string());
    let problem = |error: &(dyn std::error::Error + 'static)| {
        Problem::new(ProblemKind::Request, origin.clone(), None, None, crate::text::api_causes(error))
    };
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|error| problem(&error))?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| problem(&error))?
        }
        None => Config::infer().await.map_err(|error| problem(&error))?,
    };
    config.read_timeout = Some(SILENCE);
    Client::try_from(config).map_err(|error| problem(&error))
}
