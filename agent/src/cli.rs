//! The command line, with the kubelet's flag names where they exist.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;

use super::duration::GoDuration;
use super::exit::Failure;
use super::log_filter::LogFilter;
use super::pod_api::StaticPods;
use super::serve::socket::Mode;
use super::settings::access::AuthorizationMode;
use pod_index_kubelet::references::Strategy;

/// An index of the node's pods: which pod is this?
///
/// Without a command: reads the pods, prints them and serves them over HTTP until SIGTERM or Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "pod-index", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit codes: 0 success; 1 the answer is no: not found, a warning of doctor, an unusable manifest with \
                  --once, or something missing with --check; 2 a wrong command line or configuration, or a failure of \
                  doctor; 3 failed: no agent answers, the address is in use, or a source does not respond to --once; \
                  4 with --manage-mirror-pods, a kubelet runs on the node; 130, 143 a second Ctrl-C or SIGTERM."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    #[command(flatten)]
    pub(super) run: RunArgs,

    #[command(flatten)]
    pub(super) server: ServerArgs,

    #[command(flatten)]
    pub(super) client: ClientArgs,

    /// The output format.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
}

/// What to do instead of running the agent.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[command(flatten)]
    Query(Query),
    /// Check the settings, rights, kubelet, sources, clock and limits, and print what to do about each problem.
    ///
    /// Takes the agent's own settings, and asks the running agent, if there is one. Exits with code 0 if all is well, 1
    /// after warnings, 2 after failures.
    Doctor {
        #[command(flatten)]
        run: Box<RunArgs>,

        /// Where a kubelet of this node would answer /healthz, in plain HTTP.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10248")]
        kubelet_healthz: SocketAddr,
    },
    /// Print the completion script of a shell.
    Completions {
        /// The shell.
        shell: CompletedShell,
    },
    /// Print the manual page of the agent, or that of a command, in roff: `pod-index man | man -l -`.
    Man {
        /// The command.
        command: Option<String>,
    },
}

/// The shells with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// A query to a running agent.
#[derive(Debug, Subcommand)]
pub(super) enum Query {
    /// Print a pod by NAMESPACE/NAME, by full name (name, underscore, namespace) or by UID.
    Get {
        /// NAMESPACE/NAME, a full name (name, underscore, namespace) or a UID.
        pod: String,
    },
    /// Print the UID under which the node knows a pod. A mirror pod's UID becomes its static pod's; any other stays.
    Translate {
        /// The UID of a pod or of a mirror pod.
        uid: String,
    },
    /// Say which pod something belongs to.
    #[command(
        long_about = WHOIS,
        after_help = "Exit codes: 0 every pod was found; 1 one is unknown; 2 wrong usage; 3 no agent answers."
    )]
    Whois(WhoisArgs),
    /// Show the agent on the terminal: pods, static pods with their mirrors, sources, rates. `q` quits.
    Top {
        /// The refresh interval.
        #[arg(long, value_name = "DURATION", default_value = "1s")]
        interval: GoDuration,
    },
    /// Print the pods, and then each change of them, as lines of JSON: added, changed (the names of the fields) or
    /// removed. Continues after a lost connection.
    Watch {
        /// Only pods in this namespace.
        #[arg(short, long, value_name = "NAMESPACE")]
        namespace: Option<String>,

        /// Only pods that match this label selector, for example app=web,tier!=test.
        #[arg(short = 'l', long, value_name = "SELECTOR")]
        selector: Option<String>,
    },
}

const WHOIS: &str = "\
Say which pod something belongs to: its namespace, name, UIDs (the pod's and its mirror pod's), container, node, owner \
and labels, and how it was found.

ANYTHING is a UID, NAMESPACE/NAME, a full name, a container ID, an IP address, a process ID, the path of a log, a cgroup \
path, or the lines of /proc/PID/cgroup. Without it, or with -, each line of standard input is a query. Process IDs are \
those of the agent's host.

With -o json, each query has one line, in their order. It begins with {\"found\":true or {\"found\":false.";

/// What to look up.
#[derive(Args, Clone, Debug)]
pub(super) struct WhoisArgs {
    /// What to look up; - for the lines of standard input.
    pub(super) anything: Vec<String>,

    /// How long to wait for unknown pods, for example 5s; at most 5m.
    #[arg(long, value_name = "DURATION")]
    pub(super) wait: Option<GoDuration>,
}

/// The sources of pods, and what to do with the pods.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct RunArgs {
    /// A YAML configuration file. Keys are the kubelet's (staticPodPath, staticPodURL, staticPodURLHeader,
    /// fileCheckFrequency, httpCheckFrequency) or like the flags (hostnameOverride). Flags override environment
    /// variables, which override the file.
    #[arg(long, env = "POD_INDEX_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// A directory of static pod manifests, or one manifest.
    #[arg(long, visible_alias = "static-pod-path", env = "POD_INDEX_POD_MANIFEST_PATH", value_name = "PATH")]
    pub(super) pod_manifest_path: Option<PathBuf>,

    /// A URL that serves static pod manifests.
    #[arg(long, visible_alias = "static-pod-url", env = "POD_INDEX_MANIFEST_URL", value_name = "URL")]
    pub(super) manifest_url: Option<String>,

    /// Headers to send to that URL.
    #[arg(long, env = "POD_INDEX_MANIFEST_URL_HEADER", hide_env_values = true, value_delimiter = ',')]
    #[arg(value_name = "NAME:VALUE", value_parser = header)]
    pub(super) manifest_url_header: Vec<(String, String)>,

    /// The authorities to trust for that URL, in PEM, instead of the system's.
    #[arg(long, env = "POD_INDEX_MANIFEST_URL_CA", value_name = "FILE")]
    pub(super) manifest_url_ca: Option<PathBuf>,

    /// Read pods from this node's kubelet, for example `https://127.0.0.1:10250`.
    #[arg(long, env = "POD_INDEX_KUBELET", value_name = "URL")]
    pub(super) kubelet: Option<String>,

    /// The bearer token to send to the kubelet. Without it, the token of the service account, if there is one.
    #[arg(long, env = "POD_INDEX_KUBELET_TOKEN_FILE", value_name = "FILE")]
    pub(super) kubelet_token_file: Option<PathBuf>,

    /// The authorities to trust for the kubelet, in PEM, instead of the system's.
    #[arg(long, env = "POD_INDEX_KUBELET_CA", value_name = "FILE")]
    pub(super) kubelet_ca: Option<PathBuf>,

    /// Accept any certificate from the kubelet. A process that impersonates the kubelet then receives the token.
    #[arg(long, env = "POD_INDEX_KUBELET_INSECURE_SKIP_TLS_VERIFY")]
    pub(super) kubelet_insecure_skip_tls_verify: bool,

    /// How often to ask the kubelet [default: 20s].
    #[arg(long, env = "POD_INDEX_KUBELET_CHECK_FREQUENCY", value_name = "DURATION")]
    pub(super) kubelet_check_frequency: Option<GoDuration>,

    /// How often to read the manifests; file events trigger a read at once [default: 20s].
    #[arg(long, env = "POD_INDEX_FILE_CHECK_FREQUENCY", value_name = "DURATION")]
    pub(super) file_check_frequency: Option<GoDuration>,

    /// How often to request the URL [default: 20s].
    #[arg(long, env = "POD_INDEX_HTTP_CHECK_FREQUENCY", value_name = "DURATION")]
    pub(super) http_check_frequency: Option<GoDuration>,

    /// Follow the API server that this file names.
    #[arg(long, env = "POD_INDEX_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Follow the API server of $KUBECONFIG, of ~/.kube/config or, in a pod, of its service account.
    #[arg(long, env = "POD_INDEX_API_SERVER")]
    pub(super) api_server: bool,

    /// Follow the API server's pods of all nodes, not only of this node.
    #[arg(long, env = "POD_INDEX_ALL_NODES")]
    pub(super) all_nodes: bool,

    /// Keep metadata.managedFields of the API server's pods. They can take most of a pod's memory, and the agent does
    /// not use them.
    #[arg(long, env = "POD_INDEX_KEEP_MANAGED_FIELDS")]
    pub(super) keep_managed_fields: bool,

    /// Where the processes of the host are, to look up process IDs [default: /proc].
    #[arg(long, env = "POD_INDEX_PROC", value_name = "PATH")]
    pub(super) proc: Option<PathBuf>,

    /// How long a removed pod is found by whois, for events that arrive late; 0 turns this off [default: 60s].
    #[arg(long, env = "POD_INDEX_KEEP_REMOVED", value_name = "DURATION")]
    pub(super) keep_removed: Option<GoDuration>,

    /// Maximum number of removed pods to keep [default: 10000].
    #[arg(long, env = "POD_INDEX_KEEP_REMOVED_MAX", value_name = "PODS")]
    pub(super) keep_removed_max: Option<usize>,

    /// Redact the literal values of environment variables, which are often credentials: in the pods that the agent
    /// keeps, in everything served, in mirror pods and in checkpoints. Names and references (valueFrom) stay.
    #[arg(long, env = "POD_INDEX_REDACT_ENV")]
    pub(super) redact_env: bool,

    /// Follow only the API server's pods in this namespace.
    #[arg(long, env = "POD_INDEX_NAMESPACE", value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,

    /// Follow only the API server's pods that match this label selector, for example app=web,tier!=test.
    #[arg(long, env = "POD_INDEX_POD_SELECTOR", value_name = "SELECTOR")]
    pub(super) pod_selector: Option<String>,

    /// Follow only the API server's pods that match this field selector, for example status.phase=Running.
    #[arg(long, env = "POD_INDEX_POD_FIELD_SELECTOR", value_name = "SELECTOR")]
    pub(super) pod_field_selector: Option<String>,

    /// The node's name, instead of the host's.
    #[arg(long, visible_alias = "node-name", env = "POD_INDEX_HOSTNAME_OVERRIDE", value_name = "NAME")]
    pub(super) hostname_override: Option<String>,

    /// Also export metrics under the kubelet's own names. Do not use it on a node with a kubelet.
    #[arg(long, env = "POD_INDEX_KUBELET_METRICS")]
    pub(super) kubelet_metrics: bool,

    /// Manage the node's mirror pods on the API server: create, replace and delete them to match the static pods. Only
    /// for a node without a kubelet. If a kubelet runs, the agent changes nothing and exits with code 4. If one starts
    /// later, the agent stops managing mirror pods.
    #[arg(long, env = "POD_INDEX_MANAGE_MIRROR_PODS", conflicts_with = "once")]
    pub(super) manage_mirror_pods: bool,

    /// Manage mirror pods although something renews the node's lease. Only if that is not a kubelet.
    #[arg(long, env = "POD_INDEX_FORCE_MANAGE_MIRROR_PODS")]
    pub(super) force_manage_mirror_pods: bool,

    /// Store pods annotated node.kubernetes.io/bootstrap-checkpoint: "true" in this directory. They are available right
    /// after a restart, before sources respond.
    #[arg(
        long,
        visible_alias = "bootstrap-checkpoint-path",
        env = "POD_INDEX_CHECKPOINT_DIR",
        value_name = "PATH"
    )]
    pub(super) checkpoint_dir: Option<PathBuf>,

    /// Store all pods there.
    #[arg(long, env = "POD_INDEX_CHECKPOINT_ALL_PODS")]
    pub(super) checkpoint_all_pods: bool,

    /// How to follow the Secrets and config maps that the node's pods reference; only Watch is supported. /references
    /// shows their number.
    #[arg(long, env = "POD_INDEX_CONFIG_MAP_AND_SECRET_CHANGE_DETECTION_STRATEGY", value_name = "STRATEGY")]
    #[arg(value_parser = strategy)]
    pub(super) config_map_and_secret_change_detection_strategy: Option<Strategy>,

    /// Serve on an --address that is not loopback, without TLS. Anyone who can reach it, or who can read the traffic,
    /// can then read every pod.
    #[arg(long, env = "POD_INDEX_ALLOW_REMOTE_CLIENTS")]
    pub(super) allow_remote_clients: bool,

    /// Also serve /livez and /readyz, and nothing else, in plain HTTP on this address: for probes without a client
    /// certificate. Responses only show whether the agent is live and ready.
    #[arg(long, env = "POD_INDEX_HEALTH_ADDRESS", value_name = "ADDRESS:PORT")]
    pub(super) health_address: Option<SocketAddr>,

    /// Serve over TLS with this certificate chain, in PEM. The files are checked every ten seconds and on SIGHUP;
    /// invalid or mismatched files change nothing.
    #[arg(long, env = "POD_INDEX_TLS_CERT_FILE", value_name = "FILE")]
    pub(super) tls_cert_file: Option<PathBuf>,

    /// The certificate's private key, in PEM.
    #[arg(long, env = "POD_INDEX_TLS_PRIVATE_KEY_FILE", value_name = "FILE")]
    pub(super) tls_private_key_file: Option<PathBuf>,

    /// Serve only clients with a certificate from these authorities, in PEM, also at /livez and /metrics. Without it,
    /// TLS encrypts, but anyone who can reach the agent can query it.
    #[arg(long, env = "POD_INDEX_CLIENT_CA_FILE", value_name = "FILE")]
    pub(super) client_ca_file: Option<PathBuf>,

    /// The object that the pod API shows for a static pod if it knows both: the node's own or the API server's mirror
    /// [default: node].
    #[arg(long, env = "POD_INDEX_STATIC_POD_OBJECT", value_enum, value_name = "OBJECT")]
    pub(super) static_pod_object: Option<StaticPods>,

    /// Maximum number of open watches of pods. Further watches get 429 [default: 1024].
    #[arg(long, env = "POD_INDEX_MAX_WATCHES", value_name = "WATCHES")]
    pub(super) max_watches: Option<usize>,

    /// Maximum number of open watches of one client. A client is the name in its certificate or token; without one, its
    /// IP address or its user on the socket [default: 256].
    #[arg(long, env = "POD_INDEX_MAX_WATCHES_PER_CLIENT", value_name = "WATCHES")]
    pub(super) max_watches_per_client: Option<usize>,

    /// The permissions of the socket, in octal. Users with write permission can connect [default: 0660].
    #[arg(long, env = "POD_INDEX_SOCKET_MODE", value_name = "MODE")]
    pub(super) socket_mode: Option<Mode>,

    /// Of the authenticated clients, serve only those with one of these names: a certificate's common name or
    /// alternative name, or a token's user. Separated by commas.
    #[arg(long, env = "POD_INDEX_ALLOWED_CLIENT_NAMES", value_name = "NAME", value_delimiter = ',')]
    pub(super) allowed_client_names: Vec<String>,

    /// Of the authenticated clients, serve only those in one of these groups: a certificate's organizations, or a
    /// token's groups. Separated by commas. An allowed name or an allowed group is enough.
    #[arg(long, env = "POD_INDEX_ALLOWED_CLIENT_GROUPS", value_name = "GROUP", value_delimiter = ',')]
    pub(super) allowed_client_groups: Vec<String>,

    /// Also accept tokens of the API server (TokenReview) instead of a certificate.
    #[arg(long, env = "POD_INDEX_AUTHENTICATION_TOKEN_WEBHOOK")]
    #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
    pub(super) authentication_token_webhook: bool,

    /// What authenticated clients may request: AlwaysAllow, everything; Webhook, what the API server lets them do with
    /// a kubelet (SubjectAccessReview for nodes/pods, nodes/metrics, nodes/healthz, nodes/proxy) [default:
    /// AlwaysAllow].
    #[arg(long, env = "POD_INDEX_AUTHORIZATION_MODE", value_name = "MODE", value_enum)]
    #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
    pub(super) authorization_mode: Option<AuthorizationMode>,

    /// Let clients change the log level with PUT /log-level.
    #[arg(long, env = "POD_INDEX_DEBUG_ENDPOINTS")]
    pub(super) debug_endpoints: bool,

    /// Read all sources, print the pods and exit.
    #[arg(long)]
    pub(super) once: bool,

    /// How long --once waits for the sources; 0 waits without a limit.
    #[arg(long, env = "POD_INDEX_ONCE_TIMEOUT", value_name = "DURATION", default_value = "30s")]
    pub(super) once_timeout: GoDuration,

    /// Check the configuration and exit. The certificates and the kubeconfig must be valid, the manifest path readable
    /// and the checkpoint directory writable. Does not read the manifests, and contacts no server, but runs the
    /// credential plugin of the kubeconfig, if there is one.
    #[arg(long, conflicts_with = "once")]
    pub(super) check: bool,

    /// Like --check; also request one pod and a watch from the API server, the manifests from the URL and the pods from
    /// the kubelet. Names each missing right.
    #[arg(long, conflicts_with = "once")]
    pub(super) check_online: bool,

    /// The minimum log level: error, warn, info, debug or trace. Modules can have levels of their own, for example
    /// info,pod_index_kubelet::sources=debug. The log goes to standard error [default: info].
    #[arg(long, env = "POD_INDEX_LOG_LEVEL", value_name = "LEVEL")]
    #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
    pub(super) log_level: Option<LogFilter>,

    /// text for people, json for programs [default: text].
    #[arg(long, env = "POD_INDEX_LOG_FORMAT", value_enum)]
    pub(super) log_format: Option<LogFormat>,
}

/// Where the agent serves, and where client commands connect.
#[derive(Args, Clone, Debug)]
pub(super) struct ServerArgs {
    /// The address of the agent [default: 127.0.0.1].
    #[arg(long, global = true, env = "POD_INDEX_ADDRESS")]
    pub(super) address: Option<IpAddr>,

    /// The port of the agent; 0 picks a free one [default: 10270].
    #[arg(long, global = true, env = "POD_INDEX_PORT")]
    pub(super) port: Option<u16>,

    /// Also serve on this Unix socket, without TLS. Client commands connect to it instead of the port.
    #[arg(long, global = true, env = "POD_INDEX_SOCKET", value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
}

/// How client commands connect to an agent with TLS. The flags have kubectl's names.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connecting over TLS")]
pub(super) struct ClientArgs {
    /// Use TLS and trust these authorities, in PEM.
    #[arg(
        long,
        global = true,
        visible_alias = "ca-file",
        env = "POD_INDEX_CERTIFICATE_AUTHORITY",
        value_name = "FILE"
    )]
    pub(super) certificate_authority: Option<PathBuf>,

    /// The name to expect in the agent's certificate, instead of its address.
    #[arg(long, global = true, env = "POD_INDEX_TLS_SERVER_NAME", value_name = "NAME")]
    pub(super) tls_server_name: Option<String>,

    /// The client certificate to present, in PEM.
    #[arg(long, global = true, env = "POD_INDEX_CLIENT_CERTIFICATE", value_name = "FILE")]
    pub(super) client_certificate: Option<PathBuf>,

    /// The client certificate's private key, in PEM.
    #[arg(long, global = true, env = "POD_INDEX_CLIENT_KEY", value_name = "FILE")]
    pub(super) client_key: Option<PathBuf>,
}

impl ClientArgs {
    /// Rejects client options when serving. `--certificate-authority` there most likely means the authority of
    /// *clients*; ignoring it would leave clients unverified.
    pub(super) fn is_not_for_serving(&self) -> Result<(), Failure> {
        let Self { certificate_authority, tls_server_name, client_certificate, client_key } = self;
        let files = [certificate_authority, client_certificate, client_key];
        if tls_server_name.is_none() && files.iter().all(|file| file.is_none()) {
            return Ok(());
        }
        Err(Failure::Usage(
            "--certificate-authority, --tls-server-name, --client-certificate and --client-key are for client commands; to serve, use \
             --tls-cert-file, --tls-private-key-file and --client-ca-file"
                .to_owned(),
        ))
    }
}

/// Parses a strategy by the kubelet's name.
fn strategy(text: &str) -> Result<Strategy, &'static str> {
    match text {
        "Watch" => Ok(Strategy::Watch),
        "Cache" => Ok(Strategy::Cache),
        "Get" => Ok(Strategy::Get),
        _ => Err("must be Watch"),
    }
}

/// Parses a header in the kubelet's format.
fn header(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once(':').ok_or("must be a name, a colon and a value")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Table,
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogFormat {
    Text,
    Json,
}
