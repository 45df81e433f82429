//! The agent's settings, merged and validated. Flags override environment variables, which override the configuration
//! file, which overrides the defaults.

pub(crate) mod access;
pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod failure;
mod file;
mod idle;
pub(crate) mod log;
pub(crate) mod log_filter;
mod selection;
pub(crate) mod shutdown;
pub(crate) mod values;

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::args::{LogFormat, Output, RunArgs, ServerArgs, Setting, Shared};
use crate::api::table;
use crate::config::duration::GoDuration;
use crate::config::failure::Failure;
use crate::config::log_filter::{LogFilter, LogLevel};
use pod_index_kubelet::checkpoint::Which;
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::sources::http::{HttpConfig, HttpSource};
use pod_index_kubelet::sources::kubelet::KubeletSource;
use pod_index_kubelet::sources::static_pods::Derive;
use pod_index_kubelet::sources::{NodeName, Problem};

use self::selection::Selection;
use self::values::{AccessSettings, Bounds, Extra, Management, Mode, PodApiSettings, TlsFiles};

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
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Settings {
    pub(crate) node: NodeName,
    pub(crate) file: Option<FileSettings>,
    pub(crate) http: Option<HttpConfig>,
    pub(crate) kubelet: Option<HttpConfig>,
    pub(crate) api: Option<ApiSettings>,
    pub(crate) mirrors: Management,
    /// Where the host's processes are.
    pub(crate) proc: PathBuf,
    /// Where the kubelet puts its pods, beside the usual places.
    pub(crate) cgroup_root: Option<String>,
    /// How long to keep removed pods, and how many.
    pub(crate) keep_removed: (Duration, usize),
    /// The bounds of look-ups at a time.
    pub(crate) bounds: Bounds,
    /// Whether to omit literal values of environment variables.
    pub(crate) redact_env: bool,
    /// Where to keep pods on disk, and which.
    pub(crate) checkpoints: Option<(PathBuf, Which)>,
    pub(crate) address: SocketAddr,
    /// An additional address for `/livez` and `/readyz` only.
    pub(crate) health_address: Option<SocketAddr>,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) pod_api: PodApiSettings,
    /// An additional Unix socket to serve on, and its permissions.
    pub(crate) socket: Option<(PathBuf, Mode)>,
    /// Which clients may query the agent.
    pub(crate) access: AccessSettings,
    pub(crate) kubelet_metrics: bool,
    pub(crate) debug_endpoints: bool,
    pub(crate) once: bool,
    /// The timeout of `--once`. `None`: no timeout.
    pub(crate) once_timeout: Option<Duration>,
    pub(crate) output: Output,
    pub(crate) log_filter: LogFilter,
    pub(crate) log_format: LogFormat,
    /// How often the URL and the kubelet are asked.
    http_period: Duration,
    kubelet_period: Duration,
    /// The configuration as rows of a table, for logs and `--check`.
    summary: Vec<[String; 2]>,
    /// Settings that do nothing, and why.
    without_effect: Vec<String>,
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
    #[allow(clippy::too_many_lines, reason = "a list: each setting once")]
    fn resolve(args: RunArgs, server: &ServerArgs, output: Output) -> Result<Self, Failure> {
        let file = args.config.as_deref().map(Shared::read).transpose()?.unwrap_or_default();
        let given = args.shared.or(file);
        let without_effect = idle::idle(&given);
        let refused = |message: &str| Err(Failure::Usage(message.to_owned()));
        let address = server.address.or(given.address).unwrap_or(DEFAULT_ADDRESS);
        let access = access::settings(
            given.allowed_client_names,
            given.allowed_client_groups,
            given.authentication.webhook.enabled,
            given.authorization.mode,
        );
        let client_ca = given.authentication.x509.client_ca_file;
        let tls = tls(given.tls_cert_file, given.tls_private_key_file, client_ca, access.tokens)?;
        if !(tls.is_some() || given.allow_remote_clients) {
            within_the_node(address)?;
        }
        let address = SocketAddr::new(address, server.port.or(given.port).unwrap_or(DEFAULT_PORT));

        let path = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let period = |period: Option<GoDuration>| {
            period.map_or(
                CHECK_FREQUENCY,
                |GoDuration(period)| if period.is_zero() { CHECK_FREQUENCY } else { period },
            )
        };
        let [file_period, http_period, kubelet_period] =
            [given.file_check_frequency, given.http_check_frequency, given.kubelet_check_frequency]
                .map(period);
        let file = path(given.pod_manifest_path).map(|path| FileSettings { path, period: file_period });
        let url = text(given.manifest_url);
        let headers = given.manifest_url_header.unwrap_or_default();
        let is_named = given.hostname_override.is_some();
        let node = node_name(given.hostname_override)?;
        let ca = given.manifest_url_ca.as_deref();
        let http = url.as_deref().map(|url| http(url, &headers, ca, http_period, &node)).transpose()?;
        let kubelet_url = text(given.kubelet);
        let kubelet = KubeletArgs {
            token: given.kubelet_token_file,
            ca: given.kubelet_ca,
            insecure: given.kubelet_insecure_skip_tls_verify,
            period: kubelet_period,
        };
        let kubelet = kubelet_url.as_deref().map(|url| kubelet.config(url)).transpose()?;
        let selection = Selection::new(given.namespace, given.pod_selector, given.pod_field_selector)?;
        let is_asked_for = given.kubeconfig.is_some() || given.api_server;
        let api = ApiSettings {
            kubeconfig: given.kubeconfig,
            all_nodes: given.all_nodes,
            selection,
            managed_fields: given.keep_managed_fields,
        };
        let api = api_server(is_asked_for, api)?;
        if file.is_none() && http.is_none() && kubelet.is_none() && api.is_none() {
            return refused(
                "no pods to read: give --pod-manifest-path, --manifest-url, --kubelet, --kubeconfig or --api-server",
            );
        }
        access::makes_sense(&access, tls.as_ref(), api.is_some())?;
        let has_static_pods = file.is_some() || http.is_some();
        let mirrors = match management(given.manage_mirror_pods, given.force_manage_mirror_pods)? {
            // Prints and writes nothing.
            _ if args.once => Management::Off,
            Management::Off => Management::Off,
            asked => manageable(is_named, has_static_pods, api.as_ref()).map(|()| asked)?,
        };
        let which = if given.checkpoint_all_pods { Which::All } else { Which::Annotated };
        let checkpoints = path(given.checkpoint_dir).map(|path| (path, which));
        if given.checkpoint_all_pods && checkpoints.is_none() {
            return refused("checkpointAllPods needs a directory (--checkpoint-dir)");
        }
        let pod_api = PodApiSettings {
            static_pods: given.static_pod_object.unwrap_or_default(),
            watches: given.max_watches.unwrap_or(WATCHES),
            watches_per_client: given.max_watches_per_client.unwrap_or(WATCHES_PER_CLIENT),
            extra: given.serve_resources.into_iter().collect(),
        };
        if pod_api.extra.contains(&Extra::Owners) && api.as_ref().is_some_and(|api| api.all_nodes) {
            let message =
                "--serve-resources=owners requests the owners of this node's pods, not of --all-nodes";
            return Err(Failure::Usage(message.to_owned()));
        }
        if !pod_api.extra.is_empty() && api.is_none() {
            return refused("--serve-resources needs an API server: --kubeconfig or --api-server");
        }
        let socket = path(server.socket.clone().or(given.socket));
        if socket.is_none() && given.socket_mode.is_some() {
            return refused("socketMode needs a socket (--socket)");
        }
        let socket = socket.map(|path| (path, given.socket_mode.unwrap_or_default()));
        let keep_removed = (
            given.keep_removed.map_or(KEEP_REMOVED, |GoDuration(age)| age),
            given.keep_removed_max.unwrap_or(KEEP_REMOVED_MAX),
        );
        let span = |given: Option<GoDuration>, default| given.map_or(default, |GoDuration(span)| span);
        let Bounds { skew, delay } = Bounds::default();
        let bounds = Bounds { skew: span(given.clock_skew, skew), delay: span(given.source_delay, delay) };

        let mut summary = vec![["node".to_owned(), node.to_string()]];
        if let Some(FileSettings { path, period }) = &file {
            summary.push(["file".to_owned(), format!("{} every {period:?}", path.display())]);
        }
        if let Some(url) = url {
            let headers = headers.len();
            summary.push(["http".to_owned(), format!("{url} every {http_period:?}, {headers} headers")]);
        }
        if let Some(url) = kubelet_url {
            summary.push(["kubelet".to_owned(), format!("{url} every {kubelet_period:?}")]);
        }
        summary.extend(api.as_ref().map(|api| ["api".to_owned(), api.words()]));
        if given.redact_env {
            summary.push(["environment".to_owned(), "values are redacted".to_owned()]);
        }
        if mirrors != Management::Off {
            let kubelet = if mirrors == Management::Forced { "even beside" } else { "unless there is" };
            summary.push(["mirror pods".to_owned(), format!("managed, {kubelet} a kubelet")]);
        }
        summary.extend(checkpoints.as_ref().map(kept));
        summary.push(["address".to_owned(), served(address, tls.as_ref())]);
        summary.extend(
            socket
                .as_ref()
                .map(|(path, mode)| ["socket".to_owned(), format!("{} with mode {mode}", path.display())]),
        );
        summary.extend(access::words(&access).map(|words| ["clients".to_owned(), words]));
        summary.extend(given.health_address.map(|address| ["health".to_owned(), address.to_string()]));
        Ok(Self {
            node,
            file,
            http,
            kubelet,
            api,
            mirrors,
            cgroup_root: text(given.cgroup_root),
            proc: path(given.proc).unwrap_or_else(|| PROC.into()),
            keep_removed,
            bounds,
            redact_env: given.redact_env,
            // Prints and stores nothing.
            checkpoints: checkpoints.filter(|_| !args.once),
            address,
            health_address: given.health_address,
            tls,
            pod_api,
            socket,
            access,
            kubelet_metrics: given.kubelet_metrics,
            debug_endpoints: given.debug_endpoints,
            once: args.once,
            once_timeout: Some(args.once_timeout.0).filter(|timeout| !timeout.is_zero()),
            output,
            log_filter: given.log_level.unwrap_or_else(|| LogLevel::Info.into()),
            log_format: given.log_format.unwrap_or(LogFormat::Text),
            http_period,
            kubelet_period,
            summary,
            without_effect,
        })
    }

    /// How often a source is read. Zero for one that is followed.
    pub(crate) fn period_of(&self, source: &str) -> Duration {
        match source {
            "file" => self.file.as_ref().map_or(Duration::ZERO, |file| file.period),
            "http" => self.http_period,
            "kubelet" => self.kubelet_period,
            _ => Duration::ZERO,
        }
    }

    /// Settings that do nothing, and what each one needs.
    pub(crate) fn without_effect(&self) -> &[String] {
        &self.without_effect
    }

    /// The configuration in a line.
    pub(crate) fn words(&self) -> String {
        let settings: Vec<_> = self.summary.iter().map(|[name, value]| format!("{name}: {value}")).collect();
        settings.join("; ")
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
            ("healthAddress", self.health_address != new.health_address),
            ("tlsCertFile, tlsPrivateKeyFile or clientCAFile", self.tls != new.tls),
            ("manageMirrorPods", self.mirrors != new.mirrors),
            ("proc or cgroupRoot", (&self.proc, &self.cgroup_root) != (&new.proc, &new.cgroup_root)),
            ("keepRemoved or keepRemovedMax", self.keep_removed != new.keep_removed),
            ("clockSkew or sourceDelay", self.bounds != new.bounds),
            ("redactEnv", self.redact_env != new.redact_env),
            ("kubeconfig", self.keeps_api_server() && self.api_server() != new.api_server()),
            ("checkpointDir or checkpointAllPods", self.checkpoints != new.checkpoints),
            ("kubeletMetrics", self.kubelet_metrics != new.kubelet_metrics),
            (
                "staticPodObject, serveResources, maxWatches or maxWatchesPerClient",
                self.pod_api != new.pod_api,
            ),
            ("socket or socketMode", self.socket != new.socket),
            ("debugEndpoints", self.debug_endpoints != new.debug_endpoints),
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

    /// The configuration as a table.
    pub(crate) fn summary(&self) -> String {
        table::table(["SETTING", "VALUE"], self.summary.iter().map(|[name, value]| [&**name, &**value]))
    }
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
fn tls(
    cert: Option<PathBuf>,
    private_key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    takes_tokens: bool,
) -> Result<Option<TlsFiles>, Failure> {
    let given = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
    let (cert, private_key) = match (given(cert), given(private_key)) {
        (Some(cert), Some(private_key)) => (cert, private_key),
        (Some(_), None) => return Err(Failure::Usage("tlsCertFile needs a tlsPrivateKeyFile".to_owned())),
        (None, Some(_)) => return Err(Failure::Usage("tlsPrivateKeyFile needs a tlsCertFile".to_owned())),
        (None, None) if given(client_ca).is_some() => {
            let message = "clientCAFile needs a tlsCertFile and a tlsPrivateKeyFile";
            return Err(Failure::Usage(message.to_owned()));
        }
        (None, None) => return Ok(None),
    };
    if client_ca.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
        // An empty path must not disable client verification.
        return Err(Failure::Usage("clientCAFile is empty".to_owned()));
    }
    Ok(Some(TlsFiles { cert, private_key, client_ca, takes_tokens }))
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

/// The summary row of checkpoints.
fn kept((path, which): &(PathBuf, Which)) -> [String; 2] {
    let which = if *which == Which::All { "all pods" } else { "annotated pods" };
    ["checkpoints".to_owned(), format!("{}, {which}", path.display())]
}

/// The API server, if configured. Rejects selectors without it.
fn api_server(is_asked_for: bool, settings: ApiSettings) -> Result<Option<ApiSettings>, Failure> {
    match settings.selection.flag() {
        Some(flag) if !is_asked_for => {
            let message = format!("{flag} needs an API server: --kubeconfig or --api-server");
            Err(Failure::Usage(message))
        }
        _ => Ok(is_asked_for.then_some(settings)),
    }
}

fn management(managed: bool, forced: bool) -> Result<Management, Failure> {
    match (managed, forced) {
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
fn manageable(is_named: bool, has_static_pods: bool, api: Option<&ApiSettings>) -> Result<(), Failure> {
    if let Some(flag) = api.and_then(|api| api.selection.flag()) {
        let message =
            format!("--manage-mirror-pods has to see all pods of the node, and {flag} leaves some out");
        return Err(Failure::Usage(message));
    }
    let missing = match (is_named, has_static_pods, api.is_some()) {
        (false, ..) => "the node's name: give --node-name",
        (_, false, _) => "static pods: give --pod-manifest-path or --manifest-url",
        (.., false) => "an API server: give --kubeconfig or --api-server",
        (true, true, true) => return Ok(()),
    };
    Err(Failure::Usage(format!("--manage-mirror-pods needs {missing}")))
}

/// How to query the kubelet.
struct KubeletArgs {
    token: Option<PathBuf>,
    ca: Option<PathBuf>,
    insecure: bool,
    period: Duration,
}

impl KubeletArgs {
    /// The configuration of the kubelet source. Checks that the source can be created.
    fn config(self, url: &str) -> Result<HttpConfig, Failure> {
        let wrong = |problem: Problem| Failure::Usage(problem.to_string());
        let mut config = HttpConfig::of_kubelet(url).map_err(wrong)?.period(self.period);
        if self.insecure && self.ca.is_some() {
            let message = "--kubelet-ca is of no use with --kubelet-insecure-skip-tls-verify";
            return Err(Failure::Usage(message.to_owned()));
        }
        if self.insecure {
            config = config.insecure();
        }
        if let Some(ca) = self.ca {
            let wrong = |error: &dyn Display| Failure::Usage(format!("kubeletCa {}: {error}", ca.display()));
            let pem = std::fs::read(&ca).map_err(|error| wrong(&error))?;
            config = config.certificate_authorities(&pem).map_err(|problem| wrong(&problem))?;
        }
        let service_account =
            || Path::new(SERVICE_ACCOUNT_TOKEN).exists().then(|| SERVICE_ACCOUNT_TOKEN.into());
        if let Some(token) = self.token.or_else(service_account) {
            config = config.token_file(&token);
        }
        drop(KubeletSource::new(config.clone()).map_err(wrong)?);
        Ok(config)
    }
}

/// The configuration of the http source. Checks that the source can be created.
fn http(
    url: &str,
    headers: &[(String, String)],
    ca: Option<&Path>,
    period: Duration,
    node: &NodeName,
) -> Result<HttpConfig, Failure> {
    let wrong = |problem: Problem| Failure::Usage(problem.to_string());
    let wrong_url = |problem: Problem| {
        let what = "--manifest-url (staticPodURL)";
        Failure::Usage(format!("{what} {url:?}: {}", problem.message()))
    };
    let mut config = HttpConfig::new(url).map_err(wrong_url)?.period(period);
    for (name, value) in headers {
        config = config.header(name, value).map_err(wrong)?;
    }
    if let Some(ca) = ca {
        let wrong = |error: &dyn Display| Failure::Usage(format!("manifestUrlCa {}: {error}", ca.display()));
        let pem = std::fs::read(ca).map_err(|error| wrong(&error))?;
        config = config.certificate_authorities(&pem).map_err(|problem| wrong(&problem))?;
    }
    drop(HttpSource::new(config.clone(), node.clone()).map_err(wrong)?);
    Ok(config)
}

/// The given name or the host's name, trimmed and in lower case.
///
/// Kubelet: `GetHostname` (`pkg/util/node/node.go`).
fn node_name(given: Option<String>) -> Result<NodeName, Failure> {
    let (from, name) = match given {
        Some(name) => ("the node's name that was given", name),
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
    fn a_nodes_name_is_a_dns_name_and_is_used_in_lower_case() {
        assert_eq!(node_name(Some(" Foo.Bar ".to_owned())).unwrap().as_str(), "foo.bar");
        for bad in ["Foo_Bar", "-a", "a..b", " "] {
            assert!(matches!(node_name(Some(bad.to_owned())), Err(Failure::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn a_bad_url_of_manifests_is_named_as_the_user_wrote_it() {
        let node = NodeName::new("n");
        let Err(Failure::Usage(message)) = http("foo", &[], None, Duration::from_secs(1), &node) else {
            panic!("accepted")
        };
        assert!(message.starts_with("--manifest-url (staticPodURL) \"foo\": "), "{message}");
    }

    #[test]
    fn a_node_name_is_trimmed_and_in_lower_case() {
        assert_eq!(node_name(Some(" Node-1 \n".to_owned())).unwrap().as_str(), "node-1");
        assert!(node_name(Some("  ".to_owned())).is_err());
        assert!(!node_name(None).unwrap().as_str().is_empty());
    }
}
