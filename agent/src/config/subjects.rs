//! All settings, by subject, with the kubelet's names where they exist. [`define`](super::define) explains the form.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tracing::Level;

use super::define::{Definition, Subject, settings};
use super::values::{
    AccessRules, AllowedClients, AuthorizationMode, Extra, Header, LogFormat, MostWatches, Period,
    SocketMode, StaticPods,
};

/// Defines [`Subjects`] from the list of all subjects.
macro_rules! subjects {
    ($($field:ident: $type:ty,)+) => {
        /// The settings of an agent that serves, except where it serves ([`ServerAddress`]).
        #[derive(Args, Clone, Debug)]
        pub(crate) struct Subjects {
            $(
                #[command(flatten)]
                pub(crate) $field: $type,
            )+
        }

        impl Subjects {
            pub(crate) fn each(&mut self) -> Vec<&mut dyn Subject> {
                vec![$(&mut self.$field as &mut dyn Subject),+]
            }

            /// The flags of the settings that have another value here than in `other`.
            pub(crate) fn differing(&self, other: &Self) -> Vec<&'static str> {
                [$(self.$field.differing(&other.$field)),+].concat()
            }

            /// Copies the setting with this flag, and no other one.
            pub(crate) fn copy(&mut self, flag: &str, from: &Self) {
                $(self.$field.copy(flag, &from.$field);)+
            }
        }
    };
}

subjects! {
    node: NodeSettings,
    checkpoints: CheckpointSettings,
    manifests: ManifestSource,
    manifest_url: UrlSource,
    kubelet: KubeletSource,
    api_server: ApiServerSource,
    mirror_pods: MirrorPodSettings,
    processes: ProcessSettings,
    removed_pods: RemovedPodSettings,
    times: TimeSettings,
    listeners: ListenerSettings,
    pod_api: PodApiSettings,
    tls: TlsSettings,
    access: AccessSettings,
    content: ContentSettings,
    log: LogSettings,
}

/// The definitions of several subjects.
pub(crate) fn definitions(subjects: &[&mut dyn Subject]) -> Vec<&'static Definition> {
    subjects.iter().flat_map(|subject| subject.definitions()).collect()
}

settings! {
    /// The configuration file.
    pub(crate) struct ConfigFile in "Run" {
        /// A YAML configuration file. Its keys are the kubelet's (staticPodPath, staticPodURL, staticPodURLHeader,
        /// fileCheckFrequency, httpCheckFrequency), or the flags': checkpointDir for --checkpoint-dir. Flags override
        /// environment variables (POD_INDEX_CHECKPOINT_DIR), which override the file.
        #[flag("config", value_name = "FILE")]
        #[keys()]
        pub(crate) path: Option<PathBuf>,
    }
}

settings! {
    /// The node on which the agent runs.
    pub(crate) struct NodeSettings in "Run" {
        /// The node's name, instead of the host's.
        #[flag("hostname-override", value_name = "NAME", visible_alias = "node-name")]
        #[keys("hostnameOverride", "nodeName")]
        pub(crate) name: Option<String>,
    }
}

settings! {
    /// Pods on disk.
    pub(crate) struct CheckpointSettings in "Run" {
        /// Store pods annotated node.kubernetes.io/bootstrap-checkpoint: "true" in this directory. They are available
        /// right after a restart, before sources respond.
        #[flag("checkpoint-dir", value_name = "PATH", visible_alias = "bootstrap-checkpoint-path")]
        pub(crate) directory: Option<PathBuf>,

        /// Store all pods there.
        #[flag("checkpoint-all-pods")]
        pub(crate) all_pods: bool,
    }
}

settings! {
    /// Static pods from files.
    pub(crate) struct ManifestSource in "Sources" {
        /// A directory of static pod manifests, or one manifest.
        #[flag("pod-manifest-path", value_name = "PATH", visible_alias = "static-pod-path")]
        #[keys("staticPodPath")]
        pub(crate) path: Option<PathBuf>,

        /// How often to read the manifests; file events trigger a read at once.
        #[flag("file-check-frequency", value_name = "DURATION", default_value = "20s")]
        pub(crate) check_frequency: Period,
    }
}

settings! {
    /// Static pods from a server of manifests.
    pub(crate) struct UrlSource in "Sources" {
        /// A URL that serves static pod manifests.
        #[flag("manifest-url", value_name = "URL", visible_alias = "static-pod-url")]
        #[keys("staticPodURL")]
        pub(crate) url: Option<String>,

        /// Headers to send to that URL.
        #[flag("manifest-url-header", value_name = "NAME:VALUE")]
        #[keys("staticPodURLHeader")]
        pub(crate) headers: Vec<Header>,

        /// The authorities to trust for that URL, in PEM, instead of the system's.
        #[flag("manifest-url-ca", value_name = "FILE")]
        pub(crate) ca: Option<PathBuf>,

        /// How often to request the URL.
        #[flag("http-check-frequency", value_name = "DURATION", default_value = "20s")]
        pub(crate) check_frequency: Period,
    }
}

settings! {
    /// The pods that this node's kubelet lists.
    pub(crate) struct KubeletSource in "Sources" {
        /// Read pods from this node's kubelet, for example `https://127.0.0.1:10250`.
        #[flag("kubelet", value_name = "URL")]
        pub(crate) url: Option<String>,

        /// Read pods from this node's kubelet over its Pods API, for example
        /// /var/lib/kubelet/pods-api/pods-api.sock. Kubernetes serves it since 1.37, and 1.36 with the kubelet's feature gate
        /// PodsAPI.
        #[flag("kubelet-socket", value_name = "PATH")]
        pub(crate) socket: Option<PathBuf>,

        /// The bearer token to send to the kubelet. Without it, the token of the service account, if there is one.
        #[flag("kubelet-token-file", value_name = "FILE")]
        pub(crate) token_file: Option<PathBuf>,

        /// The authorities to trust for the kubelet, in PEM, instead of the system's.
        #[flag("kubelet-ca", value_name = "FILE")]
        pub(crate) ca: Option<PathBuf>,

        /// Accept any certificate from the kubelet. A process that impersonates the kubelet then receives the token.
        #[flag("kubelet-insecure-skip-tls-verify")]
        pub(crate) insecure_skip_tls_verify: bool,

        /// How often to ask the kubelet.
        #[flag("kubelet-check-frequency", value_name = "DURATION", default_value = "20s")]
        pub(crate) check_frequency: Period,
    }
}

settings! {
    /// The API server, and which of its pods to follow.
    pub(crate) struct ApiServerSource in "Sources" {
        /// Follow the API server that this file names.
        #[flag("kubeconfig", value_name = "FILE")]
        pub(crate) kubeconfig: Option<PathBuf>,

        /// Follow the API server of $KUBECONFIG, of ~/.kube/config or, in a pod, of its service account.
        #[flag("api-server")]
        pub(crate) by_default_kubeconfig: bool,

        /// Follow the API server's pods of all nodes, not only of this node.
        #[flag("all-nodes")]
        pub(crate) all_nodes: bool,

        /// Follow only the API server's pods in this namespace.
        #[flag("namespace", value_name = "NAMESPACE")]
        pub(crate) namespace: Option<String>,

        /// Follow only the API server's pods that match this label selector, for example app=web,tier!=test.
        #[flag("pod-selector", value_name = "SELECTOR")]
        pub(crate) pod_selector: Option<String>,

        /// Follow only the API server's pods that match this field selector, for example status.phase=Running.
        #[flag("pod-field-selector", value_name = "SELECTOR")]
        pub(crate) pod_field_selector: Option<String>,
    }
}

impl ApiServerSource {
    /// Whether there is an API server.
    pub(crate) fn is_configured(&self) -> bool {
        self.kubeconfig.is_some() || self.by_default_kubeconfig
    }
}

settings! {
    /// Mirror pods on the API server.
    pub(crate) struct MirrorPodSettings in "Mirror pods" {
        /// Manage the node's mirror pods on the API server: create, replace and delete them to match the static pods.
        /// Only for a node without a kubelet. If a kubelet runs, the agent changes nothing and exits with code 4. If one
        /// starts later, the agent stops managing mirror pods.
        #[flag("manage-mirror-pods")]
        pub(crate) manage: bool,
    }
}

settings! {
    /// The processes of the host.
    pub(crate) struct ProcessSettings in "Look-ups" {
        /// Where the processes of the host are, to look up process IDs.
        #[flag("proc", value_name = "PATH", default_value = "/proc")]
        pub(crate) proc: PathBuf,

        /// The cgroup below which the kubelet puts its pods, if it has a cgroupRoot, to look up process IDs. Anyone who
        /// may create cgroups elsewhere can name them like those of a pod.
        #[flag("cgroup-root", value_name = "CGROUP")]
        pub(crate) cgroup_root: Option<String>,
    }
}

settings! {
    /// Removed pods, which are still found.
    pub(crate) struct RemovedPodSettings in "Look-ups" {
        /// How long a removed pod is found by whois, for events that arrive late; 0 turns this off.
        #[flag("keep-removed", value_name = "DURATION", default_value = "60s")]
        pub(crate) keep: Duration,

        /// Maximum number of removed pods to keep.
        #[flag("keep-removed-max", value_name = "PODS", default_value = "10000")]
        pub(crate) max: usize,
    }
}

settings! {
    /// How certain a look-up of the past can be.
    pub(crate) struct TimeSettings in "Look-ups" {
        /// Maximum difference between any two of these clocks: the event source's, this node's, the API server's. For
        /// whois --at.
        #[flag("clock-skew", value_name = "DURATION", default_value = "2s")]
        pub(crate) clock_skew: Duration,

        /// Maximum delay before a source reports a change on the node. For whois --at.
        #[flag("source-delay", value_name = "DURATION", default_value = "10s")]
        pub(crate) source_delay: Duration,
    }
}

settings! {
    /// Where the agent serves besides its address and socket, and to whom.
    pub(crate) struct ListenerSettings in "Serving" {
        /// Also serve /livez and /readyz, and nothing else, in plain HTTP on this address: for probes without a client
        /// certificate. Responses only show whether the agent is live and ready.
        #[flag("health-address", value_name = "ADDRESS:PORT")]
        pub(crate) health_address: Option<SocketAddr>,

        /// Also serve /metrics, and nothing else, in plain HTTP on this address: for a Prometheus without a client
        /// certificate. The metrics name no pod.
        #[flag("metrics-address", value_name = "ADDRESS:PORT")]
        pub(crate) metrics_address: Option<SocketAddr>,

        /// Serve on an --address that is not loopback, without TLS. Anyone who can reach it, or who can read the
        /// traffic, can then read every pod.
        #[flag("allow-remote-clients", help_heading = "Security")]
        pub(crate) allow_remote_clients: bool,

        /// Serve the kubelet's Pods API (v1alpha1.Pods) on this Unix socket: for clients that are not root, and for nodes whose
        /// kubelet does not serve it.
        #[flag("pods-api-socket", value_name = "PATH")]
        pub(crate) pods_api_socket: Option<PathBuf>,

        /// The permissions of the sockets, in octal. Users with write permission can connect.
        #[flag("socket-mode", value_name = "MODE", default_value = "0660", help_heading = "Security")]
        pub(crate) socket_mode: SocketMode,
    }
}

settings! {
    /// The Kubernetes API of pods and other resources.
    pub(crate) struct PodApiSettings in "Serving" {
        /// The object that the pod API shows for a static pod if it knows both: the node's own or the API server's
        /// mirror.
        #[flag("static-pod-object", value_name = "OBJECT", default_value = "node")]
        pub(crate) static_pod_object: StaticPods,

        /// What the pod API serves besides pods, separated by commas: nodes, this node's Node object; namespaces;
        /// owners, the metadata of the Deployments and other controllers of this node's pods. The agent follows them on
        /// the API server, once for all clients.
        #[flag("serve-resources", value_name = "RESOURCE")]
        pub(crate) serve_resources: Vec<Extra>,

        /// Maximum number of open watches. Further watches get 429.
        #[flag("max-watches", value_name = "WATCHES", default_value = "1024")]
        pub(crate) max_watches: usize,

        /// Maximum number of open watches of one client. A client is the common name in its certificate or the name in
        /// its token; without one, its IP address or its user on the socket.
        #[flag("max-watches-per-client", value_name = "WATCHES", default_value = "256")]
        pub(crate) max_watches_per_client: usize,
    }
}

settings! {
    /// TLS of the agent's address.
    // Only what decides who may ask: `changes::WHO_MAY_ASK` lists all of them.
    pub(crate) struct TlsSettings in "Security" {
        /// Serve over TLS with this certificate chain, in PEM. The files are checked every ten seconds; invalid or
        /// mismatched files change nothing.
        #[flag("tls-cert-file", value_name = "FILE")]
        pub(crate) cert: Option<PathBuf>,

        /// The certificate's private key, in PEM.
        #[flag("tls-private-key-file", value_name = "FILE")]
        pub(crate) private_key: Option<PathBuf>,

        /// Serve only clients with a certificate from these authorities, in PEM, also at /livez and /metrics. Without
        /// it, TLS encrypts, but anyone who can reach the agent can query it.
        #[flag("client-ca-file", value_name = "FILE")]
        #[keys("authentication.x509.clientCAFile")]
        pub(crate) client_ca: Option<PathBuf>,
    }
}

settings! {
    /// Which clients may query the agent.
    // Only what decides who may ask: `changes::WHO_MAY_ASK` lists all of them. The limits of a client stand beside their like.
    pub(crate) struct AccessSettings in "Security" {
        /// Also accept tokens of the API server (TokenReview) instead of a certificate.
        #[flag("authentication-token-webhook")]
        #[keys("authentication.webhook.enabled")]
        pub(crate) accept_tokens: bool,

        /// What authenticated clients may request: AlwaysAllow, everything; Webhook, what the API server lets them do
        /// with a kubelet (SubjectAccessReview for nodes/pods, nodes/metrics, nodes/healthz, nodes/proxy), or with the
        /// resource that a path of the API names.
        #[flag("authorization-mode", value_name = "MODE", default_value = "AlwaysAllow")]
        #[keys("authorization.mode")]
        pub(crate) authorization_mode: AuthorizationMode,

        /// Of the authenticated clients, serve only those with one of these names: a certificate's common name, or a
        /// token's user. Separated by commas.
        #[flag("allowed-client-names", value_name = "NAME")]
        pub(crate) allowed_names: Vec<String>,

        /// Of the authenticated clients, serve only those in one of these groups: a certificate's organizations, or a
        /// token's groups. Separated by commas. An allowed name or an allowed group is enough.
        #[flag("allowed-client-groups", value_name = "GROUP")]
        pub(crate) allowed_groups: Vec<String>,
    }
}

impl Subjects {
    /// Which clients may query the agent.
    pub(crate) fn access_rules(&self) -> AccessRules {
        AccessRules {
            certificates: self.tls.client_ca.is_some(),
            allowed: AllowedClients {
                names: self.access.allowed_names.iter().cloned().collect(),
                groups: self.access.allowed_groups.iter().cloned().collect(),
            },
            tokens: self.access.accept_tokens,
            rights: self.access.authorization_mode == AuthorizationMode::Webhook,
        }
    }

    /// How many watches clients may have.
    pub(crate) fn most_watches(&self) -> MostWatches {
        let PodApiSettings { max_watches, max_watches_per_client, .. } = self.pod_api;
        MostWatches { of_all: max_watches, of_client: max_watches_per_client }
    }
}

settings! {
    /// What the agent keeps of a pod.
    pub(crate) struct ContentSettings in "Security" {
        /// Redact the literal values of environment variables, which are often credentials: in the pods that the agent
        /// keeps, in everything served, in mirror pods and in checkpoints. Names and references (valueFrom) stay.
        #[flag("redact-env")]
        pub(crate) redact_env: bool,

        /// The attributes of pods in answers of whois: a file with the block "extract" of OpenTelemetry's k8sattributes
        /// processor. Rules about Namespaces, Nodes or owners need --serve-resources with these.
        #[flag("extract", value_name = "FILE", help_heading = "Serving")]
        pub(crate) extract: Option<PathBuf>,
    }
}

settings! {
    /// The log, which goes to standard error.
    pub(crate) struct LogSettings in "Output" {
        /// The minimum level of the log, which goes to standard error: error, warn, info, debug or trace.
        #[flag("log-level", value_name = "LEVEL", default_value = "info")]
        pub(crate) level: Level,

        /// text for people, json for programs.
        #[flag("log-format", default_value = "text")]
        pub(crate) format: LogFormat,
    }
}

settings! {
    /// Where the agent serves, and where client commands connect.
    pub(crate) struct ServerAddress in "Address of the agent" {
        /// The address of the agent.
        #[flag("address", global = true, value_name = "ADDRESS", default_value = "127.0.0.1")]
        pub(crate) address: IpAddr,

        /// The port of the agent; 0 picks a free one.
        // Near the ports of other node components, but used by none of them.
        #[flag("port", global = true, value_name = "PORT", default_value = "10270")]
        pub(crate) port: u16,

        /// A Unix socket, without TLS: the agent also serves on it, and client commands use it instead of the port.
        #[flag("socket", global = true, value_name = "PATH")]
        pub(crate) socket: Option<PathBuf>,
    }
}

settings! {
    /// How client commands connect to an agent with TLS. The flags have kubectl's names.
    pub(crate) struct ClientTls in "Connecting over TLS" {
        /// Use TLS and trust these authorities, in PEM.
        #[flag("certificate-authority", global = true, visible_alias = "ca-file", value_name = "FILE")]
        #[keys()]
        pub(crate) certificate_authority: Option<PathBuf>,

        /// The name to expect in the agent's certificate, instead of its address.
        #[flag("tls-server-name", global = true, value_name = "NAME")]
        #[keys()]
        pub(crate) server_name: Option<String>,

        /// The client certificate to present, in PEM.
        #[flag("client-certificate", global = true, value_name = "FILE")]
        #[keys()]
        pub(crate) client_certificate: Option<PathBuf>,

        /// The client certificate's private key, in PEM.
        #[flag("client-key", global = true, value_name = "FILE")]
        #[keys()]
        pub(crate) client_key: Option<PathBuf>,
    }
}
