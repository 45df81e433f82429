//! `--check`: whether the agent would start with these settings, and which manifests, checkpoints or servers it would
//! lack.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process;

use kube::Client;
use pod_index_kubelet::sources::api_server::{authenticate, check_kubeconfig};

use crate::cli::format;
use crate::config::failure::Failure;
use crate::config::values::CheckpointDirectory;
use crate::config::{Invocation, Settings};
use crate::http::build::{certificate, check_socket};
use crate::pipeline::sources::{self, Opened};
use crate::pipeline::{api_clients, records};

/// Prints the settings and the result.
///
/// An error that would stop the agent is reported in the same words. Missing manifests or an unwritable checkpoint
/// directory would not stop the agent; they are reported as well. `settings`: those of `given`.
pub(crate) fn check(invocation: &Invocation, settings: &Settings) -> Result<(), Failure> {
    format::print(&settings.summary())?;
    for ignored in &invocation.ignored_variables {
        format::print(&format!("\n{ignored}\n"))?;
    }
    crate::cli::runtime()?.block_on(async {
        drop(local(settings)?);
        credentials(settings).await
    })?;
    let listeners = &settings.effective.listeners;
    let sockets = [("socket", &settings.server.socket), ("pods-api-socket", &listeners.pods_api_socket)];
    for (flag, path) in sockets {
        check_socket(settings, flag, path.as_deref())?;
    }
    if let Some(path) = &settings.effective.manifests.path {
        manifests(settings, path)?;
    }
    if let Some(CheckpointDirectory { path, .. }) = &settings.checkpoints {
        keeps(settings, path)?;
    }
    format::print("\nThe configuration is valid.\n")?;
    let asks = settings.asks_a_server();
    if asks { format::print("No server was asked (use doctor).\n") } else { Ok(()) }
}

/// The sources except the API server, if they and the certificates are valid.
pub(crate) fn local(settings: &Settings) -> Result<Vec<Opened>, Failure> {
    certificate(settings)?;
    records::rules(settings)?;
    sources::open(settings, None)
}

/// The client of the API server, if one is configured, after the credential plugin has answered, with credentials that
/// have not expired by this machine's clock. It has not connected yet.
pub(crate) async fn credentials(settings: &Settings) -> Result<Option<Client>, Failure> {
    let Some(api) = api_clients::connect(settings).await? else { return Ok(None) };
    let kubeconfig = settings.effective.api_server.kubeconfig.as_deref();
    authenticate(&api, kubeconfig).await.map_err(|problem| settings.wrong_credentials(problem))?;
    let without =
        |problem| Failure::No(Some(format!("{problem}; the agent would run without pods of the API server")));
    check_kubeconfig(kubeconfig).await.map_err(without)?;
    Ok(Some(api.client()))
}

/// Whether the manifests can be read.
pub(crate) fn manifests(settings: &Settings, path: &Path) -> Result<(), Failure> {
    // Opens directories as well.
    File::open(path).map(drop).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "does not exist".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        let name = settings.written.name("pod-manifest-path");
        let path = path.display();
        Failure::No(Some(format!("{name}: {path}: {why}; the agent would run without its pods")))
    })
}

/// Whether checkpoints can be kept in this directory, which need not exist yet. Leaves the directory unchanged and does
/// not disturb an agent that uses it.
pub(crate) fn keeps(settings: &Settings, path: &Path) -> Result<(), Failure> {
    let is_there = path.is_dir();
    // The last parent of a relative path is empty: the working directory.
    let there = path.ancestors().find(|path| path.exists() || path.as_os_str().is_empty());
    let trial = there.unwrap_or(path).join(format!(".pod-index-check-{}", process::id()));
    let done = File::create_new(&trial).and_then(|_| fs::remove_file(&trial));
    done.map_err(|error| {
        let name = settings.written.name("checkpoint-dir");
        let path = path.display();
        if !is_there {
            return Failure::unable(format!("{name}: {path}: cannot be made"), error);
        }
        Failure::No(Some(format!(
            "{name}: {path}: cannot be written to: {error}; the agent would run without checkpoints"
        )))
    })
}
