//! The command line, in the kubelet's words where it has them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;

use super::duration::GoDuration;
use super::exit::Failure;
use super::pod_api::StaticPods;
use super::serve::socket::Mode;
use super::settings::access::AuthorizationMode;
use pod_index_kubelet::references::Strategy;

/// Which pod is this? An index of the node's pods, and the answers to those who ask.
///
/// Without a command: reads the pods, prints them, and serves them over HTTP until SIGTERM or Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "pod-index", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit codes: 0 done; 1 not found, or with --once an unusable manifest; 2 wrong usage; 3 unable, \
                  for instance with --once because a source says nothing; 4 a kubelet keeps \
                  the node's mirror pods."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Query>,

    #[command(flatten)]
    pub(super) run: RunArgs,

    #[command(flatten)]
    pub(super) server: ServerArgs,

    #[command(flatten)]
    pub(super) client: ClientArgs,

    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
}

/// What to ask of a running agent.
#[derive(Debug, Subcommand)]
pub(super) enum Query {
    /// Print a pod, asked for as NAMESPACE/NAME, by its full name (name, underscore, namespace), or by its UID.
    Get {
        /// A namespace, a slash and a name; or a full name; or a UID.
        pod: String,
    },
    /// Print the UID under which the node knows a pod: a mirror pod's becomes its static pod's, any other stays.
    Translate {
        /// A UID of a pod or of a mirror pod.
        uid: String,
    },
    /// Watch it on the terminal: pods, static pods and their mirrors, sources, rates. `q` leaves.
    Top {
        /// How often to ask.
        #[arg(long, value_name = "DURATION", default_value = "1s")]
        interval: GoDuration,
    },
}

/// Where the pods come from, and what to do with them.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct RunArgs {
    /// A YAML file with the kubelet's keys staticPodPath, staticPodURL, staticPodURLHeader, fileCheckFrequency and
    /// httpCheckFrequency, and for the other settings keys like their flags, such as hostnameOverride. What is given on
    /// the command line or in the environment counts instead.
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

    /// The authorities to trust with that URL, in PEM, instead of those that the system trusts.
    #[arg(long, env = "POD_INDEX_MANIFEST_URL_CA", value_name = "FILE")]
    pub(super) manifest_url_ca: Option<PathBuf>,

    /// The kubelet of this node, to ask for its pods: `https://127.0.0.1:10250`.
    #[arg(long, env = "POD_INDEX_KUBELET", value_name = "URL")]
    pub(super) kubelet: Option<String>,

    /// The token to send to the kubelet [default: that of the service account, if there is one].
    #[arg(long, env = "POD_INDEX_KUBELET_TOKEN_FILE", value_name = "FILE")]
    pub(super) kubelet_token_file: Option<PathBuf>,

    /// The authorities to trust with the kubelet, in PEM, instead of those that the system trusts.
    #[arg(long, env = "POD_INDEX_KUBELET_CA", value_name = "FILE")]
    pub(super) kubelet_ca: Option<PathBuf>,

    /// Accept any certificate of the kubelet. Whoever takes its place receives the token.
    #[arg(long, env = "POD_INDEX_KUBELET_INSECURE_SKIP_TLS_VERIFY")]
    pub(super) kubelet_insecure_skip_tls_verify: bool,

    /// How often to ask the kubelet [default: 20s].
    #[arg(long, env = "POD_INDEX_KUBELET_CHECK_FREQUENCY", value_name = "DURATION")]
    pub(super) kubelet_check_frequency: Option<GoDuration>,

    /// How often to look at the manifests in any case; file events are heeded at once [default: 20s].
    #[arg(long, env = "POD_INDEX_FILE_CHECK_FREQUENCY", value_name = "DURATION")]
    pub(super) file_check_frequency: Option<GoDuration>,

    /// How often to ask the URL [default: 20s].
    #[arg(long, env = "POD_INDEX_HTTP_CHECK_FREQUENCY", value_name = "DURATION")]
    pub(super) http_check_frequency: Option<GoDuration>,

    /// Follow the API server that this file names.
    #[arg(long, env = "POD_INDEX_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Follow the API server of $KUBECONFIG, of ~/.kube/config or, in a pod, of its service account.
    #[arg(long, env = "POD_INDEX_API_SERVER")]
    pub(super) api_server: bool,

    /// Follow the API server's pods of all nodes, not of this one alone.
    #[arg(long, env = "POD_INDEX_ALL_NODES")]
    pub(super) all_nodes: bool,

    /// Keep metadata.managedFields of the API server's pods. They can take most of a pod's memory, and nothing here reads them.
    #[arg(long, env = "POD_INDEX_KEEP_MANAGED_FIELDS")]
    pub(super) keep_managed_fields: bool,

    /// Leave out the literal values of environment variables, which often are credentials: they are neither kept in memory nor
    /// served, and not in mirror pods and checkpoints either. Names and references (valueFrom) stay.
    #[arg(long, env = "POD_INDEX_REDACT_ENV")]
    pub(super) redact_env: bool,

    /// Of the API server's pods, only those of this namespace.
    #[arg(long, env = "POD_INDEX_NAMESPACE", value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,

    /// Of the API server's pods, only those whose labels this selects, such as app=web,tier!=test.
    #[arg(long, env = "POD_INDEX_POD_SELECTOR", value_name = "SELECTOR")]
    pub(super) pod_selector: Option<String>,

    /// Of the API server's pods, only those whose fields this selects, such as status.phase=Running.
    #[arg(long, env = "POD_INDEX_POD_FIELD_SELECTOR", value_name = "SELECTOR")]
    pub(super) pod_field_selector: Option<String>,

    /// The node's name, instead of the host's.
    #[arg(long, visible_alias = "node-name", env = "POD_INDEX_HOSTNAME_OVERRIDE", value_name = "NAME")]
    pub(super) hostname_override: Option<String>,

    /// Serve metrics under the kubelet's own names as well; not for a node on which a kubelet serves them.
    #[arg(long, env = "POD_INDEX_KUBELET_METRICS")]
    pub(super) kubelet_metrics: bool,

    /// Be the keeper of the node's mirror pods on the API server: create, replace and delete them as the static pods ask.
    /// Only for a node without a kubelet; where there is one, the agent ends with exit code 4 and touches nothing.
    #[arg(long, env = "POD_INDEX_MANAGE_MIRROR_PODS", conflicts_with = "once")]
    pub(super) manage_mirror_pods: bool,

    /// Keep them although somebody renews the node's lease, who must be no kubelet.
    #[arg(long, env = "POD_INDEX_FORCE_MANAGE_MIRROR_PODS")]
    pub(super) force_manage_mirror_pods: bool,

    /// Keep the pods that are annotated node.kubernetes.io/bootstrap-checkpoint: "true" in this directory, and know them
    /// again after a restart, before any source has told of them.
    #[arg(
        long,
        visible_alias = "bootstrap-checkpoint-path",
        env = "POD_INDEX_CHECKPOINT_DIR",
        value_name = "PATH"
    )]
    pub(super) checkpoint_dir: Option<PathBuf>,

    /// Keep all pods there.
    #[arg(long, env = "POD_INDEX_CHECKPOINT_ALL_PODS")]
    pub(super) checkpoint_all_pods: bool,

    /// Follow what the node's pods name of Secrets and config maps, by Watch; /references counts them.
    #[arg(long, env = "POD_INDEX_CONFIG_MAP_AND_SECRET_CHANGE_DETECTION_STRATEGY", value_name = "STRATEGY")]
    #[arg(value_parser = strategy)]
    pub(super) config_map_and_secret_change_detection_strategy: Option<Strategy>,

    /// Serve on an --address that is not this machine's own loopback, and without TLS. Whoever can reach it can then read
    /// every pod, with all that its specification says, and so can whoever listens on the way.
    #[arg(long, env = "POD_INDEX_ALLOW_REMOTE_CLIENTS")]
    pub(super) allow_remote_clients: bool,

    /// Serve /livez and /readyz, and nothing else, in plain HTTP on this address as well: for probes that have no certificate.
    /// Answers there tell nothing but whether the agent lives and is ready.
    #[arg(long, env = "POD_INDEX_HEALTH_ADDRESS", value_name = "ADDRESS:PORT")]
    pub(super) health_address: Option<SocketAddr>,

    /// Serve over TLS, with this certificate, in PEM, and those after it that lead to an authority. Looked at every ten
    /// seconds and on SIGHUP; new files that are no good, or do not belong together, change nothing.
    #[arg(long, env = "POD_INDEX_TLS_CERT_FILE", value_name = "FILE")]
    pub(super) tls_cert_file: Option<PathBuf>,

    /// That certificate's private key, in PEM.
    #[arg(long, env = "POD_INDEX_TLS_PRIVATE_KEY_FILE", value_name = "FILE")]
    pub(super) tls_private_key_file: Option<PathBuf>,

    /// Serve only clients that present a certificate of these authorities, in PEM, /livez and /metrics included. Without
    /// it, TLS keeps others from listening, but whoever can reach the agent can ask it.
    #[arg(long, env = "POD_INDEX_CLIENT_CA_FILE", value_name = "FILE")]
    pub(super) client_ca_file: Option<PathBuf>,

    /// The object that the pod API shows for a static pod if it knows both: the node's own or the API server's mirror
    /// [default: node].
    #[arg(long, env = "POD_INDEX_STATIC_POD_OBJECT", value_enum, value_name = "OBJECT")]
    pub(super) static_pod_object: Option<StaticPods>,

    /// How many watches of pods there may be [default: 1024].
    #[arg(long, env = "POD_INDEX_MAX_WATCHES", value_name = "WATCHES")]
    pub(super) max_watches: Option<usize>,

    /// How many of them one client may have: an address, a user of the socket [default: 256].
    #[arg(long, env = "POD_INDEX_MAX_WATCHES_PER_CLIENT", value_name = "WATCHES")]
    pub(super) max_watches_per_client: Option<usize>,

    /// Serve on this Unix socket as well, without TLS.
    #[arg(long, env = "POD_INDEX_SOCKET", value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,

    /// The permissions of the socket, in octal: who may write to it may ask [default: 0660].
    #[arg(long, env = "POD_INDEX_SOCKET_MODE", value_name = "MODE")]
    pub(super) socket_mode: Option<Mode>,

    /// Of the clients that are known, serve only those of these names: a certificate's common name or one of its alternative
    /// names, a token's user. Several by commas.
    #[arg(long, env = "POD_INDEX_ALLOWED_CLIENT_NAMES", value_name = "NAME", value_delimiter = ',')]
    pub(super) allowed_client_names: Vec<String>,

    /// Of the clients that are known, serve only those of these groups: a certificate's organizations, a token's groups. Several
    /// by commas. A client of an allowed name or group is served.
    #[arg(long, env = "POD_INDEX_ALLOWED_CLIENT_GROUPS", value_name = "GROUP", value_delimiter = ',')]
    pub(super) allowed_client_groups: Vec<String>,

    /// Know clients by tokens of the API server (TokenReview) as well; a certificate is then not needed.
    #[arg(long, env = "POD_INDEX_AUTHENTICATION_TOKEN_WEBHOOK")]
    #[allow(clippy::doc_markdown, reason = "help is no markdown")]
    pub(super) authentication_token_webhook: bool,

    /// What the clients that are known may ask: AlwaysAllow, everything; Webhook, what the API server lets them do with a kubelet
    /// (SubjectAccessReview for nodes/pods, nodes/metrics, nodes/healthz, nodes/proxy) [default: AlwaysAllow].
    #[arg(long, env = "POD_INDEX_AUTHORIZATION_MODE", value_name = "MODE", value_enum)]
    #[allow(clippy::doc_markdown, reason = "help is no markdown")]
    pub(super) authorization_mode: Option<AuthorizationMode>,

    /// Let clients change the log level, by PUT /log-level.
    #[arg(long, env = "POD_INDEX_DEBUG_ENDPOINTS")]
    pub(super) debug_endpoints: bool,

    /// Print the pods once all sources were read, and exit.
    #[arg(long)]
    pub(super) once: bool,

    /// With --once, how long the sources may take to be read; 0 waits for ever.
    #[arg(long, env = "POD_INDEX_ONCE_TIMEOUT", value_name = "DURATION", default_value = "30s")]
    pub(super) once_timeout: GoDuration,

    /// Say whether the configuration is good and what it names is there, and exit. Nobody else is asked.
    #[arg(long, conflicts_with = "once")]
    pub(super) check: bool,

    /// As --check, and ask the API server for one pod and a watch, and the URL for its manifests. A missing right is named.
    #[arg(long, conflicts_with = "once")]
    pub(super) check_online: bool,

    /// Log this and what is graver, on standard error [default: info].
    #[arg(long, env = "POD_INDEX_LOG_LEVEL", value_enum)]
    pub(super) log_level: Option<LogLevel>,

    /// Log lines for people, or as JSON [default: text].
    #[arg(long, env = "POD_INDEX_LOG_FORMAT", value_enum)]
    pub(super) log_format: Option<LogFormat>,
}

/// Where the agent serves, and where it is asked.
#[derive(Args, Clone, Debug)]
pub(super) struct ServerArgs {
    /// The address of the agent [default: 127.0.0.1].
    #[arg(long, global = true, env = "POD_INDEX_ADDRESS")]
    pub(super) address: Option<IpAddr>,

    /// The port of the agent; 0 serves on any free one [default: 10270].
    #[arg(long, global = true, env = "POD_INDEX_PORT")]
    pub(super) port: Option<u16>,
}

/// How an agent that serves over TLS is asked. The names are kubectl's.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Asking over TLS")]
pub(super) struct ClientArgs {
    /// Ask over TLS, trusting these authorities, in PEM.
    #[arg(
        long,
        global = true,
        visible_alias = "ca-file",
        env = "POD_INDEX_CERTIFICATE_AUTHORITY",
        value_name = "FILE"
    )]
    pub(super) certificate_authority: Option<PathBuf>,

    /// The name that the agent's certificate must have, instead of its address.
    #[arg(long, global = true, env = "POD_INDEX_TLS_SERVER_NAME", value_name = "NAME")]
    pub(super) tls_server_name: Option<String>,

    /// The certificate to present, in PEM.
    #[arg(long, global = true, env = "POD_INDEX_CLIENT_CERTIFICATE", value_name = "FILE")]
    pub(super) client_certificate: Option<PathBuf>,

    /// Its private key, in PEM.
    #[arg(long, global = true, env = "POD_INDEX_CLIENT_KEY", value_name = "FILE")]
    pub(super) client_key: Option<PathBuf>,
}

impl ClientArgs {
    /// Refuses the options of a client where the agent serves: who gives `--certificate-authority` there means that of
    /// *its* clients, and without this would serve everybody, unverified.
    pub(super) fn is_not_for_serving(&self) -> Result<(), Failure> {
        let Self { certificate_authority, tls_server_name, client_certificate, client_key } = self;
        let files = [certificate_authority, client_certificate, client_key];
        if tls_server_name.is_none() && files.iter().all(|file| file.is_none()) {
            return Ok(());
        }
        Err(Failure::Usage(
            "--certificate-authority, --tls-server-name, --client-certificate and --client-key are for asking; to serve, \
             --tls-cert-file, --tls-private-key-file and --client-ca-file"
                .to_owned(),
        ))
    }
}

/// A strategy by the kubelet's name for it.
fn strategy(text: &str) -> Result<Strategy, &'static str> {
    match text {
        "Watch" => Ok(Strategy::Watch),
        "Cache" => Ok(Strategy::Cache),
        "Get" => Ok(Strategy::Get),
        _ => Err("must be Watch"),
    }
}

/// A header as the kubelet's flag has it.
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
pub(super) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogFormat {
    Text,
    Json,
}
