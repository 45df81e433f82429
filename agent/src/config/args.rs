//! What the command line has besides the settings.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration::go_duration;
use super::subjects::{ConfigFile, Subjects};

/// The sources of pods, and what to do with the pods.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Run")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigFile,

    /// Read all sources, print the pods and exit. Fails if a source does not answer in time.
    #[arg(long)]
    pub(crate) once: bool,

    /// How long --once waits for the sources.
    #[arg(long, value_name = "DURATION", value_parser = go_duration, default_value = "30s", requires = "once")]
    pub(crate) once_timeout: Duration,

    /// Check the configuration and exit. The certificates and the kubeconfig must be valid, the manifest path readable,
    /// and the directories of checkpoints and sockets writable. Does not read the manifests, and contacts no server, but runs the
    /// credential plugin of the kubeconfig, if there is one.
    #[arg(long, conflicts_with = "once")]
    pub(crate) check: bool,

    #[command(flatten)]
    pub(crate) settings: Subjects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Name,
    Json,
    Yaml,
}
