//! Reads and checks a kubeconfig. Errors quote nothing of it.

use std::path::Path;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::sources::{Problem, ProblemKind};
use crate::text::{api_causes, shorten, yaml_problem};

/// The configuration from a kubeconfig. Without a path, from `$KUBECONFIG`, `~/.kube/config`, or the service
/// account.
///
/// # Errors
/// Like [`connect`](super::connect).
pub(super) async fn config(kubeconfig: Option<&Path>) -> Result<Config, Problem> {
    let (path, runtime) = (kubeconfig.map(Path::to_owned), Handle::current());
    // Reading a file may block.
    let read = spawn_blocking(move || runtime.block_on(read(path.as_deref()))).await;
    read.unwrap_or_else(|error| Err(new(&origin(kubeconfig), None, error.to_string())))
}

async fn read(kubeconfig: Option<&Path>) -> Result<Config, Problem> {
    let origin = origin(kubeconfig);
    let found = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path).map(Some),
        None => match Kubeconfig::read() {
            // No file, as in a pod.
            Err(KubeconfigError::FindPath) => Ok(None),
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            // A file without a context, as some tools leave behind.
            Ok(config) if config.current_context.is_none() => Ok(None),
            read => read.map(Some),
        },
    };
    match found.map_err(|error| problem(&origin, &error))? {
        Some(kubeconfig) => {
            user_is_there(&kubeconfig).map_err(|message| new(&origin, None, message))?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(|error| problem(&origin, &error))
        }
        None => Config::incluster().map_err(|error| {
            let why = api_causes(&error);
            new(&origin, None, format!("there is no kubeconfig, and no service account either: {why}"))
        }),
    }
}

/// The configuration's name in errors.
pub(super) fn origin(kubeconfig: Option<&Path>) -> String {
    kubeconfig.map_or_else(|| "kubeconfig".to_owned(), |path| path.display().to_string())
}

/// Checks, without contacting the server, whether [`connect`](super::connect) would find valid credentials.
///
/// # Errors
/// Like `connect`; also if the client certificate has expired.
pub async fn check_kubeconfig(path: Option<&Path>) -> Result<(), Problem> {
    let config = config(path).await?;
    if let Ok(Some(why)) = spawn_blocking(move || crate::api_client::expired(&config)).await {
        return Err(new(&origin(path), None, why));
    }
    Ok(())
}

fn new(origin: &str, line: Option<u64>, message: String) -> Problem {
    Problem::new(ProblemKind::Request, origin, line, None, message)
}

/// Errors that quote the file are reworded: it may hold a token or a key.
fn problem(origin: &str, error: &KubeconfigError) -> Problem {
    match error {
        KubeconfigError::Parse(error) => {
            let line = error.without_snippet().location().map(|location| location.line());
            new(origin, line, format!("is not a kubeconfig: {}", yaml_problem(error)))
        }
        // Its text repeats the path.
        KubeconfigError::ReadConfig(error, _) => new(origin, None, format!("cannot be read: {error}")),
        KubeconfigError::ParseCertificates(_) => {
            new(origin, None, "certificate-authority holds no certificates in PEM".to_owned())
        }
        error => new(origin, None, api_causes(error)),
    }
}

/// With a missing user, the server would treat the client as `system:anonymous`.
fn user_is_there(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let name = kubeconfig.current_context.as_deref().unwrap_or_default();
    let named = kubeconfig.contexts.iter().find(|context| context.name == name);
    let Some(user) = named.and_then(|named| named.context.as_ref()?.user.as_deref()) else { return Ok(()) };
    let is_there =
        |user: &str| kubeconfig.auth_infos.iter().any(|info| info.name == user && info.auth_info.is_some());
    if user.is_empty() || is_there(user) {
        return Ok(());
    }
    Err(format!(
        "the context {:?} names the user {:?}, and there is no such user",
        shorten(name),
        shorten(user)
    ))
}
