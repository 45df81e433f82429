//! The configured sources, each in a task that forwards its updates to the writer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crossbeam_channel::{Sender, TrySendError};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use super::writer::Report;
use crate::config::failure::Failure;
use crate::config::rules::SourceKind;
use crate::config::values::Header;
use crate::config::{Settings, wrong};
use crate::tasks::Tasks;
use pod_index_kubelet::sources::api_server::ApiServer;
use pod_index_kubelet::sources::http::HttpConfig;
use pod_index_kubelet::sources::kubelet_socket::{self, KubeletSocket};
use pod_index_kubelet::sources::{Nudge, Problem, Source, Updates, file, http, kubelet, redact_env};

/// The standard path of a pod's service account token.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A source that nobody polls yet, so that it does nothing.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) kind: SourceKind,
    pub(crate) updates: Updates<Pod>,
    /// Makes it read at once.
    pub(crate) nudge: Nudge,
}

impl Opened {
    pub(crate) fn source(&self) -> Source {
        self.updates.status().borrow().source
    }

    /// Polls it for ever, and sends its reports to the writer.
    pub(crate) fn spawn(self, tasks: &mut Tasks, reports: Sender<Report>) {
        tasks.spawn(format!("the source {}", self.source()), pass_on(self.updates, reports));
    }
}

/// The sources that `settings` names. The API server is one if there is a client of it.
pub(crate) fn open(settings: &Settings, client: Option<Client>) -> Result<Vec<Opened>, Failure> {
    let effective = &settings.effective;
    let manifests = effective.manifests.path.as_deref().map(|path| open_manifests(settings, path));
    let url = effective.manifest_url.url.as_deref().map(|url| open_url(settings, url)).transpose()?;
    let kubelet = effective.kubelet.url.as_deref().map(|url| open_kubelet(settings, url)).transpose()?;
    let socket = effective.kubelet.socket.as_deref().map(|path| open_kubelet_socket(settings, path));
    let api_server = client.map(|client| Opened {
        kind: SourceKind::ApiServer,
        updates: pods_of(settings, client).pods(),
        nudge: Nudge::default(),
    });
    Ok([manifests, url, kubelet, socket, api_server].into_iter().flatten().collect())
}

/// How often a source is read, or, of the kubelet's socket, listed beside its events. Zero for the API server, which is only followed.
pub(crate) fn period_of(settings: &Settings, kind: SourceKind) -> Duration {
    let effective = &settings.effective;
    match kind {
        SourceKind::Manifests => effective.manifests.check_frequency.get(),
        SourceKind::ManifestUrl => effective.manifest_url.check_frequency.get(),
        SourceKind::KubeletPort | SourceKind::KubeletSocket => effective.kubelet.check_frequency.get(),
        SourceKind::ApiServer => Duration::ZERO,
    }
}

/// What is done to each pod before it is stored.
fn transform(settings: &Settings) -> fn(&mut Pod) {
    if settings.effective.content.redact_env { redact_env } else { |_| {} }
}

fn open_manifests(settings: &Settings, path: &Path) -> Opened {
    let nudge = Nudge::default();
    let period = settings.effective.manifests.check_frequency.get();
    let node = settings.node.clone();
    let updates = file::follow_with(path, node, period, transform(settings), nudge.clone());
    Opened { kind: SourceKind::Manifests, updates, nudge }
}

fn open_url(settings: &Settings, url: &str) -> Result<Opened, Failure> {
    let effective = &settings.effective.manifest_url;
    let written = &settings.written;
    let wrong_url = |Problem { message, .. }: Problem| {
        Failure::Usage(format!("{} {url:?}: {message}", written.name("manifest-url")))
    };
    let mut config = HttpConfig::new(url).map_err(wrong_url)?;
    for Header { name, value } in &effective.headers {
        let wrong_header =
            |problem: Problem| Failure::Usage(format!("{}: {problem}", written.name("manifest-url-header")));
        config = config.header(name, value).map_err(wrong_header)?;
    }
    config = trusting(config, "manifest-url-ca", effective.ca.as_deref(), settings)?;
    config.period = effective.check_frequency.get();
    config.transform = transform(settings);
    let nudge = config.nudge.clone();
    let updates = http::follow(config, settings.node.clone()).map_err(wrong)?;
    Ok(Opened { kind: SourceKind::ManifestUrl, updates, nudge })
}

fn open_kubelet(settings: &Settings, url: &str) -> Result<Opened, Failure> {
    let effective = &settings.effective.kubelet;
    let wrong_url = |Problem { message, .. }: Problem| {
        Failure::Usage(format!("{} {url:?}: {message}", settings.written.name("kubelet")))
    };
    let mut config = HttpConfig::of_kubelet(url).map_err(wrong_url)?;
    config = trusting(config, "kubelet-ca", effective.ca.as_deref(), settings)?;
    config.period = effective.check_frequency.get();
    config.transform = transform(settings);
    config.insecure = effective.insecure_skip_tls_verify;
    let of_the_account = Some(Path::new(SERVICE_ACCOUNT_TOKEN)).filter(|token| token.exists());
    config.token_file = effective.token_file.as_deref().or(of_the_account).map(Path::to_owned);
    let nudge = config.nudge.clone();
    let updates = kubelet::follow(config).map_err(wrong)?;
    Ok(Opened { kind: SourceKind::KubeletPort, updates, nudge })
}

fn open_kubelet_socket(settings: &Settings, path: &Path) -> Opened {
    let mut socket = KubeletSocket::new(path);
    socket.period = settings.effective.kubelet.check_frequency.get();
    socket.transform = transform(settings);
    let nudge = socket.nudge.clone();
    Opened { kind: SourceKind::KubeletSocket, updates: kubelet_socket::follow(socket), nudge }
}

/// Reads the authorities to trust, if they are given. The source reads them again for each request.
fn trusting(
    config: HttpConfig,
    flag: &str,
    path: Option<&Path>,
    settings: &Settings,
) -> Result<HttpConfig, Failure> {
    let Some(path) = path else { return Ok(config) };
    let wrong =
        |why: String| Failure::Usage(format!("{} {}: {why}", settings.written.name(flag), path.display()));
    let pem = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let mut config = config.certificate_authorities(&pem).map_err(|problem| wrong(problem.to_string()))?;
    config.authorities_file = Some(path.to_owned());
    Ok(config)
}

/// The selected pods of the API server.
pub(crate) fn pods_of(Settings { effective, node, .. }: &Settings, client: Client) -> ApiServer {
    let mut server = ApiServer {
        namespace: effective.api_server.namespace.clone(),
        labels: effective.api_server.pod_selector.clone(),
        redact_env: effective.content.redact_env,
        ..ApiServer::new(client)
    };
    server.fields.extend(effective.api_server.pod_field_selector.clone());
    if effective.api_server.all_nodes { server } else { server.node(node) }
}

/// Forwards the updates of a source. A source works only when polled for its next update, so its status belongs to its
/// last update, or to a check without changes. Ends with the writer thread.
async fn pass_on(mut updates: Updates<Pod>, reports: Sender<Report>) {
    let mut status = updates.status();
    let source = status.borrow().source;
    let mut was_sound = false;
    let mut last_read = None;
    loop {
        let update = tokio::select! {
            biased;
            update = updates.next() => match update {
                Some(update) => Some(update),
                None => return,
            },
            Ok(()) = status.changed() => None,
        };
        let (sound, read) = {
            let status = status.borrow_and_update();
            (status.has_reported_all(), status.last_read)
        };
        if update.is_none() && (was_sound || !sound) && read == last_read {
            continue;
        }
        was_sound = sound;
        last_read = read;
        if say(&reports, Report { source, update, sound, read }).is_err() {
            return;
        }
    }
}

/// Blocks while the channel is full. This also blocks the source, which then reports fewer and newer changes.
/// `block_in_place` moves the worker's other tasks to another thread; trying first avoids that for most reports.
fn say(reports: &Sender<Report>, report: Report) -> Result<(), ()> {
    match reports.try_send(report) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(report)) => tokio::task::block_in_place(|| reports.send(report)).map_err(drop),
        Err(TrySendError::Disconnected(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use crossbeam_channel::bounded;
    use futures_util::stream;
    use pod_index_kubelet::sources::{NodeName, SourceUpdate};

    use super::*;
    use crate::config::rules::{SourceFlag, flags_of};
    use crate::config::tests::settings_of;

    #[tokio::test]
    async fn a_stream_of_updates_that_panics_ends_the_agent_and_is_named() {
        let status = file::follow("/nonexistent", NodeName::new("n")).status();
        let panics =
            stream::poll_fn(|_| -> Poll<Option<SourceUpdate<Pod>>> { panic!("a panic that the test wants") });
        let updates = Updates::new(panics, status);
        let opened = Opened { kind: SourceKind::Manifests, updates, nudge: Nudge::default() };
        let (reports, _received) = bounded(1);
        let mut tasks = Tasks::default();
        opened.spawn(&mut tasks, reports);
        assert_eq!(tasks.ended().await, Failure::Unable("the source file has ended; see the log".to_owned()));
    }

    /// Blocking needs another worker thread. This runtime has none, so it would panic.
    #[tokio::test]
    async fn a_report_that_fits_into_the_channel_uses_no_other_thread() {
        let (reports, received) = bounded(1);
        let report = || Report { source: Source::File, update: None, sound: true, read: None };
        assert_eq!(say(&reports, report()), Ok(()));
        assert_eq!(received.len(), 1);
        drop(received);
        assert_eq!(say(&reports, report()), Err(()));
    }

    /// A flag of a source that `open` does not know would be accepted, and the agent would have no pods.
    #[tokio::test]
    async fn each_flag_of_a_source_opens_one_of_its_role_and_kind_with_its_period() {
        for source in Source::ALL.into_iter().filter(|source| *source != Source::Api) {
            for SourceFlag { flag, kind } in flags_of(source) {
                let (value, frequency) = match *flag {
                    "pod-manifest-path" => ("/nowhere", "file-check-frequency"),
                    "manifest-url" => ("http://127.0.0.1:1/", "http-check-frequency"),
                    "kubelet" => ("http://127.0.0.1:1/", "kubelet-check-frequency"),
                    "kubelet-socket" => ("/nowhere", "kubelet-check-frequency"),
                    _ => panic!("a value for --{flag}, and the flag that says how often it is read"),
                };
                let settings = settings_of(&[&format!("--{flag}={value}"), &format!("--{frequency}=7s")]);
                let opened = open(&settings, None).unwrap();
                let opened: Vec<_> = opened.iter().map(|opened| (opened.source(), opened.kind)).collect();
                assert_eq!(opened, [(source, *kind)], "--{flag}");
                assert_eq!(settings.kind_of(source), Some(*kind), "--{flag}");
                // `PodIndexSourceHangs` expects a check in three periods.
                assert_eq!(period_of(&settings, *kind), Duration::from_secs(7), "--{flag}");
            }
        }
        assert_eq!(period_of(&settings_of(&[]), SourceKind::ApiServer), Duration::ZERO);
    }
}
