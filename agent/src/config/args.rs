//! The settings of the agent as flags, environment variables and keys of the configuration file, with the kubelet's names
//! where they exist.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::duration::GoDuration;
use super::log::LogFilter;
use super::values::{AuthorizationMode, Extra, LogFormat, Mode, StaticPods};

/// Declares settings once. A field is a flag, a key of the file in camel case and, with the prefix `POD_INDEX_`, an
/// environment variable; the text after the arrow stands for its value in the help. The fields after the semicolon are no
/// flags of their own.
macro_rules! settings {
    ($($(#[$of_struct:meta])* $struct:ident {
        $($(#[$of_field:meta])* $field:ident: $type:ty $(=> $value:literal)?,)*
        $(; $($(#[$of_other:meta])* $other:ident: $type_of_other:ty,)*)?
    })*) => {$(
        $(#[$of_struct])*
        #[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        #[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
        #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
        pub(crate) struct $struct {
            $(#[arg(long $(, value_name = $value)?)] $(#[$of_field])* pub(crate) $field: $type,)*
            $($($(#[$of_other])* pub(crate) $other: $type_of_other,)*)?
        }

        impl Setting for $struct {
            fn or(self, file: Self) -> Self {
                Self {
                    $($field: self.$field.or(file.$field),)*
                    $($($other: self.$other.or(file.$other),)*)?
                }
            }

            fn relative_to(&mut self, directory: &Path) {
                $(self.$field.relative_to(directory);)*
                $($(self.$other.relative_to(directory);)*)?
            }
        }
    )*};
}

/// A setting, or several.
pub(super) trait Setting {
    /// What is set here overrides the file. An empty text or path counts as absent, unless `resolve` refuses it.
    fn or(self, file: Self) -> Self;

    /// Makes relative paths relative to the file's directory.
    fn relative_to(&mut self, _: &Path) {}
}

impl Setting for Option<PathBuf> {
    fn or(self, file: Self) -> Self {
        self.or(file).filter(|path| !path.as_os_str().is_empty())
    }

    fn relative_to(&mut self, directory: &Path) {
        // An empty path means none, not the directory.
        if let Some(path) = self.as_mut().filter(|path| !path.as_os_str().is_empty()) {
            *path = directory.join(&*path);
        }
    }
}

impl Setting for Option<String> {
    fn or(self, file: Self) -> Self {
        self.or(file).filter(|text| !text.is_empty())
    }
}

/// Settings of which one value counts.
macro_rules! single {
    ($($type:ty),*) => {$(
        impl Setting for Option<$type> {
            fn or(self, file: Self) -> Self {
                self.or(file)
            }
        }
    )*};
}

single!(
    AuthorizationMode,
    GoDuration,
    IpAddr,
    LogFilter,
    LogFormat,
    Mode,
    SocketAddr,
    StaticPods,
    u16,
    usize
);
single!(Vec<(String, String)>);

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

/// Types that the file spells as the command line does.
macro_rules! from_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

from_text!(GoDuration, LogFilter, Mode);

settings! {
/// The keys of a configuration file, and their flags. Any other key is an error.
Shared {
    /// A directory of static pod manifests, or one manifest.
    #[arg(visible_alias = "static-pod-path")]
    #[serde(rename = "staticPodPath")]
    pod_manifest_path: Option<PathBuf> => "PATH",

    /// A URL that serves static pod manifests.
    #[arg(visible_alias = "static-pod-url")]
    #[serde(rename = "staticPodURL")]
    manifest_url: Option<String> => "URL",

    /// Headers to send to that URL.
    #[arg(hide_env_values = true, value_delimiter = ',', value_parser = header)]
    #[serde(rename = "staticPodURLHeader", deserialize_with = "headers", skip_serializing)]
    manifest_url_header: Option<Vec<(String, String)>> => "NAME:VALUE",

    /// The authorities to trust for that URL, in PEM, instead of the system's.
    manifest_url_ca: Option<PathBuf> => "FILE",

    /// Read pods from this node's kubelet, for example `https://127.0.0.1:10250`.
    kubelet: Option<String> => "URL",

    /// The bearer token to send to the kubelet. Without it, the token of the service account, if there is one.
    kubelet_token_file: Option<PathBuf> => "FILE",

    /// The authorities to trust for the kubelet, in PEM, instead of the system's.
    kubelet_ca: Option<PathBuf> => "FILE",

    /// Accept any certificate from the kubelet. A process that impersonates the kubelet then receives the token.
    kubelet_insecure_skip_tls_verify: bool,

    /// How often to ask the kubelet [default: 20s].
    kubelet_check_frequency: Option<GoDuration> => "DURATION",

    /// How often to read the manifests; file events trigger a read at once [default: 20s].
    file_check_frequency: Option<GoDuration> => "DURATION",

    /// How often to request the URL [default: 20s].
    http_check_frequency: Option<GoDuration> => "DURATION",

    /// Follow the API server that this file names.
    kubeconfig: Option<PathBuf> => "FILE",

    /// Follow the API server of $KUBECONFIG, of ~/.kube/config or, in a pod, of its service account.
    api_server: bool,

    /// Follow the API server's pods of all nodes, not only of this node.
    all_nodes: bool,

    /// Keep metadata.managedFields of the API server's pods. They can take most of a pod's memory, and the agent does
    /// not use them.
    keep_managed_fields: bool,

    /// Where the processes of the host are, to look up process IDs [default: /proc].
    proc: Option<PathBuf> => "PATH",

    /// The cgroup below which the kubelet puts its pods, if it has a cgroupRoot, to look up process IDs. Anyone who may
    /// create cgroups elsewhere can name them like those of a pod.
    cgroup_root: Option<String> => "CGROUP",

    /// How long a removed pod is found by whois, for events that arrive late; 0 turns this off [default: 60s].
    keep_removed: Option<GoDuration> => "DURATION",

    /// Maximum number of removed pods to keep [default: 10000].
    keep_removed_max: Option<usize> => "PODS",

    /// The largest difference between two of the clocks of events, of this node and of the API server, for whois --at
    /// [default: 2s].
    clock_skew: Option<GoDuration> => "DURATION",

    /// The longest time until the sources tell of a change on the node, for whois --at [default: 10s].
    source_delay: Option<GoDuration> => "DURATION",

    /// Redact the literal values of environment variables, which are often credentials: in the pods that the agent
    /// keeps, in everything served, in mirror pods and in checkpoints. Names and references (valueFrom) stay.
    redact_env: bool,

    /// Follow only the API server's pods in this namespace.
    namespace: Option<String> => "NAMESPACE",

    /// Follow only the API server's pods that match this label selector, for example app=web,tier!=test.
    pod_selector: Option<String> => "SELECTOR",

    /// Follow only the API server's pods that match this field selector, for example status.phase=Running.
    pod_field_selector: Option<String> => "SELECTOR",

    /// The node's name, instead of the host's.
    #[arg(visible_alias = "node-name")]
    #[serde(alias = "nodeName")]
    hostname_override: Option<String> => "NAME",

    /// Manage the node's mirror pods on the API server: create, replace and delete them to match the static pods. Only
    /// for a node without a kubelet. If a kubelet runs, the agent changes nothing and exits with code 4. If one starts
    /// later, the agent stops managing mirror pods.
    #[arg(conflicts_with = "once")]
    manage_mirror_pods: bool,

    /// Manage mirror pods although something renews the node's lease. Only if that is not a kubelet.
    force_manage_mirror_pods: bool,

    /// Store pods annotated node.kubernetes.io/bootstrap-checkpoint: "true" in this directory. They are available right
    /// after a restart, before sources respond.
    #[arg(visible_alias = "bootstrap-checkpoint-path")]
    checkpoint_dir: Option<PathBuf> => "PATH",

    /// Store all pods there.
    checkpoint_all_pods: bool,

    /// Serve on an --address that is not loopback, without TLS. Anyone who can reach it, or who can read the traffic,
    /// can then read every pod.
    allow_remote_clients: bool,

    /// Also serve /livez and /readyz, and nothing else, in plain HTTP on this address: for probes without a client
    /// certificate. Responses only show whether the agent is live and ready.
    health_address: Option<SocketAddr> => "ADDRESS:PORT",

    /// Also serve /metrics, and nothing else, in plain HTTP on this address: for a Prometheus without a client certificate.
    /// The metrics name no pod.
    metrics_address: Option<SocketAddr> => "ADDRESS:PORT",

    /// Serve over TLS with this certificate chain, in PEM. The files are checked every ten seconds and on SIGHUP;
    /// invalid or mismatched files change nothing.
    tls_cert_file: Option<PathBuf> => "FILE",

    /// The certificate's private key, in PEM.
    tls_private_key_file: Option<PathBuf> => "FILE",

    /// The object that the pod API shows for a static pod if it knows both: the node's own or the API server's mirror
    /// [default: node].
    static_pod_object: Option<StaticPods> => "OBJECT",

    /// What the pod API serves besides pods, separated by commas: nodes, this node's Node object; namespaces; owners,
    /// the metadata of the Deployments and other controllers of this node's pods. The agent follows them on the API
    /// server, once for all clients.
    #[arg(value_delimiter = ',')]
    serve_resources: Vec<Extra> => "RESOURCE",

    /// Maximum number of open watches. Further watches get 429 [default: 1024].
    max_watches: Option<usize> => "WATCHES",

    /// Maximum number of open watches of one client. A client is the name in its certificate or token; without one, its
    /// IP address or its user on the socket [default: 256].
    max_watches_per_client: Option<usize> => "WATCHES",

    /// The permissions of the socket, in octal. Users with write permission can connect [default: 0660].
    socket_mode: Option<Mode> => "MODE",

    /// Of the authenticated clients, serve only those with one of these names: a certificate's common name or
    /// alternative name, or a token's user. Separated by commas.
    #[arg(value_delimiter = ',')]
    allowed_client_names: Vec<String> => "NAME",

    /// Of the authenticated clients, serve only those in one of these groups: a certificate's organizations, or a
    /// token's groups. Separated by commas. An allowed name or an allowed group is enough.
    #[arg(value_delimiter = ',')]
    allowed_client_groups: Vec<String> => "GROUP",

    /// The minimum log level: error, warn, info, debug or trace. Modules can have levels of their own, for example
    /// info,pod_index_kubelet::sources=debug. The log goes to standard error [default: info].
    log_level: Option<LogFilter> => "LEVEL",

    /// text for people, json for programs [default: text].
    log_format: Option<LogFormat>,
    ;
    /// The kubelet's `authentication`.
    #[command(flatten)]
    authentication: Authentication,

    /// The kubelet's `authorization`.
    #[command(flatten)]
    authorization: Authorization,

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
    ;
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
    #[serde(rename = "clientCAFile")]
    client_ca_file: Option<PathBuf> => "FILE",
}

/// Reviews of tokens.
TokenWebhook {
    /// Also accept tokens of the API server (TokenReview) instead of a certificate.
    #[arg(long = "authentication-token-webhook")]
    enabled: bool,
}

/// What a client may query: the kubelet's `authorization`.
Authorization {
    /// What authenticated clients may request: AlwaysAllow, everything; Webhook, what the API server lets them do with
    /// a kubelet (SubjectAccessReview for nodes/pods, nodes/metrics, nodes/healthz, nodes/proxy), or with the resource
    /// that a path of the API names [default: AlwaysAllow].
    #[arg(long = "authorization-mode")]
    mode: Option<AuthorizationMode> => "MODE",
}
}

/// The sources of pods, and what to do with the pods.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// A YAML configuration file. Keys are the kubelet's (staticPodPath, staticPodURL, staticPodURLHeader,
    /// fileCheckFrequency, httpCheckFrequency) or like the flags (hostnameOverride). Flags override environment
    /// variables, which override the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) shared: Shared,

    /// Read all sources, print the pods and exit.
    #[arg(long)]
    pub(crate) once: bool,

    /// How long --once waits for the sources; 0 waits without a limit.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
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
    #[arg(long, global = true)]
    pub(crate) address: Option<IpAddr>,

    /// The port of the agent; 0 picks a free one [default: 10270].
    #[arg(long, global = true)]
    pub(crate) port: Option<u16>,

    /// Also serve on this Unix socket, without TLS. Client commands connect to it instead of the port.
    #[arg(long, global = true, value_name = "PATH")]
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
