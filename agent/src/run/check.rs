//! `--check`: whether the agent would start with these settings, and which manifests, checkpoints or servers it would
//! lack.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use pod_index_kubelet::sources::api_server::check_kubeconfig;
use pod_index_kubelet::sources::{Problem, SourceStatus, Updates, http, kubelet};

use crate::cli::format;
use crate::config::failure::Failure;
use crate::config::{Settings, wrong};
use crate::http::tls::Tls;
use crate::pipeline::{api_clients, sources};

/// Timeout of a request to the API server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Prints the settings and the result.
///
/// An error that would stop the agent is reported in the same words. Missing manifests or an unwritable checkpoint
/// directory would not stop the agent; they are reported as well.
pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    format::print(&settings.summary())?;
    let runtime = crate::cli::runtime()?;
    runtime.block_on(credentials(settings))?;
    files(settings)?;
    format::print("\nThe configuration is valid.\n")?;
    let has_server = settings.given.has_api_server() || settings.http.is_some() || settings.kubelet.is_some();
    if has_server { format::print("No server was asked (use doctor).\n") } else { Ok(()) }
}

/// The agent's certificate and key, if it serves over TLS.
pub(crate) fn certificate(settings: &Settings) -> Result<Option<Tls>, Failure> {
    settings.tls.clone().map(Tls::load).transpose().map_err(Failure::Usage)
}

/// Whether the certificates are valid, the manifests can be read, and checkpoints can be kept.
pub(crate) fn files(settings: &Settings) -> Result<(), Failure> {
    certificate(settings)?;
    if let Some(path) = &settings.given.static_pod_path {
        manifests(path)?;
    }
    settings.checkpoints.as_ref().map_or(Ok(()), |(path, _)| keeps(path))
}

/// The client of the API server, if one is configured, with credentials that have not expired by this machine's clock.
pub(crate) async fn credentials(settings: &Settings) -> Result<Option<Client>, Failure> {
    let client = api_clients::client(settings).await?;
    if client.is_some() {
        let checked = check_kubeconfig(settings.given.kubeconfig.as_deref()).await;
        checked.map_err(|problem| without_pods(&problem, "the API server"))?;
    }
    Ok(client)
}

/// Whether the API server lists and watches pods for the agent.
pub(crate) async fn api_server(settings: &Settings, client: Client) -> Result<(), Failure> {
    let mut pods = sources::pods_of(settings, client);
    pods.times.patience = PATIENCE;
    pods.check().await.map_err(|problem| without_pods(&problem, "the API server"))
}

/// The result of one request to the URL, if one is configured.
pub(crate) async fn url(settings: &Settings) -> Result<Option<SourceStatus>, Failure> {
    let Some(config) = &settings.http else { return Ok(None) };
    let source = http::follow(config.clone(), settings.node.clone()).map_err(wrong)?;
    Ok(Some(first_look(source).await))
}

/// The result of one request to the kubelet, if one is configured.
pub(crate) async fn kubelet(settings: &Settings) -> Result<Option<SourceStatus>, Failure> {
    let Some(config) = &settings.kubelet else { return Ok(None) };
    let source = kubelet::follow(config.clone()).map_err(wrong)?;
    Ok(Some(first_look(source).await))
}

/// Polls a source until its first read has ended.
pub(crate) async fn first_look(mut source: Updates<Pod>) -> SourceStatus {
    let mut status = source.status();
    tokio::select! {
        _ = source.next() => {}
        _ = status.wait_for(|status| status.checks > 0) => {}
    }
    status.borrow().clone()
}

fn without_pods(problem: &Problem, source: &str) -> Failure {
    Failure::No(Some(format!("{problem}; the agent would run without pods of {source}")))
}

/// Whether the manifests can be read.
pub(crate) fn manifests(path: &Path) -> Result<(), Failure> {
    readable(path).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "does not exist".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        let path = path.display();
        Failure::No(Some(format!("staticPodPath: {path}: {why}; the agent would run without its pods")))
    })
}

fn readable(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() { fs::read_dir(path).map(drop) } else { File::open(path).map(drop) }
}

/// Whether checkpoints can be kept in this directory, which need not exist yet. Leaves the directory unchanged and does
/// not disturb an agent that uses it.
pub(crate) fn keeps(path: &Path) -> Result<(), Failure> {
    let is_there = path.is_dir();
    // The last parent of a relative path is empty: the working directory.
    let there = path.ancestors().find(|path| path.exists() || path.as_os_str().is_empty());
    let trial = there.unwrap_or(path).join(format!(".pod-index-check-{}", process::id()));
    let done = File::create_new(&trial).and_then(|_| fs::remove_file(&trial));
    done.map_err(|error| {
        let path = path.display();
        if !is_there {
            return Failure::unable(format!("checkpointDir: {path}: cannot be made"), error);
        }
        Failure::No(Some(format!(
            "checkpointDir: {path}: cannot be written to: {error}; the agent would run without checkpoints"
        )))
    })
}
