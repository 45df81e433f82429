//! The command line, with the kubelet's flag names where they exist.

pub(crate) mod client;
mod follow;
pub(crate) mod format;
pub(crate) mod generate;
pub(crate) mod help;
pub(crate) mod kubeconfig;
mod list;
pub(crate) mod patience;
pub(crate) mod query;
#[cfg(test)]
mod tests;
mod tls;
mod top;
mod whois;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use tokio::runtime::{Builder, Runtime};

use crate::config::Invocation;
use crate::config::args::{Output, RunArgs};
use crate::config::define::Subject;
use crate::config::duration::go_duration;
use crate::config::failure::Failure;
use crate::config::subjects::{ClientTls, ServerAddress};
use crate::config::written::Written;

/// An index of the node's pods: which pod is this?
///
/// Without a command: reads the pods, prints them and serves them over HTTP until SIGTERM or Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "pod-index", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
#[command(after_help = "\
Exit codes:
  0         success
  1         nothing found; a warning of doctor; with --once, an unusable
            manifest; with --check, something missing
  2         a wrong command line or configuration; a failure of doctor
  3         failed: no agent answers, the address is in use, or, with --once,
            a source does not answer
  4         with --manage-mirror-pods, a kubelet runs on the node
  130, 143  a second Ctrl-C or SIGTERM")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) run: RunArgs,

    #[command(flatten)]
    pub(crate) server: ServerAddress,

    #[command(flatten)]
    pub(crate) client: ClientTls,

    /// The output format; wide and name only for list and get.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table, help_heading = "Output")]
    pub(crate) output: Output,

    /// The settings that flags and environment variables give.
    #[arg(skip)]
    pub(crate) written: Written,
}

impl Cli {
    /// The subjects of the settings that this command takes.
    pub(crate) fn subjects(&mut self) -> Vec<&mut dyn Subject> {
        let run = match &mut self.command {
            None => Some(&mut self.run),
            Some(Command::Doctor { run }) => Some(&mut **run),
            Some(
                Command::Query(_)
                | Command::Kubeconfig { .. }
                | Command::Completion { .. }
                | Command::Man { .. },
            ) => None,
        };
        let of_the_agent = run.into_iter().flat_map(|run| {
            let config: &mut dyn Subject = &mut run.config;
            run.settings.each().into_iter().chain([config])
        });
        let server: &mut dyn Subject = &mut self.server;
        let client: &mut dyn Subject = &mut self.client;
        of_the_agent.chain([server, client]).collect()
    }

    /// The settings of the agent that this command line runs or examines.
    pub(crate) fn invocation(&self) -> Invocation {
        let run = match &self.command {
            Some(Command::Doctor { run }) => run,
            _ => &self.run,
        };
        Invocation {
            run: run.clone(),
            server: self.server.clone(),
            output: self.output,
            written: self.written.clone(),
            ignored_variables: help::ignored_variables(),
        }
    }
}

/// A runtime with a thread of its own, so that its connections go on while this thread does something else.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| Failure::unable("cannot start the runtime", error))
}

/// What to do instead of running the agent.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Query(Query),
    /// Check settings, rights and sources, and print fixes.
    #[command(after_help = "\
Takes the agent's own options (see pod-index --help). Without any, checks only the running agent.

Exit codes: 0 all is well; 1 warnings; 2 failures.")]
    Doctor {
        #[command(flatten)]
        run: Box<RunArgs>,
    },
    /// Print completions for a shell, for example: source <(pod-index completion bash).
    Completion { shell: Shell },
    /// Print a manual page, for example: pod-index man whois | man -l -.
    Man {
        /// The command that it is about, instead of the whole program.
        command: Option<String>,
    },
    /// Print a kubeconfig for programs that ask the agent.
    Kubeconfig {
        /// The file with a token of the API server, for an agent that accepts tokens.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
}

/// A query to a running agent.
#[derive(Debug, Subcommand)]
pub(crate) enum Query {
    /// Print a pod: get web-3, get shop/web-3 or get UID.
    Get {
        /// The namespace of the pod.
        #[arg(short, long, value_name = "NAMESPACE")]
        namespace: Option<String>,

        /// NAME, if only one pod has it; NAMESPACE/NAME; NAME_NAMESPACE; or a UID.
        #[expect(clippy::doc_markdown, reason = "help is not Markdown")]
        pod: String,
    },
    /// Print the pods, as `kubectl get pods` does.
    List(ListArgs),
    /// Say which pod something belongs to.
    #[command(
        long_about = WHOIS,
        after_help = "Exit codes: 0 every pod was found; 1 a pod was not found; 2 wrong usage; 3 no agent answers."
    )]
    Whois(WhoisArgs),
    /// Show pods and sources live on the terminal; q quits.
    Top,
}

/// Which pods, and whether to follow them.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// Only pods in this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Only pods that match this label selector: app=web,tier!=test.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    /// Only pods that match this field selector: status.phase=Running.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<String>,

    /// The pods of all namespaces, as without --namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// Then print each change; continues after a lost connection.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

const WHOIS: &str = "\
Say which pod something belongs to: its namespace, name, UIDs (the pod's and its mirror pod's), container, node, \
owner and labels, and how it was found.

ANYTHING is one of:
  a UID, NAMESPACE/NAME, a full name (NAME_NAMESPACE), or a name that only one pod has
  a container ID, or at least its first 12 digits, with or without its runtime (docker://)
  an IP address, also as 10.0.0.7:443 or 10.0.0.7/32
  a process ID of the agent's host, or PID@NANOSECONDS with its start since boot
  the path of a log, a cgroup path, or the lines of /proc/PID/cgroup

Without ANYTHING, or with -, each line of standard input is a query, or JSON like \
{\"query\": \"10.0.0.7\", \"at\": \"2026-01-02T03:04:05Z\"}. Answers to a live stream come late if a program before whois \
buffers its output: tail -F events | stdbuf -oL cut -f 3 | pod-index whois.

With a time, an IP or a name finds the pod that had it then, if that is certain. Otherwise standard error lists the pods \
that may have had it.

-o json prints one line for each query, in their order. It begins with {\"found\":true or {\"found\":false.";

/// The last fields, which the agent sends with `details=true`.
const DETAILS: usize = 4;

/// The fields of an answer that the table can show.
const FIELDS: &str = "query,kind,foundBy,namespace,name,container,node,owner,workload,podUID,mirrorUID,labels,at,\
                      removed,podIP,phase,image,annotations";

/// What to look up.
#[derive(Args, Clone, Debug)]
pub(crate) struct WhoisArgs {
    /// What to look up; - for the lines of standard input.
    pub(crate) anything: Vec<String>,

    /// The namespace of pods that are given by their names.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// When the events happened: RFC 3339; s, ms, us or ns since 1970; or how long ago: -5s. A query may end with its own:
    /// " at=TIME".
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<String>,

    /// Of each line of standard input, field N is the time of its event, and the others are the query.
    #[arg(long, value_name = "N", conflicts_with = "at", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) time_field: Option<u8>,

    /// The columns of the table, separated by commas.
    #[arg(
        long,
        value_name = "FIELD",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(FIELDS.split(',')),
        default_value = "query,foundBy,namespace,name,container,node,workload,podUID,mirrorUID,labels",
        hide_default_value = true
    )]
    pub(crate) fields: Vec<String>,

    /// How long to wait for unknown pods, for example 5s, and for an agent that refuses for now.
    #[arg(long, value_name = "DURATION", value_parser = go_duration)]
    pub(crate) wait: Option<Duration>,
}
