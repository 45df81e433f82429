//! The settings of the agent: flags, environment variables and keys of the configuration file, with the kubelet's names
//! where they exist.

use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, Command, ValueEnum};
use tracing::Level;

use super::duration::go_duration;
use super::values::{AuthorizationMode, Extra, LogFormat, StaticPods};

/// What the configuration file may set as well, with [`ServerArgs`].
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
#[allow(clippy::doc_markdown, reason = "help is not Markdown")]
pub(crate) struct Shared {
    /// The node's name, instead of the host's.
    #[arg(long, value_name = "NAME", visible_alias = "node-name")]
    pub(crate) hostname_override: Option<String>,

    /// Store pods annotated node.kubernetes.io/bootstrap-checkpoint: "true" in this directory. They are available right
    /// after a restart, before sources respond.
    #[arg(long, value_name = "PATH", visible_alias = "bootstrap-checkpoint-path")]
    pub(crate) checkpoint_dir: Option<PathBuf>,

    /// Store all pods there.
    #[arg(long)]
    pub(crate) checkpoint_all_pods: bool,

    /// A directory of static pod manifests, or one manifest.
    #[arg(long = "pod-manifest-path", value_name = "PATH", visible_alias = "static-pod-path")]
    pub(crate) static_pod_path: Option<PathBuf>,

    /// How often to read the manifests; file events trigger a read at once.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = go_duration)]
    pub(crate) file_check_frequency: Duration,

    /// A URL that serves static pod manifests.
    #[arg(long = "manifest-url", value_name = "URL", visible_alias = "static-pod-url")]
    pub(crate) static_pod_url: Option<String>,

    /// Headers to send to that URL.
    #[arg(
        long = "manifest-url-header",
        value_name = "NAME:VALUE",
        hide_env_values = true,
        value_delimiter = ',',
        value_parser = header
    )]
    pub(crate) static_pod_url_header: Vec<(String, String)>,

    /// The authorities to trust for that URL, in PEM, instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest_url_ca: Option<PathBuf>,

    /// How often to request the URL.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = go_duration)]
    pub(crate) http_check_frequency: Duration,

    /// Read pods from this node's kubelet, for example `https://127.0.0.1:10250`.
    #[arg(long, value_name = "URL")]
    pub(crate) kubelet: Option<String>,

    /// The bearer token to send to the kubelet. Without it, the token of the service account, if there is one.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_token_file: Option<PathBuf>,

    /// The authorities to trust for the kubelet, in PEM, instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_ca: Option<PathBuf>,

    /// Accept any certificate from the kubelet. A process that impersonates the kubelet then receives the token.
    #[arg(long)]
    pub(crate) kubelet_insecure_skip_tls_verify: bool,

    /// How often to ask the kubelet.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = go_duration)]
    pub(crate) kubelet_check_frequency: Duration,

    /// Follow the API server that this file names.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Follow the API server of $KUBECONFIG, of ~/.kube/config or, in a pod, of its service account.
    #[arg(long)]
    pub(crate) api_server: bool,

    /// Follow the API server's pods of all nodes, not only of this node.
    #[arg(long)]
    pub(crate) all_nodes: bool,

    /// Follow only the API server's pods in this namespace.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Follow only the API server's pods that match this label selector, for example app=web,tier!=test.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) pod_selector: Option<String>,

    /// Follow only the API server's pods that match this field selector, for example status.phase=Running.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) pod_field_selector: Option<String>,

    /// Manage the node's mirror pods on the API server: create, replace and delete them to match the static pods. Only
    /// for a node without a kubelet. If a kubelet runs, the agent changes nothing and exits with code 4. If one starts
    /// later, the agent stops managing mirror pods.
    #[arg(long)]
    pub(crate) manage_mirror_pods: bool,

    /// Where the processes of the host are, to look up process IDs.
    #[arg(long, value_name = "PATH", default_value = "/proc")]
    pub(crate) proc: PathBuf,

    /// The cgroup below which the kubelet puts its pods, if it has a cgroupRoot, to look up process IDs. Anyone who may
    /// create cgroups elsewhere can name them like those of a pod.
    #[arg(long, value_name = "CGROUP")]
    pub(crate) cgroup_root: Option<String>,

    /// How long a removed pod is found by whois, for events that arrive late; 0 turns this off.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = go_duration)]
    pub(crate) keep_removed: Duration,

    /// Maximum number of removed pods to keep.
    #[arg(long, value_name = "PODS", default_value = "10000")]
    pub(crate) keep_removed_max: usize,

    /// The largest difference between two of the clocks of events, of this node and of the API server, for whois --at.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = go_duration)]
    pub(crate) clock_skew: Duration,

    /// The longest time until the sources tell of a change on the node, for whois --at.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_duration)]
    pub(crate) source_delay: Duration,

    /// Also serve /livez and /readyz, and nothing else, in plain HTTP on this address: for probes without a client
    /// certificate. Responses only show whether the agent is live and ready.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) health_address: Option<SocketAddr>,

    /// Also serve /metrics, and nothing else, in plain HTTP on this address: for a Prometheus without a client
    /// certificate. The metrics name no pod.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics_address: Option<SocketAddr>,

    /// The object that the pod API shows for a static pod if it knows both: the node's own or the API server's mirror.
    #[arg(long, value_name = "OBJECT", default_value = "node")]
    pub(crate) static_pod_object: StaticPods,

    /// What the pod API serves besides pods, separated by commas: nodes, this node's Node object; namespaces; owners,
    /// the metadata of the Deployments and other controllers of this node's pods. The agent follows them on the API
    /// server, once for all clients.
    #[arg(long, value_name = "RESOURCE", value_delimiter = ',')]
    pub(crate) serve_resources: Vec<Extra>,

    /// Maximum number of open watches. Further watches get 429.
    #[arg(long, value_name = "WATCHES", default_value = "1024")]
    pub(crate) max_watches: usize,

    /// Maximum number of open watches of one client. A client is the common name in its certificate or the name in its
    /// token; without one, its IP address or its user on the socket.
    #[arg(long, value_name = "WATCHES", default_value = "256")]
    pub(crate) max_watches_per_client: usize,

    /// Serve on an --address that is not loopback, without TLS. Anyone who can reach it, or who can read the traffic,
    /// can then read every pod.
    #[arg(long)]
    pub(crate) allow_remote_clients: bool,

    /// Serve over TLS with this certificate chain, in PEM. The files are checked every ten seconds; invalid or
    /// mismatched files change nothing.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert_file: Option<PathBuf>,

    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_private_key_file: Option<PathBuf>,

    /// Serve only clients with a certificate from these authorities, in PEM, also at /livez and /metrics. Without it,
    /// TLS encrypts, but anyone who can reach the agent can query it.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,

    /// Also accept tokens of the API server (TokenReview) instead of a certificate.
    #[arg(long)]
    pub(crate) authentication_token_webhook: bool,

    /// What authenticated clients may request: AlwaysAllow, everything; Webhook, what the API server lets them do with
    /// a kubelet (SubjectAccessReview for nodes/pods, nodes/metrics, nodes/healthz, nodes/proxy), or with the resource
    /// that a path of the API names.
    #[arg(long, value_name = "MODE", default_value = "AlwaysAllow")]
    pub(crate) authorization_mode: AuthorizationMode,

    /// Of the authenticated clients, serve only those with one of these names: a certificate's common name, or a
    /// token's user. Separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) allowed_client_names: Vec<String>,

    /// Of the authenticated clients, serve only those in one of these groups: a certificate's organizations, or a
    /// token's groups. Separated by commas. An allowed name or an allowed group is enough.
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    pub(crate) allowed_client_groups: Vec<String>,

    /// The permissions of the socket, in octal. Users with write permission can connect.
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = mode)]
    pub(crate) socket_mode: u32,

    /// Redact the literal values of environment variables, which are often credentials: in the pods that the agent
    /// keeps, in everything served, in mirror pods and in checkpoints. Names and references (valueFrom) stay.
    #[arg(long)]
    pub(crate) redact_env: bool,

    /// The minimum level of the log, which goes to standard error: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: Level,

    /// text for people, json for programs.
    #[arg(long, default_value = "text")]
    pub(crate) log_format: LogFormat,
}

impl Shared {
    pub(crate) fn has_api_server(&self) -> bool {
        self.kubeconfig.is_some() || self.api_server
    }

    /// Whether a source is a server.
    pub(crate) fn asks_a_server(&self) -> bool {
        self.has_api_server() || self.static_pod_url.is_some() || self.kubelet.is_some()
    }
}

/// The settings that the file may have, each with its key.
pub(crate) fn settings() -> Vec<(String, Arg)> {
    let command = ServerArgs::augment_args(Shared::augment_args(Command::new("settings")));
    command.get_arguments().map(|argument| (key(argument.get_id().as_str()), argument.clone())).collect()
}

/// The key of the setting with this ID: as in the kubelet's file, or the ID in camel case.
fn key(id: &str) -> String {
    match id {
        "static_pod_url" => "staticPodURL".to_owned(),
        "static_pod_url_header" => "staticPodURLHeader".to_owned(),
        "client_ca_file" => "authentication.x509.clientCAFile".to_owned(),
        "authentication_token_webhook" => "authentication.webhook.enabled".to_owned(),
        "authorization_mode" => "authorization.mode".to_owned(),
        id => {
            let mut words = id.split('_');
            let mut key = words.next().unwrap_or_default().to_owned();
            for word in words {
                key.extend([&word[..1].to_uppercase(), &word[1..]]);
            }
            key
        }
    }
}

/// The sources of pods, and what to do with the pods.
#[expect(clippy::doc_markdown, reason = "help is not Markdown")]
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// A YAML configuration file. Its keys are the kubelet's (staticPodPath, staticPodURL, staticPodURLHeader,
    /// fileCheckFrequency, httpCheckFrequency), or the flags': checkpointDir for --checkpoint-dir. Flags override
    /// environment variables (POD_INDEX_CHECKPOINT_DIR), which override the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Read all sources, print the pods and exit. Fails if a source does not answer within 30 s.
    #[arg(long)]
    pub(crate) once: bool,

    /// Check the configuration and exit. The certificates and the kubeconfig must be valid, the manifest path readable
    /// and the checkpoint directory writable. Does not read the manifests, and contacts no server, but runs the
    /// credential plugin of the kubeconfig, if there is one.
    #[arg(long, conflicts_with = "once")]
    pub(crate) check: bool,

    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// Where the agent serves, and where client commands connect.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// The address of the agent.
    #[arg(long, global = true, default_value = "127.0.0.1", value_parser = address)]
    pub(crate) address: IpAddr,

    /// The port of the agent; 0 picks a free one.
    // Near the ports of other node components, but used by none of them.
    #[arg(long, global = true, default_value = "10270")]
    pub(crate) port: u16,

    /// A Unix socket, without TLS: the agent also serves on it, and client commands use it instead of the port.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

fn address(text: &str) -> Result<IpAddr, AddrParseError> {
    if text == "localhost" { "127.0.0.1" } else { text }.parse()
}

/// Parses the permissions of the socket.
fn mode(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or("must be permissions in octal, such as 0660")
}

/// Parses a header in the kubelet's format.
fn header(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once(':').ok_or("must be a name, a colon and a value")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Name,
    Json,
    Yaml,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal() {
        for (text, expected) in [
            ("0660", Some(0o660)),
            ("600", Some(0o600)),
            ("0", Some(0)),
            ("888", None),
            ("01777", None),
            ("", None),
            ("rw", None),
        ] {
            assert_eq!(mode(text).ok(), expected, "{text:?}");
        }
    }
}
