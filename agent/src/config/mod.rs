//! The agent's settings, merged and validated. Flags override environment variables, which override the configuration
//! file, which overrides the defaults.

pub(crate) mod access;
pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod failure;
mod file;
pub(crate) mod log;
mod selection;
pub(crate) mod shutdown;
pub(crate) mod values;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::args::{Output, RunArgs, ServerArgs, Setting, Shared, filled};
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
use self::values::{AccessSettings, Bounds, Extra, LogFormat, Management, Mode, PodApiSettings, TlsFiles};

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

/// Default maximum number of watches, in total and per client.
const WATCHES: usize = 1024;
const WATCHES_PER_CLIENT: usize = 256;

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

impl Given {
    /// The resulting settings, with the current configuration file.
    pub(crate) fn resolve(&self) -> Result<Settings, Failure> {
        Settings::resolve(self.run.clone(), &self.server, self.output)
    }
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

impl ApiSettings {
    /// The properties that identify a client and its permissions.
    fn server(&self) -> (Option<&Path>, bool) {
        (self.kubeconfig.as_deref(), self.all_nodes)
    }

    /// A description: the server, and which of its pods.
    fn words(&self) -> String {
        let Self { kubeconfig, all_nodes, selection, managed_fields } = self;
        let server = kubeconfig.as_ref().map_or("as found".into(), |path| path.display().to_string());
        let nodes = if *all_nodes { "all nodes" } else { "this node" };
        let kept = if *managed_fields { ", with managedFields" } else { "" };
        format!("{server}, pods of {nodes}{}{kept}", selection.words())
    }
}

impl Settings {
    fn resolve(args: RunArgs, server: &ServerArgs, output: Output) -> Result<Self, Failure> {
        let file = args.config.as_deref().map(Shared::read).transpose()?.unwrap_or_default();
        let given = args.shared.or(file);
        let refused = |message: &str| Err(Failure::Usage(message.to_owned()));
        let access = access::settings(&given);
        let tls = tls(&given)?;
        let address = server.address.or(given.address).unwrap_or(DEFAULT_ADDRESS);
        if !(tls.is_some() || given.allow_remote_clients) {
            within_the_node(address)?;
        }
        let node = node_name(given.hostname_override.as_deref())?;
        let file = filled(given.pod_manifest_path.as_ref());
        let file =
            file.map(|path| FileSettings { path: path.clone(), period: period(given.file_check_frequency) });
        let http = http(&given, &node)?;
        let kubelet = kubelet(&given)?;
        let api = api_server(&given)?;
        if file.is_none() && http.is_none() && kubelet.is_none() && api.is_none() {
            return refused(
                "no pods to read: give --pod-manifest-path, --manifest-url, --kubelet, --kubeconfig or --api-server",
            );
        }
        access::makes_sense(&access, tls.as_ref(), api.is_some())?;
        let mirrors = match management(&given)? {
            // Prints and writes nothing.
            _ if args.once => Management::Off,
            Management::Off => Management::Off,
            asked => manageable(&given, file.is_some() || http.is_some(), api.as_ref()).map(|()| asked)?,
        };
        let which = if given.checkpoint_all_pods { Which::All } else { Which::Annotated };
        let checkpoints = filled(given.checkpoint_dir.as_ref()).map(|path| (path.clone(), which));
        if given.checkpoint_all_pods && checkpoints.is_none() {
            return refused("checkpointAllPods needs a directory (--checkpoint-dir)");
        }
        let pod_api = pod_api(&given, api.as_ref())?;
        let socket = server.socket.clone().or(given.socket.clone());
        let socket = filled(socket.as_ref()).cloned();
        if socket.is_none() && given.socket_mode.is_some() {
            return refused("socketMode needs a socket (--socket)");
        }
        let span = |given: Option<GoDuration>, default| given.map_or(default, |GoDuration(span)| span);
        let Bounds { skew, delay } = Bounds::default();
        Ok(Self {
            node,
            file,
            http,
            kubelet,
            api,
            mirrors,
            proc: filled(given.proc.as_ref()).cloned().unwrap_or_else(|| PROC.into()),
            keep_removed: (
                span(given.keep_removed, KEEP_REMOVED),
                given.keep_removed_max.unwrap_or(KEEP_REMOVED_MAX),
            ),
            bounds: Bounds { skew: span(given.clock_skew, skew), delay: span(given.source_delay, delay) },
            // Prints and stores nothing.
            checkpoints: checkpoints.filter(|_| !args.once),
            address: SocketAddr::new(address, server.port.or(given.port).unwrap_or(DEFAULT_PORT)),
            tls,
            pod_api,
            socket: socket.map(|path| (path, given.socket_mode.unwrap_or_default())),
            access,
            once: args.once,
            once_timeout: Some(args.once_timeout.0).filter(|timeout| !timeout.is_zero()),
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

    /// What is configured, and how.
    fn rows(&self) -> impl Iterator<Item = [String; 2]> {
        let Self { given, mirrors, .. } = self;
        let every = |place: &dyn Display, source| format!("{place} every {:?}", self.period_of(source));
        let headers = given.manifest_url_header.as_ref().map_or(0, Vec::len);
        let kubelet = if *mirrors == Management::Forced { "even beside" } else { "unless there is" };
        let rows = [
            ("node", Some(self.node.to_string())),
            ("file", self.file.as_ref().map(|file| every(&file.path.display(), "file"))),
            (
                "http",
                filled(given.manifest_url.as_ref())
                    .map(|url| format!("{}, {headers} headers", every(url, "http"))),
            ),
            ("kubelet", filled(given.kubelet.as_ref()).map(|url| every(url, "kubelet"))),
            ("api", self.api.as_ref().map(ApiSettings::words)),
            ("environment", given.redact_env.then(|| "values are redacted".to_owned())),
            ("mirror pods", (*mirrors != Management::Off).then(|| format!("managed, {kubelet} a kubelet"))),
            ("checkpoints", self.checkpoints.as_ref().map(kept)),
            ("address", Some(served(self.address, self.tls.as_ref()))),
            (
                "socket",
                self.socket.as_ref().map(|(path, mode)| format!("{} with mode {mode}", path.display())),
            ),
            ("clients", access::words(&self.access)),
            ("health", given.health_address.map(|address| address.to_string())),
            ("metrics", given.metrics_address.map(|address| address.to_string())),
        ];
        rows.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]))
    }

    /// The configuration in a line.
    pub(crate) fn words(&self) -> String {
        self.rows().map(|[name, value]| format!("{name}: {value}")).collect::<Vec<_>>().join("; ")
    }

    /// The configuration as a table.
    pub(crate) fn summary(&self) -> String {
        let rows: Vec<_> = self.rows().collect();
        table::table(["SETTING", "VALUE"], rows.iter().map(|[name, value]| [&**name, &**value]))
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

    /// The first setting that differs in `new` but cannot change while the agent runs.
    pub(crate) fn fixed_difference(&self, new: &Self) -> Option<&'static str> {
        [
            ("hostnameOverride", self.node != new.node),
            ("address or port", self.address != new.address),
            (
                "allowedClientNames, allowedClientGroups, authentication.webhook or authorization",
                self.access != new.access,
            ),
            ("healthAddress", self.given.health_address != new.given.health_address),
            ("metricsAddress", self.given.metrics_address != new.given.metrics_address),
            ("tlsCertFile, tlsPrivateKeyFile or clientCAFile", self.tls != new.tls),
            ("manageMirrorPods", self.mirrors != new.mirrors),
            ("proc", self.proc != new.proc),
            ("cgroupRoot", self.given.cgroup_root != new.given.cgroup_root),
            ("keepRemoved or keepRemovedMax", self.keep_removed != new.keep_removed),
            ("clockSkew or sourceDelay", self.bounds != new.bounds),
            ("redactEnv", self.given.redact_env != new.given.redact_env),
            ("kubeconfig", self.keeps_api_server() && self.api_server() != new.api_server()),
            ("checkpointDir or checkpointAllPods", self.checkpoints != new.checkpoints),
            ("kubeletMetrics", self.given.kubelet_metrics != new.given.kubelet_metrics),
            (
                "staticPodObject, serveResources, maxWatches or maxWatchesPerClient",
                self.pod_api != new.pod_api,
            ),
            ("socket or socketMode", self.socket != new.socket),
            ("logFormat", self.log_format != new.log_format),
        ]
        .into_iter()
        .find_map(|(name, differs)| differs.then_some(name))
    }

    /// Whether the agent must stay with the API server of the start. With another one, the mirror pods on the old API
    /// server would stay there, and reviews of the old one would still admit clients.
    pub(crate) fn keeps_api_server(&self) -> bool {
        let Self { mirrors, access, pod_api, .. } = self;
        *mirrors != Management::Off || access.tokens || access.rights || !pod_api.extra.is_empty()
    }

    fn api_server(&self) -> Option<(Option<&Path>, bool)> {
        self.api.as_ref().map(ApiSettings::server)
    }
}

fn period(given: Option<GoDuration>) -> Duration {
    given.map(|GoDuration(period)| period).filter(|period| !period.is_zero()).unwrap_or(CHECK_FREQUENCY)
}

/// Serving beyond loopback needs an explicit choice.
fn within_the_node(address: IpAddr) -> Result<(), Failure> {
    if address.is_loopback() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "address {address}: anyone who can reach it could read every pod; give --tls-cert-file and --tls-private-key-file \
         (and --client-ca-file), or --allow-remote-clients to allow this"
    )))
}

/// The TLS files, if TLS is configured.
fn tls(given: &Shared) -> Result<Option<TlsFiles>, Failure> {
    let refused = |message: &str| Err(Failure::Usage(message.to_owned()));
    let client_ca = &given.authentication.x509.client_ca_file;
    let files = [given.tls_cert_file.as_ref(), given.tls_private_key_file.as_ref()].map(filled);
    match (files, filled(client_ca.as_ref())) {
        // An empty path must not disable client verification.
        ([Some(_), Some(_)], None) if client_ca.is_some() => refused("clientCAFile is empty"),
        ([Some(cert), Some(private_key)], _) => Ok(Some(TlsFiles {
            cert: cert.clone(),
            private_key: private_key.clone(),
            client_ca: client_ca.clone(),
            takes_tokens: given.authentication.webhook.enabled,
        })),
        ([Some(_), None], _) => refused("tlsCertFile needs a tlsPrivateKeyFile"),
        ([None, Some(_)], _) => refused("tlsPrivateKeyFile needs a tlsCertFile"),
        ([None, None], Some(_)) => refused("clientCAFile needs a tlsCertFile and a tlsPrivateKeyFile"),
        ([None, None], None) => Ok(None),
    }
}

/// A description of the address, of TLS and of the accepted clients.
fn served(address: SocketAddr, tls: Option<&TlsFiles>) -> String {
    match tls {
        None => address.to_string(),
        Some(TlsFiles { cert, client_ca: None, .. }) => format!("{address}, TLS by {}", cert.display()),
        Some(TlsFiles { cert, client_ca: Some(ca), .. }) => {
            format!("{address}, TLS by {}, for clients of {}", cert.display(), ca.display())
        }
    }
}

/// A description of the checkpoints.
fn kept((path, which): &(PathBuf, Which)) -> String {
    let which = if *which == Which::All { "all pods" } else { "annotated pods" };
    format!("{}, {which}", path.display())
}

/// The API server, if configured. Rejects selectors without it.
fn api_server(given: &Shared) -> Result<Option<ApiSettings>, Failure> {
    let selection = Selection::new(given)?;
    let is_asked_for = given.kubeconfig.is_some() || given.api_server;
    if let Some(flag) = selection.flag().filter(|_| !is_asked_for) {
        return Err(Failure::Usage(format!("{flag} needs an API server: --kubeconfig or --api-server")));
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
    let refused = |message: &str| Err(Failure::Usage(message.to_owned()));
    match api {
        Some(ApiSettings { all_nodes: true, .. }) if extra.contains(&Extra::Owners) => {
            refused("--serve-resources=owners requests the owners of this node's pods, not of --all-nodes")
        }
        None if !extra.is_empty() => {
            refused("--serve-resources needs an API server: --kubeconfig or --api-server")
        }
        _ => Ok(PodApiSettings {
            static_pods: given.static_pod_object.unwrap_or_default(),
            watches: given.max_watches.unwrap_or(WATCHES),
            watches_per_client: given.max_watches_per_client.unwrap_or(WATCHES_PER_CLIENT),
            extra,
        }),
    }
}

fn management(given: &Shared) -> Result<Management, Failure> {
    match (given.manage_mirror_pods, given.force_manage_mirror_pods) {
        (false, false) => Ok(Management::Off),
        (true, false) => Ok(Management::Careful),
        (true, true) => Ok(Management::Forced),
        (false, true) => {
            Err(Failure::Usage("--force-manage-mirror-pods needs --manage-mirror-pods".to_owned()))
        }
    }
}

/// Whether mirror pods can be managed. Without static pods, every mirror would be an orphan. A guessed node name may be
/// another node's. Mirrors that a selector hides would seem missing.
fn manageable(given: &Shared, has_static_pods: bool, api: Option<&ApiSettings>) -> Result<(), Failure> {
    if let Some(flag) = api.and_then(|api| api.selection.flag()) {
        let message =
            format!("--manage-mirror-pods has to see all pods of the node, and {flag} leaves some out");
        return Err(Failure::Usage(message));
    }
    let missing = match (given.hostname_override.is_some(), has_static_pods, api.is_some()) {
        (false, ..) => "the node's name: give --node-name",
        (_, false, _) => "static pods: give --pod-manifest-path or --manifest-url",
        (.., false) => "an API server: give --kubeconfig or --api-server",
        (true, true, true) => return Ok(()),
    };
    Err(Failure::Usage(format!("--manage-mirror-pods needs {missing}")))
}

/// How to query the kubelet, if it is a source. Checks that the source can be created.
fn kubelet(given: &Shared) -> Result<Option<HttpConfig>, Failure> {
    let Some(url) = filled(given.kubelet.as_ref()) else { return Ok(None) };
    let wrong = |problem: Problem| Failure::Usage(problem.to_string());
    let mut config =
        HttpConfig::of_kubelet(url).map_err(wrong)?.period(period(given.kubelet_check_frequency));
    if given.kubelet_insecure_skip_tls_verify {
        if given.kubelet_ca.is_some() {
            let message = "--kubelet-ca is of no use with --kubelet-insecure-skip-tls-verify";
            return Err(Failure::Usage(message.to_owned()));
        }
        config = config.insecure();
    }
    if let Some(ca) = &given.kubelet_ca {
        config = authorities("kubeletCa", ca, |pem| config.certificate_authorities(pem))?;
    }
    let of_the_account = Some(Path::new(SERVICE_ACCOUNT_TOKEN)).filter(|token| token.exists());
    if let Some(token) = given.kubelet_token_file.as_deref().or(of_the_account) {
        config = config.token_file(token);
    }
    drop(KubeletSource::new(config.clone()).map_err(wrong)?);
    Ok(Some(config))
}

/// How to request the manifests' URL, if it is a source. Checks that the source can be created.
fn http(given: &Shared, node: &NodeName) -> Result<Option<HttpConfig>, Failure> {
    let Some(url) = filled(given.manifest_url.as_ref()) else { return Ok(None) };
    let wrong = |problem: Problem| Failure::Usage(problem.to_string());
    let wrong_url = |problem: Problem| {
        let what = "--manifest-url (staticPodURL)";
        Failure::Usage(format!("{what} {url:?}: {}", problem.message()))
    };
    let mut config = HttpConfig::new(url).map_err(wrong_url)?.period(period(given.http_check_frequency));
    for (name, value) in given.manifest_url_header.iter().flatten() {
        config = config.header(name, value).map_err(wrong)?;
    }
    if let Some(ca) = &given.manifest_url_ca {
        config = authorities("manifestUrlCa", ca, |pem| config.certificate_authorities(pem))?;
    }
    drop(HttpSource::new(config.clone(), node.clone()).map_err(wrong)?);
    Ok(Some(config))
}

/// Reads the authorities to trust.
fn authorities<T>(
    setting: &str,
    path: &Path,
    trust: impl FnOnce(&[u8]) -> Result<T, Problem>,
) -> Result<T, Failure> {
    let wrong = |error: &dyn Display| Failure::Usage(format!("{setting} {}: {error}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(&error))?;
    trust(&pem).map_err(|problem| wrong(&problem))
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
    if lower.is_empty() {
        return Err(Failure::Usage(format!("{from} is empty, but a node needs a name")));
    }
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
    fn a_bad_url_of_manifests_is_named_as_the_user_wrote_it() {
        let given = Shared { manifest_url: Some("foo".to_owned()), ..Shared::default() };
        let Err(Failure::Usage(message)) = http(&given, &NodeName::new("n")) else { panic!("accepted") };
        assert!(message.starts_with("--manifest-url (staticPodURL) \"foo\": "), "{message}");
    }
}
