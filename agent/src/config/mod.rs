//! The agent's settings, merged and validated. Flags override environment variables, which override the configuration
//! file, which overrides the defaults.

pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod failure;
mod file;
pub(crate) mod log;
mod selection;
pub(crate) mod shutdown;
pub(crate) mod values;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::args::{Authorization, Output, RunArgs, ServerArgs, Setting, Shared};
use serde_json::Value;

use crate::api::table;
use crate::config::duration::GoDuration;
use crate::config::failure::Failure;
use crate::config::log::LogFilter;
use pod_index_kubelet::checkpoint::Which;
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::sources::http::{HttpConfig, HttpSource};
use pod_index_kubelet::sources::kubelet::KubeletSource;
use pod_index_kubelet::sources::static_pods::Derive;
use pod_index_kubelet::sources::{NodeName, Problem};

use self::selection::Selection;
use self::values::{
    AccessSettings, AuthorizationMode, Bounds, Extra, LogFormat, Management, Mode, PodApiSettings, TlsFiles,
};

/// Default period of the file and http sources. Zero means the default as well, as in the kubelet.
const CHECK_FREQUENCY: Duration = Duration::from_secs(20);

/// The standard path of a pod's service account token.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Default folder of the host's processes.
const PROC: &str = "/proc";

/// By default, removed pods are kept this long, and so many of them.
const KEEP_REMOVED: Duration = Duration::from_secs(60);
const KEEP_REMOVED_MAX: usize = 10_000;

/// Default address.
pub(crate) const DEFAULT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Default port: near those of other node components, but unused by them.
pub(crate) const DEFAULT_PORT: u16 = 10_270;

/// The message if no source is configured.
pub(crate) const NO_SOURCES: &str =
    "no pods to read: give --pod-manifest-path, --manifest-url, --kubelet, --kubeconfig or --api-server";

/// Default maximum number of watches, in total and per client.
const WATCHES: usize = 1024;
const WATCHES_PER_CLIENT: usize = 256;

/// The keys that a reload may change, besides those of the API server. No other setting can change while the agent runs.
#[rustfmt::skip]
const CHANGEABLE: [&str; 16] = [
    "staticPodPath", "fileCheckFrequency", "staticPodURL", "manifestUrlCa", "httpCheckFrequency", "kubelet",
    "kubeletTokenFile", "kubeletCa", "kubeletInsecureSkipTlsVerify", "kubeletCheckFrequency", "namespace",
    "podSelector", "podFieldSelector", "keepManagedFields", "allowRemoteClients", "logLevel",
];

/// The agent's settings.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What was given, for all that needs no check.
    pub(crate) given: Shared,
    pub(crate) node: NodeName,
    pub(crate) file: Option<FileSettings>,
    pub(crate) http: Option<HttpConfig>,
    pub(crate) kubelet: Option<HttpConfig>,
    pub(crate) api: Option<ApiSettings>,
    pub(crate) mirrors: Management,
    /// Where the host's processes are.
    pub(crate) proc: PathBuf,
    /// How long to keep removed pods, and how many.
    pub(crate) keep_removed: (Duration, usize),
    /// The bounds of look-ups at a time.
    pub(crate) bounds: Bounds,
    /// Where to keep pods on disk, and which.
    pub(crate) checkpoints: Option<(PathBuf, Which)>,
    pub(crate) address: SocketAddr,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) pod_api: PodApiSettings,
    /// An additional Unix socket to serve on, and its permissions.
    pub(crate) socket: Option<(PathBuf, Mode)>,
    /// Which clients may query the agent.
    pub(crate) access: AccessSettings,
    pub(crate) once: bool,
    /// The timeout of `--once`. `None`: no timeout.
    pub(crate) once_timeout: Option<Duration>,
    pub(crate) output: Output,
    pub(crate) log_filter: LogFilter,
    pub(crate) log_format: LogFormat,
}

/// The user's command line and environment. The configuration file may add to them.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) run: RunArgs,
    pub(crate) server: ServerArgs,
    pub(crate) output: Output,
}

/// The file source.
#[derive(Clone, Debug)]
pub(crate) struct FileSettings {
    pub(crate) path: PathBuf,
    pub(crate) period: Duration,
}

/// The API server as a source.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ApiSettings {
    /// `None`: find it in the environment.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) all_nodes: bool,
    pub(crate) selection: Selection,
    /// Whether pods keep `metadata.managedFields`.
    pub(crate) managed_fields: bool,
}

/// A rule for the settings, and the error if it does not hold.
pub(crate) fn rule(holds: bool, otherwise: impl Into<String>) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Usage(otherwise.into())) }
}

/// A setting from which a source cannot be created.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn wrong(problem: Problem) -> Failure {
    Failure::Usage(problem.to_string())
}

impl Given {
    /// The resulting settings, with the current configuration file.
    pub(crate) fn resolve(&self) -> Result<Settings, Failure> {
        let Self { run, server, output } = self;
        let file = run.config.as_deref().map(Shared::read).transpose()?.unwrap_or_default();
        let mut given = run.shared.clone().or(file.clone());
        for (key, text) in never_empty(&run.shared).into_iter().chain(never_empty(&file)) {
            rule(text != Some(OsStr::new("")), format!("{key} is empty"))?;
        }
        given.address = server.address.or(given.address);
        given.port = server.port.or(given.port);
        given.socket = server.socket.clone().or(given.socket);
        Settings::of(given, run, *output)
    }
}

impl Settings {
    fn of(mut given: Shared, run: &RunArgs, output: Output) -> Result<Self, Failure> {
        let tls = tls(&given)?;
        let address = given.address.unwrap_or(DEFAULT_ADDRESS);
        rule(
            tls.is_some() || given.allow_remote_clients || address.is_loopback(),
            format!(
                "address {address}: anyone who can reach it could read every pod; give --tls-cert-file and \
                 --tls-private-key-file (and --client-ca-file), or --allow-remote-clients to allow this"
            ),
        )?;
        let node = node_name(given.hostname_override.as_deref())?;
        let period = period(given.file_check_frequency);
        let file = given.pod_manifest_path.clone().map(|path| FileSettings { path, period });
        let http = http(&given, &node)?;
        let kubelet = kubelet(&given)?;
        let api = api_server(&given)?;
        rule(file.is_some() || http.is_some() || kubelet.is_some() || api.is_some(), NO_SOURCES)?;
        let access = access(&given, tls.as_ref(), api.is_some())?;
        let mirrors = management(&given, run, file.is_some() || http.is_some(), api.as_ref())?;
        let pod_api = pod_api(&given, api.as_ref())?;
        let which = if given.checkpoint_all_pods { Which::All } else { Which::Annotated };
        let has_directory = given.checkpoint_dir.is_some();
        rule(
            has_directory || !given.checkpoint_all_pods,
            "checkpointAllPods needs a directory (--checkpoint-dir)",
        )?;
        rule(given.socket.is_some() || given.socket_mode.is_none(), "socketMode needs a socket (--socket)")?;
        let span = |given: Option<GoDuration>, default| given.map_or(default, |GoDuration(span)| span);
        let Bounds { skew, delay } = Bounds::default();
        // As they apply: for their display, and to be compared at a reload.
        given.hostname_override = Some(node.to_string());
        given.address = Some(address);
        let port = *given.port.get_or_insert(DEFAULT_PORT);
        Ok(Self {
            node,
            file,
            http,
            kubelet,
            api,
            mirrors,
            proc: given.proc.clone().unwrap_or_else(|| PROC.into()),
            keep_removed: (
                span(given.keep_removed, KEEP_REMOVED),
                given.keep_removed_max.unwrap_or(KEEP_REMOVED_MAX),
            ),
            bounds: Bounds { skew: span(given.clock_skew, skew), delay: span(given.source_delay, delay) },
            // `--once` prints and stores nothing.
            checkpoints: given.checkpoint_dir.clone().filter(|_| !run.once).map(|path| (path, which)),
            address: SocketAddr::new(address, port),
            tls,
            pod_api,
            socket: given.socket.clone().map(|path| (path, given.socket_mode.unwrap_or_default())),
            access,
            once: run.once,
            once_timeout: Some(run.once_timeout.0).filter(|timeout| !timeout.is_zero()),
            output,
            log_filter: given.log_level.clone().unwrap_or_default(),
            log_format: given.log_format.unwrap_or(LogFormat::Text),
            given,
        })
    }

    /// How often a source is read. Zero for one that is followed.
    pub(crate) fn period_of(&self, source: &str) -> Duration {
        match source {
            "file" => period(self.given.file_check_frequency),
            "http" => period(self.given.http_check_frequency),
            "kubelet" => period(self.given.kubelet_check_frequency),
            _ => Duration::ZERO,
        }
    }

    /// The configuration in a line.
    pub(crate) fn words(&self) -> String {
        rows(&self.given).iter().map(|[key, value]| format!("{key}: {value}")).collect::<Vec<_>>().join("; ")
    }

    /// The configuration as a table.
    pub(crate) fn summary(&self) -> String {
        table::table(["SETTING", "VALUE"], rows(&self.given).iter().map(|[name, value]| [&**name, &**value]))
    }

    /// Which static pods are derived from mirror pods. An agent that manages the mirror pods of this node has its
    /// static pods.
    pub(crate) fn derive(&self) -> Derive {
        let own = self.node.clone();
        match self.mirrors {
            Management::Off => Derive::AllNodes { own },
            Management::Careful | Management::Forced => Derive::OtherNodes { own },
        }
    }

    /// What was given, with lists in order and with the defaults, to be compared at a reload.
    fn applied(&self) -> Shared {
        let Self { given, keep_removed: (span, pods), bounds, pod_api, access, .. } = self;
        let mode = given.authorization.mode.unwrap_or(AuthorizationMode::AlwaysAllow);
        Shared {
            proc: Some(self.proc.clone()),
            keep_removed: Some(GoDuration(*span)),
            keep_removed_max: Some(*pods),
            clock_skew: Some(GoDuration(bounds.skew)),
            source_delay: Some(GoDuration(bounds.delay)),
            static_pod_object: Some(pod_api.static_pods),
            serve_resources: pod_api.extra.iter().copied().collect(),
            max_watches: Some(pod_api.watches),
            max_watches_per_client: Some(pod_api.watches_per_client),
            socket_mode: self.socket.as_ref().map(|(_, mode)| *mode),
            allowed_client_names: access.names.iter().cloned().collect(),
            allowed_client_groups: access.groups.iter().cloned().collect(),
            log_format: Some(self.log_format),
            authorization: Authorization { mode: Some(mode) },
            ..given.clone()
        }
    }

    /// The key of a setting that differs in `new` but cannot change while the agent runs.
    pub(crate) fn fixed_difference(&self, new: &Self) -> Option<String> {
        let (old, new) = (rows(&self.applied()), rows(&new.applied()));
        let changed = old.iter().filter(|row| !new.contains(row));
        let changed = changed.chain(new.iter().filter(|row| !old.contains(row))).map(|[key, _]| key);
        let of_the_server = ["kubeconfig", "apiServer", "allNodes"];
        let may_change = |key: &str| {
            CHANGEABLE.contains(&key) || (of_the_server.contains(&key) && !self.keeps_api_server())
        };
        changed.filter(|key| !may_change(key)).min().cloned()
    }

    /// Whether the agent must stay with the API server of the start. With another one, the mirror pods on the old API
    /// server would stay there, and reviews of the old one would still admit clients.
    pub(crate) fn keeps_api_server(&self) -> bool {
        let Self { mirrors, access, pod_api, .. } = self;
        *mirrors != Management::Off || access.tokens || access.rights || !pod_api.extra.is_empty()
    }
}

/// The settings that must not be empty: as absent ones, they would silently switch off what they were meant to set.
fn never_empty(given: &Shared) -> [(&'static str, Option<&OsStr>); 6] {
    [
        ("clientCAFile", given.authentication.x509.client_ca_file.as_deref().map(OsStr::new)),
        ("hostnameOverride", given.hostname_override.as_deref().map(OsStr::new)),
        ("kubeconfig", given.kubeconfig.as_deref().map(OsStr::new)),
        ("kubeletCa", given.kubelet_ca.as_deref().map(OsStr::new)),
        ("kubeletTokenFile", given.kubelet_token_file.as_deref().map(OsStr::new)),
        ("manifestUrlCa", given.manifest_url_ca.as_deref().map(OsStr::new)),
    ]
}

/// What is configured, by key. Headers, which may be secret, are left out.
fn rows(given: &Shared) -> Vec<[String; 2]> {
    let mut rows = Vec::new();
    list("", &serde_json::to_value(given).unwrap_or_default(), &mut rows);
    rows
}

/// The settings in `value`, below this key.
fn list(key: &str, value: &Value, to: &mut Vec<[String; 2]>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                list(&key, value, to);
            }
        }
        Value::Null | Value::Bool(false) => {}
        Value::Array(items) if items.is_empty() => {}
        Value::String(text) => to.push([key.to_owned(), text.clone()]),
        other => to.push([key.to_owned(), other.to_string()]),
    }
}

fn period(given: Option<GoDuration>) -> Duration {
    given.map(|GoDuration(period)| period).filter(|period| !period.is_zero()).unwrap_or(CHECK_FREQUENCY)
}

/// The TLS files, if TLS is configured.
fn tls(given: &Shared) -> Result<Option<TlsFiles>, Failure> {
    let client_ca = given.authentication.x509.client_ca_file.clone();
    let (cert, key) = (given.tls_cert_file.clone(), given.tls_private_key_file.clone());
    rule(key.is_some() || cert.is_none(), "tlsCertFile needs a tlsPrivateKeyFile")?;
    rule(cert.is_some() || key.is_none(), "tlsPrivateKeyFile needs a tlsCertFile")?;
    rule(cert.is_some() || client_ca.is_none(), "clientCAFile needs a tlsCertFile and a tlsPrivateKeyFile")?;
    let takes_tokens = given.authentication.webhook.enabled;
    let files = cert.zip(key);
    Ok(files.map(|(cert, private_key)| TlsFiles { cert, private_key, client_ca, takes_tokens }))
}

/// Which clients are served. They have to be known, and the API server available where it is asked.
fn access(given: &Shared, tls: Option<&TlsFiles>, has_api_server: bool) -> Result<AccessSettings, Failure> {
    // An empty name would match a certificate without a name.
    let filled = |items: &[String]| items.iter().filter(|item| !item.is_empty()).cloned().collect();
    let access = AccessSettings {
        names: filled(&given.allowed_client_names),
        groups: filled(&given.allowed_client_groups),
        tokens: given.authentication.webhook.enabled,
        rights: given.authorization.mode == Some(AuthorizationMode::Webhook),
    };
    let has_certificates = tls.is_some_and(|tls| tls.client_ca.is_some());
    rule(
        tls.is_some() || !access.tokens,
        "--authentication-token-webhook needs TLS: --tls-cert-file and --tls-private-key-file",
    )?;
    rule(
        has_certificates || access.tokens || !access.is_limited(),
        "--allowed-client-names, --allowed-client-groups and --authorization-mode=Webhook need authenticated clients: \
         --client-ca-file or --authentication-token-webhook",
    )?;
    rule(
        has_api_server || !(access.tokens || access.rights),
        "--authentication-token-webhook and --authorization-mode=Webhook need an API server: --kubeconfig or --api-server",
    )?;
    Ok(access)
}

/// The API server, if configured. Rejects selectors without it.
fn api_server(given: &Shared) -> Result<Option<ApiSettings>, Failure> {
    let selection = Selection::new(given)?;
    let is_asked_for = given.kubeconfig.is_some() || given.api_server;
    if let Some(flag) = selection.flag() {
        rule(is_asked_for, format!("{flag} needs an API server: --kubeconfig or --api-server"))?;
    }
    Ok(is_asked_for.then(|| ApiSettings {
        kubeconfig: given.kubeconfig.clone(),
        all_nodes: given.all_nodes,
        selection,
        managed_fields: given.keep_managed_fields,
    }))
}

fn pod_api(given: &Shared, api: Option<&ApiSettings>) -> Result<PodApiSettings, Failure> {
    let extra: BTreeSet<_> = given.serve_resources.iter().copied().collect();
    rule(
        api.is_some() || extra.is_empty(),
        "--serve-resources needs an API server: --kubeconfig or --api-server",
    )?;
    rule(
        !(given.all_nodes && extra.contains(&Extra::Owners)),
        "--serve-resources=owners requests the owners of this node's pods, not of --all-nodes",
    )?;
    Ok(PodApiSettings {
        static_pods: given.static_pod_object.unwrap_or_default(),
        watches: given.max_watches.unwrap_or(WATCHES),
        watches_per_client: given.max_watches_per_client.unwrap_or(WATCHES_PER_CLIENT),
        extra,
    })
}

/// Whether to manage mirror pods. Without static pods, every mirror would be an orphan. A guessed node name may be
/// another node's. Mirrors that a selector hides would seem missing.
fn management(
    given: &Shared,
    run: &RunArgs,
    has_static_pods: bool,
    api: Option<&ApiSettings>,
) -> Result<Management, Failure> {
    let (is_asked_for, is_forced) = (given.manage_mirror_pods, given.force_manage_mirror_pods);
    rule(is_asked_for || !is_forced, "--force-manage-mirror-pods needs --manage-mirror-pods")?;
    // `--once` prints and writes nothing.
    if !is_asked_for || run.once {
        return Ok(Management::Off);
    }
    if let Some(flag) = api.and_then(|api| api.selection.flag()) {
        let message = "--manage-mirror-pods has to see all pods of the node, and";
        return Err(Failure::Usage(format!("{message} {flag} leaves some out")));
    }
    for (is_there, what) in [
        (given.hostname_override.is_some(), "the node's name: give --node-name"),
        (has_static_pods, "static pods: give --pod-manifest-path or --manifest-url"),
        (api.is_some(), "an API server: give --kubeconfig or --api-server"),
    ] {
        rule(is_there, format!("--manage-mirror-pods needs {what}"))?;
    }
    Ok(if is_forced { Management::Forced } else { Management::Careful })
}

/// How to query the kubelet, if it is a source. Checks that the source can be created.
fn kubelet(given: &Shared) -> Result<Option<HttpConfig>, Failure> {
    let Some(url) = &given.kubelet else { return Ok(None) };
    let mut config = HttpConfig::of_kubelet(url).map_err(wrong)?;
    config.period = period(given.kubelet_check_frequency);
    if given.kubelet_insecure_skip_tls_verify {
        let message = "--kubelet-ca is of no use with --kubelet-insecure-skip-tls-verify";
        rule(given.kubelet_ca.is_none(), message)?;
        config.insecure = true;
    }
    config = trusting(config, "kubeletCa", given.kubelet_ca.as_deref())?;
    let of_the_account = Some(Path::new(SERVICE_ACCOUNT_TOKEN)).filter(|token| token.exists());
    config.token_file = given.kubelet_token_file.as_deref().or(of_the_account).map(Path::to_owned);
    drop(KubeletSource::new(config.clone()).map_err(wrong)?);
    Ok(Some(config))
}

/// How to request the manifests' URL, if it is a source. Checks that the source can be created.
fn http(given: &Shared, node: &NodeName) -> Result<Option<HttpConfig>, Failure> {
    let Some(url) = &given.manifest_url else { return Ok(None) };
    let wrong_url = |problem: Problem| {
        let what = "--manifest-url (staticPodURL)";
        Failure::Usage(format!("{what} {url:?}: {}", problem.message()))
    };
    let mut config = HttpConfig::new(url).map_err(wrong_url)?;
    config.period = period(given.http_check_frequency);
    for (name, value) in given.manifest_url_header.iter().flatten() {
        config = config.header(name, value).map_err(wrong)?;
    }
    config = trusting(config, "manifestUrlCa", given.manifest_url_ca.as_deref())?;
    drop(HttpSource::new(config.clone(), node.clone()).map_err(wrong)?);
    Ok(Some(config))
}

/// Reads the authorities to trust, if they are given.
fn trusting(config: HttpConfig, setting: &str, path: Option<&Path>) -> Result<HttpConfig, Failure> {
    let Some(path) = path else { return Ok(config) };
    let wrong = |error: &dyn Display| Failure::Usage(format!("{setting} {}: {error}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(&error))?;
    config.certificate_authorities(&pem).map_err(|problem| wrong(&problem))
}

/// The given name or the host's name, trimmed and in lower case.
///
/// Kubelet: `GetHostname` (`pkg/util/node/node.go`).
fn node_name(given: Option<&str>) -> Result<NodeName, Failure> {
    let (from, name) = match given {
        Some(name) => ("the node's name that was given", name.to_owned()),
        None => ("the host's name", gethostname::gethostname().to_string_lossy().into_owned()),
    };
    let lower = name.trim().to_lowercase();
    rule(!lower.is_empty(), format!("{from} is empty, but a node needs a name"))?;
    if let Some(problem) = dns_subdomain(&lower) {
        return Err(Failure::Usage(format!("{from}, {name:?}, {problem}")));
    }
    if lower != name {
        tracing::info!(node = lower, "{from}, {name:?}, is used in lower case, as by the kubelet");
    }
    Ok(NodeName::new(&lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_name_is_a_dns_name_trimmed_and_in_lower_case() {
        assert_eq!(node_name(Some(" Foo.Bar \n")).unwrap().as_str(), "foo.bar");
        assert!(!node_name(None).unwrap().as_str().is_empty());
        for bad in ["Foo_Bar", "-a", "a..b", "  "] {
            assert!(matches!(node_name(Some(bad)), Err(Failure::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn what_a_reload_may_change_are_keys_of_the_file() {
        let keys = serde_json::to_value(Shared::default()).unwrap();
        for key in CHANGEABLE {
            assert!(keys.get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn a_default_or_another_order_is_no_difference() {
        let settings = |serve_resources: &[Extra], max_watches| {
            let given = Shared {
                api_server: true,
                hostname_override: Some("n".to_owned()),
                serve_resources: serve_resources.to_vec(),
                max_watches,
                ..Shared::default()
            };
            let once_timeout = GoDuration(Duration::ZERO);
            let shared = given.clone();
            let run = RunArgs { config: None, shared, once: false, once_timeout, check: false };
            Settings::of(given, &run, Output::Table).unwrap()
        };
        let old = settings(&[Extra::Nodes, Extra::Namespaces], None);
        for (resources, watches, differs) in [
            (&[Extra::Namespaces, Extra::Nodes][..], Some(WATCHES), None),
            (&[Extra::Nodes], None, Some("serveResources")),
            (&[Extra::Nodes, Extra::Namespaces], Some(1), Some("maxWatches")),
        ] {
            assert_eq!(old.fixed_difference(&settings(resources, watches)).as_deref(), differs);
        }
    }

    #[test]
    fn a_bad_url_of_manifests_is_named_as_the_user_wrote_it() {
        let given = Shared { manifest_url: Some("foo".to_owned()), ..Shared::default() };
        let Err(Failure::Usage(message)) = http(&given, &NodeName::new("n")) else { panic!("accepted") };
        assert!(message.starts_with("--manifest-url (staticPodURL) \"foo\": "), "{message}");
    }
}
