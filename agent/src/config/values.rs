//! The types of single settings.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use pod_index_kubelet::checkpoint::Which;

/// Which clients may query the agent, as the settings say it together; see `Subjects::access_rules`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccessRules {
    /// Whether clients may present certificates.
    pub(crate) certificates: bool,
    pub(crate) allowed: AllowedClients,
    /// Whether clients may present API server tokens.
    pub(crate) tokens: bool,
    /// Whether the API server decides what a client may do.
    pub(crate) rights: bool,
}

/// Which identified clients are served. Without names and groups, all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowedClients {
    pub(crate) names: BTreeSet<String>,
    pub(crate) groups: BTreeSet<String>,
}

/// How many watches may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MostWatches {
    pub(crate) of_all: usize,
    pub(crate) of_client: usize,
}

/// The permissions of the socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketMode(pub(crate) u32);

/// A header of HTTP. Its value may be secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where to keep pods on disk, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointDirectory {
    pub(crate) path: PathBuf,
    pub(crate) which: Which,
}

/// How far clocks may differ, and how late sources may be; see `pod_index::AtTime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tolerance {
    pub(crate) skew: Duration,
    pub(crate) delay: Duration,
}

/// How often to read a source. Unlike everywhere else, 0 means the default here, because the kubelet's settings of the same name
/// do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period(Duration);

impl Period {
    /// What the kubelet reads its sources by.
    const DEFAULT: Duration = Duration::from_secs(20);

    pub(crate) fn new(given: Duration) -> Self {
        Self(if given.is_zero() { Self::DEFAULT } else { given })
    }

    /// Never zero.
    pub(crate) fn get(self) -> Duration {
        self.0
    }
}

/// The paths of the certificate, its key and the clients' authorities, by the kubelet's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) private_key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    /// Whether clients may omit a certificate, because they may present a token.
    pub(crate) takes_tokens: bool,
    pub(crate) names: TlsNames,
}

/// The settings of [`TlsFiles`] as the user wrote them, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsNames {
    pub(crate) cert: String,
    pub(crate) private_key: String,
    pub(crate) client_ca: String,
}

/// Which of a static pod's two objects to show if both are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StaticPods {
    /// The node's object. Its UID is in cgroups and log paths.
    Node,
    /// The API server's object: the mirror pod.
    Mirror,
}

/// What the pod API can serve besides pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Extra {
    /// This node's Node object; with `--all-nodes`, all.
    Nodes,
    Namespaces,
    /// The controllers of this node's pods, and the controllers of those.
    Owners,
}

impl Extra {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// Its resources, each with its group.
    pub(crate) fn resources(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Nodes => &[("", "nodes")],
            Self::Namespaces => &[("", "namespaces")],
            Self::Owners => &[
                ("apps", "replicasets"),
                ("apps", "deployments"),
                ("apps", "statefulsets"),
                ("apps", "daemonsets"),
                ("batch", "jobs"),
                ("batch", "cronjobs"),
            ],
        }
    }

    /// What the agent does with them on the API server.
    pub(crate) fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Nodes | Self::Namespaces => &["list", "watch"],
            Self::Owners => &["get"],
        }
    }

    /// What it takes to serve it.
    pub(crate) fn needs(self) -> String {
        let name = self.to_possible_value();
        let name = name.as_ref().map_or("", |value| value.get_name());
        let resources: Vec<_> = self.resources().iter().map(|(_, name)| *name).collect();
        format!(
            "the agent does not serve {name}: it takes --serve-resources={name}, an API server, and the right to {} {} \
             (deploy/kubernetes/components/resources)",
            self.verbs().join(" and "),
            resources.join(", ")
        )
    }
}

/// How to authorize an identified client. The names are the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthorizationMode {
    /// Every request is allowed.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// The API server decides, as for a kubelet.
    #[value(name = "Webhook")]
    Webhook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}
