//! The command line, in the kubelet's words where it has them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Which pod is this? An index of the node's pods, and the answers to those who ask.
///
/// Without a command: reads the pods, prints them, and serves them over HTTP until SIGTERM or Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "pod-index", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit codes: 0 done; 1 not found, or with --once an unusable manifest; 2 wrong usage; 3 unable."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Query>,

    #[command(flatten)]
    pub(super) run: RunArgs,

    #[command(flatten)]
    pub(super) server: ServerArgs,

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
}

/// Where the pods come from, and what to do with them.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// A directory of static pod manifests, or one manifest (the kubelet's staticPodPath).
    #[arg(long, visible_alias = "static-pod-path", env = "POD_INDEX_POD_MANIFEST_PATH", value_name = "PATH")]
    pub(super) pod_manifest_path: Option<PathBuf>,

    /// The node's name, instead of the host's.
    #[arg(long, env = "POD_INDEX_HOSTNAME_OVERRIDE", value_name = "NAME")]
    pub(super) hostname_override: Option<String>,

    /// Print the pods once all sources were read, and exit.
    #[arg(long)]
    pub(super) once: bool,

    /// Log this and what is graver, on standard error.
    #[arg(long, env = "POD_INDEX_LOG_LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(super) log_level: LogLevel,

    /// Log lines for people, or as JSON.
    #[arg(long, env = "POD_INDEX_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(super) log_format: LogFormat,
}

/// Where the agent serves, and where it is asked.
#[derive(Args, Debug)]
pub(super) struct ServerArgs {
    /// The address of the agent.
    #[arg(long, global = true, env = "POD_INDEX_ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,

    /// The port of the agent; 0 serves on any free one.
    #[arg(long, global = true, env = "POD_INDEX_PORT", default_value_t = 10_270)]
    port: u16,
}

impl ServerArgs {
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Table,
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}
