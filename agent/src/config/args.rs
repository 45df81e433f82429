//! The settings of the agent as flags, environment variables and keys of the configuration file, with the kubelet's names
//! where they exist.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Deserializer};

use super::duration::GoDuration;
use super::log::LogFilter;
use super::values::{AuthorizationMode, Extra, LogFormat, Mode, StaticPods};

/// Declares settings once, for flags, environment variables and the configuration file.
macro_rules! settings {
    ($($(#[$of_struct:meta])* $struct:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$of_struct])*
        #[derive(Args, Clone, Debug, Default, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        #[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
        #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
        pub(crate) struct $struct { $($(#[$of_field])* pub(crate) $field: $type,)* }

        impl Setting for $struct {
            fn or(self, file: Self) -> Self {
                Self { $($field: self.$field.or(file.$field),)* }
            }

            fn relative_to(&mut self, directory: &Path) {
                $(self.$field.relative_to(directory);)*
            }
        }
    )*};
}

/// The value, unless it is empty, which counts as absent.
pub(super) fn filled<T: AsRef<OsStr>>(given: Option<&T>) -> Option<&T> {
    given.filter(|text| !text.as_ref().is_empty())
}

/// A setting, or several.
pub(super) trait Setting {
    /// What is set here overrides the file.
    fn or(self, file: Self) -> Self;

    /// Makes relative paths relative to the file's directory.
    fn relative_to(&mut self, _: &Path) {}
}

impl Setting for Option<PathBuf> {
    fn or(self, file: Self) -> Self {
        self.or(file)
    }

    fn relative_to(&mut self, directory: &Path) {
        // An empty path means none, not the directory.
        if let Some(path) = self.as_mut().filter(|path| !path.as_os_str().is_empty()) {
            *path = directory.join(&*path);
        }
    }
}

/// Settings other than paths, of which one value counts.
macro_rules! single {
    ($($type:ty),*) => {$(
        impl Setting for Option<$type> {
            fn or(self, file: Self) -> Self {
                self.or(file)
            }
        }
    )*};
}

single!(AuthorizationMode, GoDuration, IpAddr, LogFilter, LogFormat, Mode, SocketAddr, StaticPods, String);
single!(Vec<(String, String)>, u16, usize);

impl Setting for bool {
    fn or(self, file: Self) -> Self {
        self || file
    }
}

/// Both lists count.
impl<T: Clone> Setting for Vec<T> {
    fn or(self, file: Self) -> Self {
        [self, file].concat()
    }
}

settings! {
/// The keys of a configuration file, and their flags. Any other key is an error.
Shared {
    /// A directory of static pod manifests, or one manifest.
    #[arg(long, visible_alias = "static-pod-path", env = "POD_INDEX_POD_MANIFEST_PATH", value_name = "PATH")]
    #[serde(rename = "staticPodPath")]
    pod_manifest_path: Option<PathBuf>,

    /// A URL that serves static pod manifests.
    #[arg(long, visible_alias = "static-pod-url", env = "POD_INDEX_MANIFEST_URL", value_name = "URL")]
    #[serde(rename = "staticPodURL")]
    manifest_url: Option<String>,

    /// Headers to send to that URL.
    #[arg(long, env = "POD_INDEX_MANIFEST_URL_HEADER", hide_env_values = true, value_delimiter = ',')]
    #[arg(value_name = "NAME:VALUE", value_parser = header)]
    #[serde(rename = "staticPodURLHeader", deserialize_with = "headers")]
    manifest_url_header: Option<Vec<(String, String)>>,

    /// The authorities to trust for that URL, in PEM, instead of the system's.
    #[arg(long, env = "POD_INDEX_MANIFEST_URL_CA", value_name = "FILE")]
    manifest_url_ca: Option<PathBuf>,

    /// Read pods from this node's kubelet, for example `https://127.0.0.1:10250`.
    #[arg(long, env = "POD_INDEX_KUBELET", value_name = "URL")]
    kubelet: Option<String>,

    /// The bearer token to send to the kubelet. Without it, the token of the service account, if there is one.
    #[arg(long, env = "POD_INDEX_KUBELET_TOKEN_FILE", value_name = "FILE")]
    kubelet_token_file: Option<PathBuf>,

    /// The authorities to trust for the kubelet, in PEM, instead of the system's.
    #[arg(long, env = "POD_INDEX_KUBELET_CA", value_name = "FILE")]
    kubelet_ca: Option<PathBuf>,

    /// Accept any certificate from the kubelet. A process that impersonates the kubelet then receives the token.
    #[arg(long, env = "POD_INDEX_KUBELET_INSECURE_SKIP_TLS_VERIFY")]
    kubelet_insecure_skip_tls_verify: bool,

    /// How often to ask the kubelet [default: 20s].
    #[arg(long, env = "POD_INDEX_KUBELET_CHECK_FREQUENCY", value_name = "DURATION")]
    kubelet_check_frequency: Option<GoDuration>,

    /// How often to read the manifests; file events trigger a read at once [default: 20s].
    #[arg(long, env = "POD_INDEX_FILE_CHECK_FREQUENCY", value_name = "DURATION")]
    file_check_frequency: Option<GoDuration>,

    /// How often to request the URL [default: 20s].
    #[arg(long, env = "POD_INDEX_HTTP_CHECK_FREQUENCY", value_name = "DURATION")]
    http_check_frequency: Option<GoDuration>,

    /// Follow the API server that this file names.
    #[arg(long, env = "POD_INDEX_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Follow the API server of $KUBECONFIG, of ~/.kube/config or, in a pod, of its service account.
    #[arg(long, env = "POD_INDEX_API_SERVER")]
    api_server: bool,

    /// Follow the API server's pods of all nodes, not only of this node.
    #[arg(long, env = "POD_INDEX_ALL_NODES")]
    all_nodes: bool,

    /// Keep metadata.managedFields of the API server's pods. They can take most of a pod's memory, and the agent does
    /// not use them.
    #[arg(long, env = "POD_INDEX_KEEP_MANAGED_FIELDS")]
    keep_managed_fields: bool,

    /// Where the processes of the host are, to look up process IDs [default: /proc].
    #[arg(long, env = "POD_INDEX_PROC", value_name = "PATH")]
    proc: Option<PathBuf>,

    /// The cgroup below which the kubelet puts its pods, if it has a cgroupRoot, to look up process IDs. Anyone who may
    /// create cgroups elsewhere can name them like those of a pod.
    #[arg(long, env = "POD_INDEX_CGROUP_ROOT", value_name = "CGROUP")]
    cgroup_root: Option<String>,

    /// How long a removed pod is found by whois, for events that arrive late; 0 turns this off [default: 60s].
    #[arg(long, env = "POD_INDEX_KEEP_REMOVED", value_name = "DURATION")]
    keep_removed: Option<GoDuration>,

    /// Maximum number of removed pods to keep [default: 10000].
    #[arg(long, env = "POD_INDEX_KEEP_REMOVED_MAX", value_name = "PODS")]
    keep_removed_max: Option<usize>,

    /// The largest difference between two of the clocks of events, of this node and of the API server, for whois --at
    /// [default: 2s].
    #[arg(long, env = "POD_INDEX_CLOCK_SKEW", value_name = "DURATION")]
    clock_skew: Option<GoDuration>,

    /// The longest time until the sources tell of a change on the node, for whois --at [default: 10s].
    #[arg(long, env = "POD_INDEX_SOURCE_DELAY", value_name = "DURATION")]
    source_delay: Option<GoDuration>,

    /// Redact the literal values of environment variables, which are often credentials: in the pods that the agent
    /// keeps, in everything served, in mirror pods and in checkpoints. Names and references (valueFrom) stay.
    #[arg(long, env = "POD_INDEX_REDACT_ENV")]
    redact_env: bool,

    /// Follow only the API server's pods in this namespace.
    #[arg(long, env = "POD_INDEX_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Follow only the API server's pods that match this label selector, for example app=web,tier!=test.
    #[arg(long, env = "POD_INDEX_POD_SELECTOR", value_name = "SELECTOR")]
    pod_selector: Option<String>,

    /// Follow only the API server's pods that match this field selector, for example status.phase=Running.
    #[arg(long, env = "POD_INDEX_POD_FIELD_SELECTOR", value_name = "SELECTOR")]
    pod_field_selector: Option<String>,

    /// The node's name, instead of the host's.
    #[arg(long, visible_alias = "node-name", env = "POD_INDEX_HOSTNAME_OVERRIDE", value_name = "NAME")]
    #[serde(alias = "nodeName")]
    hostname_override: Option<String>,

    /// Also export metrics under the kubelet's own names. Do not use it on a node with a kubelet.
    #[arg(long, env = "POD_INDEX_KUBELET_METRICS")]
    kubelet_metrics: bool,

    /// Manage the node's mirror pods on the API server: create, replace and delete them to match the static pods. Only
    /// for a node without a kubelet. If a kubelet runs, the agent changes nothing and exits with code 4. If one starts
    /// later, the agent stops managing mirror pods.
    #[arg(long, env = "POD_INDEX_MANAGE_MIRROR_PODS", conflicts_with = "once")]
    manage_mirror_pods: bool,

    /// Manage mirror pods although something renews the node's lease. Only if that is not a kubelet.
    #[arg(long, env = "POD_INDEX_FORCE_MANAGE_MIRROR_PODS")]
    force_manage_mirror_pods: bool,

    /// Store pods annotated node.kubernetes.io/bootstrap-checkpoint: "true" in this directory. They are available right
    /// after a restart, before sources respond.
    #[arg(
        long,
        visible_alias = "bootstrap-checkpoint-path",
        env = "POD_INDEX_CHECKPOINT_DIR",
        value_name = "PATH"
    )]
    checkpoint_dir: Option<PathBuf>,

    /// Store all pods there.
    #[arg(long, env = "POD_INDEX_CHECKPOINT_ALL_PODS")]
    checkpoint_all_pods: bool,

    /// Serve on an --address that is not loopback, without TLS. Anyone who can reach it, or who can read the traffic,
    /// can then read every pod.
    #[arg(long, env = "POD_INDEX_ALLOW_REMOTE_CLIENTS")]
    allow_remote_clients: bool,

    /// Also serve /livez and /readyz, and nothing else, in plain HTTP on this address: for probes without a client
    /// certificate. Responses only show whether the agent is live and ready.
    #[arg(long, env = "POD_INDEX_HEALTH_ADDRESS", value_name = "ADDRESS:PORT")]
    health_address: Option<SocketAddr>,

    /// Also serve /metrics, and nothing else, in plain HTTP on this address: for a Prometheus without a client certificate.
    /// The metrics name no pod.
    #[arg(long, env = "POD_INDEX_METRICS_ADDRESS", value_name = "ADDRESS:PORT")]
    metrics_address: Option<SocketAddr>,

    /// Serve over TLS with this certificate chain, in PEM. The files are checked every ten seconds and on SIGHUP;
    /// invalid or mismatched files change nothing.
    #[arg(long, env = "POD_INDEX_TLS_CERT_FILE", value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,

    /// The certificate's private key, in PEM.
    #[arg(long, env = "POD_INDEX_TLS_PRIVATE_KEY_FILE", value_name = "FILE")]
    tls_private_key_file: Option<PathBuf>,

    /// The kubelet's `authentication`.
    #[command(flatten)]
    authentication: Authentication,

    /// The kubelet's `authorization`.
    #[command(flatten)]
    authorization: Authorization,

    /// The object that the pod API shows for a static pod if it knows both: the node's own or the API server's mirror
    /// [default: node].
    #[arg(long, env = "POD_INDEX_STATIC_POD_OBJECT", value_enum, value_name = "OBJECT")]
    static_pod_object: Option<StaticPods>,

    /// What the pod API serves besides pods, separated by commas: nodes, this node's Node object; namespaces; owners,
    /// the metadata of the Deployments and other controllers of this node's pods. The agent follows them on the API
    /// server, once for all clients.
    #[arg(long, env = "POD_INDEX_SERVE_RESOURCES", value_enum, value_name = "RESOURCE", value_delimiter = ',')]
    serve_resources: Vec<Extra>,

    /// Maximum number of open watches. Further watches get 429 [default: 1024].
    #[arg(long, env = "POD_INDEX_MAX_WATCHES", value_name = "WATCHES")]
    max_watches: Option<usize>,

    /// Maximum number of open watches of one client. A client is the name in its certificate or token; without one, its
    /// IP address or its user on the socket [default: 256].
    #[arg(long, env = "POD_INDEX_MAX_WATCHES_PER_CLIENT", value_name = "WATCHES")]
    max_watches_per_client: Option<usize>,

    /// The permissions of the socket, in octal. Users with write permission can connect [default: 0660].
    #[arg(long, env = "POD_INDEX_SOCKET_MODE", value_name = "MODE")]
    socket_mode: Option<Mode>,

    /// Of the authenticated clients, serve only those with one of these names: a certificate's common name or
    /// alternative name, or a token's user. Separated by commas.
    #[arg(long, env = "POD_INDEX_ALLOWED_CLIENT_NAMES", value_name = "NAME", value_delimiter = ',')]
    allowed_client_names: Vec<String>,

    /// Of the authenticated clients, serve only those in one of these groups: a certificate's organizations, or a
    /// token's groups. Separated by commas. An allowed name or an allowed group is enough.
    #[arg(long, env = "POD_INDEX_ALLOWED_CLIENT_GROUPS", value_name = "GROUP", value_delimiter = ',')]
    allowed_client_groups: Vec<String>,

    /// The minimum log level: error, warn, info, debug or trace. Modules can have levels of their own, for example
    /// info,pod_index_kubelet::sources=debug. The log goes to standard error [default: info].
    #[arg(long, env = "POD_INDEX_LOG_LEVEL", value_name = "LEVEL")]
    #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
    log_level: Option<LogFilter>,

    /// text for people, json for programs [default: text].
    #[arg(long, env = "POD_INDEX_LOG_FORMAT", value_enum)]
    log_format: Option<LogFormat>,

    /// See [`ServerArgs`].
    #[arg(skip)]
    address: Option<IpAddr>,

    /// See [`ServerArgs`].
    #[arg(skip)]
    port: Option<u16>,

    /// See [`ServerArgs`].
    #[arg(skip)]
    socket: Option<PathBuf>,
}

/// Which clients may query the agent: the kubelet's `authentication`.
Authentication {
    /// By certificate.
    #[command(flatten)]
    x509: X509,

    /// By token.
    #[command(flatten)]
    webhook: TokenWebhook,
}

/// The authorities of the clients.
X509 {
    /// Serve only clients with a certificate from these authorities, in PEM, also at /livez and /metrics. Without it,
    /// TLS encrypts, but anyone who can reach the agent can query it.
    #[arg(long, env = "POD_INDEX_CLIENT_CA_FILE", value_name = "FILE")]
    #[serde(rename = "clientCAFile")]
    client_ca_file: Option<PathBuf>,
}

/// Reviews of tokens.
TokenWebhook {
    /// Also accept tokens of the API server (TokenReview) instead of a certificate.
    #[arg(long = "authentication-token-webhook", env = "POD_INDEX_AUTHENTICATION_TOKEN_WEBHOOK")]
    #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
    enabled: bool,
}

/// What a client may query: the kubelet's `authorization`.
Authorization {
    /// What authenticated clients may request: AlwaysAllow, everything; Webhook, what the API server lets them do with
    /// a kubelet (SubjectAccessReview for nodes/pods, nodes/metrics, nodes/healthz, nodes/proxy), or with the resource
    /// that a path of the API names [default: AlwaysAllow].
    #[arg(long = "authorization-mode", env = "POD_INDEX_AUTHORIZATION_MODE", value_name = "MODE", value_enum)]
    #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
    mode: Option<AuthorizationMode>,
}
}

/// The sources of pods, and what to do with the pods.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// A YAML configuration file. Keys are the kubelet's (staticPodPath, staticPodURL, staticPodURLHeader,
    /// fileCheckFrequency, httpCheckFrequency) or like the flags (hostnameOverride). Flags override environment
    /// variables, which override the file.
    #[arg(long, env = "POD_INDEX_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) shared: Shared,

    /// Read all sources, print the pods and exit.
    #[arg(long)]
    pub(crate) once: bool,

    /// How long --once waits for the sources; 0 waits without a limit.
    #[arg(long, env = "POD_INDEX_ONCE_TIMEOUT", value_name = "DURATION", default_value = "30s")]
    pub(crate) once_timeout: GoDuration,

    /// Check the configuration and exit. The certificates and the kubeconfig must be valid, the manifest path readable
    /// and the checkpoint directory writable. Does not read the manifests, and contacts no server, but runs the
    /// credential plugin of the kubeconfig, if there is one.
    #[arg(long, conflicts_with = "once")]
    pub(crate) check: bool,
}

/// Where the agent serves, and where client commands connect.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// The address of the agent [default: 127.0.0.1].
    #[arg(long, global = true, env = "POD_INDEX_ADDRESS")]
    pub(crate) address: Option<IpAddr>,

    /// The port of the agent; 0 picks a free one [default: 10270].
    #[arg(long, global = true, env = "POD_INDEX_PORT")]
    pub(crate) port: Option<u16>,

    /// Also serve on this Unix socket, without TLS. Client commands connect to it instead of the port.
    #[arg(long, global = true, env = "POD_INDEX_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// The headers of a configuration file, in the kubelet's format.
fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<(String, String)>>, D::Error> {
    let headers = BTreeMap::<String, Vec<String>>::deserialize(deserializer)?.into_iter();
    Ok(Some(
        headers
            .flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)))
            .collect(),
    ))
}

/// Parses a header in the kubelet's format.
fn header(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once(':').ok_or("must be a name, a colon and a value")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    /// Only `list`.
    Wide,
    /// Only `list`.
    Name,
    Json,
    Yaml,
}
